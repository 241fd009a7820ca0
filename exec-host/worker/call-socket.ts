import { EventEmitter } from "node:events";
import { FRAME, type FrameWriter } from "../../dispatcher/frames.ts";
import type { HostRequest } from "./host-request.ts";

/** What a call's socket needs of the connection that carries its frames. */
export interface CallLine {
  readonly writer: FrameWriter;
  /** The socket is to be told, by `drainSocket`, when more can be written. */
  await(socket: CallSocket): void;
  /** The call has ended on this side; `isWhole` when its answer was complete. */
  closed(id: number, isWhole: boolean): void;
}

type Done = (error?: Error | null) => void;

interface Held {
  readonly bytes: Buffer;
  readonly done: Done | undefined;
}

/** Lets the caller's side have so many more bytes of the answer. */
export let grantBytes: (socket: CallSocket, bytes: number) => void;
/** The connection can take more. */
export let drainSocket: (socket: CallSocket) => void;
/** The caller is gone: nothing that is written reaches anybody. */
export let loseSocket: (socket: CallSocket) => void;
/** The answer is complete and the response let go of the socket; `endsHere` where only that tells its end. */
export let finishSocket: (socket: CallSocket, endsHere: boolean) => void;
/**
 * While the edge answers in the script's place: what is written before the answer's head takes the place back, which
 * `takenBack` is told; behind the head it goes nowhere.
 */
export let lendSocket: (socket: CallSocket, takenBack: () => void) => void;
/** The head of that answer is out. */
export let noteHead: (socket: CallSocket) => void;
/** The socket is the script's again. */
export let returnSocket: (socket: CallSocket) => void;
/** Whose body breaks off when the socket closes early, and who writes on when it takes more. */
export let bindMessages: (socket: CallSocket, req: HostRequest, drained: () => void) => void;

const HIGH_WATER_MARK = 65_536;
/** Bytes that are copied together while a socket is corked; larger pieces leave by themselves. */
const MAX_GATHERED = 16_384;

/**
 * `req.socket` of a call. Calls share a connection, so this is no socket of the system; it is what Node's messages and
 * scripts use of one: `write` with back-pressure, `destroy` and `close`, the client's address. Its bytes leave as frames.
 */
export class CallSocket extends EventEmitter {
  readonly remoteAddress: string;
  readonly remoteFamily: string;
  destroyed = false;
  readonly readableHighWaterMark = HIGH_WATER_MARK;
  readonly writableHighWaterMark = HIGH_WATER_MARK;
  /** Node's response uncorks its socket by this. */
  readonly _writableState = { corked: 0 };
  /** The response that writes here; set by Node. */
  _httpMessage: EventEmitter | null = null;
  readonly #id: number;
  readonly #line: CallLine;
  #window: number;
  #held: Held[] | null = null;
  #heldBytes = 0;
  /** Bytes that were given to the connection's turn `#turn`. */
  #unwritten = 0;
  /** Written while corked, latin1. */
  #gathered = "";
  #turn = -1;
  #isEnding = false;
  #isFinished = false;
  /** Set while the edge answers in the script's place. */
  #takenBack: (() => void) | null = null;
  /** The head of that answer is out. */
  #isHeadOut = false;
  #request: HostRequest | null = null;
  #drained: () => void = () => {};
  #timer: NodeJS.Timeout | null = null;

  static {
    grantBytes = (socket, bytes) => socket.#grant(bytes);
    drainSocket = (socket) => socket.#drain();
    loseSocket = (socket) => socket.#close(undefined, false);
    finishSocket = (socket, endsHere) => socket.#finish(endsHere);
    lendSocket = (socket, takenBack) => {
      socket.#takenBack = takenBack;
    };
    noteHead = (socket) => {
      socket.#isHeadOut = true;
    };
    returnSocket = (socket) => {
      socket.#takenBack = null;
    };
    bindMessages = (socket, req, drained) => {
      socket.#request = req;
      socket.#drained = drained;
    };
  }

  /** @param window bytes of the answer that may be sent before the caller asks for more. */
  constructor(id: number, line: CallLine, remoteAddress: string, window: number) {
    super();
    this.#id = id;
    this.#line = line;
    this.#window = window;
    this.remoteAddress = remoteAddress;
    this.remoteFamily = remoteAddress.includes(":") ? "IPv6" : "IPv4";
  }

