import type { Clock } from "../policy/kernel/clock.ts";
import type { BodySource, Exchange, FieldLines, ResponseHead } from "../policy/kernel/exchange.ts";
import { sweepHopByHop } from "../policy/kernel/fields.ts";
import {
  UpstreamFailure,
  type Http1Client,
  type OutgoingCall,
  type OutgoingRequest,
} from "../policy/kernel/http1/types.ts";
import { type Envelope, withoutDepth } from "./envelope.ts";
import type { ForwardOrder } from "./order.ts";

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
): OutgoingCall {
  const sentAt = clock.monotonic();
  if (envelope.kind !== "hook") {
    throw new TypeError("only hooks are forwarded");
  }
  const { upstreamHost: host, upstreamPort: port } = envelope;
  try {
    return client.send(
      {
        origin: { kind: "tcp", host, port },
        method: exchange.head.method,
        target: order.target,
        // The worker is not trusted with framing: the connection is one that other requests use.
        fields: order.fields === null ? withoutDepth(fields) : sweepHopByHop(order.fields),
        body,
        limits: limits(),
      },
      {
        interim() {},
        head: (head, length, isBodyless) =>
          handler.head(head, length, isBodyless, clock.monotonic() - sentAt),
        data: handler.data,
        end: () => handler.end(),
        tunnel(_head, stream) {
          stream.destroy();
          handler.fail(new UpstreamFailure("protocol", "the service switched protocols unasked"));
        },
        fail: (failure) => handler.fail(failure),
      },
    );
  } catch (cause) {
    body?.cancel();
    const failure = new UpstreamFailure(
      "protocol",
      "the request cannot be sent as one message",
      cause,
    );
    setImmediate(() => handler.fail(failure)); // not before the caller holds the call
    return { resume() {}, abort() {} };
  }
}
