import type { FieldLines, ResponseHead } from "../exchange.ts";
import { BodyReader, copyOf, hasBareLf } from "./body-reader.ts";
import { isForbidden, readFields } from "./field-section.ts";

/** What the parser finds, in order: interim heads, one head, data, one end; or a switch to another protocol. */
export interface AnswerEvents {
  onInterim(head: ResponseHead): void;
  onHead(head: ResponseHead, length: number | null, bodyless: boolean): void;
  /** `chunk` is a copy and belongs to the receiver. */
  onData(chunk: Buffer): void;
  /**
   * The message is complete. `reusable` is false when the peer closes, or when bytes follow the message: they
   * answer nothing we asked, so the connection cannot be trusted any more.
   */
  onEnd(trailers: FieldLines, reusable: boolean): void;
  /** 101; `rest` is what the peer sent behind the head. */
  onSwitch(head: ResponseHead, rest: Buffer): void;
}

const IDLE = 0;
const HEAD = 1;
const BODY = 2;
const SWITCHED = 3;
const FAILED = 4;

const HEAD_END = Buffer.from("\r\n\r\n", "latin1");
const PREFIX = "HTTP/1.";
const STATUS = /^[1-9][0-9][0-9]$/;
const DIGITS = /^[0-9]{1,15}$/;
/** More interim answers than this before a final one is an attack or a loop. */
const MAX_INTERIM = 64;
const NO_TRAILERS: FieldLines = [];
const NO_BYTES = Buffer.alloc(0);

/**
 * Strict incremental parser for HTTP/1.x answers (RFC 9112). It accepts what a careful server sends and calls
 * everything that two readers could understand differently a failure; it never throws and does not depend on how
 * the bytes are cut into reads. One parser serves one connection: `begin` before each answer.
 */
export class AnswerParser {
  readonly #events: AnswerEvents;
  readonly #body: BodyReader;
  #state = IDLE;
  #held: Buffer | null = null;
  #interims = 0;
  #maxHeaderBytes = 0;
  #toHead = false;
  #toUpgrade = false;
  #keepAlive = false;
  /** Seconds of the answer's `Keep-Alive: timeout=`; -1 without one. */
  keepAliveSeconds = -1;

  constructor(events: AnswerEvents) {
    this.#events = events;
    this.#body = new BodyReader((chunk) => this.#events.onData(chunk), true);
  }

  /** Expects the answer to a request of `method`. */
  begin(method: string, upgrade: boolean, maxHeaderBytes: number): void {
    this.#state = HEAD;
    this.#held = null;
    this.#interims = 0;
    this.#maxHeaderBytes = maxHeaderBytes;
    this.#toHead = method === "HEAD";
    this.#toUpgrade = upgrade;
    this.keepAliveSeconds = -1;
  }

  /** True while no byte of the current answer has come. */
  get untouched(): boolean {
    return this.#state === HEAD && this.#held === null && this.#interims === 0;
  }

  /**
   * Takes the first `size` bytes of `chunk`, which is not kept. Returns null, or why the peer's bytes are not a
   * valid answer; after that the parser takes nothing more.
   */
  push(chunk: Buffer, size: number): string | null {
    let bytes = chunk;
    let at = 0;
    let end = size;
    if (this.#held !== null) {
      bytes = Buffer.concat([this.#held, chunk.subarray(0, size)]);
      end = bytes.length;
      this.#held = null;
    }
    while (at < end) {
      switch (this.#state) {
        case HEAD: {
          const found = bytes.indexOf(HEAD_END, at);
          const stop = found < 0 || found + 4 > end ? -1 : found + 4;
          if ((stop < 0 ? end : stop) - at > this.#maxHeaderBytes) {
            return this.#fail("the head is too large");
          }
          if (stop < 0) {
            return this.#hold(bytes, at, end);
          }
          const reason = this.#readHead(bytes, at, stop, end);
          if (reason !== null) {
            return this.#fail(reason);
          }
          if (this.#isOver()) {
            return null;
          }
          at = stop;
          break;
        }
        case BODY: {
          at = this.#body.read(bytes, at, end);
          if (this.#body.failure !== null) {
            return this.#fail(this.#body.failure);
          }
          if (this.#body.done) {
            this.#finish(this.#body.trailers, at < end);
            return null;
          }
          if (this.#isOver()) {
            return null;
          }
          break;
        }
        case IDLE:
          return this.#fail("bytes came without a request");
        default:
          return null; // failed before, or the bytes belong to the tunnel
      }
    }
    return null;
  }

  /** The peer sent its last byte. Returns true when that completes the answer (`onEnd` was called), false when it cuts it. */
  finish(): boolean {
    if (this.#state !== BODY || !this.#body.untilClose) {
      return false;
    }
    this.#keepAlive = false;
    this.#finish(NO_TRAILERS, false);
    return true;
  }

  /** Stops taking bytes; whoever uses the parser gave the answer up. */
  stop(): void {
    this.#state = FAILED;
    this.#held = null;
    this.#body.stop();
  }

  /** The answer ended with its head, became a tunnel, or its receiver gave it up. */
  #isOver(): boolean {
    return this.#state === IDLE || this.#state === SWITCHED || this.#state === FAILED;
  }

  #fail(reason: string): string {
    this.#state = FAILED;
    return reason;
  }