  get readable(): boolean {
    return !this.destroyed;
  }

  get writable(): boolean {
    return !this.destroyed && !this.#isEnding;
  }

  get writableLength(): number {
    if (this.#takenBack !== null) {
      return 1; // the answer is not out yet
    }
    return this.#heldBytes + (this.#turn === this.#line.writer.turn ? this.#unwritten : 0);
  }

  get writableCorked(): number {
    return this._writableState.corked;
  }

  /** As a stream's: what is written until `uncork()` leaves as one frame, a head and a short body as a rule. */
  cork(): void {
    this._writableState.corked++;
  }

  uncork(): void {
    if (this._writableState.corked > 0) {
      this._writableState.corked--;
    }
    if (this._writableState.corked === 0) {
      this.#giveGathered();
    }
  }

  /** As a stream's: false when the writer should wait for `drain`; `done` once the bytes are on their way. */
  write(
    data: string | Uint8Array,
    encoding?: BufferEncoding | "buffer" | Done | null,
    given?: Done | null,
  ): boolean {
    if (typeof encoding === "function") {
      return this.write(data, null, encoding);
    }
    const done = given ?? undefined;
    if (!this.writable) {
      if (done !== undefined) {
        process.nextTick(done, closedError());
      }
      return false;
    }
    const takenBack = this.#takenBack;
    if (takenBack !== null && this.#isHeadOut) {
      if (done !== undefined) {
        this.#line.writer.after(done);
      }
      return true;
    }
    this.#takenBack = null;
    takenBack?.();
    this.#timer?.refresh();
    const text = typeof data === "string" && isLatin1(data, encoding) ? data : null;
    const bytes = text === null ? toBuffer(data, encoding) : null;
    const size = data.length === 0 ? 0 : (text ?? bytes)!.length;
    if (this.#held !== null || size > this.#window) {
      const held = (this.#held ??= []);
      held.push({ bytes: bytes ?? Buffer.from(text!, "latin1"), done });
      this.#heldBytes += size;
      this.#sendHeld();
    } else {
      this.#send((text ?? bytes)!, size);
      if (done !== undefined) {
        this.#line.writer.after(done);
      }
    }
    return this.#hasRoom();
  }

  #hasRoom(): boolean {
    const { writer } = this.#line;
    if (this.#held === null && !writer.isFull && this.writableLength < HIGH_WATER_MARK) {
      return true;
    }
    this.#line.await(this);
    return false;
  }

  #send(data: string | Buffer, size: number): void {
    if (size === 0) {
      return;
    }
    const { writer } = this.#line;
    this.#window -= size;
    if (this.#turn !== writer.turn) {
      this.#turn = writer.turn;
      this.#unwritten = 0;
    }
    this.#unwritten += size;
    if (this._writableState.corked > 0 && this.#gathered.length + size <= MAX_GATHERED) {
      this.#gathered += typeof data === "string" ? data : data.toString("latin1");
      writer.schedule();
      return;
    }
    this.#giveGathered();
    if (typeof data === "string") {
      writer.text(FRAME.answer, this.#id, data);
    } else {
      writer.bytes(FRAME.answer, this.#id, data);
    }
  }

  #giveGathered(): void {
    const text = this.#gathered;
    if (text !== "") {
      this.#gathered = "";
      if (!this.destroyed) {
        this.#line.writer.text(FRAME.answer, this.#id, text);
      }
    }
  }

  #sendHeld(): void {
    const held = this.#held;
    while (held !== null && held.length > 0 && this.#window > 0) {
      const { bytes, done } = held[0]!;
      const part = bytes.subarray(0, this.#window);
      this.#heldBytes -= part.length;
      this.#send(part, part.length);
      if (part.length < bytes.length) {
        held[0] = { bytes: bytes.subarray(part.length), done };
        return;
      }
      held.shift();
      if (done !== undefined) {
        this.#line.writer.after(done);
      }
    }
    if (held?.length === 0) {
      this.#held = null;
      if (this.#isEnding) {
        this.#end();
      }
    }
  }

