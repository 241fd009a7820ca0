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

/** Builds it; the query is read only when a script looks at it. */
export function createMetadata(
  call: Call,
  route: RouteParameters,
  hook: HookMetadata | undefined,
): ScriptMetadata {
  const { envelope, req } = call;
  const url = req.url ?? "";
  const metadata = {
    executionId: call.executionId,
    clientIp: envelope.clientAddress,
    path: hook?.origPath ?? splitTarget(url).path,
    method: hook?.origMethod ?? req.method ?? "",
    url,
    hook,
    parameters: {},
    query: {},
  };
  const hasParameters = Object.keys(route).length > 0;
  if (hasParameters || url.includes("?")) {
    lazy(metadata, "query", () => readQuery(url, route));
  }
  if (hasParameters) {
    lazy(metadata, "parameters", () => ({ ...route }));
  }
  return metadata as unknown as ScriptMetadata;
}

/** The same metadata for a `post` file, with what the script returned (decision 46). */
export function withMainResult(metadata: ScriptMetadata, mainResult: unknown): ScriptMetadata {
  define(metadata, "mainResult", mainResult);
  return metadata;
}

/** Form-decoded, the last value of a repeated key, route parameters over all. */
function readQuery(url: string, route: RouteParameters): Record<string, unknown> {
  const { query } = splitTarget(url);
  const pairs: Record<string, unknown> = {};
  for (const [name, value] of new URLSearchParams(query ?? "")) {
    define(pairs, name, value);
  }
  for (const [name, value] of Object.entries(route)) {
    define(pairs, name, value);
  }
  return pairs;
}

/** As an own property whatever the name is: `__proto__` comes from clients too. */
function define(target: object, name: string, value: unknown): void {
  Object.defineProperty(target, name, {
    value,
    writable: true,
    enumerable: true,
    configurable: true,
  });
}

/** An enumerable property that is computed at its first use. */
function lazy(target: object, name: string, make: () => unknown): void {
  Object.defineProperty(target, name, {
    enumerable: true,
    configurable: true,
    get() {
      const value = make();
      define(target, name, value);
      return value;
    },
    set(value: unknown) {
      define(target, name, value);
    },
  });
}
