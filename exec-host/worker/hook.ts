import type { HookEnvelope } from "../../dispatcher/envelope.ts";
import type { LogLevel } from "../protocol.ts";
import type { Call } from "./call.ts";
import { fetchUpstream } from "./fetch-upstream.ts";
import { forward } from "./forward.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import type { HostRequest, HostResponse } from "./host-message.ts";
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

/**
 * The client's path as text: UTF-8 where its bytes are that, `%XX` for bytes that are not (exec-host.md 5.1).
 *
 * @param path latin1 text, one character per byte.
 */
export function toPathText(path: string): string {
  if (!/[^\0-\x7f]/.test(path)) {
    return path;
  }
  const bytes = Buffer.from(path, "latin1");
  let text = "";
  for (let at = 0; at < bytes.length;) {
    const size = sequenceLength(bytes, at);
    if (size === 0) {
      text += `%${bytes[at]!.toString(16).toUpperCase().padStart(2, "0")}`;
      at += 1;
    } else {
      text += bytes.toString("utf8", at, at + size);
      at += size;
    }
  }
  return text;
}

/** Length of the valid UTF-8 sequence at `at`, 0 when there is none (RFC 3629, no overlong forms, no surrogates). */
function sequenceLength(bytes: Buffer, at: number): number {
  const first = bytes[at]!;
  if (first < 0x80) {
    return 1;
  }
  const size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || at + size > bytes.length) {
    return 0;
  }
  for (let i = 1; i < size; i++) {
    if ((bytes[at + i]! & 0xc0) !== 0x80) {
      return 0;
    }
  }
  const second = bytes[at + 1]!;
  const isForbidden =
    (first === 0xe0 && second < 0xa0) ||
    (first === 0xed && second > 0x9f) ||
    (first === 0xf0 && second < 0x90) ||
    (first === 0xf4 && second > 0x8f);
  return isForbidden ? 0 : size;
}
