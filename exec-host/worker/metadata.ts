import { splitTarget } from "../../policy/kernel/target.ts";
import type { RouteParameters } from "../scripts/resolve.ts";
import type { Call } from "./call.ts";
import type { HookMetadata } from "./hook.ts";

/** The third argument of a script (exec-host.md 2.2). `mainResult` is there for `post` files only. */
export interface ScriptMetadata {
  readonly executionId: string;
  readonly parameters: Record<string, unknown>;
  readonly query: Record<string, unknown>;
  readonly clientIp: string;
  readonly path: string;
  readonly method: string;
  readonly url: string;
  readonly hook: HookMetadata | undefined;
}

/**
 * Builds it. Plain data throughout: a property with a getter of its own gives every object a hidden class of its own, and
 * those outlive the call by far.
 */
export function createMetadata(
  call: Call,
  route: RouteParameters,
  hook: HookMetadata | undefined,
): ScriptMetadata {
  const { envelope, req } = call;
  const url = req.url ?? "";
  const { path, query } = splitTarget(url);
  return {
    executionId: call.executionId,
    clientIp: envelope.clientAddress,
    path: hook?.origPath ?? path,
    method: hook?.origMethod ?? req.method ?? "",
    url,
    hook,
    parameters: { ...route },
    query: readQuery(query ?? "", route),
  };
}

/** The same metadata for a `post` file, with what the script returned (decision 46). */
export function withMainResult(metadata: ScriptMetadata, mainResult: unknown): ScriptMetadata {
  define(metadata, "mainResult", mainResult);
  return metadata;
}

/** Form-decoded, the last value of a repeated key, route parameters over all. */
function readQuery(query: string, route: RouteParameters): Record<string, unknown> {
  const pairs: Record<string, unknown> = {};
  if (/[%+]/.test(query)) {
    for (const [name, value] of new URLSearchParams(query)) {
      define(pairs, name, value);
    }
  } else {
    readPlainQuery(query, pairs);
  }
  for (const name in route) {
    define(pairs, name, route[name]);
  }
  return pairs;
}

/** The same for a text without escapes, several times faster. */
function readPlainQuery(query: string, pairs: Record<string, unknown>): void {
  for (let at = 0; at < query.length;) {
    const next = query.indexOf("&", at);
    const end = next < 0 ? query.length : next;
    const mark = query.indexOf("=", at);
    const nameEnd = mark < 0 || mark > end ? end : mark;
    if (end > at) {
      define(pairs, query.slice(at, nameEnd), query.slice(Math.min(nameEnd + 1, end), end));
    }
    at = end + 1;
  }
}

/** As an own property whatever the name is: `__proto__` comes from clients too. */
function define(target: object, name: string, value: unknown): void {
  if (name !== "__proto__") {
    (target as Record<string, unknown>)[name] = value;
    return;
  }
  Object.defineProperty(target, name, {
    value,
    writable: true,
    enumerable: true,
    configurable: true,
  });
}
