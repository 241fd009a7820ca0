import type { Clock, Timer } from "../policy/kernel/clock.ts";

/**
 * The line between an edge process and a worker: one unix socket that carries all calls, as frames. Many small
 * frames leave in one write and come in one read, which is most of what a call costs otherwise.
 *
 * A frame is its payload's length, the call's number (both 32 bits, big endian), a type, and the payload. The numbers are
 * the caller's; frames of a call that is over are ignored, since they may have crossed its end.
 *
 * Both directions of a call are bounded: a body moves when the worker asks for it (`want`), an answer within
 * `ANSWER_WINDOW`, which the caller refills as it passes bytes on (`credit`).
 */
export const FRAME = {
  /** Edge to worker, first on a connection: the secret. */
  hello: 1,
  /** A request without its body (`call-frame.ts`). */
  call: 2,
  body: 3,
  /** The body is complete; trailers as lines. */
  bodyEnd: 4,
  /** The caller gave the call up, or needs no more of it. */
  cancel: 5,
  /** So many bytes of the answer were passed on. */
  credit: 6,
  /** About a request that the worker ordered to forward (`order.ts`): its answer's head is on its way to the client. */
  orderHead: 7,
  /** The whole answer is; with what `orderHead` would have said, where both came at once. */
  orderDone: 8,
  /** It failed; behind an `orderHead` the client was cut off. */
  orderFailed: 9,
  /** Worker to edge: bytes of an HTTP/1.1 answer, as Node writes them. */
  answer: 16,
  /** The answer ends here; sent only where nothing else in it tells. */
  end: 17,
  /** The answer was cut, or none will come. */
  cut: 18,
  /** So many bytes of the request's body may come. */
  want: 19,
  /** Instead of an answer: forward the request, whose body was not asked for (`order.ts`). */
  order: 20,
  /** What the script staged for the answer of its order since then. */
  stage: 21,
} as const;

/** Length, call and type. */
const HEAD_BYTES = 9;
/** Longest payload of a frame that is read whole; bytes of bodies and answers are handed on as they come. */
export const MAX_FRAME_BYTES = 1_048_576;
/** Bytes of one answer that may be on their way before the caller has passed any of them on. */
export const ANSWER_WINDOW = 262_144;
/** Pieces up to this size are copied into one text with their neighbours: one write costs half of two. */
const JOIN_BYTES = 16_384;
/** Gathered text beyond this does not wait for the end of the turn. */
const FLUSH_BYTES = 131_072;
/** How long frames that nobody waits for are gathered, in ms. */
const LATER_MS = 1;
const NO_BYTES = Buffer.alloc(0);

/** Takes frames; a body or an answer may come in several pieces of one frame. The bytes are good until it returns. */
export type FrameSink = (type: number, call: number, payload: Buffer) => void;

/** Splits what a connection reads into frames. */
export class FrameReader {
  readonly #sink: FrameSink;
  #held: Buffer = NO_BYTES;
  /** What is left of a frame that is handed on in pieces. */
  #left = 0;
  #type = 0;
  #call = 0;

  constructor(sink: FrameSink) {
    this.#sink = sink;
  }

