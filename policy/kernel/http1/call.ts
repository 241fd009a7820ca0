import type net from "node:net";
import type { BodySink, BodySource, FieldLines } from "../exchange.ts";
import { writeAndFree } from "./free-bytes.ts";
import { IDEMPOTENT, writeFields, writeRequestHead, type RequestFraming } from "./request-head.ts";
import {
  UpstreamFailure,
  type AnswerHandler,
  type OutgoingCall,
  type OutgoingRequest,
} from "./types.ts";

/** What a call needs of the connection that carries it. */
export interface CallCarrier {
  readonly socket: net.Socket;
  /** Reads on. */
  resume(): void;
  destroy(): void;
}

/** Body pieces up to this size are copied behind the head or into a chunk frame: one write costs half of two. */
const JOIN_BYTES = 16_384;
const LAST_CHUNK = "0\r\n\r\n";

/** One request on its way: the sink of its body, and the handle its sender holds. */
export class Call implements OutgoingCall, BodySink {
  readonly request: OutgoingRequest;
  readonly handler: AnswerHandler;
  readonly framing: RequestFraming;
  readonly #head: string;
  #connection: CallCarrier | null = null;
  #headSent = false;
  #flush: NodeJS.Immediate | null = null;
  #bodyStarted = false;
  #bodyRunning = false;
  /** The whole request was handed to the socket. */
  sent = false;
  #settled = false;
  retried = false;
  /** The head is out, the body waits for a 100. */
  awaiting = false;

  /** @throws TypeError when the request cannot be written as one message. */
  constructor(request: OutgoingRequest, handler: AnswerHandler) {
    this.request = request;
    this.handler = handler;
    const body = request.body;
    if (request.upgrade === true) {
      this.framing = "upgrade";
    } else if (body === null) {
      this.framing = "none";
    } else {
      this.framing = body.length === null ? "chunked" : "length";
    }
    this.#head = writeRequestHead(
      request.method,
      request.target,
      this.#awaits ? [...request.fields, "Expect", "100-continue"] : request.fields,
      this.framing,
      body === null ? null : body.length,
    );
  }

  get #awaits(): boolean {
    return this.request.awaitContinue === true && this.request.body !== null;
  }

  get settled(): boolean {
    return this.#settled;
  }

  /** May be sent again after a reused connection closed without a word (RFC 9110 9.2.2, 9112 9.3.1). */
  get repeatable(): boolean {
    return (
      this.request.body === null &&
      this.request.once !== true &&
      this.framing !== "upgrade" &&
      IDEMPOTENT.has(this.request.method)
    );
  }

  run(connection: CallCarrier): void {
    this.#connection = connection;
    if (this.request.body === null || this.framing === "upgrade") {
      this.#headSent = true;
      this.sent = true;
      connection.socket.write(this.#head, "latin1");
      return;
    }
    if (this.#awaits) {
      this.#headSent = true;
      this.awaiting = true;
      connection.socket.write(this.#head, "latin1");
      return;
    }
    // The first piece of a small upload is there within this turn: head and piece then leave in one write.
    this.#flush = setImmediate(() => {
      this.#flush = null;
      this.#flushHead();
    });
    this.#startBody(this.request.body);
  }

  #startBody(body: BodySource): void {
    this.#bodyStarted = true;
    this.#bodyRunning = true;
    body.start(this);
  }

  /** The peer wants the body that it was announced. */
  proceed(): void {
    if (this.awaiting && !this.#settled && this.request.body !== null) {
      this.awaiting = false;
      this.#startBody(this.request.body);
    }
  }

  #flushHead(): void {
    if (!this.#headSent && this.#connection !== null && !this.#settled) {
      this.#headSent = true;
      this.#connection.socket.write(this.#head, "latin1");
    }
  }

  #takeHead(): string {
    if (this.#headSent) {
      return "";
    }
    this.#headSent = true;
    if (this.#flush !== null) {
      clearImmediate(this.#flush);
      this.#flush = null;
    }
    return this.#head;
  }

  data(chunk: Buffer, disposable = false): boolean {
    const connection = this.#connection;
    if (this.#settled || connection === null || this.sent || chunk.length === 0) {
      return true;
    }
    const socket = connection.socket;
    const before =
      this.#takeHead() + (this.framing === "chunked" ? `${chunk.length.toString(16)}\r\n` : "");
    const after = this.framing === "chunked" ? 2 : 0;
    let free: boolean;
    if (before === "" && after === 0) {
      free = disposable ? writeAndFree(socket, chunk) : socket.write(chunk);
    } else if (chunk.length <= JOIN_BYTES) {
      const joined = Buffer.allocUnsafe(before.length + chunk.length + after);
      joined.write(before, 0, "latin1");
      chunk.copy(joined, before.length);
      if (after > 0) {
        joined[joined.length - 2] = 13;
        joined[joined.length - 1] = 10;
      }
      free = socket.write(joined);
    } else {
      socket.cork();
      socket.write(before, "latin1");
      free = disposable ? writeAndFree(socket, chunk) : socket.write(chunk);
      if (after > 0) {
        free = socket.write("\r\n", "latin1");
      }
      socket.uncork();
    }
    return free;
  }

  end(trailers: FieldLines): void {
    this.#bodyRunning = false;
    if (this.#settled || this.#connection === null || this.sent) {
      return;
    }
    let tail = this.#takeHead();
    if (this.framing === "chunked") {
      try {
        tail += trailers.length === 0 ? LAST_CHUNK : `0\r\n${writeFields(trailers)}\r\n`;
      } catch (cause) {
        this.fail(cause instanceof Error ? cause : new Error("trailers cannot be sent"));
        return;
      }
    }
    this.sent = true;
    if (tail !== "") {
      this.#connection.socket.write(tail, "latin1");
    }
  }

  fail(cause: Error): void {
    this.#bodyRunning = false;
    if (!this.#settled) {
      this.broken(new UpstreamFailure("body", "the request body broke off", cause));
    }
  }

  /** The socket has room again. */
  drained(): void {
    if (this.#bodyRunning) {
      this.request.body?.resume();
    }
  }

  /** Stops the upload: the answer made it pointless. The connection is then not used again. */
  stopUpload(): void {
    if (this.#bodyRunning) {
      this.#bodyRunning = false;
      this.request.body?.cancel();
    }
  }

  get uploading(): boolean {
    return this.#bodyRunning;
  }

  resume(): void {
    this.#connection?.resume();
  }

  abort(): void {
    if (!this.#settled) {
      this.#settle();
      this.#connection?.destroy();
    }
  }

  /** Gives up for a reason; the sender hears it once. */
  broken(failure: UpstreamFailure): void {
    if (this.#settled) {
      return;
    }
    this.#settle();
    this.#connection?.destroy();
    this.handler.fail(failure);
  }

  /** The answer is complete or became a tunnel; the sender is told by the connection. */
  complete(): void {
    this.#settle();
    this.#connection = null;
  }

  /** A connection that nothing was read from closed; the call waits for another one. */
  detach(): void {
    this.#connection = null;
  }

  /** A dialled connection that does not run yet; aborting the call ends the dial. */
  attach(connection: CallCarrier): void {
    this.#connection = connection;
  }

  #settle(): void {
    this.#settled = true;
    if (this.#flush !== null) {
      clearImmediate(this.#flush);
      this.#flush = null;
    }
    if (this.#bodyRunning || (!this.#bodyStarted && this.request.body !== null)) {
      this.#bodyRunning = false;
      this.request.body?.cancel();
    }
  }
}
