import {
  createServer,
  STATUS_CODES,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock } from "../../../policy/kernel/clock.ts";
import { errorBody, errorFields, statusOf, type ErrorCode } from "../../../policy/kernel/errors.ts";
import type { Exchange, Peer, RequestHead } from "../../../policy/kernel/exchange.ts";
import { writeFields } from "../../../policy/kernel/http1/request-head.ts";
import type { Log } from "../../../policy/kernel/log.ts";
import type { Metrics } from "../../../policy/kernel/metrics.ts";
import { NodeHttpExchange, type ExchangeOwner } from "./exchange.ts";
import { HandshakeExchange } from "./raw-exchange.ts";

/** Limits of a listener; units in the names, `contract.md` 2. */
export interface WireLimits {
  readonly headMs: number;
  /** 0: none. */
  readonly requestMs: number;
  readonly keepAliveMs: number;
  readonly maxHeaderBytes: number;
  readonly maxHeaderLines: number;
  readonly maxTargetBytes: number;
  readonly maxConnections: number;
}

export interface WireDeps {
  readonly limits: WireLimits;
  /** Called once per request; must answer, now or later, and must not throw. */
  readonly onExchange: (exchange: Exchange) => void;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics?: Metrics;
}

export interface Http1Server {
  readonly server: Server;
  /** Stops accepting, closes idle connections; running answers are finished and end their connection. */
  drain(): void;
  /** Cuts every connection and tunnel. */
  destroy(): void;
}

/** How long a connection that will not be used again is read, so that the client gets its answer before a reset. */
const LINGER_MS = 2000;
/** When a client that closed its sending side is tested for still being there. */
const PROBE_MS = 250;
const PROBES = 3;
/** Pipelined requests that wait for the one before them; beyond this the connection is not read. */
const MAX_WAITING = 16;

/**
 * The HTTP/1.x side of the edge on `node:http` with its strict parser. Requests of one connection are handed on one
 * at a time; what cannot be read is answered here (400, 408, 414, 417, 431) and ends the connection.
 */
