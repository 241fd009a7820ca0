import type { DrainingSink, FieldLines } from "../../../policy/kernel/exchange.ts";
import { areSendable, writeFields } from "../../../policy/kernel/http1/request-head.ts";

/** Pieces up to this size leave in one write together with what stands before them, which costs half of two writes. */
const JOIN_BYTES = 16_384;

/** Where answers are written. */
export interface AnswerConnection {
  write(bytes: string | Buffer): boolean;
  /** Head or frame and body as one message to the kernel, without copying the body. */
  writeParts(before: string, body: Buffer, after: string, disposable: boolean): boolean;
  onDrain(listener: () => void): void;
}

/** Whose answer it is. */
export interface AnswerOwner {
  /** The answer's last byte was handed over. */
  finish(keepAlive: boolean): void;
  /** The answer broke off. */
  abort(): void;
}

/** Where a streamed answer goes. The head waits for the first piece, so that a small answer leaves in one write. */
export class AnswerSink implements DrainingSink {
  readonly #connection: AnswerConnection;
  readonly #exchange: AnswerOwner;
  readonly #bodyless: boolean;
  readonly #chunked: boolean;
  readonly #keepAlive: boolean;
  #head: string;
  #held: Buffer | null = null;
  #left: number;
  #done = false;

  constructor(
    connection: AnswerConnection,
    exchange: AnswerOwner,
    head: string,
    bodyless: boolean,
    chunked: boolean,
    length: number | null,
    keepAlive: boolean,
  ) {
    this.#connection = connection;
    this.#exchange = exchange;
    this.#head = head;
    this.#bodyless = bodyless;
    this.#chunked = chunked;
    this.#keepAlive = keepAlive;
    this.#left = length ?? Number.POSITIVE_INFINITY;
    process.nextTick(flushLater, this);
  }

  /** Lets go of what was held back for joining; the end of the answer did not come within this turn. */
  flush(): boolean {
    if (this.#done || (this.#head === "" && this.#held === null)) {
      return true;
    }
    const head = this.#head;
    const held = this.#held;
    this.#head = "";
    this.#held = null;
    return held === null ? this.#connection.write(head) : this.#send(head, held, false);
  }

  #send(before: string, chunk: Buffer, disposable: boolean): boolean {
    return this.#chunked
      ? writeJoined(
          this.#connection,
          `${before}${chunk.length.toString(16)}\r\n`,
          chunk,
          "\r\n",
          disposable,
        )
      : writeJoined(this.#connection, before, chunk, "", disposable);
  }

  data(chunk: Buffer, disposable = false): boolean {
    if (this.#done || this.#bodyless || chunk.length === 0) {
      return true;
    }
    if (chunk.length > this.#left) {
      this.fail(new Error("more bytes than declared"));
      return true;
    }
    this.#left -= chunk.length;
    if (this.#head !== "" && this.#held === null && chunk.length <= JOIN_BYTES) {
      this.#held = chunk;
      return true;
    }
    if (this.#held !== null) {
      this.flush();
    }
    const head = this.#head;
    this.#head = "";
    return this.#send(head, chunk, disposable);
  }

  end(trailers: FieldLines): void {
    if (this.#done) {
      return;
    }
    if (!this.#bodyless && Number.isFinite(this.#left) && this.#left > 0) {
      this.fail(new Error("fewer bytes than declared"));
      return;
    }
    let tail = "";
    if (this.#chunked) {
      tail =
        trailers.length > 0 && areSendable(trailers)
          ? `0\r\n${writeFields(trailers)}\r\n`
          : "0\r\n\r\n";
    }
    this.#done = true;
    const held = this.#held;
    this.#held = null;
    if (held === null) {
      if (this.#head !== "" || tail !== "") {
        this.#connection.write(this.#head + tail);
      }
    } else if (this.#chunked) {
      writeJoined(
        this.#connection,
        `${this.#head}${held.length.toString(16)}\r\n`,
        held,
        `\r\n${tail}`,
      );
    } else {
      writeJoined(this.#connection, this.#head, held, "");
    }
    this.#head = "";
    this.#exchange.finish(this.#keepAlive);
  }

  fail(_cause: Error): void {
    if (!this.#done) {
      this.#done = true;
      this.#held = null;
      this.#exchange.abort(); // a cut the client can see; never a neat end of a broken body
    }
  }

  onDrain(listener: () => void): void {
    this.#connection.onDrain(listener);
  }
}

/** Takes what can no longer be sent. */
export const DEAD_SINK: DrainingSink = { data: () => true, end() {}, fail() {}, onDrain() {} };

function flushLater(sink: AnswerSink): void {
  sink.flush();
}

/** Writes a piece with what stands before and behind it in as few system calls as possible. */
export function writeJoined(
  connection: AnswerConnection,
  before: string,
  chunk: Buffer,
  after: string,
  disposable = false,
): boolean {
  if (chunk.length > JOIN_BYTES) {
    return connection.writeParts(before, chunk, after, disposable);
  }
  // One latin1 string is the cheapest write that Node has.
  return connection.write(`${before}${chunk.toString("latin1")}${after}`);
}
