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
import { areSendable } from "../../../policy/kernel/http1/request-head.ts";
import { writeAnswerHead, writeInterimHead } from "./answer-head.ts";
import { AnswerSink, DEAD_SINK, writeJoined, type AnswerConnection } from "./answer-sink.ts";
import type { ParsedHead } from "./request-parser.ts";

/** What an exchange asks of its connection. */
export interface ExchangeConnection extends AnswerConnection {
  readonly peer: Peer;
  /** A `Date` line. */
  readonly date: string;
  /** The connection ends after this answer whatever the client asked for. */
  readonly ending: boolean;
  readonly keepAliveLine: string;
  readonly bytesWritten: number;
  /** False once the body was read, dropped or given up: what its holder asks for then must not touch the next request. */
  isCurrent(body: RequestBody): boolean;
  /** Somebody wants the body: it flows from now on. */
  bodyWanted(): void;
  resumeBody(): void;
  /** The rest of the body is read and dropped. */
  bodyUnwanted(): void;
  /** The request body is not here completely, and too long to be read for the sake of the connection. */
  readonly mustEndUnread: boolean;
  /** The answer was handed over whole. */
  answered(keepAlive: boolean): void;
  destroy(): void;
  /** Ends the connection so that the client knows its answer is not whole. */
  breakOff(): void;
}

/** One HTTP/1.x request on a connection of ours, its body and its answer. */
export class Http1Exchange implements Exchange {
  readonly head: RequestHead;
  readonly body: RequestBody | null;
  readonly handshake = false;
  readonly #connection: ExchangeConnection;
  readonly #keepAlive: boolean;
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

  constructor(parsed: ParsedHead, connection: ExchangeConnection) {
    this.head = parsed.head;
    this.#keepAlive = parsed.keepAlive;
    this.#waits = parsed.waits;
    this.#connection = connection;
    this.body = parsed.length === 0 ? null : new RequestBody(parsed.length, connection, this);
  }

  get peer(): Peer {
    return this.#connection.peer;
  }

  /** The client still waits for a 100: it may never send its body. */
  get waits(): boolean {
    return this.#waits;
  }

  /** The client is gone; listeners hear it once. */
  leave(): void {
    if (this.#gone || this.#over) {
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
      this.#continued = true;
      this.#write(`${this.#rest()}HTTP/1.1 100 Continue\r\n\r\n`);
    }
  }

  sendInterim(head: ResponseHead): void {
    if (this.answered || this.#gone || this.head.version === "1.0") {
      return;
    }
    if (head.status > 101 && head.status < 200 && areSendable(head.fields)) {
      this.#write(this.#rest() + writeInterimHead(head));
    }
  }

