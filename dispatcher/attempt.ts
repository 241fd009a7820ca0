import type { Clock, Timer } from "../policy/kernel/clock.ts";
import type { BodySource, Exchange, FieldLines, ResponseHead } from "../policy/kernel/exchange.ts";
import { fieldValue, sweepResponse } from "../policy/kernel/fields.ts";
import type { UpstreamFailure } from "../policy/kernel/http1/types.ts";
import type { Log } from "../policy/kernel/log.ts";
import { Relay, type RelayEnd, type RelayEvents } from "../policy/kernel/relay.ts";
import { OUTCOME_FIELD, parseOutcome, type Envelope, type ExecEndpoint } from "./envelope.ts";
import type { ExecHostClient, OrderTaker } from "./exec-call.ts";
import type { ExecTargets } from "./exec-target.ts";
import {
  forwardOrder,
  type OrderClient,
  type OrderedCall,
  type OrderHandler,
} from "./forward-order.ts";
import type { ForwardOrder, OrderReport, RunningOrder } from "./order.ts";

/** What the host itself says of a dispatch. */
export type Said = NonNullable<ReturnType<typeof parseOutcome>>;

/** How one attempt to reach a host ended, in terms that dispatches and ordinary calls share. */
export type AttemptEnd =
  | {
      readonly kind: "relayed";
      readonly end: RelayEnd;
      readonly status: number;
      /** The host's outcome word. */
      readonly said: Said | null;
      /** From the hand-over. */
      readonly ranMs: number;
      readonly generation: number;
      /** It was the service that broke off an answer which the host had forwarded by the edge. */
      readonly brokeOff: boolean;
    }
  | { readonly kind: "late"; readonly answered: boolean; readonly status: number }
  | { readonly kind: "unsendable" }
  | { readonly kind: "no-host" }
  | { readonly kind: "unreachable" };

/** One request for a host. */
export interface AttemptRequest {
  readonly exchange: Exchange;
  readonly container: string;
  readonly envelope: Envelope;
  readonly fields: FieldLines;
  readonly target: string;
  /** ms from hand-over until the edge gives up; null for none. */
  readonly deadlineMs: number | null;
  readonly idleMs: number;
  readonly takesOrders: boolean;
}

/** What attempts build on. */
export interface AttemptParts {
  readonly targets: ExecTargets;
  readonly client: ExecHostClient;
  readonly orders: OrderClient | null;
  readonly clock: Clock;
  readonly log: Log;
  /** Leaves the outcome word in answers. */
  readonly tellOutcome: boolean;
}

const OUTCOME_LOWER = OUTCOME_FIELD.toLowerCase();

/** Hands a request to a host and relays its answer, or what it has the edge forward. */
export function attempt(
  parts: AttemptParts,
  request: AttemptRequest,
  endpoint: ExecEndpoint,
  body: BodySource | null,
): Promise<AttemptEnd> {
  return new Promise((resolve) => {
    new Attempt(parts, request, endpoint, body, resolve).start();
  });
}

/** One attempt on its way. */
class Attempt implements RelayEvents, OrderTaker {
  readonly #parts: AttemptParts;
  readonly #request: AttemptRequest;
  readonly #endpoint: ExecEndpoint;
  readonly #body: BodySource | null;
  readonly #resolve: (end: AttemptEnd) => void;
  readonly #relay: Relay;
  readonly #handedAt: number;
  #timer: Timer | null = null;
  #status = 0;
  #said: Said | null = null;
  /** What the host had forwarded, while it runs. */
  #order: OrderedCall | null = null;
  #isOrderAnswered = false;
  #brokeOff = false;

  constructor(
    parts: AttemptParts,
    request: AttemptRequest,
    endpoint: ExecEndpoint,
    body: BodySource | null,
    resolve: (end: AttemptEnd) => void,
  ) {
    this.#parts = parts;
    this.#request = request;
    this.#endpoint = endpoint;
    this.#body = body;
    this.#resolve = resolve;
    this.#handedAt = parts.clock.monotonic();
    this.#relay = new Relay(request.exchange, this);
  }

