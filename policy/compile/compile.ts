import type { ContainerDocument } from "../documents/container-document.ts";
import { HOOKABLE_SERVICES } from "../documents/container-document.ts";
import { DEFAULT_HOOK_TIMEOUT_MS, type MatchParts, type StoredRule } from "../documents/hook.ts";
import type { ProjectDocument } from "../documents/project-document.ts";
import { compileAccess } from "./access.ts";
import type { CompiledPolicy, CompiledRule, RuleRequest, ServiceHooks } from "./compiled-policy.ts";
import { compileHeaders, compileMethod, compilePath, fitsAlways } from "./predicate.ts";

/** Compiles one revision of a container's document and its project's into plain, frozen data. */
export function compilePolicy(
  container: ContainerDocument,
  project: ProjectDocument,
): CompiledPolicy {
  return Object.freeze({
    project: container.project,
    container: container.container,
    revision: container.version,
    unavailable: null,
    access: compileAccess(container.access, project.access),
    hooks: compileHooks(container),
  });
}

/** The policy of a container whose stored documents cannot be used: every request is refused. */
export function unavailablePolicy(
  project: string,
  container: string,
  reason: string,
): CompiledPolicy {
  return Object.freeze({
    project,
    container,
    revision: 0,
    unavailable: reason,
    access: { enableProxy: false, defaultAllow: false, groups: new Map(), permissions: new Map() },
    hooks: new Map(
      HOOKABLE_SERVICES.map((service): [string, ServiceHooks] => [
        service,
        { kind: "unreadable", reason },
      ]),
    ),
  });
}

/** Hooks of hookable services only: keys of other names are never run (edge-proxy.md 6.2). */
function compileHooks(document: ContainerDocument): ReadonlyMap<string, ServiceHooks> {
  const compiled = new Map<string, ServiceHooks>();
  for (const service of HOOKABLE_SERVICES) {
    const part = document.hooks.get(service);
    if (document.brokenHooks !== null) {
      compiled.set(service, { kind: "unreadable", reason: document.brokenHooks.reason });
    } else if (part?.kind === "unreadable") {
      compiled.set(service, { kind: "unreadable", reason: part.reason });
    } else if (part !== undefined && part.rules.length > 0) {
      compiled.set(service, { kind: "rules", rules: part.rules.map(compileRule) });
    }
  }
  return compiled;
}

/** Compiles one rule; what is broken in it fits every request. */
export function compileRule(stored: StoredRule, position: number): CompiledRule {
  const parts = stored.kind === "valid" ? partsOf(stored) : stored.parts;
  const method = parts.method === null ? fitsAlways : compileMethod(parts.method);
  const path = parts.path === null ? fitsAlways : compilePath(parts.path);
  const headers = parts.headers === null ? fitsAlways : compileHeaders(parts.headers);
  const script = stored.kind === "valid" ? stored.rule.script : null;
  return Object.freeze({
    id: stored.id ?? "",
    position,
    failedPart(request: RuleRequest) {
      if (!method(request)) {
        return "method";
      }
      if (!path(request)) {
        return "path";
      }
      return headers(request) ? null : "headers";
    },
    groups: parts.groups === null ? null : new Set(parts.groups),
    invalid: stored.kind === "valid" ? null : stored.reason,
    script: {
      subdomain: script?.subdomain ?? null,
      execId: script?.execId ?? null,
      path: script?.path ?? "/",
    },
    timeoutMs:
      stored.kind === "valid"
        ? (stored.rule.timeout ?? DEFAULT_HOOK_TIMEOUT_MS)
        : DEFAULT_HOOK_TIMEOUT_MS,
  });
}

function partsOf({ rule }: Extract<StoredRule, { kind: "valid" }>): MatchParts {
  return {
    method: rule.match.method ?? "*",
    path: rule.match.path ?? "*",
    headers: rule.match.headers ?? {},
    groups: rule.applies_to?.groups ?? null,
  };
}
