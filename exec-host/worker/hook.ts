import type { HookEnvelope } from "../../dispatcher/envelope.ts";
import type { LogLevel } from "../protocol.ts";
import type { Call } from "./call.ts";
import { fetchUpstream } from "./fetch-upstream.ts";
import { forward } from "./forward.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import type { HostRequest } from "./host-request.ts";
import type { HostResponse } from "./host-response.ts";
import type { OrderDesk } from "./order-forward.ts";
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
  /** Where the edge takes an order to forward; null once one was placed. */
  desk: OrderDesk | null;
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

/**
 * Builds `metadata.hook`. Frozen; the helpers use the envelope, so nothing a script does moves the upstream.
 */
export function createHookMetadata(hook: HookCall): HookMetadata {
  return new Metadata(hook);
}

type Forward = (req: HostRequest, res: HostResponse, overrides?: unknown) => Promise<void>;
type FetchUpstream = (req: HostRequest, overrides?: unknown) => Promise<Response>;
type PipeResponse = (upstream: unknown, res: HostResponse, options?: unknown) => Promise<void>;

/** Helpers are made when they are asked for, and work without their object: scripts take them out of it. */
class Metadata implements HookMetadata {
  readonly auditId: string;
  readonly origMethod: string;
  readonly origPath: string;
  readonly service: string;
  readonly upstream: { readonly host: string; readonly port: number };
  readonly #hook: HookCall;
  #forward: Forward | null = null;
  #fetchUpstream: FetchUpstream | null = null;
  #pipeResponse: PipeResponse | null = null;

  constructor(hook: HookCall) {
    const { envelope } = hook;
    this.auditId = envelope.auditId;
    this.origMethod = envelope.method;
    this.origPath = hook.origPath;
    this.service = envelope.service;
    this.upstream = Object.freeze({ host: envelope.upstreamHost, port: envelope.upstreamPort });
    this.#hook = hook;
    Object.freeze(this);
  }

  get forward(): Forward {
    const hook = this.#hook;
    return (this.#forward ??= (req, res, overrides) => forward(hook, req, res, overrides));
  }

  get fetchUpstream(): FetchUpstream {
    const hook = this.#hook;
    return (this.#fetchUpstream ??= (req, overrides) => fetchUpstream(hook, req, overrides));
  }

  get pipeResponse(): PipeResponse {
    const { call } = this.#hook;
    return (this.#pipeResponse ??= (upstream, res, options) =>
      pipeResponse(call, upstream, res, options));
  }

  get HookUpstreamError(): typeof HookUpstreamError {
    return HookUpstreamError;
  }
}
Object.freeze(Metadata.prototype);
