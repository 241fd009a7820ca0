import { HookUpstreamError } from "./hook-upstream-error.ts";

/**
 * Names that every file of an author finds, helper modules and packages included, and not only the script that a
 * request runs: the one class that errors of the helpers have (exec-host.md 5.6), and a `fetch` whose responses are
 * not the script's (5.7).
 */
export function publishGlobals(values: { readonly fetch: unknown }): void {
  for (const [name, value] of Object.entries({ HookUpstreamError, ...values })) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  }
}
