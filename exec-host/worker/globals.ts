import { HookUpstreamError } from "./hook-upstream-error.ts";

/**
 * Names that every file of an author finds, helper modules and packages included, and not only the script that a
 * request runs: the one class that errors of the helpers have (exec-host.md 5.6).
 */
export function publishGlobals(): void {
  Object.defineProperty(globalThis, "HookUpstreamError", {
    value: HookUpstreamError,
    writable: true,
    configurable: true,
  });
}
