import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { errorBody, errorFields, statusOf, type ErrorCode } from "../../../policy/kernel/errors.ts";
import type { Exchange, Peer } from "../../../policy/kernel/exchange.ts";
import { BodyReader } from "../../../policy/kernel/http1/body-reader.ts";
import { writeAndFree } from "../../../policy/kernel/http1/free-bytes.ts";
import { writeFields } from "../../../policy/kernel/http1/request-head.ts";
import type { WireDeps } from "../limits.ts";
import { peerOf } from "../peer.ts";
import { breakOff } from "./break-off.ts";
import { Http1Exchange, type ExchangeConnection, type RequestBody } from "./exchange.ts";
import { watchHalfClosed } from "./half-close.ts";
import { HandshakeExchange } from "./handshake-exchange.ts";
import { readRequestHead, type ParsedHead } from "./request-parser.ts";

/** What all connections of a listener share. */
export interface Shared extends WireDeps {
  closing: boolean;
  /** A `Date` line for now. */
  date(): string;
  gone(connection: Http1Connection): void;
}

/** How long a connection that will not be used again is read, so that the client gets its answer before a reset. */
const LINGER_MS = 2000;
/** An unread upload of this size is read to its end, so that the connection can be used again. */
const DRAIN_BYTES = 65_536;

/** What the connection reads next. */
type Phase = "head" | "body" | "nothing" | "handed over";

/**
 * One client connection: reads requests one after another, hands each on when the one before it was answered, and writes
 * the answers. Bytes that come too early are kept, and the socket is not read meanwhile.
 */
export class Http1Connection implements ExchangeConnection {
  readonly socket: Socket;
  readonly peer: Peer;
  readonly #shared: Shared;
  readonly #reader: BodyReader;
  #phase: Phase = "head";
  #bytes: Buffer | null = null;
  #at = 0;
  #exchange: Http1Exchange | null = null;
  #body: RequestBody | null = null;
  /** The body flows: somebody wants it, or it is dropped. */
  #flows = false;
  #blocked = false;
  #consuming = false;
  #paused = false;
  /** The client closed its sending side. */
  #eof = false;
  #wasUsed = false;
  #watched = false;
  #drain: (() => void) | null = null;
  /** Something changed since the last look at the deadlines. */
  #touched = true;
  #since = 0;
  #unsent = 0;

