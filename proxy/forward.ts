import type { Clock } from "../policy/kernel/clock.ts";
import type {
  BodySource,
  DrainingSink,
  Exchange,
  FieldLines,
  ResponseHead,
} from "../policy/kernel/exchange.ts";
import { sweepTrailers } from "../policy/kernel/fields.ts";
import {
  UpstreamFailure,
  type AnswerHandler,
  type Http1Client,
  type Origin,
  type OutgoingCall,
  type OutgoingRequest,
} from "../policy/kernel/http1/types.ts";
import { passInterim, sweptHead } from "../policy/kernel/relay.ts";

/** One request to pass on. */
export interface ForwardRequest {
  readonly client: Http1Client;
  readonly clock: Clock;
  readonly origin: Origin;
  readonly method: string;
  readonly target: string;
  /** As they go out, see `toOutgoingFields`; no framing fields. */
  readonly fields: FieldLines;
  /** Instead of the exchange's own body. */
  readonly body?: BodySource | null;
  readonly limits: OutgoingRequest["limits"];
}

/** Where the caller takes part in a forward. */
export interface ForwardHooks {
  /** The final head came and is about to be sent. */
  onHead?(head: ResponseHead): void;
  /** Hands out the way to give the request up from outside: the outcome is then `failed` with this failure. */
  onStart?(cancel: (failure: UpstreamFailure) => void): void;
}

/** How a forwarded request ended. `upstreamMs`: from sending until the answer head; null when none came. */
export type ForwardOutcome =
  | { readonly kind: "done"; readonly status: number; readonly upstreamMs: number }
  | {
      readonly kind: "client_gone";
      readonly status: number | null;
      readonly upstreamMs: number | null;
    }
  | {
      readonly kind: "failed";
      readonly failure: UpstreamFailure;
      /** The head was out already, so the client's connection was cut; otherwise the caller answers. */
      readonly headSent: boolean;
      readonly status: number | null;
      readonly upstreamMs: number | null;
    };

/**
 * Passes a request to an upstream and its answer back, streaming both ways: interim answers, trailers, an early answer
 * included; hop-by-hop fields of the answer are removed. When the client leaves, in whatever phase, the upstream
 * request is given up. Answers nothing itself.
 *
 * @param done called once with how it ended, within this call when it ends at once; must not throw.
 */
export function startForward(
  exchange: Exchange,
  request: ForwardRequest,
  hooks: ForwardHooks | undefined,
  done: (outcome: ForwardOutcome) => void,
): void {
  new Relay(exchange, request, hooks, done).start();
}

/** `startForward` for those who wait for the outcome. Never rejects. */
export function forward(
  exchange: Exchange,
  request: ForwardRequest,
  hooks?: ForwardHooks,
): Promise<ForwardOutcome> {
  return new Promise((resolve) => startForward(exchange, request, hooks, resolve));
}

class Relay implements AnswerHandler {
  readonly #exchange: Exchange;
  readonly #request: ForwardRequest;
  readonly #hooks: ForwardHooks | undefined;
  readonly #done: (outcome: ForwardOutcome) => void;
  #startedAt = 0;
  #upstreamMs: number | null = null;
  #status: number | null = null;
  #call: OutgoingCall | null = null;
  #sink: DrainingSink | null = null;
  #drains = false;
  #settled = false;

  constructor(
    exchange: Exchange,
    request: ForwardRequest,
    hooks: ForwardHooks | undefined,
    done: (outcome: ForwardOutcome) => void,
  ) {
    this.#exchange = exchange;
    this.#request = request;
    this.#hooks = hooks;
    this.#done = done;
  }

  start(): void {
    const { client, clock, origin, method, target, fields, limits } = this.#request;
    const body = this.#request.body === undefined ? this.#exchange.body : this.#request.body;
    this.#exchange.onGone(() => this.#clientGone());
    if (this.#settled) {
      return;
    }
    this.#startedAt = clock.monotonic();
    try {
      const call = client.send({ origin, method, target, fields, body, limits }, this);
      this.#call = call;
      if (this.#settled) {
        call.abort();
      }
    } catch (cause) {
      this.fail(new UpstreamFailure("protocol", "the request cannot be sent", cause));
      return;
    }
    this.#hooks?.onStart?.((failure) => {
      this.#call?.abort();
      this.fail(failure);
    });
  }

  #clientGone(): void {
    if (!this.#settled) {
      this.#call?.abort();
      this.#settle({ kind: "client_gone", status: this.#status, upstreamMs: this.#upstreamMs });
    }
  }

  #settle(outcome: ForwardOutcome): void {
    this.#settled = true;
    this.#done(outcome);
  }

  interim(head: ResponseHead): void {
    if (!this.#settled) {
      passInterim(this.#exchange, head);
    }
  }

  head(head: ResponseHead, length: number | null, bodyless: boolean): void {
    if (this.#settled) {
      return;
    }
    this.#status = head.status;
    this.#upstreamMs = this.#request.clock.monotonic() - this.#startedAt;
    const answer = sweptHead(head);
    try {
      this.#hooks?.onHead?.(answer);
      this.#sink = bodyless
        ? this.#exchange.startAnswer(answer, null, length === null ? undefined : String(length))
        : this.#exchange.startAnswer(answer, length);
    } catch (cause) {
      this.#call?.abort();
      this.fail(new UpstreamFailure("protocol", "the answer head cannot be sent", cause));
    }
  }

  data(chunk: Buffer): boolean {
    const sink = this.#sink;
    if (sink === null || sink.data(chunk, true)) {
      return true;
    }
    if (!this.#drains) {
      this.#drains = true;
      sink.onDrain(() => this.#call?.resume());
    }
    return false;
  }

  end(trailers: FieldLines): void {
    if (!this.#settled) {
      this.#sink?.end(sweepTrailers(trailers));
      this.#settle({ kind: "done", status: this.#status ?? 0, upstreamMs: this.#upstreamMs ?? 0 });
    }
  }

  tunnel(): void {
    this.fail(new UpstreamFailure("protocol", "a switch of protocols that was not asked for"));
  }

  fail(failure: UpstreamFailure): void {
    if (this.#settled) {
      return;
    }
    const status = this.#status;
    const upstreamMs = this.#upstreamMs;
    if (failure.kind === "body") {
      this.#settle({ kind: "client_gone", status, upstreamMs });
      this.#exchange.abort();
      return;
    }
    const sink = this.#sink;
    this.#settle({ kind: "failed", failure, headSent: sink !== null, status, upstreamMs });
    sink?.fail(failure);
  }
}