  /** Keeps the beginning of a head for the next read, unless it is wrong already. */
  #hold(bytes: Buffer, at: number, end: number): string | null {
    const held = copyOf(bytes, at, end);
    const seen = Math.min(PREFIX.length, held.length);
    if (held.toString("latin1", 0, seen) !== PREFIX.slice(0, seen)) {
      return this.#fail("the status line is not valid");
    }
    if (hasBareLf(held)) {
      return this.#fail("a line does not end in CRLF"); // told now: waiting for CRLF CRLF could last until the timeout
    }
    this.#held = held;
    return null;
  }

  #finish(trailers: FieldLines, surplus: boolean): void {
    this.#state = IDLE;
    this.#events.onEnd(trailers, this.#keepAlive && !surplus);
  }

  #readHead(bytes: Buffer, at: number, stop: number, end: number): string | null {
    const text = bytes.toString("latin1", at, stop - 2);
    const minor = text.charCodeAt(7) - 48;
    const status = STATUS.test(text.slice(9, 12)) ? Number(text.slice(9, 12)) : 0;
    const lineEnd = text.indexOf("\r\n");
    if (
      !text.startsWith(PREFIX) ||
      (minor !== 0 && minor !== 1) ||
      text.charCodeAt(8) !== 32 ||
      status === 0 ||
      (lineEnd !== 12 && text.charCodeAt(12) !== 32) ||
      isForbidden(text)
    ) {
      return "the status line or a control character is not valid";
    }
    const fields: string[] = [];
    if (!readFields(text, lineEnd + 2, fields)) {
      return "a field line is not valid";
    }
    const head: ResponseHead = {
      status,
      reason: lineEnd > 13 ? text.slice(13, lineEnd) : "",
      fields,
    };
    if (status < 200) {
      return this.#readInterim(head, minor, bytes, stop, end);
    }
    return this.#readFraming(head, minor, stop < end);
  }

  #readInterim(
    head: ResponseHead,
    minor: number,
    bytes: Buffer,
    stop: number,
    end: number,
  ): string | null {
    if (head.status !== 101) {
      if (++this.#interims > MAX_INTERIM) {
        return "too many interim answers";
      }
      this.#events.onInterim(head);
      return null;
    }
    if (!this.#toUpgrade || minor !== 1 || !isWebSocketSwitch(head.fields)) {
      return "a switch of protocols that was not asked for";
    }
    this.#state = SWITCHED;
    this.#events.onSwitch(head, stop < end ? copyOf(bytes, stop, end) : NO_BYTES);
    return null;
  }

  #readFraming(head: ResponseHead, minor: number, more: boolean): string | null {
    const fields = head.fields;
    let length: string | null = null;
    let chunked = false;
    let keepAlive = minor === 1;
    for (let i = 0; i < fields.length; i += 2) {
      const name = fields[i]!;
      if (name.length === 14 && name.toLowerCase() === "content-length") {
        const value = fields[i + 1]!;
        if (!DIGITS.test(value) || (length !== null && length !== value)) {
          return "Content-Length is not one plain number";
        }
        length = value;
      } else if (name.length === 17 && name.toLowerCase() === "transfer-encoding") {
        if (chunked || minor === 0 || fields[i + 1]!.toLowerCase() !== "chunked") {
          return "the transfer coding is not chunked alone";
        }
        chunked = true;
      } else if (name.length === 10) {
        const lower = name.toLowerCase();
        if (lower === "connection") {
          const value = fields[i + 1]!.toLowerCase();
          if (value.includes("close")) {
            keepAlive = false;
          } else if (minor === 0 && value === "keep-alive") {
            keepAlive = true;
          }
        } else if (lower === "keep-alive") {
          this.keepAliveSeconds = timeoutOf(fields[i + 1]!);
        }
      }
    }
    if (chunked && length !== null) {
      return "Transfer-Encoding together with Content-Length";
    }
    const bodyless = this.#toHead || head.status === 204 || head.status === 304;
    const declared = length === null ? null : Number(length);
    this.#keepAlive = keepAlive && (bodyless || chunked || declared !== null);
    this.#state = BODY;
    if (bodyless || (declared === 0 && !chunked)) {
      this.#body.none();
    } else if (chunked) {
      this.#body.chunked(this.#maxHeaderBytes);
    } else if (declared !== null) {
      this.#body.ofLength(declared);
    } else {
      this.#body.toClose();
    }
    this.#events.onHead(head, declared, bodyless);
    if (this.#state === BODY && this.#body.done) {
      this.#finish(NO_TRAILERS, more);
    }
    return null;
  }
}

function timeoutOf(value: string): number {
  const at = value.indexOf("timeout=");
  const seconds = at < 0 ? Number.NaN : Number.parseInt(value.slice(at + 8), 10);
  return Number.isNaN(seconds) ? -1 : seconds;
}

function isWebSocketSwitch(fields: FieldLines): boolean {
  let named = 0;
  for (let i = 0; i < fields.length; i += 2) {
    if (fields[i]!.toLowerCase() === "upgrade") {
      named += fields[i + 1]!.toLowerCase() === "websocket" ? 1 : 2;
    }
  }
  return named === 1;
}
