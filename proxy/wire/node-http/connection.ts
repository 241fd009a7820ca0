import { STATUS_CODES, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Clock } from "../../../policy/kernel/clock.ts";
import { errorBody, errorFields, statusOf, type ErrorCode } from "../../../policy/kernel/errors.ts";
import type { Exchange, Peer, RequestHead } from "../../../policy/kernel/exchange.ts";
import { fieldValues } from "../../../policy/kernel/fields.ts";
import { writeFields } from "../../../policy/kernel/http1/request-head.ts";
import type { WireDeps, WireLimits } from "../limits.ts";
import { peerOf } from "../peer.ts";
import { NodeHttpExchange, type ExchangeOwner } from "./exchange.ts";
import { watchHalfClosed } from "./half-close.ts";
import { HandshakeExchange } from "./raw-exchange.ts";

/** How long a connection that will not be used again is read, so that the client gets its answer before a reset. */
const LINGER_MS = 2000;
/** Pipelined requests that wait for the one before them; beyond this the connection is not read. */
const MAX_WAITING = 16;

const CONNECTION = Symbol("connection");

interface TrackedSocket extends Socket {
  [CONNECTION]?: ClientConnection;
}

/** What all connections of a listener share. */
export interface Shared extends WireDeps {
  readonly state: { closing: boolean };
}

/** The connection behind a socket that `node:http` announced. */
export function connectionOf(socket: Socket): ClientConnection {
  const connection = (socket as TrackedSocket)[CONNECTION];
  if (connection === undefined) {
    throw new TypeError("a socket that was never announced");
  }
  return connection;
}

/** What is known about one client connection. */
export class ClientConnection implements ExchangeOwner {
  readonly socket: Socket;
  readonly #shared: Shared;
  readonly #peer: Peer;
  readonly #endSoon: () => void;
  #active: NodeHttpExchange | null = null;
  #waiting: (() => void)[] = [];
  /** Bytes that could not be read came behind a complete request: told after that one's answer. */
  #pendingError: ErrorCode | null = null;
  #ending = false;

