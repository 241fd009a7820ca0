import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "../policy/kernel/clock.ts";
import type { BodySource, Exchange, FieldLines, ResponseHead } from "../policy/kernel/exchange.ts";
import { fieldValue, sweepHopByHop, sweepResponse } from "../policy/kernel/fields.ts";
import {
  UpstreamFailure,
  type AnswerHandler,
  type Http1Client,
  type OutgoingCall,
  type OutgoingRequest,
} from "../policy/kernel/http1/types.ts";
import { type Envelope, withoutDepth } from "./envelope.ts";
import { mergeStaged, type ForwardOrder, type RunningOrder } from "./order.ts";

/** The edge's own way to services. */
export interface OrderClient {
  readonly client: Http1Client;
  limits(): OutgoingRequest["limits"];
}

/** What is needed of a dispatch. */
export interface OrderedRequest {
  readonly exchange: Exchange;
  readonly envelope: Envelope;
  readonly fields: FieldLines;
}

/** Hears of the service's answer. */
export interface OrderHandler {
  /** @param ms since the request was sent. */
  head(head: ResponseHead, length: number | null, isBodyless: boolean, ms: number): void;
  data(chunk: Buffer): boolean;
  end(): void;
  fail(failure: UpstreamFailure): void;
}

/**
 * Forwards a request as its worker ordered (`order.ts`): to the service of the hand-over, whatever the order says. As
 * with a script's own `forward()`, interim answers and trailers end here, and a service that switches protocols unasked has failed.
 */
export function forwardOrder(
  { client, limits }: OrderClient,
  clock: Clock,
  { exchange, envelope, fields }: OrderedRequest,
  body: BodySource | null,
  order: ForwardOrder,
  handler: OrderHandler,
): OrderedCall {
  if (envelope.kind !== "hook") {
    throw new TypeError("only hooks are forwarded");
  }
  const { upstreamHost: host, upstreamPort: port } = envelope;
  const ordered = new OrderedCall(clock, order.staged, handler);
  try {
    ordered.attach(
      client.send(
        {
          origin: { kind: "tcp", host, port },
          method: exchange.head.method,
          target: order.target,
          // The worker is not trusted with framing: the connection is one that other requests use.
          fields: order.fields === null ? withoutDepth(fields) : sweepHopByHop(order.fields),
          body,
          limits: limits(),
        },
        ordered,
      ),
    );
  } catch (cause) {
    body?.cancel();
    const message = "the request cannot be sent as one message";
    // Not before the caller holds the call.
    setImmediate(() => ordered.fail(new UpstreamFailure("protocol", message, cause)));
  }
  return ordered;
}

/** One ordered request on its way. */
export class OrderedCall implements RunningOrder, AnswerHandler {
  readonly #clock: Clock;
  readonly #handler: OrderHandler;
  readonly #sentAt: number;
  #staged: FieldLines;
  #call: OutgoingCall | null = null;
  #isLeft = false;

  constructor(clock: Clock, staged: FieldLines, handler: OrderHandler) {
    this.#clock = clock;
    this.#handler = handler;
    this.#staged = staged;
    this.#sentAt = clock.monotonic();
  }

  attach(call: OutgoingCall): void {
    this.#call = call;
  }

  stage(fields: FieldLines): void {
    this.#staged = fields;
  }

  leave(): void {
    this.#isLeft = true;
  }

  resume(): void {
    this.#call?.resume();
  }

  abort(): void {
    this.#isLeft = true;
    this.#call?.abort();
  }

  interim(): void {}

  head(head: ResponseHead, length: number | null, isBodyless: boolean): void {
    if (this.#isLeft) {
      this.#call?.abort();
      return;
    }
    const { status } = head;
    const reason = head.reason || (STATUS_CODES[status] ?? "unknown"); // as Node's response would say
    const fields = mergeStaged(this.#staged, sweepResponse(head.fields));
    const ms = this.#clock.monotonic() - this.#sentAt;
    const whole = isBodyless ? withLength(fields, head) : fields;
    this.#handler.head({ status, reason, fields: whole }, length, isBodyless, ms);
  }

  data(chunk: Buffer): boolean {
    return this.#isLeft || this.#handler.data(chunk);
  }

  end(): void {
    if (!this.#isLeft) {
      this.#handler.end();
    }
  }

  tunnel(_head: ResponseHead, stream: Duplex): void {
    stream.destroy();
    this.fail(new UpstreamFailure("protocol", "the service switched protocols unasked"));
  }

  fail(failure: UpstreamFailure): void {
    if (!this.#isLeft) {
      this.#handler.fail(failure);
    }
  }
}

/** An answer without a body keeps the length of the one it stands for. */
function withLength(fields: FieldLines, { fields: received }: ResponseHead): FieldLines {
  const declared = fieldValue(received, "content-length");
  return declared === undefined ? fields : [...fields, "Content-Length", declared];
}
