import type { Duplex } from "node:stream";

/**
 * The message-exchange seam. The pipeline, the rules, the forwarder and the dispatcher speak to these
 * interfaces only; HTTP/1.1 on `node:http`, HTTP/2 on `node:http2` and the upstream client are adapters.
 *
 * Text in heads is latin1: one character per byte, so that bytes above 0x7F travel unchanged.
 */

/** A header section in order: name, value, name, value… Names in the peer's own spelling. */
export type FieldLines = readonly string[];

/** A request head as received. */
export interface RequestHead {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  readonly version: "1.0" | "1.1" | "2";
  readonly fields: FieldLines;
}

/** The head of an answer. */
export interface ResponseHead {
  readonly status: number;
  /** Reason phrase; empty where the protocol has none. */
  readonly reason: string;
  readonly fields: FieldLines;
}

/** Takes a body. After `data`s exactly one of `end` and `fail` is called, and nothing follows it. */
export interface BodySink {
  /**
   * Returns false when full: the source then waits for its `resume()`. `disposable`: nobody else looks at the piece
   * again, so whoever sends it may free its memory.
   */
  data(chunk: Buffer, disposable?: boolean): boolean;
  /** The body is complete. `trailers` is empty when there were none; a client's are swept already. */
  end(trailers: FieldLines): void;
  /** The source broke off; what came so far is not the whole body. */
  fail(cause: Error): void;
}

/** Gives a body. */
export interface BodySource {
  /** Declared length in bytes; null when only the end of the body tells. */
  readonly length: number | null;
  /** Begins the flow into `sink`. Called at most once; not at all when the body is not wanted. */
  start(sink: BodySink): void;
  /** Goes on after `data` returned false. */
  resume(): void;
  /** Nobody wants the rest. The sink hears nothing more. */
  cancel(): void;
}

/** A sink with back-pressure towards whoever writes. */
export interface DrainingSink extends BodySink {
  /** Called whenever the sink can take more after `data` returned false. One listener. */
  onDrain(listener: () => void): void;
}

/** Who is at the other end of a connection. */
export interface Peer {
  /** Socket address; IPv4-mapped IPv6 addresses are given as IPv4. */
  readonly address: string;
  readonly port: number;
  readonly encrypted: boolean;
}

/** One request of a client and the one answer it gets. */
export interface Exchange {
  readonly head: RequestHead;
  readonly peer: Peer;
  /** null when the message has no body (no framing fields, or a declared length of 0). */
  readonly body: BodySource | null;
  /** True for a real WebSocket handshake (decision 3, or an HTTP/2 extended CONNECT): `tunnel` may be used. */
  readonly handshake: boolean;
  /** True once a final response head was sent or a tunnel opened. */
  readonly answered: boolean;
  /** Called once when the client leaves before its answer is complete. Late listeners are called at once. */
  onGone(listener: () => void): void;
  /** Tells a client that waits (`Expect: 100-continue`) to send its body; does nothing otherwise. At most one 100. */
  sendContinue(): void;
  /** Passes on an interim answer other than 100 and 101. */
  sendInterim(head: ResponseHead): void;
  /** Sends a whole answer. The adapter adds its own framing; an unread request body does not poison the connection. */
  answer(head: ResponseHead, body: Buffer): void;
  /**
   * Sends a final head and returns where its body goes. The adapter makes the framing: `length` bytes, or
   * whatever the protocol has for an unknown length. For HEAD, 204 and 304 pass the head's own
   * `content-length` in `declaredLength` (it is kept for HEAD and 304) and end the sink at once.
   */
  startAnswer(head: ResponseHead, length: number | null, declaredLength?: string): DrainingSink;
  /** Accepts the handshake and hands out the joined byte stream, early bytes of the client first. */
  tunnel(head: ResponseHead): Duplex;
  /** Cuts the client off: a reset stream or a destroyed connection. */
  abort(): void;
}