  answer(head: ResponseHead, body: Buffer): void {
    if (this.answered || this.#gone) {
      return;
    }
    const bodyless = this.#isBodyless(head.status);
    const length =
      head.status === 204 || head.status === 304 ? "" : `Content-Length: ${body.length}\r\n`;
    const keepAlive = this.#keepsAlive(true);
    const text =
      this.#rest() +
      writeAnswerHead(head, this.#connection.date, length + this.#connectionLines(keepAlive));
    this.answered = true;
    if (bodyless || body.length === 0) {
      this.#write(text);
    } else {
      writeJoined(this.#connection, text, body, "");
    }
    this.finish(keepAlive);
  }

  startAnswer(head: ResponseHead, length: number | null, declaredLength?: string): DrainingSink {
    if (this.answered || this.#gone) {
      return DEAD_SINK;
    }
    const bodyless = this.#isBodyless(head.status);
    const chunked = length === null && !bodyless && this.head.version === "1.1";
    const keepAlive = this.#keepsAlive(length !== null || bodyless || chunked);
    let framing = "";
    if (chunked) {
      framing = "Transfer-Encoding: chunked\r\n";
    } else if (!bodyless && length !== null) {
      framing = `Content-Length: ${length}\r\n`;
    } else if (bodyless && declaredLength !== undefined && head.status !== 204) {
      framing = `Content-Length: ${declaredLength}\r\n`;
    }
    const text = writeAnswerHead(
      head,
      this.#connection.date,
      framing + this.#connectionLines(keepAlive),
    );
    const rest = this.#rest();
    this.answered = true;
    this.#chunked = chunked;
    this.#endsByClose = length === null && !bodyless && !chunked;
    return new AnswerSink(
      this.#connection,
      this,
      rest + text,
      bodyless,
      chunked,
      length,
      keepAlive,
    );
  }

  /** Called when the answer's last byte was handed over. */
  finish(keepAlive: boolean): void {
    this.#over = true;
    this.#connection.answered(keepAlive && !this.#connection.mustEndUnread);
  }

  tunnel(): Duplex {
    throw new TypeError("not a handshake");
  }

  abort(): void {
    if (this.#endsByClose) {
      this.#connection.breakOff();
    } else {
      this.#connection.destroy();
    }
  }

  probe(): boolean {
    if (this.head.version === "1.0" || this.#gone) {
      return false;
    }
    if (!this.answered) {
      this.#half = true;
      this.#write(this.#continued ? "HTTP/1.1 102 Processing\r\n" : "HTTP/1.1 100 Continue\r\n");
      this.#continued = true;
      return true;
    }
    return this.#probeChunk();
  }

  probeAgain(): void {
    if (this.#half) {
      this.#write(this.#rest());
    } else {
      this.#probeChunk();
    }
  }

  /** A leading zero of the next chunk's size. */
  #probeChunk(): boolean {
    if (this.#chunked && !this.#over) {
      this.#write("0");
    }
    return this.#chunked;
  }

  /** The end of the interim answer of which a probe sent half; it must come before anything else. */
  #rest(): string {
    const rest = this.#half ? "\r\n" : "";
    this.#half = false;
    return rest;
  }

  #write(text: string): void {
    this.#connection.write(text);
  }

  #isBodyless(status: number): boolean {
    return this.head.method === "HEAD" || status === 204 || status === 304;
  }

  #keepsAlive(isFramed: boolean): boolean {
    return (
      this.#keepAlive && isFramed && !this.#connection.ending && !this.#connection.mustEndUnread
    );
  }

  #connectionLines(keepAlive: boolean): string {
    return keepAlive ? this.#connection.keepAliveLine : "Connection: close\r\n";
  }
}

/** The body of a request, passed from the connection's reader to a sink. */
export class RequestBody implements BodySource {
  readonly length: number | null;
  readonly #connection: ExchangeConnection;
  readonly #exchange: Http1Exchange;
  #sink: BodySink | null = null;

  constructor(length: number | null, connection: ExchangeConnection, exchange: Http1Exchange) {
    this.length = length;
    this.#connection = connection;
    this.#exchange = exchange;
  }

  start(sink: BodySink): void {
    if (!this.#connection.isCurrent(this)) {
      sink.fail(new Error("the request body is no longer there"));
      return;
    }
    this.#sink = sink;
    this.#exchange.sendContinue();
    this.#connection.bodyWanted();
  }

  resume(): void {
    if (this.#connection.isCurrent(this)) {
      this.#connection.resumeBody();
    }
  }

  cancel(): void {
    this.#sink = null;
    if (this.#connection.isCurrent(this)) {
      this.#connection.bodyUnwanted();
    }
  }

  /** A piece arrived; false when the sink is full. */
  push(chunk: Buffer): boolean {
    return this.#sink === null || this.#sink.data(chunk, true);
  }

  complete(trailers: FieldLines): void {
    const sink = this.#sink;
    this.#sink = null;
    sink?.end(sweepTrailers(trailers));
  }

  break(): void {
    const sink = this.#sink;
    this.#sink = null;
    sink?.fail(new Error("the client broke off its request body"));
  }
}