  /** Takes the first `size` bytes of `chunk`, which is not kept. False when the peer does not keep to the protocol. */
  push(chunk: Buffer, size: number): boolean {
    let bytes = chunk;
    let end = size;
    let at = 0;
    if (this.#held.length > 0) {
      bytes = Buffer.concat([this.#held, chunk.subarray(0, size)]);
      end = bytes.length;
      this.#held = NO_BYTES;
    }
    while (at < end) {
      if (this.#left > 0) {
        const stop = Math.min(end, at + this.#left);
        this.#left -= stop - at;
        this.#sink(this.#type, this.#call, bytes.subarray(at, stop));
        at = stop;
        continue;
      }
      if (end - at < HEAD_BYTES) {
        break;
      }
      const length = bytes.readUInt32BE(at);
      const call = bytes.readUInt32BE(at + 4);
      const type = bytes[at + 8]!;
      if (type === FRAME.answer || type === FRAME.body) {
        this.#left = length;
        this.#type = type;
        this.#call = call;
        at += HEAD_BYTES;
        continue;
      }
      if (length > MAX_FRAME_BYTES) {
        return false;
      }
      if (end - at < HEAD_BYTES + length) {
        break;
      }
      at += HEAD_BYTES;
      this.#sink(type, call, bytes.subarray(at, at + length));
      at += length;
    }
    if (at < end) {
      this.#held = Buffer.from(bytes.subarray(at, end));
    }
    return true;
  }
}

/** The part of a socket that a {@link FrameWriter} uses. */
export interface FrameTarget {
  readonly destroyed: boolean;
  cork(): void;
  uncork(): void;
  write(data: string | Buffer, encoding?: BufferEncoding, done?: () => void): boolean;
}

/** Gathers the frames of one turn of the event loop and writes them together. */
export class FrameWriter {
  readonly #target: FrameTarget;
  #pieces: (string | Buffer)[] = [];
  #text = "";
  #size = 0;
  #done: (() => void)[] = [];
  #flush: NodeJS.Immediate | null = null;
  #timer: Timer | null = null;
  readonly #clock: Clock;
  /** Grows with each write; tells whether something that was gathered earlier has left. */
  turn = 0;
  /** The peer reads more slowly than we write. Whoever sees it waits for the target's `drain`. */
  isFull = false;
  /** Runs when a turn is over, before its frames are written: the last moment to add one. */
  onFlush: (() => void) | null = null;

  constructor(target: FrameTarget, clock: Clock) {
    this.#target = target;
    this.#clock = clock;
  }

  /** A frame whose payload is latin1 text. */
  text(type: number, call: number, payload: string): void {
    this.#text += head(type, call, payload.length) + payload;
    this.#grew(payload.length);
  }

  /** A frame that may wait for company, at most `LATER_MS`: nobody but the script's own code waits for it. */
  later(type: number, call: number, payload: string): void {
    this.#text += head(type, call, payload.length) + payload;
    this.#size += payload.length + HEAD_BYTES;
    if (this.#flush === null) {
      this.#timer ??= this.#clock.after(LATER_MS, this.flush);
    }
  }

  /** A frame whose payload is bytes, which must not change until they are written. */
  bytes(type: number, call: number, payload: Buffer): void {
    if (payload.length <= JOIN_BYTES) {
      this.text(type, call, payload.toString("latin1"));
      return;
    }
    this.#pieces.push(this.#text + head(type, call, payload.length), payload);
    this.#text = "";
    this.#grew(payload.length);
  }

  /** A frame that tells one number. */
  number(type: number, call: number, value: number): void {
    this.text(type, call, wordOf(value));
  }

  /** Calls `done` when all that was gathered so far has been handed to the system. */
  after(done: () => void): void {
    this.#done.push(done);
    this.schedule();
  }

  /** Makes sure that a flush comes at the end of this turn. */
  schedule(): void {
    this.#flush ??= setImmediate(this.flush);
  }

  /** Writes what is gathered. */
  readonly flush = (): void => {
    if (this.#flush !== null) {
      clearImmediate(this.#flush);
      this.#flush = null;
    }
    if (this.#timer !== null) {
      this.#timer.cancel();
      this.#timer = null;
    }
    this.onFlush?.();
    this.#write();
  };

  #write(): void {
    const target = this.#target;
    const pieces = this.#pieces;
    const text = this.#text;
    const done = this.#done;
    if (target.destroyed || (text === "" && pieces.length === 0 && done.length === 0)) {
      this.#pieces = [];
      this.#text = "";
      this.#done = [];
      return;
    }
    this.turn++;
    this.#text = "";
    this.#size = 0;
    if (done.length > 0) {
      this.#done = [];
    }
    const told = done.length === 0 ? undefined : (): void => done.forEach((each) => each());
    if (text === "" && pieces.length === 0) {
      told?.();
      return;
    }
    if (pieces.length === 0) {
      this.isFull = !target.write(text, "latin1", told);
      return;
    }
    this.#pieces = [];
    target.cork();
    for (const piece of pieces) {
      target.write(piece, "latin1");
    }
    this.isFull = !target.write(text, "latin1", told);
    target.uncork();
  }

  #grew(bytes: number): void {
    this.#size += bytes + HEAD_BYTES;
    if (this.#size > FLUSH_BYTES) {
      this.#write(); // in mid-turn: what waits for the turn's end goes on waiting
    } else {
      this.schedule();
    }
  }
}

/** A number as the payload of a frame. */
function wordOf(value: number): string {
  return String.fromCharCode(
    (value >>> 24) & 255,
    (value >>> 16) & 255,
    (value >>> 8) & 255,
    value & 255,
  );
}

function head(type: number, call: number, length: number): string {
  return String.fromCharCode(
    (length >>> 24) & 255,
    (length >>> 16) & 255,
    (length >>> 8) & 255,
    length & 255,
    (call >>> 24) & 255,
    (call >>> 16) & 255,
    (call >>> 8) & 255,
    call & 255,
    type,
  );
}

/** Reads it back; null for a payload of another size. */
export function readNumber(payload: Buffer): number | null {
  return payload.length === 4 ? payload.readUInt32BE(0) : null;
}
