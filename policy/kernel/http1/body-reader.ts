import type { FieldLines } from "../exchange.ts";
import { isForbidden, readFields } from "./field-section.ts";

const DONE = 0;
const LENGTH = 1;
const CHUNK_SIZE = 2;
const CHUNK_EXTENSION = 3;
const CHUNK_SIZE_LF = 4;
const CHUNK_DATA = 5;
const CHUNK_CR = 6;
const CHUNK_LF = 7;
const TRAILERS = 8;
const UNTIL_CLOSE = 9;
const STOPPED = 10;

const HEAD_END = Buffer.from("\r\n\r\n", "latin1");
/** Bytes of chunk extensions in one message; nobody needs them. */
const MAX_EXTENSION_BYTES = 16_384;
/**
 * What may stand behind the first `;` (RFC 9112 7.1.1), without the blanks that it tolerates: `name`, `name=token`,
 * `name="text"`, more of them behind further `;`. Nobody sends any; a reader that skips them loosely can be led to
 * see the end of the line elsewhere than the next one does.
 */
const TOKEN = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+";
const QUOTED = '"(?:[\\x20\\x21\\x23-\\x5b\\x5d-\\x7e]|\\\\[\\x20-\\x7e])*"';
const ONE_EXTENSION = `${TOKEN}(?:=(?:${TOKEN}|${QUOTED}))?`;
const EXTENSION = new RegExp(`^${ONE_EXTENSION}(?:;${ONE_EXTENSION})*$`);
const MAX_CHUNK_BYTES = 2 ** 44;
/** Leading zeros are allowed, endless ones are not. */
const MAX_SIZE_DIGITS = 64;
const NO_TRAILERS: FieldLines = [];

/**
 * Reads the body of one message after another: a length, chunks with trailers (RFC 9112 7.1), or the rest of the
 * connection. Strict: plain hex sizes, CRLF everywhere, bounded extensions and trailers.
 */
export class BodyReader {
  readonly #onData: (chunk: Buffer) => void;
  readonly #copies: boolean;
  #state = DONE;
  #left = 0;
  #digits = 0;
  #extensionBytes = 0;
  #extension = "";
  #maxTrailerBytes = 0;
  #held: Buffer | null = null;
  /** Those of the message that was read last. */
  trailers: FieldLines = NO_TRAILERS;
  /** Why the bytes are no valid body; null while they are. */
  failure: string | null = null;

  /** @param copies the bytes given to `read` are used again by their owner, so what is passed on is copied. */
  constructor(onData: (chunk: Buffer) => void, copies: boolean) {
    this.#onData = onData;
    this.#copies = copies;
  }

  /** The body is complete, or there is none. */
  get done(): boolean {
    return this.#state === DONE;
  }

  /** Only the end of the connection ends the body. */
  get untilClose(): boolean {
    return this.#state === UNTIL_CLOSE;
  }

  /** Bytes that a body of known length still lacks; infinite for the others. */
  get left(): number {
    return this.#state === DONE
      ? 0
      : this.#state === LENGTH
        ? this.#left
        : Number.POSITIVE_INFINITY;
  }

  none(): void {
    this.#begin(DONE);
  }

  ofLength(length: number): void {
    this.#begin(length === 0 ? DONE : LENGTH);
    this.#left = length;
  }

  chunked(maxTrailerBytes: number): void {
    this.#begin(CHUNK_SIZE);
    this.#maxTrailerBytes = maxTrailerBytes;
  }

  toClose(): void {
    this.#begin(UNTIL_CLOSE);
  }

  /** Takes nothing more. */
  stop(): void {
    this.#state = STOPPED;
    this.#held = null;
  }

