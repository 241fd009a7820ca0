import type { BodySink, BodySource, FieldLines, ResponseHead } from "../policy/kernel/exchange.ts";
import { AnswerParser, type AnswerEvents } from "../policy/kernel/http1/answer-parser.ts";
import { writeFields } from "../policy/kernel/http1/request-head.ts";
import {
  UpstreamFailure,
  type AnswerHandler,
  type OutgoingCall,
} from "../policy/kernel/http1/types.ts";
import { MAX_ANSWER_HEAD_BYTES, type ExecRequest, type OrderTaker } from "./exec-call.ts";
import {
  decodeOrder,
  decodeStage,
  encodeOrderFailure,
  encodeOrderHead,
  type ForwardOrder,
  type RunningOrder,
} from "./order.ts";
import { ANSWER_WINDOW, FRAME, readNumber, type FrameWriter } from "./frames.ts";

/** What a call needs of the connection that carries it. */
export interface CallLine {
  readonly writer: FrameWriter;
  /** Nothing of the call is to be passed on any more. */
  forget(call: FramedCall): void;
  /** The worker does what no worker of ours does; its connection ends. */
  violated(): void;
}

/** Passed-on bytes are told in portions, not one by one. */
const CREDIT_BYTES = ANSWER_WINDOW / 2;

/** One call that is on its way: parses its answer, and gives its body as the worker asks for it. */
export class FramedCall implements OutgoingCall, AnswerEvents, BodySink {
  readonly id: number;
  readonly #line: CallLine;
  readonly #handler: AnswerHandler;
  readonly #idleMs: number;
  #orders: OrderTaker | null;
  /** The request that is forwarded in the script's place. */
  #order: RunningOrder | null = null;
  /** The body went to the service: the worker has to be told that it gets none. */
  #isBodyOrdered = false;
  /** What is to be told of the head of its answer, until it is. */
  #headReport = "";
  /** Its answer has begun: nothing can take its place any more. */
  #isOrderAnswered = false;
  readonly #parser = new AnswerParser(this);
  #body: BodySource | null;
  #isBodyStarted = false;
  /** The whole body is on its way, or there was none. */
  #isSent: boolean;
  /** Bytes that the worker asked for and has not got. */
  #wanted = 0;
  /** Bytes of the answer that the worker may still send. */
  #window = ANSWER_WINDOW;
  #passedOn = 0;
  #isPaused = false;
  #isOver = false;
  #isTouched = true;
  #since = 0;

  constructor(id: number, line: CallLine, request: ExecRequest, handler: AnswerHandler) {
    this.id = id;
    this.#line = line;
    this.#handler = handler;
    this.#idleMs = request.idleMs;
    this.#orders = request.orders;
    this.#body = request.body;
    this.#isSent = request.body === null;
    this.#parser.begin(request.method, false, MAX_ANSWER_HEAD_BYTES);
  }

  /** A frame of the worker, or a piece of one. */
  take(type: number, payload: Buffer): void {
    this.#isTouched = true;
    switch (type) {
      case FRAME.answer:
        this.#answer(payload);
        return;
      case FRAME.want:
        this.#want(readNumber(payload));
        return;
      case FRAME.order:
        this.#forward(decodeOrder(payload.toString("latin1")));
        return;
      case FRAME.stage:
        this.#stage(decodeStage(payload.toString("latin1")));
        return;
      case FRAME.end:
        if (!this.#parser.finish()) {
          this.#cut();
        }
        return;
      case FRAME.cut:
        this.#cut();
        return;
      default:
        this.#line.violated();
    }
  }

