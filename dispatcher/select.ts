import type { CompiledRule, RuleRequest, ServiceHooks } from "../policy/compile/compiled-policy.ts";
import type { ErrorCode } from "../policy/kernel/errors.ts";

/** Longest path in bytes that a hook can take, as received and without the query (edge-proxy.md 6.6). */
export const MAX_HOOKED_PATH_BYTES = 4096;

/** What the rules of a service say about one request. */
export type Selection =
  | { readonly kind: "none" }
  | { readonly kind: "dispatch"; readonly rule: CompiledRule }
  | { readonly kind: "refuse"; readonly code: ErrorCode; readonly rule: CompiledRule | null };

const NONE: Selection = { kind: "none" };

/** Why a rule does not take a request; null when it does. Groups are asked last. */
export function failedPart(
  rule: CompiledRule,
  request: RuleRequest,
  grantingGroups: ReadonlySet<string>,
): "method" | "path" | "headers" | "groups" | null {
  const failed = rule.failedPart(request);
  if (failed !== null) {
    return failed;
  }
  return rule.groups === null || meet(rule.groups, grantingGroups) ? null : "groups";
}

function meet(some: ReadonlySet<string>, others: ReadonlySet<string>): boolean {
  for (const name of some) {
    if (others.has(name)) {
      return true;
    }
  }
  return false;
}

/**
 * Chooses among the hooks of a service: the first rule that fits, in order. A fitting rule that is no longer valid
 * refuses (503), as does one that fits a WebSocket handshake (403) or an over-long path (414); in that order
 * (edge-proxy.md 6.6, decisions 22 and 33). Nothing is ever skipped because it is broken.
 *
 * @param hooks of the canonical service the request resolved to; undefined without any.
 * @param request the method of a handshake is GET.
 * @param grantingGroups groups that let this request in; empty when the default did.
 * @param upgrade whether the request is a WebSocket handshake.
 * @param pathBytes length of the path as received.
 */
export function selectHook(
  hooks: ServiceHooks | undefined,
  request: RuleRequest,
  grantingGroups: ReadonlySet<string>,
  upgrade: boolean,
  pathBytes: number,
): Selection {
  if (hooks === undefined) {
    return NONE;
  }
  if (hooks.kind === "unreadable") {
    return { kind: "refuse", code: "HOOK_UNAVAILABLE", rule: null };
  }
  for (const rule of hooks.rules) {
    if (failedPart(rule, request, grantingGroups) === null) {
      return outcomeOf(rule, upgrade, pathBytes);
    }
  }
  return NONE;
}

function outcomeOf(rule: CompiledRule, upgrade: boolean, pathBytes: number): Selection {
  if (rule.invalid !== null) {
    return { kind: "refuse", code: "HOOK_UNAVAILABLE", rule };
  }
  if (upgrade) {
    return { kind: "refuse", code: "HOOK_WEBSOCKET_UNSUPPORTED", rule };
  }
  if (pathBytes > MAX_HOOKED_PATH_BYTES) {
    return { kind: "refuse", code: "HOOK_PATH_TOO_LONG", rule };
  }
  return { kind: "dispatch", rule };
}

/** One rule's verdict on a request, also for rules behind the one that won. */
export interface RuleVerdict {
  readonly rule: CompiledRule;
  readonly failed: "method" | "path" | "headers" | "groups" | null;
}

/** Like `selectHook`, with the verdict of every rule (decision 41). An unreadable service has no rules to show. */
export function explainHooks(
  hooks: ServiceHooks | undefined,
  request: RuleRequest,
  grantingGroups: ReadonlySet<string>,
  upgrade: boolean,
  pathBytes: number,
): { readonly selection: Selection; readonly verdicts: readonly RuleVerdict[] } {
  const rules = hooks?.kind === "rules" ? hooks.rules : [];
  return {
    selection: selectHook(hooks, request, grantingGroups, upgrade, pathBytes),
    verdicts: rules.map((rule) => ({ rule, failed: failedPart(rule, request, grantingGroups) })),
  };
}