export function createHttp1Server(deps: WireDeps): Http1Server {
  const { limits, log, metrics } = deps;
  const connections = new Set<ClientConnection>();
  const shared: Shared = { ...deps, state: { closing: false } };
  const server = createServer({
    insecureHTTPParser: false,
    requireHostHeader: false, // answered by the pipeline, with a body of ours
    // Node counts target and fields together; ours are told apart below, so its limit is the sum.
    maxHeaderSize: limits.maxHeaderBytes + limits.maxTargetBytes,
    headersTimeout:
      limits.requestMs > 0 ? Math.min(limits.headMs, limits.requestMs) : limits.headMs,
    requestTimeout: limits.requestMs,
    keepAliveTimeout: limits.keepAliveMs,
    connectionsCheckingInterval: Math.max(50, Math.min(1000, limits.headMs / 4)),
    noDelay: true,
    shouldUpgradeCallback: (request) => connectionOf(request.socket).isFree && isHandshake(request),
  });
  server.maxHeadersCount = 0; // a count would drop lines silently; more than the limit is 431
  server.timeout = 0;
  server.maxConnections = limits.maxConnections;
  // A client that closed its sending side after a complete request still gets its answer.
  (server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true;

  server.on("connection", (socket: Socket) => {
    const connection = new ClientConnection(socket, shared);
    connections.add(connection);
    metrics?.connections.labels("http").inc();
    socket.on("close", () => {
      connections.delete(connection);
      connection.closed();
      metrics?.connections.labels("http").dec();
    });
  });
  server.on("drop", () => log.debug("connection refused: too many"));
  server.on("request", (request, response) =>
    connectionOf(request.socket).request(request, response, false, null),
  );
  server.on("checkContinue", (request, response) =>
    connectionOf(request.socket).request(request, response, true, null),
  );
  server.on("checkExpectation", (request, response) =>
    connectionOf(request.socket).request(request, response, false, "EXPECTATION_FAILED"),
  );
  server.on("upgrade", (request: IncomingMessage, stream: Duplex, early: Buffer) => {
    connectionOf(request.socket).upgrade(request, stream as Socket, early);
  });
  server.on("connect", (request: IncomingMessage) =>
    connectionOf(request.socket).refuse("BAD_TARGET"),
  );
  server.on(
    "clientError",
    (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, stream: Duplex) => {
      const socket = stream as TrackedSocket;
      const connection = socket[CONNECTION];
      if (connection === undefined) {
        socket.destroy();
      } else {
        connection.unreadable(error);
      }
    },
  );

  return {
    server,
    drain() {
      shared.state.closing = true;
      if (server.listening) {
        server.close();
      }
      server.closeIdleConnections();
    },
    destroy() {
      for (const connection of connections) {
        connection.socket.destroy();
      }
    },
  };
}

const CONNECTION = Symbol("connection");

interface TrackedSocket extends Socket {
  [CONNECTION]?: ClientConnection;
}

interface Shared extends WireDeps {
  readonly state: { closing: boolean };
}

function connectionOf(socket: Socket): ClientConnection {
  const connection = (socket as TrackedSocket)[CONNECTION];
  if (connection === undefined) {
    throw new TypeError("a socket that was never announced");
  }
  return connection;
}

/** What is known about one client connection. */
class ClientConnection implements ExchangeOwner {
  readonly socket: Socket;
  readonly #shared: Shared;
  readonly #peer: Peer;
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
      refusal ?? (framing === INVALID ? "BAD_REQUEST" : overLimit(head, this.#shared.limits));
    if (code !== null) {
      response.shouldKeepAlive = false;
      this.#ending = true;
      this.#lingerOnEnd();
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
    if (exchange === null) {
      return;
    }
    const probeLater = (left: number): void => {
      const written = this.socket.bytesWritten;
      this.#shared.clock.after(PROBE_MS, () => {
        if (this.#active === exchange) {
          exchange.probe(written);
          if (left > 1) {
            probeLater(left - 1);
          }
        }
      });
    };
    probeLater(PROBES);
  }

  #lingerOnEnd(): void {
    this.socket.destroySoon = () => linger(this.socket, this.#shared.clock);
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

function overLimit(head: RequestHead, limits: WireLimits): ErrorCode | null {
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

/** Decision 3: one `Upgrade: websocket` alone, GET, HTTP/1.1, a valid key, no body. Anything else is an ordinary request. */
function isHandshake(request: IncomingMessage): boolean {
  if (
    request.method !== "GET" ||
    request.httpVersionMajor !== 1 ||
    request.httpVersionMinor !== 1
  ) {
    return false;
  }
  const fields = request.rawHeaders;
  let upgrades = 0;
  let keys = 0;
  let nominated = false;
  for (let i = 0; i < fields.length; i += 2) {
    const value = fields[i + 1]!;
    switch (fields[i]!.toLowerCase()) {
      case "upgrade":
        upgrades += value.toLowerCase() === "websocket" ? 1 : 2;
        break;
      case "sec-websocket-key":
        keys += /^[A-Za-z0-9+/]{22}==$/.test(value) ? 1 : 2;
        break;
      case "connection":
        nominated ||= value
          .toLowerCase()
          .split(",")
          .some((option) => option.trim() === "upgrade");
        break;
      case "content-length":
      case "transfer-encoding":
        if (value !== "0") {
          return false;
        }
        break;
      default:
        break;
    }
  }
  return upgrades === 1 && keys === 1 && nominated;
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

function answerHead(code: ErrorCode) {
  const status = statusOf(code);
  return { status, reason: STATUS_CODES[status] ?? "", fields: errorFields(code) };
}

function peerOf(socket: Socket): Peer {
  const address = socket.remoteAddress ?? "";
  return {
    address: address.startsWith("::ffff:") && address.includes(".") ? address.slice(7) : address,
    port: socket.remotePort ?? 0,
    encrypted: "encrypted" in socket,
  };
}
