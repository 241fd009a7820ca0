import type { HookEnvelope } from "../../dispatcher/envelope.ts";
import type { LogLevel } from "../protocol.ts";
import type { Call } from "./call.ts";
import { fetchUpstream } from "./fetch-upstream.ts";
import { forward } from "./forward.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import type { HostRequest } from "./host-request.ts";
import type { HostResponse } from "./host-response.ts";
import type { BodyState } from "./request-body.ts";
import { pipeResponse } from "./send-response.ts";
import type { UpstreamDeps } from "./upstream-request.ts";

/** One hook dispatch as its helpers see it. */
export interface HookCall {
  readonly call: Call;
  readonly envelope: HookEnvelope;
  /** The client's path as text. */
  readonly origPath: string;
  readonly bodyState: BodyState;
  readonly upstream: UpstreamDeps;
  readonly setTimer: (ms: number, task: () => void) => { cancel(): void };
  log(level: LogLevel, text: string): void;
  logError(what: string, error: unknown): void;
}

/** What scripts get as `metadata.hook`: five data fields, and helpers that `JSON.stringify` does not show. */
export interface HookMetadata {
  readonly auditId: string;
  readonly origMethod: string;
  readonly origPath: string;
  readonly service: string;
  readonly upstream: { readonly host: string; readonly port: number };
}

/** Builds `metadata.hook`. Frozen; the helpers use the envelope, so nothing a script does moves the upstream. */
export function createHookMetadata(hook: HookCall): HookMetadata {
  const { envelope } = hook;
  const metadata = {
    auditId: envelope.auditId,
    origMethod: envelope.method,
    origPath: hook.origPath,
    service: envelope.service,
    upstream: Object.freeze({ host: envelope.upstreamHost, port: envelope.upstreamPort }),
  };
  const helpers = {
    forward: (req: HostRequest, res: HostResponse, overrides?: unknown) =>
      forward(hook, req, res, overrides),
    fetchUpstream: (req: HostRequest, overrides?: unknown) => fetchUpstream(hook, req, overrides),
    pipeResponse: (upstream: unknown, res: HostResponse, options?: unknown) =>
      pipeResponse(hook.call, upstream, res, options),
    HookUpstreamError,
  };
  for (const [name, value] of Object.entries(helpers)) {
    Object.defineProperty(metadata, name, { value, enumerable: false });
  }
  return Object.freeze(metadata);
}