  #answer(payload: Buffer): void {
    this.#window -= payload.length;
    if (this.#window < 0) {
      this.#line.violated();
      return;
    }
    if (!this.#takeBack()) {
      return;
    }
    const reason = this.#parser.push(payload, payload.length);
    if (reason !== null) {
      this.#give(FRAME.cancel);
      this.broken(new UpstreamFailure("protocol", reason));
      return;
    }
    this.#passedOn += payload.length;
    this.#refill();
  }

  /** Lets the worker send on, as far as what it sent was passed on. */
  #refill(): void {
    if (!this.#isOver && !this.#isPaused && this.#passedOn >= CREDIT_BYTES) {
      this.#line.writer.number(FRAME.credit, this.id, this.#passedOn);
      this.#window += this.#passedOn;
      this.#passedOn = 0;
    }
  }

  #forward(order: ForwardOrder | null): void {
    const orders = this.#orders;
    this.#orders = null;
    if (order === null || orders === null || this.#isBodyStarted || !this.#parser.untouched) {
      this.#line.violated();
      return;
    }
    this.#isBodyOrdered = this.#body !== null;
    this.#isSent = true; // the body goes to the service
    const { writer } = this.#line;
    this.#order = orders.forward(order, {
      head: (status, reason, ms) => {
        this.#isOrderAnswered = true;
        this.#headReport = encodeOrderHead(status, reason, ms);
        queueMicrotask(() => this.#reportHead());
      },
      done: () => {
        if (!this.#isOver) {
          // A short answer is here whole: one report says all of it.
          writer.later(FRAME.orderDone, this.id, this.#headReport);
          this.#headReport = "";
          this.#settle();
        }
      },
      failed: (failure) => {
        this.#reportHead();
        this.#order = null;
        const isClients = failure.kind === "body"; // it broke off: there is nobody to answer
        if (isClients) {
          this.#give(FRAME.cancel);
        } else {
          writer.text(FRAME.orderFailed, this.id, encodeOrderFailure(failure));
        }
        if (this.#isOrderAnswered || isClients) {
          this.#settle();
        }
      },
    });
    if (this.#isOver) {
      this.#order = null;
    }
  }

  #reportHead(): void {
    const report = this.#headReport;
    if (report !== "" && !this.#isOver) {
      this.#headReport = "";
      this.#line.writer.later(FRAME.orderHead, this.id, report);
    }
  }

  #stage(fields: FieldLines | null): void {
    if (fields === null) {
      this.#line.violated();
    } else {
      this.#order?.stage(fields);
    }
  }

  /** The worker speaks for itself again: false when that comes too late, and the client can only be cut off. */
  #takeBack(): boolean {
    if (this.#isOrderAnswered) {
      this.#cut();
      return false;
    }
    this.#order?.leave(); // a request that was sent runs on, as one of the script's own would
    this.#order = null;
    return true;
  }

  #want(bytes: number | null): void {
    if (bytes === null) {
      this.#line.violated();
      return;
    }
    this.#wanted += bytes;
    if (this.#isSent || this.#isOver) {
      return;
    }
    if (this.#isBodyStarted) {
      this.drained();
    } else {
      this.#isBodyStarted = true;
      this.#body?.start(this);
    }
  }

  #cut(): void {
    this.broken(new UpstreamFailure("reset", "the answer was cut"));
  }

  onInterim(head: ResponseHead): void {
    this.#handler.interim(head);
  }

  onHead(head: ResponseHead, length: number | null, bodyless: boolean): void {
    this.#handler.head(head, length, bodyless);
  }

  onData(chunk: Buffer): void {
    if (!this.#isOver && !this.#handler.data(chunk)) {
      this.#isPaused = true;
    }
  }

  onEnd(trailers: FieldLines): void {
    if (this.#isOver) {
      return;
    }
    if (!this.#isSent || this.#isBodyOrdered) {
      this.#give(FRAME.cancel); // an answer that came first makes the rest of the upload pointless
    }
    this.#settle();
    this.#handler.end(trailers);
  }

  onSwitch(): void {
    this.#cut(); // never asked for
  }

  data(chunk: Buffer): boolean {
    if (this.#isOver || this.#isSent || chunk.length === 0) {
      return true;
    }
    this.#isTouched = true;
    this.#line.writer.bytes(FRAME.body, this.id, chunk);
    this.#wanted -= chunk.length;
    return this.#wanted > 0 && !this.#line.writer.isFull;
  }

  end(trailers: FieldLines): void {
    if (this.#isOver || this.#isSent) {
      return;
    }
    let text: string;
    try {
      text = writeFields(trailers);
    } catch (cause) {
      this.fail(cause as Error);
      return;
    }
    this.#isSent = true;
    this.#line.writer.text(FRAME.bodyEnd, this.id, text);
  }

  fail(cause: Error): void {
    if (!this.#isOver) {
      this.#isSent = true;
      this.#give(FRAME.cancel);
      this.broken(new UpstreamFailure("body", "the request body broke off", cause));
    }
  }

  /** The connection takes more, or the worker wants more. */
  drained(): void {
    if (this.#isBodyStarted && !this.#isSent && this.#wanted > 0 && !this.#line.writer.isFull) {
      this.#body?.resume();
    }
  }

  resume(): void {
    this.#isTouched = true;
    this.#order?.resume();
    if (this.#isPaused) {
      this.#isPaused = false;
      this.#refill();
    }
  }

  abort(): void {
    if (!this.#isOver) {
      this.#order?.abort();
      this.#give(FRAME.cancel);
      this.#settle();
    }
  }

  /** Ends the call for a reason; its sender hears it once. */
  broken(failure: UpstreamFailure): void {
    if (!this.#isOver) {
      this.#order?.abort();
      this.#settle();
      this.#handler.fail(failure);
    }
  }

  /** Looks whether the worker has been silent for too long while it was waited for. */
  check(now: number): void {
    const waitsForClient = !this.#isSent && this.#wanted > 0 && !this.#line.writer.isFull;
    if (this.#isTouched || this.#isPaused || waitsForClient || this.#order !== null) {
      this.#isTouched = false;
      this.#since = now;
    } else if (now - this.#since >= this.#idleMs) {
      this.#give(FRAME.cancel);
      this.broken(new UpstreamFailure("timeout", "the script did not send anything in time"));
    }
  }

  #give(type: number): void {
    this.#line.writer.text(type, this.id, "");
  }

  #settle(): void {
    this.#isOver = true;
    this.#order = null;
    this.#parser.stop();
    this.#line.forget(this);
    const body = this.#body;
    this.#body = null;
    if (!this.#isSent) {
      body?.cancel();
    }
  }
}
