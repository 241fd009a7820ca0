import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { systemClock } from "../../policy/kernel/clock.ts";
import { errorBody, errorFields, statusOf } from "../../policy/kernel/errors.ts";
import type { Exchange } from "../../policy/kernel/exchange.ts";
import { sweepRequest } from "../../policy/kernel/fields.ts";
import { createHttp1Client, type Http1ClientOptions } from "../../policy/kernel/http1/client.ts";
import type { Origin, OutgoingRequest } from "../../policy/kernel/http1/types.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { forward, type ForwardOutcome } from "../../proxy/forward.ts";
import { toOutgoingFields } from "../../proxy/outgoing-fields.ts";
import { openTunnel, type TunnelOutcome } from "../../proxy/tunnel.ts";
import type { WireLimits } from "../../proxy/wire/limits.ts";
import { createListener, type Listener } from "../../proxy/wire/listener.ts";
import { createCertificates } from "../../proxy/wire/tls.ts";

export interface WireEdgeOptions {
  readonly limits?: Partial<WireLimits>;
  readonly upstream?: Partial<OutgoingRequest["limits"]>;
  readonly client?: Http1ClientOptions;
  readonly handshakeMs?: number;
  /** TLS with a test certificate, HTTP/1.1 and HTTP/2. */
  readonly secure?: boolean;
  /** Instead of forwarding. */
  readonly onExchange?: (exchange: Exchange) => void;
}

export interface WireEdge {
  readonly port: number;
  readonly wire: Listener;
  readonly outcomes: (ForwardOutcome | TunnelOutcome)[];
  /** What the adapter handed out. */
  readonly exchanges: Exchange[];
}

export const WIRE_LIMITS: WireLimits = {
  headMs: 10_000,
  requestMs: 0,
  keepAliveMs: 65_000,
  maxHeaderBytes: 32_768,
  maxHeaderLines: 200,
  maxTargetBytes: 16_384,
  maxConnections: 1000,
};

/** The wire alone: listener, sweeping, forwarding to one upstream; no hosts, rules and permissions. */
export async function startWireEdge(
  upstream: number | Origin,
  options: WireEdgeOptions = {},
): Promise<WireEdge> {
  const outcomes: (ForwardOutcome | TunnelOutcome)[] = [];
  const exchanges: Exchange[] = [];
  const client = createHttp1Client(options.client);
  const origin: Origin =
    typeof upstream === "number" ? { kind: "tcp", host: "127.0.0.1", port: upstream } : upstream;
  const limits = { connectMs: 2000, idleMs: 10_000, maxHeaderBytes: 32_768, ...options.upstream };

  function pass(exchange: Exchange): void {
    const request = {
      client,
      clock: systemClock,
      origin,
      method: exchange.head.method,
      target: exchange.head.target,
      fields: toOutgoingFields(sweepRequest(exchange.head.fields), {
        clientAddress: exchange.peer.address,
        encrypted: exchange.peer.encrypted,
      }),
      limits,
      ...(options.handshakeMs === undefined ? {} : { handshakeMs: options.handshakeMs }),
    };
    const ended: Promise<ForwardOutcome | TunnelOutcome> = exchange.handshake
      ? openTunnel(exchange, request)
      : forward(exchange, request);
    void ended.then((outcome) => {
      outcomes.push(outcome);
      if (outcome.kind === "failed" && !outcome.headSent) {
        const code = outcome.failure.kind === "timeout" ? "UPSTREAM_TIMEOUT" : "UPSTREAM_FAILED";
        exchange.answer(
          { status: statusOf(code), reason: "", fields: errorFields(code) },
          Buffer.from(errorBody(code)),
        );
      }
    });
  }

  const pem = new URL("../cases/tls/", import.meta.url).pathname;
  const certificates = options.secure
    ? createCertificates([{ cert: `${pem}one.cert.pem`, key: `${pem}one.key.pem`, hosts: [] }], {
        clock: systemClock,
        log: silentLog(),
      })
    : null;
  const wire = createListener(
    {
      limits: { ...WIRE_LIMITS, ...options.limits },
      clock: systemClock,
      log: silentLog(),
      onExchange(exchange) {
        exchanges.push(exchange);
        (options.onExchange ?? pass)(exchange);
      },
    },
    { proxyProtocol: null, certificates },
  );
  await new Promise<void>((resolve) => wire.server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    client.close();
    certificates?.close();
    wire.drain();
    wire.destroy();
  });
  return { port: (wire.server.address() as AddressInfo).port, wire, outcomes, exchanges };
}

/** Resolves when `condition` holds; rejects after `ms`. */
export async function eventually(condition: () => boolean, ms = 8000): Promise<void> {
  const end = performance.now() + ms;
  while (!condition()) {
    if (performance.now() > end) {
      throw new Error(`did not happen within ${ms} ms`);
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
