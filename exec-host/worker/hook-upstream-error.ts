/** Why a helper of `metadata.hook` gave up (exec-host.md 5.6). */
export const HOOK_UPSTREAM_ERROR_KINDS = [
  "network",
  "abort",
  "timeout",
  "invalid-override",
  "unforwardable-path",
  "bytes-already-sent",
  "stream-aborted",
  "no-body",
  "body-consumed",
  "duplex-unsupported",
] as const;
export type HookUpstreamErrorKind = (typeof HOOK_UPSTREAM_ERROR_KINDS)[number];

/** Thrown by the helpers. One class per worker: the scripts' global and `metadata.hook.HookUpstreamError`. */
export class HookUpstreamError extends Error {
  readonly kind: HookUpstreamErrorKind;
  constructor(kind: HookUpstreamErrorKind, message?: string, cause?: unknown) {
    super(message ?? kind, cause === undefined ? undefined : { cause });
    this.kind = kind;
  }
}
// On the prototype, so that the name is there in stack traces and in scripts' checks without an own property.
Object.defineProperty(HookUpstreamError.prototype, "name", {
  value: "HookUpstreamError",
  configurable: true,
  writable: true,
});
