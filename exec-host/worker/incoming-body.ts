import type { OutgoingCall } from "../../policy/kernel/http1/types.ts";

/** Bytes held for a reader that has not come yet; more makes the sender wait. */
const HELD_BYTES = 65_536;

/** Takes a body directly, without the cost of web streams. */
export interface BodyReceiver {
  /** Returns false to be sent nothing until `resume()`. */
  data(chunk: Buffer): boolean;
  end(): void;
  fail(error: Error): void;
}

/**
 * The body of an answer that arrives. It is read either as a web stream (`next`) or by one receiver (`pour`); until
 * then a bounded part of it is held, and the sender waits.
 */
export class IncomingBody {
  #held: Buffer[] = [];
  #heldBytes = 0;
  #isEnded = false;
  #error: Error | null = null;
  #outgoing: OutgoingCall | null = null;
  #receiver: BodyReceiver | null = null;
  #waiting: { resolve: (chunk: Buffer | null) => void; reject: (error: Error) => void } | null =
    null;
  #isTouched = false;

  /** The call whose answer this is. */
  bind(outgoing: OutgoingCall): void {
    this.#outgoing = outgoing;
  }

  /** Somebody has begun to read. */
  get isTouched(): boolean {
    return this.#isTouched;
  }

  get isOver(): boolean {
    return this.#isEnded || this.#error !== null;
  }

  push(chunk: Buffer): boolean {
    if (this.#receiver !== null) {
      return this.#receiver.data(chunk);
    }
    if (this.#waiting !== null) {
      const { resolve } = this.#waiting;
      this.#waiting = null;
      resolve(chunk);
      return true;
    }
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    return this.#heldBytes < HELD_BYTES;
  }

  end(): void {
    this.#isEnded = true;
    this.#receiver?.end();
    this.#waiting?.resolve(null);
    this.#waiting = null;
  }

  fail(error: Error): void {
    if (this.#isEnded) {
      return;
    }
    this.#error = error;
    this.#receiver?.fail(error);
    this.#waiting?.reject(error);
    this.#waiting = null;
  }

  /** The next piece, null at the end. One reader at a time. */
  next(): Promise<Buffer | null> {
    this.#isTouched = true;
    const chunk = this.#held.shift();
    if (chunk !== undefined) {
      this.#heldBytes -= chunk.length;
      if (this.#held.length === 0) {
        this.#outgoing?.resume();
      }
      return Promise.resolve(chunk);
    }
    if (this.#error !== null) {
      return Promise.reject(this.#error);
    }
    if (this.#isEnded) {
      return Promise.resolve(null);
    }
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  /** Gives everything to `receiver` from now on. */
  pour(receiver: BodyReceiver): void {
    this.#isTouched = true;
    const held = this.#held;
    this.#held = [];
    let isReady = true;
    for (const chunk of held) {
      isReady = receiver.data(chunk) && isReady;
    }
    this.#receiver = receiver;
    if (this.#error !== null) {
      receiver.fail(this.#error);
    } else if (this.#isEnded) {
      receiver.end();
    } else if (isReady) {
      this.#outgoing?.resume();
    }
  }

  resume(): void {
    this.#outgoing?.resume();
  }

  /** Nobody wants the rest. */
  cancel(): void {
    this.#isTouched = true;
    this.#held = [];
    if (!this.isOver) {
      this.#isEnded = true;
      this.#outgoing?.abort();
    }
  }

  /** As a web stream that reads nothing ahead: an untouched response can still be poured. */
  toStream(): ReadableStream<Uint8Array> {
    const stream = new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          const chunk = await this.next();
          if (chunk === null) {
            controller.close();
          } else {
            controller.enqueue(new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength));
          }
        },
        cancel: () => this.cancel(),
      },
      { highWaterMark: 0 },
    );
    abandoned.register(stream, () => this.cancel());
    return stream;
  }
}

/**
 * A script may drop a response without reading it. Once its stream is collected nobody can, and the connection that
 * waits for a reader is given up.
 */
export const abandoned = new FinalizationRegistry<() => void>((cancel) => cancel());

const bodies = new WeakMap<Response, IncomingBody>();

/** Remembers the body under a response, for as long as nobody reads it as a stream. */
export function attachBody(response: Response, body: IncomingBody): void {
  bodies.set(response, body);
}

/** The body under a response that was not touched yet; the response's own stream is locked from here on. */
export function takeUntouchedBody(response: Response): IncomingBody | null {
  const body = bodies.get(response);
  if (
    body === undefined ||
    body.isTouched ||
    response.bodyUsed ||
    response.body?.locked !== false
  ) {
    return null;
  }
  response.body.getReader();
  return body;
}