  start(): void {
    const { client, clock, log, orders } = this.#parts;
    const { exchange, envelope, target, fields, deadlineMs, idleMs, takesOrders } = this.#request;
    if (deadlineMs !== null) {
      this.#timer = clock.after(deadlineMs, () => this.#late());
    }
    try {
      this.#relay.attach(
        client.send(
          {
            endpoint: this.#endpoint,
            envelope,
            method: exchange.head.method,
            target,
            fields,
            body: this.#body,
            awaitContinue: waitsForContinue(exchange),
            idleMs,
            orders: takesOrders && orders !== null ? this : null,
          },
          this.#relay,
        ),
      );
    } catch (cause) {
      log.warn(
        { container: this.#request.container, err: cause },
        "a request cannot be handed over",
      );
      this.#relay.leave();
      this.#finish({ kind: "unsendable" });
    }
  }

  head(head: ResponseHead): FieldLines {
    this.#status = head.status;
    if (this.#isOrderAnswered) {
      return withoutOutcome(head.fields); // a service has no say in it
    }
    const told = fieldValue(head.fields, OUTCOME_LOWER);
    this.#said = told === undefined ? null : parseOutcome(told);
    return told === undefined || this.#parts.tellOutcome
      ? sweepResponse(head.fields)
      : withoutOutcome(head.fields);
  }

  done(end: RelayEnd): void {
    const { generation } = this.#endpoint;
    if (end.kind === "failed" && end.failure.kind === "reset" && !this.#brokeOff) {
      this.#parts.targets.reportSuspect(this.#request.container, generation, "reset");
    }
    this.#finish({
      kind: "relayed",
      end,
      status: this.#status,
      said: this.#said,
      ranMs: this.#parts.clock.monotonic() - this.#handedAt,
      generation,
      brokeOff: this.#brokeOff,
    });
  }

  forward(order: ForwardOrder, report: OrderReport): RunningOrder {
    const { orders, clock } = this.#parts;
    const handler = this.#orderHandler(order, report);
    this.#order = forwardOrder(orders!, clock, this.#request, this.#body, order, handler);
    return this.#order;
  }

  /** Relays the service's answer, and tells the host how it goes. */
  #orderHandler(order: ForwardOrder, report: OrderReport): OrderHandler {
    const relay = this.#relay;
    return {
      head: (head, length, isBodyless, ms) => {
        this.#isOrderAnswered = true;
        this.#said = { outcome: "forwarded", upstreamMs: (order.waitedMs ?? 0) + ms };
        report.head(head.status, head.reason, ms);
        relay.head(head, length, isBodyless);
      },
      data: (chunk) => relay.data(chunk),
      end() {
        report.done();
        relay.end([]); // as a script's own answer: without trailers
      },
      fail: (failure: UpstreamFailure) => {
        report.failed(failure);
        if (this.#isOrderAnswered || failure.kind === "body") {
          this.#brokeOff = this.#isOrderAnswered;
          relay.fail(failure);
        }
      },
    };
  }

  /** The host keeps the deadline itself; this comes when it does not. */
  #late(): void {
    const answered = this.#status !== 0;
    const { targets } = this.#parts;
    targets.reportSuspect(this.#request.container, this.#endpoint.generation, "silent");
    if (answered) {
      this.#relay.cut();
    } else {
      this.#order?.abort();
      this.#relay.leave(); // a script is not cancelled by its deadline; what it still says is thrown away
    }
    this.#finish({ kind: "late", answered, status: this.#status });
  }

  #finish(end: AttemptEnd): void {
    this.#timer?.cancel();
    this.#resolve(end);
  }
}

/** The client holds its body back until it gets a 100; HTTP/1.0 knows no such thing (RFC 9110 10.1.1). */
function waitsForContinue({ head, body }: Exchange): boolean {
  return (
    body !== null &&
    head.version !== "1.0" &&
    fieldValue(head.fields, "expect")?.toLowerCase() === "100-continue"
  );
}

function withoutOutcome(fields: FieldLines): string[] {
  const kept: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!;
    if (name.length !== OUTCOME_LOWER.length || name.toLowerCase() !== OUTCOME_LOWER) {
      kept.push(name, fields[i + 1]!);
    }
  }
  return sweepResponse(kept);
}
