import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock } from "../policy/kernel/clock.ts";
import type {
  DrainingSink,
  Exchange,
  FieldLines,
  ResponseHead,
} from "../policy/kernel/exchange.ts";
import {
  UpstreamFailure,
  type AnswerHandler,
  type Http1Client,
  type Origin,
  type OutgoingCall,
  type OutgoingRequest,
} from "../policy/kernel/http1/types.ts";
import { passInterim, sweptHead } from "../policy/kernel/relay.ts";

/** A WebSocket handshake to pass on. */
export interface TunnelRequest {
  readonly client: Http1Client;
  readonly clock: Clock;
  readonly origin: Origin;
  readonly target: string;
  /** As they go out, `Sec-WebSocket-*` included; `Connection` and `Upgrade` are added by the client. */
  readonly fields: FieldLines;
  readonly limits: OutgoingRequest["limits"];
  /** How long the upstream may take to answer the handshake. */
  readonly handshakeMs?: number;
}

/** Where the caller takes part in a tunnel. */
export interface TunnelHooks {
  /** The upstream switched; from now on the request budget does not apply. */
  onOpen?(): void;
  /** Hands out the way to give the handshake or the tunnel up from outside. */
  onStart?(cancel: (failure: UpstreamFailure) => void): void;
}

/** How a handshake, or the tunnel it opened, ended. */
export type TunnelOutcome =
  /** The tunnel was open and is closed now. */
  | {
      readonly kind: "closed";
      readonly status: 101;
      readonly bytesUp: number;
      readonly bytesDown: number;
    }
  /** The upstream answered something else, which was passed on. */
  | { readonly kind: "refused"; readonly status: number }
  | { readonly kind: "client_gone" }
  /** `headSent`: a refusal broke off in its middle and the client was cut; otherwise the caller answers. */
  | { readonly kind: "failed"; readonly failure: UpstreamFailure; readonly headSent: boolean };

const HANDSHAKE_MS = 10_000;
/** When a silent side is asked by TCP whether it is still there: a tunnel has no other limit. */
const KEEP_ALIVE_MS = 60_000;
/** When one side ended: how long the other may still say goodbye. */
const GOODBYE_MS = 1000;

/**
 * Passes a WebSocket handshake to the upstream and joins the two byte streams, without looking at frames. An answer
 * other than 101 is passed on whole. Resolves when all is over; never rejects.
 */
export function openTunnel(
  exchange: Exchange,
  request: TunnelRequest,
  hooks?: TunnelHooks,
): Promise<TunnelOutcome> {
  return new Promise((resolve) => new Handshake(exchange, request, hooks, resolve).start());
}

class Handshake implements AnswerHandler {
  readonly #exchange: Exchange;
  readonly #request: TunnelRequest;
  readonly #hooks: TunnelHooks | undefined;
  readonly #resolve: (outcome: TunnelOutcome) => void;
  #call: OutgoingCall | null = null;
  #sink: DrainingSink | null = null;
  #status = 0;
  #settled = false;
  #cut: (() => void) | null = null;

  constructor(
    exchange: Exchange,
    request: TunnelRequest,
    hooks: TunnelHooks | undefined,
    resolve: (outcome: TunnelOutcome) => void,
  ) {
    this.#exchange = exchange;
    this.#request = request;
    this.#hooks = hooks;
    this.#resolve = resolve;
  }

  start(): void {
    const { client, origin, target, fields, limits, handshakeMs = HANDSHAKE_MS } = this.#request;
    this.#exchange.onGone(() => {
      this.#call?.abort();
      this.#settle({ kind: "client_gone" });
    });
    if (this.#settled) {
      return;
    }
    try {
      this.#call = client.send(
        {
          origin,
          method: "GET",
          target,
          fields,
          body: null,
          upgrade: true,
          limits: { ...limits, idleMs: Math.min(limits.idleMs, handshakeMs) },
        },
        this,
      );
    } catch (cause) {
      this.fail(new UpstreamFailure("protocol", "the handshake cannot be sent", cause));
      return;
    }
    this.#hooks?.onStart?.((failure) => {
      if (this.#cut !== null) {
        this.#cut();
        return;
      }
      this.#call?.abort();
      this.fail(failure);
    });
  }

  #settle(outcome: TunnelOutcome): void {
    if (!this.#settled) {
      this.#settled = true;
      this.#resolve(outcome);
    }
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
    const answer = sweptHead(head);
    try {
      this.#sink = this.#exchange.startAnswer(answer, bodyless ? null : length);
      this.#sink.onDrain(() => this.#call?.resume());
    } catch (cause) {
      this.#call?.abort();
      this.fail(new UpstreamFailure("protocol", "the answer head cannot be sent", cause));
    }
  }

  data(chunk: Buffer): boolean {
    return this.#sink === null || this.#sink.data(chunk);
  }

  end(): void {
    this.#sink?.end([]);
    this.#settle({ kind: "refused", status: this.#status });
  }

  tunnel(head: ResponseHead, upstream: Duplex): void {
    if (this.#settled) {
      upstream.destroy();
      return;
    }
    let client: Duplex;
    try {
      client = this.#exchange.tunnel(sweptHead(head));
    } catch (cause) {
      upstream.destroy();
      this.fail(new UpstreamFailure("protocol", "the switch cannot be passed on", cause));
      return;
    }
    this.#cut = () => {
      client.destroy();
      upstream.destroy();
    };
    this.#hooks?.onOpen?.();
    join(client, upstream, this.#request.clock, (bytesUp, bytesDown) => {
      this.#settle({ kind: "closed", status: 101, bytesUp, bytesDown });
    });
  }

  fail(failure: UpstreamFailure): void {
    if (this.#settled) {
      return;
    }
    const sink = this.#sink;
    this.#settle({ kind: "failed", failure, headSent: sink !== null });
    sink?.fail(failure);
  }
}

/** Joins two streams; the end or failure of either ends the other. `done` is called once when both are closed. */
function join(
  client: Duplex,
  upstream: Duplex,
  clock: Clock,
  done: (up: number, down: number) => void,
): void {
  let up = 0;
  let down = 0;
  let open = 2;
  const closed = (): void => {
    open--;
    if (open === 0) {
      done(up, down);
    }
  };
  pump(client, upstream, clock, closed, (bytes) => (up += bytes));
  pump(upstream, client, clock, closed, (bytes) => (down += bytes));
}

function pump(
  from: Duplex,
  to: Duplex,
  clock: Clock,
  closed: () => void,
  count: (bytes: number) => void,
): void {
  if (from instanceof Socket) {
    from.setKeepAlive(true, KEEP_ALIVE_MS);
  }
  from.on("error", ignore); // "close" follows and ends the other side
  from.on("data", (chunk: Buffer) => {
    count(chunk.length);
    if (!to.destroyed && to.writable && !to.write(chunk)) {
      from.pause();
    }
  });
  to.on("drain", () => from.resume());
  from.on("end", () => {
    to.end();
    from.end();
    clock.after(GOODBYE_MS, () => {
      from.destroy();
      to.destroy();
    });
  });
  from.on("close", () => {
    closed();
    if (from.errored === null) {
      to.end();
      clock.after(GOODBYE_MS, () => to.destroy());
    } else {
      to.destroy();
    }
  });
  if (from.destroyed) {
    to.destroy();
    closed();
  }
  from.resume();
}

function ignore(): void {}
