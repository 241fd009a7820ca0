import type { DrainingSink, Exchange, FieldLines, ResponseHead } from "./exchange.ts";
import { fieldValue, sweepResponse, sweepTrailers } from "./fields.ts";
import type { AnswerHandler, OutgoingCall, UpstreamFailure } from "./http1/types.ts";
import type { Duplex } from "node:stream";

/** An upstream's head as the client may see it: without the fields of one connection. */
export function sweptHead({ status, reason, fields }: ResponseHead): ResponseHead {
  return { status, reason, fields: sweepResponse(fields) };
}

/** Passes an interim answer on; not 100, which each connection says for itself. */
export function passInterim(exchange: Exchange, head: ResponseHead): void {
  if (head.status !== 100) {
    exchange.sendInterim(sweptHead(head));
  }
}

/** How the relay of one answer ended. */
export type RelayEnd =
  /** The whole answer was handed to the client's side. */
  | { readonly kind: "complete" }
  /** No answer, or not all of it. With `answered` the client was cut off, otherwise nothing was sent yet. */
  | { readonly kind: "failed"; readonly failure: UpstreamFailure; readonly answered: boolean }
  /** The client left first; the call was given up. */
  | { readonly kind: "gone" };

/** Where the caller takes part in a relay. */
export interface RelayEvents {
  /** The final head as received; returns the fields to send on. May throw nothing. */
  head(head: ResponseHead, exchange: Exchange): FieldLines;
  /** Exactly once, unless a tunnel was opened, or `cut` or `leave` came first. */
  done(end: RelayEnd): void;
  /** An interim answer; without it they are dropped. */
  interim?(head: ResponseHead): void;
  /** 101 to an upgrade request; without it such an answer is a failure. */
  tunnel?(head: ResponseHead, stream: Duplex): void;
}

/**
 * Passes one answer of an upstream on to a client: head, body with back-pressure both ways, trailers. A client
 * that leaves ends the call, an upstream that breaks off cuts the client. Shared by hook dispatch and script management;
 * forwarding, the busiest path, keeps its state in one object of its own (`proxy/forward.ts`).
 *
 * It is the handler to be given to the client that sends the request.
 */
export class Relay implements AnswerHandler {
  readonly #exchange: Exchange;
  readonly #events: RelayEvents;
  #call: OutgoingCall | null = null;
  #sink: DrainingSink | null = null;
  #isAnswered = false;
  /** The client's side is complete: HEAD, 204 and 304 end with their head. */
  #isEnded = false;
  #isOver = false;

  constructor(exchange: Exchange, events: RelayEvents) {
    this.#exchange = exchange;
    this.#events = events;
    exchange.onGone(() => {
      if (!this.#isOver) {
        this.#call?.abort();
        this.#finish({ kind: "gone" });
      }
    });
  }

  #finish(end: RelayEnd): void {
    if (!this.#isOver) {
      this.#isOver = true;
      this.#events.done(end);
    }
  }

  interim(head: ResponseHead): void {
    if (!this.#isOver) {
      this.#events.interim?.(head);
    }
  }

  head(head: ResponseHead, length: number | null, bodyless: boolean): void {
    if (this.#isOver) {
      return;
    }
    const { status, reason } = head;
    const out = { status, reason, fields: this.#events.head(head, this.#exchange) };
    this.#isAnswered = true;
    if (bodyless) {
      this.#isEnded = true;
      const declared = fieldValue(head.fields, "content-length");
      this.#exchange.startAnswer(out, null, declared).end([]);
      return;
    }
    this.#sink = this.#exchange.startAnswer(out, length);
    this.#sink.onDrain(() => this.#call?.resume());
  }

  data(chunk: Buffer): boolean {
    return this.#isOver || this.#sink === null || this.#sink.data(chunk);
  }

  end(trailers: FieldLines): void {
    if (!this.#isOver && !this.#isEnded) {
      this.#sink?.end(sweepTrailers(trailers));
    }
    this.#finish({ kind: "complete" });
  }

  tunnel(head: ResponseHead, stream: Duplex): void {
    if (this.#isOver || this.#events.tunnel === undefined) {
      stream.destroy();
      return;
    }
    this.#isOver = true;
    this.#events.tunnel(head, stream);
  }

  fail(failure: UpstreamFailure): void {
    if (this.#isOver) {
      return;
    }
    if (this.#isAnswered && !this.#isEnded) {
      this.#exchange.abort();
    }
    this.#finish(
      this.#isEnded
        ? { kind: "complete" }
        : { kind: "failed", failure, answered: this.#isAnswered },
    );
  }

  /** Tells the relay its call, right after `send` returned. */
  attach(call: OutgoingCall): void {
    this.#call = call;
    if (this.#isOver) {
      call.abort();
    }
  }

  /** Gives up: the call ends, and a client that saw a head is cut off. `done` is not called. */
  cut(): void {
    this.#isOver = true;
    this.#call?.abort();
    if (this.#isAnswered && !this.#isEnded) {
      this.#exchange.abort();
    }
  }

  /** Stops relaying without ending the call: what still comes is thrown away. `done` is not called. */
  leave(): void {
    this.#isOver = true;
    this.#call?.resume(); // it may have been held back for the client
  }
}
