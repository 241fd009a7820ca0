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

/** The relay of one answer, and the ways to end it early. */
export interface Relay {
  /** To be given to the client that sends the request. */
  readonly handler: AnswerHandler;
  /** Tells the relay its call, right after `send` returned. */
  attach(call: OutgoingCall): void;
  /** Gives up: the call ends, and a client that saw a head is cut off. `done` is not called. True if a head was sent. */
  cut(): boolean;
  /** Stops relaying without ending the call: what still comes is thrown away. `done` is not called. */
  leave(): void;
}

/**
 * Passes one answer of an upstream on to a client: head, body with back-pressure both ways, trailers. A client
 * that leaves ends the call, an upstream that breaks off cuts the client. Shared by hook dispatch and script management;
 * forwarding, the busiest path, keeps its state in one object of its own (`proxy/forward.ts`).
 */
export function createRelay(exchange: Exchange, events: RelayEvents): Relay {
  let call: OutgoingCall | null = null;
  let sink: DrainingSink | null = null;
  let answered = false;
  /** The client's side is complete: HEAD, 204 and 304 end with their head. */
  let ended = false;
  let over = false;

  const finish = (end: RelayEnd): void => {
    if (!over) {
      over = true;
      events.done(end);
    }
  };

  exchange.onGone(() => {
    if (!over) {
      call?.abort();
      finish({ kind: "gone" });
    }
  });

  const handler: AnswerHandler = {
    interim(head) {
      if (!over) {
        events.interim?.(head);
      }
    },
    head(head, length, bodyless) {
      if (over) {
        return;
      }
      const out = { ...head, fields: events.head(head, exchange) };
      answered = true;
      if (bodyless) {
        ended = true;
        exchange.startAnswer(out, null, fieldValue(head.fields, "content-length")).end([]);
        return;
      }
      sink = exchange.startAnswer(out, length);
      sink.onDrain(() => call?.resume());
    },
    data: (chunk) => over || sink === null || sink.data(chunk),
    end(trailers) {
      if (!over && !ended) {
        sink?.end(sweepTrailers(trailers));
      }
      finish({ kind: "complete" });
    },
    tunnel(head, stream) {
      if (over || events.tunnel === undefined) {
        stream.destroy();
        return;
      }
      over = true;
      events.tunnel(head, stream);
    },
    fail(failure) {
      if (over) {
        return;
      }
      if (answered && !ended) {
        exchange.abort();
      }
      finish(ended ? { kind: "complete" } : { kind: "failed", failure, answered });
    },
  };

  return {
    handler,
    attach(attached) {
      call = attached;
      if (over) {
        attached.abort();
      }
    },
    cut() {
      over = true;
      call?.abort();
      if (answered && !ended) {
        exchange.abort();
      }
      return answered;
    },
    leave() {
      over = true;
      call?.resume(); // it may have been held back for the client
    },
  };
}
