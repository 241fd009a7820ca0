import type { Duplex } from "node:stream";
import type { BodySource, FieldLines, ResponseHead } from "../exchange.ts";

/** Where a connection goes. Host and port are separate values that no path can touch. */
export type Origin =
  | { readonly kind: "tcp"; readonly host: string; readonly port: number }
  | { readonly kind: "tls"; readonly host: string; readonly port: number }
  | { readonly kind: "unix"; readonly path: string };

/** A request to send. */
export interface OutgoingRequest {
  readonly origin: Origin;
  /** An RFC 9110 token; wire case is preserved. */
  readonly method: string;
  /** Target bytes, sent as they are. */
  readonly target: string;
  /** Fields without any framing field: `content-length`, `transfer-encoding` and `connection` are the client's own. */
  readonly fields: FieldLines;
  readonly body: BodySource | null;
  /** Ask for a switch to WebSocket: sends `Connection: Upgrade`, `Upgrade: websocket`, on a connection of its own. */
  readonly upgrade?: boolean;
  /** Never sent a second time, not even after a reused connection closed without a word: a script may have run. */
  readonly once?: boolean;
  /**
   * Sends `Expect: 100-continue` and begins the body when the peer says so: for one of our own hosts, whose script may
   * refuse without it. Whoever answers without a 100 never gets it.
   */
  readonly awaitContinue?: boolean;
  readonly limits: {
    readonly connectMs: number;
    /** To the first byte of the answer after the request was sent, and between bytes of an unfinished answer. */
    readonly idleMs: number;
    readonly maxHeaderBytes: number;
  };
}

/** `connect`: nothing was sent. `reset`: the connection broke. `protocol`: the answer is not valid HTTP/1.1. `body`: our own source failed. */
export type UpstreamFailureKind = "connect" | "reset" | "timeout" | "protocol" | "body";

/** Why no answer came, or not all of it. */
export class UpstreamFailure extends Error {
  override readonly name = "UpstreamFailure";
  readonly kind: UpstreamFailureKind;
  constructor(kind: UpstreamFailureKind, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.kind = kind;
  }
}

/** Hears of one answer. Exactly one of `end`, `tunnel` and `fail` comes last; after `call.abort()` nothing comes. */
export interface AnswerHandler {
  /** 1xx other than 101; 100 included. */
  interim(head: ResponseHead): void;
  /**
   * The final head. `length` is the body's declared length, null when unknown; `fields` are as received
   * (hop-by-hop and framing fields still in). `bodyless` is true for HEAD, 204 and 304.
   */
  head(head: ResponseHead, length: number | null, bodyless: boolean): void;
  /** Returns false to hold back until `call.resume()`; what was read already may still follow: 64 KiB at most, `ANSWER_WINDOW` from a worker. */
  data(chunk: Buffer): boolean;
  end(trailers: FieldLines): void;
  /** 101 to an upgrade request; early bytes of the upstream are pushed back into the stream. */
  tunnel(head: ResponseHead, stream: Duplex): void;
  fail(failure: UpstreamFailure): void;
}

/** A request that was sent and is not over yet. */
export interface OutgoingCall {
  resume(): void;
  /** Gives the request up and destroys its connection. Idempotent. */
  abort(): void;
}

/** Sends requests to services, workers and gateways over HTTP/1.1. */
export interface Http1Client {
  send(request: OutgoingRequest, handler: AnswerHandler): OutgoingCall;
  /** Closes idle connections; running calls finish. */
  close(): void;
}
