import { STATUS_CODES, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
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
import { writeFields } from "../../../policy/kernel/http1/request-head.ts";
import { breakOff } from "./break-off.ts";

/** Answers up to this size leave in one write together with their head, which costs half of two writes. */
const JOIN_BYTES = 16_384;
/** An unread upload of this size is read to its end, so that the connection can be used again. */
const DRAIN_BYTES = 65_536;

/** Tells the connection what became of an exchange. */
export interface ExchangeOwner {
  /** The edge is shutting down: answers end their connection. */
  readonly closing: boolean;
  /** The exchange is over. `unread`: its answer is out but its request body is not in, so the connection must end. */
  finished(exchange: NodeHttpExchange, unread: boolean): void;
}

/** An ordinary HTTP/1.x request on `node:http`. */
export class NodeHttpExchange implements Exchange {
  readonly head: RequestHead;
  readonly peer: Peer;
  readonly body: BodySource | null;
  readonly handshake = false;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #owner: ExchangeOwner;
  #waits: boolean;
  #gone = false;
  #over = false;
  #chunked = false;
  /** The end of the connection is the end of the answer: HTTP/1.0 and a length that nobody knows. */
  #endsByClose = false;
  #continued = false;
  #half = false;
  #listeners: (() => void)[] | null = null;
  answered = false;

  /** `waits`: the client wants a 100 before it sends its body. */
  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    head: RequestHead,
    peer: Peer,
    length: number | null,
    waits: boolean,
    owner: ExchangeOwner,
  ) {
    this.#request = request;
    this.#response = response;
    this.#owner = owner;
    this.#waits = waits;
    this.head = head;
    this.peer = peer;
    this.body = length === 0 ? null : new NodeBody(request, length, this);
    response.on("close", () => this.#closed());
    response.on("error", ignore); // a write after the client left; "close" tells the story
  }

  #closed(): void {
    const complete = this.#over && this.#response.writableFinished;
    if (!complete) {
      this.leave();
    }
    this.#owner.finished(this, complete && this.isReceiving && !this.#isDrainable());
  }

  /** The request body is still on its way. */
  get isReceiving(): boolean {
    return this.body !== null && !this.#request.complete;
  }

  /** A small upload that the client sends anyway is read to its end rather than losing the connection. */
  #isDrainable(): boolean {
    const length = this.body?.length ?? null;
    return length !== null && length <= DRAIN_BYTES && !this.#waits;
  }

  /** The client is gone; listeners hear it once. */
  leave(): void {
    if (this.#gone || (this.#over && this.#response.writableFinished)) {
      return;
    }
    this.#gone = true;
    const listeners = this.#listeners;
    this.#listeners = null;
    if (listeners !== null) {
      for (const listener of listeners) {
        listener();
      }
    }
  }

  onGone(listener: () => void): void {
    if (this.#gone) {
      listener();
    } else if (this.#listeners === null) {
      this.#listeners = [listener];
    } else {
      this.#listeners.push(listener);
    }
  }

  sendContinue(): void {
    if (this.#waits && !this.answered && !this.#gone) {
      this.#waits = false;
      this.#completeInterim();
      this.#continued = true;
      this.#response.writeContinue();
    }
  }

  sendInterim(head: ResponseHead): void {
    const socket = this.#response.socket;
    if (this.answered || this.#gone || this.head.version === "1.0" || socket === null) {
      return;
    }
    if (head.status > 101 && head.status < 200) {
      this.#completeInterim();
      socket.write(
        `HTTP/1.1 ${head.status} ${head.reason}\r\n${writeFields(head.fields)}\r\n`,
        "latin1",
      );
    }
  }

  answer(head: ResponseHead, body: Buffer): void {
    if (this.answered || this.#gone) {
      return;
    }
    const bodyless = this.#isBodyless(head.status);
    const fields = [...head.fields];
    if (head.status !== 204 && head.status !== 304) {
      fields.push("Content-Length", String(body.length));
    }
    if (this.isReceiving && !this.#isDrainable()) {
      this.#response.shouldKeepAlive = false;
    }
    this.#writeHead(head, fields);
    this.answered = true;
    this.#over = true;
    if (bodyless) {
      this.#response.end();
    } else if (body.length <= JOIN_BYTES) {
      this.#response.end(body.toString("latin1"), "latin1");
    } else {
      this.#response.end(body);
    }
  }

  startAnswer(head: ResponseHead, length: number | null, declaredLength?: string): DrainingSink {
    if (this.answered || this.#gone) {
      return new DeadSink();
    }
    const bodyless = this.#isBodyless(head.status);
    const fields = [...head.fields];
    if (bodyless) {
      if (declaredLength !== undefined && head.status !== 204) {
        fields.push("Content-Length", declaredLength);
      }
    } else if (length !== null) {
      fields.push("Content-Length", String(length));
    }
    this.#writeHead(head, fields);
    this.answered = true;
    this.#chunked = length === null && !bodyless && this.head.version === "1.1";
    this.#endsByClose = length === null && !bodyless && !this.#chunked;
    return new NodeSink(this.#response, this, bodyless, length);
  }

  /** Called by the sink when the answer's last byte was handed over. */
  ended(): void {
    this.#over = true;
  }

  probe(): boolean {
    const socket = this.#response.socket;
    if (socket === null || this.head.version === "1.0") {
      return false;
    }
    if (!this.answered) {
      this.#half = true;
      socket.write(
        this.#continued ? "HTTP/1.1 102 Processing\r\n" : "HTTP/1.1 100 Continue\r\n",
        "latin1",
      );
      this.#continued = true;
      return true;
    }
    return this.#probeChunk(socket);
  }

  probeAgain(): void {
    const socket = this.#response.socket;
    if (this.#half) {
      this.#completeInterim();
    } else if (socket !== null) {
      this.#probeChunk(socket);
    }
  }

  /** A leading zero of the next chunk's size. */
  #probeChunk(socket: Socket): boolean {
    if (this.#chunked && !this.#over) {
      socket.write("0", "latin1");
    }
    return this.#chunked;
  }

  /** Ends the interim answer of which a probe sent half; nothing else may come before that. */
  #completeInterim(): void {
    if (this.#half) {
      this.#half = false;
      this.#response.socket?.write("\r\n", "latin1");
    }
  }

  tunnel(): Duplex {
    throw new TypeError("not a handshake");
  }

  abort(): void {
    const { socket } = this.#response;
    if (socket !== null && this.#endsByClose) {
      breakOff(socket);
    } else {
      socket?.destroy();
    }
    this.#request.destroy();
  }

  #isBodyless(status: number): boolean {
    return this.head.method === "HEAD" || status === 204 || status === 304;
  }

  #writeHead(head: ResponseHead, fields: string[]): void {
    const reason = head.reason === "" ? (STATUS_CODES[head.status] ?? "") : head.reason;
    if (this.#owner.closing) {
      this.#response.shouldKeepAlive = false;
    }
    this.#completeInterim();
    this.#response.writeHead(head.status, reason, fields);
  }
}