  constructor(socket: Socket, shared: Shared) {
    this.socket = socket;
    this.#shared = shared;
    this.#peer = peerOf(socket);
    (socket as TrackedSocket)[CONNECTION] = this;
    socket.on("end", () => this.#halfClosed());
    this.#endSoon = socket.destroySoon.bind(socket);
    socket.destroySoon = () => this.#end();
  }

  get closing(): boolean {
    return this.#shared.state.closing;
  }

  /** No answer is owed. */
  get isFree(): boolean {
    return this.#active === null && !this.#ending;
  }

  request(
    request: IncomingMessage,
    response: ServerResponse,
    waits: boolean,
    refusal: ErrorCode | null,
  ): void {
    if (this.#ending) {
      return;
    }
    if (this.#active !== null) {
      this.#waiting.push(() => this.#take(request, response, waits, refusal));
      if (this.#waiting.length >= MAX_WAITING) {
        this.socket.pause();
      }
      return;
    }
    this.#take(request, response, waits, refusal);
  }

  #take(
    request: IncomingMessage,
    response: ServerResponse,
    waits: boolean,
    refusal: ErrorCode | null,
  ): void {
    const fields = request.rawHeaders;
    const framing = framingOf(request, fields);
    const head: RequestHead = {
      method: request.method ?? "",
      target: request.url ?? "",
      version: request.httpVersionMinor === 0 ? "1.0" : "1.1",
      fields,
    };
    const length = framing === INVALID ? 0 : framing === CHUNKED ? null : framing;
    const exchange = new NodeHttpExchange(request, response, head, this.#peer, length, waits, this);
    this.#active = exchange;
    const code =
      refusal ??
      (framing === INVALID
        ? "BAD_REQUEST"
        : waits && !expectsOnlyContinue(fields)
          ? "EXPECTATION_FAILED"
          : overLimit(head, this.#shared.limits));
    if (code !== null) {
      response.shouldKeepAlive = false;
      this.#ending = true;
      exchange.answer(answerHead(code), Buffer.from(errorBody(code)));
      return;
    }
    this.#hand(exchange);
  }

  #hand(exchange: Exchange): void {
    try {
      this.#shared.onExchange(exchange);
    } catch (cause) {
      this.#shared.log.error({ err: cause }, "a request was not handled");
      exchange.abort();
    }
  }

  upgrade(request: IncomingMessage, socket: Socket, early: Buffer): void {
    const head: RequestHead = {
      method: request.method ?? "",
      target: request.url ?? "",
      version: "1.1",
      fields: request.rawHeaders,
    };
    this.#ending = true; // nothing but this handshake comes from the connection any more
    const exchange = new HandshakeExchange(socket, early, head, this.#peer);
    const code = overLimit(head, this.#shared.limits);
    if (code !== null) {
      exchange.answer(answerHead(code), Buffer.from(errorBody(code)));
      return;
    }
    this.#hand(exchange);
  }

  finished(exchange: NodeHttpExchange, unread: boolean): void {
    if (exchange !== this.#active) {
      return;
    }
    this.#active = null;
    if (unread) {
      this.#ending = true;
      linger(this.socket, this.#shared.clock);
      return;
    }
    if (this.socket.destroyed) {
      return;
    }
    const next = this.#waiting.shift();
    if (next !== undefined) {
      if (this.#waiting.length < MAX_WAITING && this.socket.isPaused()) {
        this.socket.resume();
      }
      next();
    } else if (this.#pendingError !== null) {
      this.refuse(this.#pendingError);
    }
  }

  /** Bytes that are no request, or a deadline of `node:http`. */
  unreadable(error: NodeJS.ErrnoException & { rawPacket?: Buffer }): void {
    const code = codeOf(error, this.#shared.limits);
    if (code === null) {
      this.socket.destroy();
      return;
    }
    if (this.#active !== null && !this.#active.isReceiving) {
      this.#pendingError = code;
      return;
    }
    this.refuse(code);
  }

  /** Answers on the bare socket and ends the connection; a running exchange is broken off. */
  refuse(code: ErrorCode): void {
    const active = this.#active;
    this.#active = null;
    this.#waiting = [];
    this.#ending = true;
    const silent = active?.answered === true || !this.socket.writable;
    active?.leave();
    if (silent) {
      this.socket.destroy();
      return;
    }
    const body = errorBody(code);
    const status = statusOf(code);
    this.socket.write(
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${writeFields(errorFields(code))}` +
        `Content-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
      "latin1",
    );
    linger(this.socket, this.#shared.clock);
  }

  closed(): void {
    this.#waiting = [];
    this.#active?.leave();
  }

  #halfClosed(): void {
    const exchange = this.#active;
    if (exchange !== null) {
      watchHalfClosed(this.socket, exchange, this.#shared.clock, () => this.#active === exchange);
    }
  }

  /** `node:http` ends a connection with this after an answer that says so. */
  #end(): void {
    if (this.#ending || this.#active?.isReceiving === true) {
      linger(this.socket, this.#shared.clock);
    } else {
      this.#endSoon();
    }
  }
}

/**
 * Ends a connection whose client may still be sending: closing it at once would reset it, and the client could lose
 * the answer it has not read yet.
 */
function linger(socket: Socket, clock: Clock): void {
  socket.end();
  socket.resume();
  const timer = clock.after(LINGER_MS, () => socket.destroy());
  socket.once("close", () => timer.cancel());
}

/** `node:http` finds 100-continue anywhere in the field, also beside expectations that nobody here knows. */
function expectsOnlyContinue(fields: readonly string[]): boolean {
  return fieldValues(fields, "expect").every((value) => value.toLowerCase() === "100-continue");
}

const CHUNKED = -1;
const INVALID = -2;

/**
 * Body length of a request that `node:http` accepted, CHUNKED, or INVALID: it lets through versions other than 1.0
 * and 1.1, and transfer codings other than chunked alone, about which two readers may disagree (RFC 9112 6.1).
 */
function framingOf(request: IncomingMessage, fields: readonly string[]): number {
  if (request.httpVersionMajor !== 1 || request.httpVersionMinor > 1) {
    return INVALID;
  }
  let length = 0;
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i]!;
    if (name.length === 14 && name.toLowerCase() === "content-length") {
      length = Number(fields[i + 1]);
    } else if (name.length === 17 && name.toLowerCase() === "transfer-encoding") {
      const plain = fields[i + 1]!.toLowerCase() === "chunked";
      return plain && length === 0 && request.httpVersionMinor === 1 ? CHUNKED : INVALID;
    }
  }
  return Number.isSafeInteger(length) ? length : INVALID;
}

/** The refusal of a head that is too large, or null. */
export function overLimit(head: RequestHead, limits: WireLimits): ErrorCode | null {
  if (head.target.length > limits.maxTargetBytes) {
    return "TARGET_TOO_LONG";
  }
  const fields = head.fields;
  if (fields.length > limits.maxHeaderLines * 2) {
    return "HEAD_TOO_LARGE";
  }
  let bytes = head.method.length + head.target.length + 14;
  for (let i = 0; i < fields.length; i += 2) {
    bytes += fields[i]!.length + fields[i + 1]!.length + 4;
  }
  return bytes > limits.maxHeaderBytes ? "HEAD_TOO_LARGE" : null;
}

function codeOf(
  error: NodeJS.ErrnoException & { rawPacket?: Buffer },
  limits: WireLimits,
): ErrorCode | null {
  const reason = error.code ?? "";
  if (reason === "HPE_HEADER_OVERFLOW") {
    const lineEnd = error.rawPacket?.indexOf("\r\n") ?? 0;
    return lineEnd < 0 || lineEnd > limits.maxTargetBytes ? "TARGET_TOO_LONG" : "HEAD_TOO_LARGE";
  }
  if (reason === "ERR_HTTP_REQUEST_TIMEOUT") {
    return "REQUEST_TIMEOUT";
  }
  return reason.startsWith("HPE_") ? "BAD_REQUEST" : null;
}

/** Head of an answer that the wire makes itself. */
export function answerHead(code: ErrorCode) {
  const status = statusOf(code);
  return { status, reason: STATUS_CODES[status] ?? "", fields: errorFields(code) };
}