  #begin(state: number): void {
    this.#state = state;
    this.#left = 0;
    this.#digits = 0;
    this.#extensionBytes = 0;
    this.#extension = "";
    this.#held = null;
    this.trailers = NO_TRAILERS;
    this.failure = null;
  }

  /** Takes bytes from `at` up to `end`; returns where it stopped: at the end of the body, or at `end`. */
  read(bytes: Buffer, at: number, end: number): number {
    while (at < end) {
      switch (this.#state) {
        case LENGTH:
        case CHUNK_DATA: {
          const stop = Math.min(at + this.#left, end);
          this.#left -= stop - at;
          if (this.#left === 0) {
            this.#state = this.#state === LENGTH ? DONE : CHUNK_CR;
          }
          this.#pass(bytes, at, stop);
          at = stop;
          break;
        }
        case CHUNK_SIZE: {
          const byte = bytes[at++]!;
          const digit = hexDigit(byte);
          if (digit >= 0) {
            this.#left = this.#left * 16 + digit;
            if (this.#left > MAX_CHUNK_BYTES || ++this.#digits > MAX_SIZE_DIGITS) {
              return this.#fail("a chunk is too large", at);
            }
          } else if (this.#digits > 0 && byte === 13) {
            this.#state = CHUNK_SIZE_LF;
          } else if (this.#digits > 0 && byte === 59) {
            this.#state = CHUNK_EXTENSION;
          } else {
            return this.#fail("a chunk size is not plain hex", at);
          }
          break;
        }
        case CHUNK_EXTENSION: {
          const byte = bytes[at++]!;
          if (byte !== 13) {
            this.#extension += String.fromCharCode(byte);
            if (byte === 10 || ++this.#extensionBytes > MAX_EXTENSION_BYTES) {
              return this.#fail("a chunk extension is not valid", at);
            }
          } else if (EXTENSION.test(this.#extension)) {
            this.#extension = "";
            this.#state = CHUNK_SIZE_LF;
          } else {
            return this.#fail("a chunk extension is not valid", at);
          }
          break;
        }
        case CHUNK_SIZE_LF:
          if (bytes[at++] !== 10) {
            return this.#fail("a chunk size does not end in CRLF", at);
          }
          this.#state = this.#left === 0 ? TRAILERS : CHUNK_DATA;
          break;
        case CHUNK_CR:
          if (bytes[at++] !== 13) {
            return this.#fail("a chunk does not end in CRLF", at);
          }
          this.#state = CHUNK_LF;
          break;
        case CHUNK_LF:
          if (bytes[at++] !== 10) {
            return this.#fail("a chunk does not end in CRLF", at);
          }
          this.#state = CHUNK_SIZE;
          this.#left = 0;
          this.#digits = 0;
          break;
        case TRAILERS:
          at = this.#readTrailers(bytes, at, end);
          break;
        case UNTIL_CLOSE:
          this.#pass(bytes, at, end);
          return end;
        default:
          return at;
      }
    }
    return at;
  }

  #readTrailers(bytes: Buffer, at: number, end: number): number {
    const before = this.#held?.length ?? 0;
    const text =
      this.#held === null
        ? bytes.subarray(at, end)
        : Buffer.concat([this.#held, bytes.subarray(at, end)]);
    this.#held = null;
    if (text.length >= 2 && text[0] === 13 && text[1] === 10) {
      this.#state = DONE;
      return at + 2 - before;
    }
    const found = text.indexOf(HEAD_END);
    const size = found < 0 ? text.length : found + 4;
    if (size > this.#maxTrailerBytes) {
      return this.#fail("the trailers are too large", end);
    }
    if (found < 0) {
      if (hasBareLf(text)) {
        return this.#fail("a line does not end in CRLF", end);
      }
      this.#held = Buffer.from(text);
      return end;
    }
    const trailers: string[] = [];
    const lines = text.toString("latin1", 0, found + 2);
    if (isForbidden(lines) || !readFields(lines, 0, trailers)) {
      return this.#fail("the trailers are not valid", end);
    }
    this.trailers = trailers;
    this.#state = DONE;
    return at + size - before;
  }

  #pass(bytes: Buffer, from: number, to: number): void {
    if (this.#copies) {
      this.#onData(copyOf(bytes, from, to));
    } else {
      this.#onData(from === 0 && to === bytes.length ? bytes : bytes.subarray(from, to));
    }
  }

  #fail(reason: string, at: number): number {
    this.#state = STOPPED;
    this.failure = reason;
    return at;
  }
}

/** A line feed without a carriage return before it: such a section can never be completed. */
export function hasBareLf(bytes: Buffer): boolean {
  for (let lf = bytes.indexOf(10); lf >= 0; lf = bytes.indexOf(10, lf + 1)) {
    if (lf === 0 || bytes[lf - 1] !== 13) {
      return true;
    }
  }
  return false;
}

/** The bytes in memory of their own. */
export function copyOf(bytes: Buffer, from: number, to: number): Buffer {
  const copy = Buffer.allocUnsafe(to - from);
  bytes.copy(copy, 0, from, to);
  return copy;
}

function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) {
    return byte - 48;
  }
  const lower = byte | 32;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}