  constructor(socket: Socket, shared: Shared) {
    this.socket = socket;
    this.#shared = shared;
    this.peer = peerOf(socket);
    this.#reader = new BodyReader((chunk) => {
      if (this.#body !== null && !this.#body.push(chunk)) {
        this.#blocked = true;
      }
    }, false);
    socket.on("error", ignore); // "close" tells the story
    socket.on("data", this.#onData);
    socket.on("end", this.#onEnd);
    socket.on("drain", this.#onDrain);
    socket.on("close", this.#onClose);
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#phase === "nothing") {
      return; // read and dropped until the connection ends
    }
    if (this.#bytes === null) {
      if (this.#exchange === null && this.#wasUsed) {
        this.#touched = true; // the first bytes of a head: its time runs from here
      }
      this.#bytes = chunk;
    } else {
      this.#bytes = Buffer.concat([this.#bytes.subarray(this.#at), chunk]);
    }
    this.#at = 0;
    this.#consume();
  };

  /** Goes through the bytes at hand as far as they are wanted now. Called again from within, it leaves the work to the outer call. */
  #consume(): void {
    if (this.#consuming) {
      return;
    }
    this.#consuming = true;
    while (this.#bytes !== null) {
      if (this.#phase === "body") {
        if (!this.#flows || this.#blocked) {
          break;
        }
        this.#readBody(this.#bytes);
      } else if (this.#mayTake) {
        if (this.socket.writableNeedDrain || !this.#readHead(this.#bytes)) {
          break;
        }
      } else {
        break;
      }
      if (this.#bytes !== null && this.#at >= this.#bytes.length) {
        this.#bytes = null;
        this.#at = 0;
      }
    }
    this.#consuming = false;
    this.#steer();
    if (this.#eof && this.#bytes === null) {
      this.#ended();
    }
  }

  /** The next request may be looked at: the one before is answered, and its answer does not pile up here. */
  get #mayTake(): boolean {
    return this.#phase === "head" && this.#exchange === null && !this.socket.writableNeedDrain;
  }

  /** Reads the socket, or not, as the bytes are wanted. */
  #steer(): void {
    const isStuck =
      this.#blocked ||
      (this.#bytes !== null &&
        (this.#phase === "body"
          ? !this.#flows
          : this.#exchange !== null || this.socket.writableNeedDrain));
    if (isStuck !== this.#paused) {
      this.#paused = isStuck;
      if (isStuck) {
        this.socket.pause();
      } else {
        this.socket.resume();
      }
    }
  }

  /** False when more bytes are needed, or nothing more will be read. */
  #readHead(bytes: Buffer): boolean {
    const reading = readRequestHead(
      this.#at === 0 ? bytes : bytes.subarray(this.#at),
      this.#shared.limits,
    );
    if (reading.kind === "more") {
      return false;
    }
    if (reading.kind === "refused") {
      this.#refuse(reading.code);
      return false;
    }
    this.#at += reading.size;
    this.#take(reading.parsed);
    return true;
  }

  #take(parsed: ParsedHead): void {
    this.#touched = true;
    this.#wasUsed = true;
    if (parsed.handshake) {
      this.#upgrade(parsed);
      return;
    }
    const exchange = new Http1Exchange(parsed, this);
    this.#exchange = exchange;
    this.#body = exchange.body;
    if (parsed.length !== 0) {
      this.#phase = "body";
      this.#flows = false;
      this.#blocked = false;
      if (parsed.length === null) {
        this.#reader.chunked(this.#shared.limits.maxHeaderBytes);
      } else {
        this.#reader.ofLength(parsed.length);
      }
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

  #upgrade(parsed: ParsedHead): void {
    const socket = this.socket;
    const early = this.#bytes === null ? NO_BYTES : this.#bytes.subarray(this.#at);
    this.#phase = "handed over";
    this.#bytes = null;
    this.#at = 0;
    socket.removeListener("data", this.#onData);
    socket.removeListener("end", this.#onEnd);
    socket.removeListener("drain", this.#onDrain);
    this.#hand(new HandshakeExchange(socket, early, parsed.head, this.peer, this.#shared));
  }

  #readBody(bytes: Buffer): void {
    this.#at = this.#reader.read(bytes, this.#at, bytes.length);
    if (this.#phase !== "body") {
      return; // whoever took the last piece ended the connection
    }
    if (this.#reader.failure !== null) {
      this.#refuse("BAD_REQUEST");
      return;
    }
    if (this.#reader.done) {
      this.#phase = "head";
      this.#blocked = false;
      const body = this.#body;
      this.#body = null;
      body?.complete(this.#reader.trailers);
    }
  }

  get date(): string {
    return this.#shared.date();
  }

  get ending(): boolean {
    return this.#shared.closing || this.#phase === "nothing" || (this.#eof && this.#bytes === null);
  }

  get keepAliveLine(): string {
    return `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.max(1, Math.floor(this.#shared.limits.keepAliveMs / 1000))}\r\n`;
  }

  get bytesWritten(): number {
    return this.socket.bytesWritten;
  }

  get mustEndUnread(): boolean {
    return (
      this.#phase === "body" && (this.#exchange?.waits === true || this.#reader.left > DRAIN_BYTES)
    );
  }

  write(bytes: string | Buffer): boolean {
    return typeof bytes === "string"
      ? this.socket.write(bytes, "latin1")
      : this.socket.write(bytes);
  }

  writeParts(before: string, body: Buffer, after: string, disposable: boolean): boolean {
    const socket = this.socket;
    if (before === "" && after === "") {
      return disposable ? writeAndFree(socket, body) : socket.write(body);
    }
    socket.cork();
    if (before !== "") {
      socket.write(before, "latin1");
    }
    let free = disposable ? writeAndFree(socket, body) : socket.write(body);
    if (after !== "") {
      free = socket.write(after, "latin1");
    }
    socket.uncork();
    return free;
  }

  onDrain(listener: () => void): void {
    this.#drain = listener;
  }

  readonly #onDrain = (): void => {
    this.#drain?.();
    if (this.#exchange === null) {
      this.#consume(); // requests waited until their client had read the answers before them
    }
  };

  isCurrent(body: RequestBody): boolean {
    return this.#body === body;
  }

  bodyWanted(): void {
    this.#flows = true;
    this.#consume();
  }

  resumeBody(): void {
    this.#blocked = false;
    this.#consume();
  }

  bodyUnwanted(): void {
    this.#body = null;
    this.#blocked = false;
    this.#flows = true;
    this.#consume();
  }

  answered(keepAlive: boolean): void {
    this.#exchange = null;
    this.#drain = null;
    this.#touched = true;
    if (!keepAlive || this.ending) {
      this.#linger();
      return;
    }
    if (this.#phase === "body") {
      this.bodyUnwanted(); // short enough to be read for the sake of the connection
      return;
    }
    this.#consume();
  }

  /** Answers what cannot be read, and ends the connection; a running exchange is broken off. */
  #refuse(code: ErrorCode): void {
    const exchange = this.#exchange;
    const body = this.#body;
    this.#exchange = null;
    this.#body = null;
    const wasAnswered = exchange === null ? this.#phase === "body" : exchange.answered;
    this.#phase = "nothing";
    exchange?.leave();
    body?.break();
    if (wasAnswered || !this.socket.writable) {
      this.socket.destroy();
      return;
    }
    const text = errorBody(code);
    const status = statusOf(code);
    this.write(
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${this.date}${writeFields(errorFields(code))}` +
        `Content-Length: ${text.length}\r\nConnection: close\r\n\r\n${text}`,
    );
    this.#linger();
  }

  /**
   * Ends a connection whose client may still be sending: closing it at once would reset it, and the client could lose
   * the answer it has not read yet. What it still sends is dropped; the sweep closes it after a while.
   */
  #linger(): void {
    this.#phase = "nothing";
    this.#bytes = null;
    this.#at = 0;
    this.#body = null;
    this.#blocked = false;
    this.#touched = true;
    this.socket.end();
    this.#steer();
    if (this.#eof) {
      this.socket.destroySoon();
    }
  }

  readonly #onEnd = (): void => {
    this.#eof = true;
    if (this.#bytes === null || this.#phase === "head") {
      this.#ended();
    }
  };

  /** The client sends nothing more, and all it sent was looked at. */
  #ended(): void {
    const exchange = this.#exchange;
    if (this.#phase === "nothing") {
      this.socket.destroySoon();
    } else if (this.#phase === "body") {
      const body = this.#body;
      this.#body = null;
      exchange?.leave();
      body?.break();
      this.socket.destroy();
    } else if (exchange === null) {
      this.#linger();
    } else if (!this.#watched) {
      this.#watched = true;
      watchHalfClosed(this.socket, exchange, this.#shared.clock, () => this.#exchange === exchange);
    }
  }

  readonly #onClose = (): void => {
    const body = this.#body;
    this.#body = null;
    this.#phase = "nothing";
    this.#bytes = null;
    this.#exchange?.leave();
    body?.break();
    this.#shared.gone(this);
  };

  destroy(): void {
    this.socket.destroy();
  }

  breakOff(): void {
    breakOff(this.socket);
  }

  /** Ends the connection when it waits for a request. */
  endIdle(): void {
    if (this.#exchange === null && this.#phase === "head" && this.#bytes === null) {
      this.#linger();
    }
  }

  /** Looks at the deadlines; called every fraction of a second, so that no request sets timers of its own. */
  check(now: number): void {
    if (this.#phase === "handed over") {
      return; // a tunnel may be silent for as long as it likes
    }
    const unsent = this.socket.writableLength;
    // An answer is out for us and still on its way to a slow client: its time runs anew with every piece.
    if (this.#touched || (this.#exchange === null && unsent !== this.#unsent)) {
      this.#touched = false;
      this.#unsent = unsent;
      this.#since = now;
      return;
    }
    const age = now - this.#since;
    const { headMs, keepAliveMs, requestMs } = this.#shared.limits;
    if (this.#exchange !== null) {
      if (requestMs > 0 && this.#phase === "body" && age >= requestMs) {
        this.#refuse("REQUEST_TIMEOUT");
      }
    } else if (unsent > 0) {
      if (age >= keepAliveMs) {
        this.socket.destroy(); // the client reads nothing any more
      }
    } else if (this.#phase === "nothing") {
      if (age >= LINGER_MS) {
        this.socket.destroy();
      }
    } else if (this.#bytes !== null || !this.#wasUsed || this.#phase === "body") {
      if (age >= headMs) {
        this.#refuse("REQUEST_TIMEOUT");
      }
    } else if (age >= keepAliveMs) {
      this.socket.destroy();
    }
  }
}

const NO_BYTES = Buffer.alloc(0);

function ignore(): void {}
