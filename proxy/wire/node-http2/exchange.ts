import { constants, type ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import type {
  BodySink,
  BodySource,
  DrainingSink,
  Exchange,
  FieldLines,
  Peer,
  RequestHead,
  ResponseHead,
} from "../../../policy/kernel/exchange.ts";
import { sweepTrailers } from "../../../policy/kernel/fields.ts";

const { NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR, NGHTTP2_NO_ERROR } = constants;
const NO_TRAILERS: FieldLines = [];

/** One HTTP/2 stream: an ordinary request, or a WebSocket handshake by extended CONNECT (RFC 8441). */
export class Http2Exchange implements Exchange {
  readonly head: RequestHead;
  readonly peer: Peer;
  readonly body: BodySource | null;
  readonly handshake: boolean;
  readonly #stream: ServerHttp2Stream;
  readonly #ended: (exchange: Http2Exchange) => void;
  #waits: boolean;
  #gone = false;
  #over = false;
  #listeners: (() => void)[] = [];
  answered = false;

  /**
   * @param length declared length of the body, null when unknown; 0 for a request without one.
   * @param waits the client wants a 100 before it sends its body.
   * @param ended called once when the stream is closed.
   */
  constructor(
    stream: ServerHttp2Stream,
    head: RequestHead,
    peer: Peer,
    length: number | null,
    waits: boolean,
    handshake: boolean,
    ended: (exchange: Http2Exchange) => void,
  ) {
    this.#stream = stream;
    this.#waits = waits;
    this.#ended = ended;
    this.head = head;
    this.peer = peer;
    this.handshake = handshake;
    this.body = length === 0 || handshake ? null : new StreamBody(stream, length, this);
    stream.on("close", () => this.#closed());
    stream.on("error", ignore); // "close" tells the story
  }

  #closed(): void {
    if (!this.#over || this.#stream.rstCode !== NGHTTP2_NO_ERROR) {
      this.leave();
    }
    this.#ended(this);
  }

  /** The client is gone; listeners hear it once. */
  leave(): void {
    if (this.#gone) {
      return;
    }
    this.#gone = true;
    const listeners = this.#listeners;
    this.#listeners = [];
    for (const listener of listeners) {
      listener();
    }
  }

  onGone(listener: () => void): void {
    if (this.#gone) {
      listener();
    } else {
      this.#listeners.push(listener);
    }
  }

  get #canSend(): boolean {
    return !this.answered && !this.#gone && !this.#stream.destroyed && !this.#stream.closed;
  }

  sendContinue(): void {
    if (this.#waits && this.#canSend) {
      this.#waits = false;
      this.#stream.additionalHeaders({ ":status": 100 });
    }
  }

  sendInterim(head: ResponseHead): void {
    if (this.#canSend && head.status > 101 && head.status < 200) {
      try {
        this.#stream.additionalHeaders({ ":status": head.status, ...toHeaders(head.fields) });
      } catch {
        // an interim answer that HTTP/2 cannot carry is left out: the final one is what counts
      }
    }
  }

  answer(head: ResponseHead, body: Buffer): void {
    if (!this.#canSend) {
      return;
    }
    const sink = this.startAnswer(head, body.length, String(body.length));
    sink.data(body);
    sink.end(NO_TRAILERS);
  }

  startAnswer(head: ResponseHead, length: number | null, declaredLength?: string): DrainingSink {
    if (!this.#canSend) {
      return DEAD_SINK;
    }
    const bodyless = this.head.method === "HEAD" || head.status === 204 || head.status === 304;
    const lines: (string | number)[] = [":status", head.status, ...head.fields];
    if (bodyless) {
      if (declaredLength !== undefined && head.status !== 204) {
        lines.push("content-length", declaredLength);
      }
    } else if (length !== null) {
      lines.push("content-length", String(length));
    }
    this.#stream.respond(lines as string[], {
      endStream: bodyless,
      waitForTrailers: !bodyless && length === null,
    });
    this.answered = true;
    return new StreamSink(this.#stream, this, bodyless, length);
  }

  /** Called by the sink when the answer's last byte was handed over. */
  finished(): void {
    this.#over = true;
    const stream = this.#stream;
    if (this.body !== null && !stream.readableEnded) {
      // The answer is complete without the rest of the upload: tell the client to stop (RFC 9113 8.1).
      stream.once("finish", () => {
        if (!stream.readableEnded && !stream.destroyed) {
          stream.close(NGHTTP2_NO_ERROR);
        }
      });
    }
    stream.resume();
  }

  tunnel(head: ResponseHead): Duplex {
    if (!this.handshake) {
      throw new TypeError("not a handshake");
    }
    const lines: (string | number)[] = [":status", 200];
    for (let i = 0; i < head.fields.length; i += 2) {
      if (head.fields[i]!.toLowerCase() !== "sec-websocket-accept") {
        lines.push(head.fields[i]!, head.fields[i + 1]!); // the accept field belongs to the HTTP/1.1 handshake
      }
    }
    this.#stream.respond(lines as string[]);
    this.answered = true;
    this.#over = true;
    return this.#stream;
  }

  abort(): void {
    if (!this.#stream.destroyed) {
      this.#stream.close(this.answered ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_CANCEL);
    }
  }
}