  #grant(bytes: number): void {
    this.#window += bytes;
    if (!this.destroyed) {
      this.#sendHeld();
      this.#line.await(this);
    }
  }

  #drain(): void {
    if (this.#held === null && !this.destroyed) {
      this.emit("drain");
      this.#drained();
    } else if (!this.destroyed && this.#window > 0) {
      this.#sendHeld();
    }
  }

  /** Ends the answer where nothing in it tells its end. */
  end(data?: string | Uint8Array, encoding?: BufferEncoding, done?: Done): this {
    if (data !== undefined) {
      this.write(data, encoding, done);
    }
    if (this.writable) {
      this.#isEnding = true;
      if (this.#held === null) {
        this.#end();
      }
    }
    return this;
  }

  destroySoon(): void {
    this.end();
  }

  #end(): void {
    this.#giveGathered();
    this.#line.writer.text(FRAME.end, this.#id, "");
    this.#isFinished = true;
    this.#close(undefined, true);
  }

  destroy(error?: Error): this {
    if (!this.destroyed && !this.#isFinished) {
      this.#line.writer.text(FRAME.cut, this.#id, "");
    }
    this.#close(error, false);
    return this;
  }

  /** As a kept-alive connection behind an answer, it does not close: nobody left, and nothing broke. */
  #finish(endsHere: boolean): void {
    if (endsHere) {
      this.end();
      return;
    }
    this.#isFinished = true;
    this.#isEnding = true;
    this.#request = null;
    clearTimeout(this.#timer ?? undefined);
    this.#line.closed(this.#id, true);
  }

  #close(error: Error | undefined, isWhole: boolean): void {
    if (this.destroyed) {
      return;
    }
    this.destroyed = true;
    for (const { done } of this.#held ?? []) {
      if (done !== undefined) {
        process.nextTick(done, closedError());
      }
    }
    this.#held = null;
    this.#heldBytes = 0;
    clearTimeout(this.#timer ?? undefined);
    this.#line.closed(this.#id, isWhole);
    process.nextTick(() => this.#closed(error));
  }

  #closed(error: Error | undefined): void {
    const request = this.#request;
    this.#request = null;
    if (!this.#isFinished) {
      request?.destroy(abortedError());
    }
    if (error !== undefined && this.listenerCount("error") > 0) {
      this.emit("error", error);
    }
    this.emit("close", error !== undefined);
  }

  /** Idle time until `timeout`; without a listener the call ends then, as with Node's server. */
  setTimeout(ms: number, listener?: () => void): this {
    clearTimeout(this.#timer ?? undefined);
    this.#timer = null;
    if (ms > 0 && !this.destroyed) {
      this.#timer = setTimeout(() => this.#timedOut(), ms).unref();
    }
    if (listener !== undefined) {
      if (ms > 0) {
        this.once("timeout", listener);
      } else {
        this.off("timeout", listener);
      }
    }
    return this;
  }

  #timedOut(): void {
    if (this.#takenBack !== null && this.#isHeadOut) {
      this.#timer?.refresh(); // the edge sees to the stream
      return;
    }
    const request = this.#request;
    const isHeard = [
      request !== null && !request.complete && request.emit("timeout", this),
      this._httpMessage !== null && this._httpMessage.emit("timeout", this),
      this.emit("timeout"),
    ];
    if (!isHeard.includes(true)) {
      this.destroy();
    }
  }

  /** Options of a connection of its own: there is none. */
  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  /** The body is held back by its own stream. */
  pause(): this {
    return this;
  }

  resume(): this {
    return this;
  }

  address(): object {
    return {};
  }
}

/** Whether the text is one byte per character, as it will be sent. */
function isLatin1(text: string, encoding: string | null | undefined): boolean {
  if (encoding === "latin1" || encoding === "binary") {
    return true;
  }
  const isUtf8 =
    encoding === undefined || encoding === null || /^(?:utf-?8|ascii)$/i.test(encoding);
  return isUtf8 && Buffer.byteLength(text, "utf8") === text.length;
}

function toBuffer(data: string | Uint8Array, encoding: string | null | undefined): Buffer {
  if (typeof data === "string") {
    return Buffer.from(data, (encoding ?? "utf8") as BufferEncoding);
  }
  return Buffer.isBuffer(data) ? data : Buffer.from(data.buffer, data.byteOffset, data.byteLength);
}

function closedError(): Error {
  return Object.assign(new Error("Cannot call write after a stream was destroyed"), {
    code: "ERR_STREAM_DESTROYED",
  });
}

/** What Node's server tells a request whose connection breaks. */
function abortedError(): Error {
  return Object.assign(new Error("aborted"), { code: "ECONNRESET" });
}