/** The body of a request on `node:http`, pushed into a sink. */
class NodeBody implements BodySource {
  readonly length: number | null;
  readonly #request: IncomingMessage;
  readonly #exchange: Exchange;
  #sink: BodySink | null = null;

  constructor(request: IncomingMessage, length: number | null, exchange: Exchange) {
    this.#request = request;
    this.length = length;
    this.#exchange = exchange;
  }

  start(sink: BodySink): void {
    const request = this.#request;
    this.#sink = sink;
    request.on("data", this.#data);
    request.on("end", this.#end);
    request.on("error", this.#broken);
    request.on("close", this.#closed);
    this.#exchange.sendContinue();
  }

  readonly #data = (chunk: Buffer): void => {
    if (this.#sink !== null && !this.#sink.data(chunk)) {
      this.#request.pause();
    }
  };

  readonly #end = (): void => {
    const sink = this.#sink;
    this.#sink = null;
    sink?.end(sweepTrailers(this.#request.rawTrailers));
  };

  readonly #broken = (cause: Error): void => {
    const sink = this.#sink;
    this.#sink = null;
    sink?.fail(cause);
  };

  readonly #closed = (): void => this.#broken(new Error("the client broke off its request body"));

  resume(): void {
    this.#request.resume();
  }

  cancel(): void {
    this.#sink = null;
    this.#request.removeListener("data", this.#data);
    this.#request.resume(); // the rest is read and dropped until the answer ends the connection
  }
}

/** Where a streamed answer goes. The head waits for the first piece, so that a small answer leaves in one write. */
class NodeSink implements DrainingSink {
  readonly #response: ServerResponse;
  readonly #exchange: NodeHttpExchange;
  readonly #bodyless: boolean;
  #left: number;
  #held: Buffer | null = null;
  #waiting = true;
  #done = false;

  constructor(
    response: ServerResponse,
    exchange: NodeHttpExchange,
    bodyless: boolean,
    length: number | null,
  ) {
    this.#response = response;
    this.#exchange = exchange;
    this.#bodyless = bodyless;
    this.#left = length ?? Number.POSITIVE_INFINITY;
    process.nextTick(flushLater, this);
  }

  /** Lets go of what was held back for joining; the end of the answer did not come within this turn. */
  flush(): void {
    if (!this.#waiting) {
      return;
    }
    this.#waiting = false;
    const held = this.#held;
    this.#held = null;
    if (this.#done) {
      return;
    }
    if (held === null) {
      this.#response.flushHeaders();
    } else {
      this.#response.write(held);
    }
  }

  data(chunk: Buffer): boolean {
    if (this.#done || this.#bodyless || chunk.length === 0) {
      return true;
    }
    if (chunk.length > this.#left) {
      this.fail(new Error("more bytes than declared"));
      return true;
    }
    this.#left -= chunk.length;
    if (this.#waiting) {
      if (this.#held === null && chunk.length <= JOIN_BYTES) {
        this.#held = chunk;
        return true;
      }
      this.#waiting = false;
      if (this.#held !== null) {
        this.#response.write(this.#held);
        this.#held = null;
      }
    }
    return this.#response.write(chunk);
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
    this.#waiting = false;
    this.#exchange.ended();
    const held = this.#held;
    this.#held = null;
    if (trailers.length > 0 && !this.#bodyless) {
      this.#response.addTrailers(toPairs(trailers));
    }
    if (held === null) {
      this.#response.end();
    } else {
      this.#response.end(held.toString("latin1"), "latin1");
    }
  }

  fail(_cause: Error): void {
    if (!this.#done) {
      this.#done = true;
      this.#held = null;
      this.#exchange.abort(); // a cut the client can see; never a neat end of a broken body
    }
  }

  onDrain(listener: () => void): void {
    this.#response.on("drain", listener);
  }
}

/** Takes what can no longer be sent. */
class DeadSink implements DrainingSink {
  data(): boolean {
    return true;
  }
  end(): void {}
  fail(): void {}
  onDrain(): void {}
}

function flushLater(sink: NodeSink): void {
  sink.flush();
}

function toPairs(fields: FieldLines): [string, string][] {
  const pairs: [string, string][] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    pairs.push([fields[i]!, fields[i + 1]!]);
  }
  return pairs;
}

function ignore(): void {}