class StreamBody implements BodySource {
  readonly length: number | null;
  readonly #stream: ServerHttp2Stream;
  readonly #exchange: Exchange;
  #sink: BodySink | null = null;
  #trailers: FieldLines = NO_TRAILERS;

  constructor(stream: ServerHttp2Stream, length: number | null, exchange: Exchange) {
    this.#stream = stream;
    this.length = length;
    this.#exchange = exchange;
  }

  start(sink: BodySink): void {
    const stream = this.#stream;
    this.#sink = sink;
    stream.on("data", this.#data);
    stream.on("trailers", (_headers: unknown, _flags: unknown, lines: string[] | undefined) => {
      this.#trailers = sweepTrailers(lines ?? NO_TRAILERS);
    });
    stream.on("end", () => this.#end());
    stream.on("aborted", () => this.#broken());
    stream.on("close", () => this.#broken());
    this.#exchange.sendContinue();
  }

  readonly #data = (chunk: Buffer): void => {
    if (this.#sink !== null && !this.#sink.data(chunk)) {
      this.#stream.pause();
    }
  };

  #end(): void {
    // A stream that the client resets ends too; it is closed then, while one that is complete waits for our answer.
    if (this.#stream.closed) {
      this.#broken();
      return;
    }
    const sink = this.#sink;
    this.#sink = null;
    sink?.end(this.#trailers);
  }

  #broken(): void {
    const sink = this.#sink;
    this.#sink = null;
    sink?.fail(new Error("the client broke off its request body"));
  }

  resume(): void {
    this.#stream.resume();
  }

  cancel(): void {
    this.#sink = null;
    this.#stream.removeListener("data", this.#data);
    this.#stream.resume();
  }
}

class StreamSink implements DrainingSink {
  readonly #stream: ServerHttp2Stream;
  readonly #exchange: Http2Exchange;
  readonly #bodyless: boolean;
  #left: number;
  #done = false;

  constructor(
    stream: ServerHttp2Stream,
    exchange: Http2Exchange,
    bodyless: boolean,
    length: number | null,
  ) {
    this.#stream = stream;
    this.#exchange = exchange;
    this.#bodyless = bodyless;
    this.#left = length ?? Number.POSITIVE_INFINITY;
  }

  data(chunk: Buffer): boolean {
    if (this.#done || this.#bodyless || chunk.length === 0 || this.#stream.destroyed) {
      return true;
    }
    if (chunk.length > this.#left) {
      this.fail(new Error("more bytes than declared"));
      return true;
    }
    this.#left -= chunk.length;
    return this.#stream.write(chunk);
  }

  end(trailers: FieldLines): void {
    if (this.#done) {
      return;
    }
    if (!this.#bodyless && Number.isFinite(this.#left) && this.#left > 0) {
      this.fail(new Error("fewer bytes than declared"));
      return;
    }
    this.#done = true;
    const stream = this.#stream;
    this.#exchange.finished();
    if (this.#bodyless || stream.destroyed) {
      return;
    }
    if (!Number.isFinite(this.#left)) {
      stream.once("wantTrailers", () => {
        if (!stream.destroyed) {
          sendTrailers(stream, trailers);
        }
      });
    }
    stream.end();
  }

  fail(_cause: Error): void {
    if (!this.#done) {
      this.#done = true;
      this.#exchange.abort();
    }
  }

  onDrain(listener: () => void): void {
    this.#stream.on("drain", listener);
  }
}

/** Takes what can no longer be sent. */
const DEAD_SINK: DrainingSink = { data: () => true, end: ignore, fail: ignore, onDrain: ignore };

/** Sends trailers; those that HTTP/2 cannot carry are left out, the body before them was whole. */
function sendTrailers(stream: ServerHttp2Stream, trailers: FieldLines): void {
  try {
    stream.sendTrailers(toHeaders(trailers));
  } catch {
    stream.sendTrailers({}); // node refuses before it sends anything
  }
}

/** Fields as an object, repeats as arrays: what `node:http2` takes for interim answers and trailers. */
function toHeaders(fields: FieldLines): Record<string, string | string[]> {
  const headers = new Map<string, string | string[]>();
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!.toLowerCase();
    const value = fields[i + 1]!;
    const known = headers.get(name);
    if (known === undefined) {
      headers.set(name, value);
    } else if (Array.isArray(known)) {
      known.push(value);
    } else {
      headers.set(name, [known, value]);
    }
  }
  return Object.fromEntries(headers);
}

function ignore(): void {}
