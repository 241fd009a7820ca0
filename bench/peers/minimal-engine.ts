import type { AddressInfo } from "node:net";
import { systemClock } from "../../policy/kernel/clock.ts";
import { sweepHopByHop } from "../../policy/kernel/fields.ts";
import { createHttp1Client } from "../../policy/kernel/http1/client.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { Relay } from "../../policy/kernel/relay.ts";
import { createHttp1Server } from "../../proxy/wire/http1/server.ts";

// A minimal proxy on the edge's own engine, both sides: it takes off what belongs to one connection, which the engine wants
// to write itself, and passes everything else on. No check, no policy, no log, no metrics.
const client = createHttp1Client();
const origin = { kind: "tcp", host: "127.0.0.1", port: Number(process.argv[2]) } as const;
const limits = { connectMs: 3000, idleMs: 300_000, maxHeaderBytes: 32_768 };
const { server } = createHttp1Server({
  clock: systemClock,
  log: silentLog(),
  limits: {
    headMs: 10_000,
    requestMs: 0,
    keepAliveMs: 300_000,
    maxHeaderBytes: 32_768,
    maxHeaderLines: 100,
    maxTargetBytes: 16_384,
    maxConnections: 10_000,
  },
  onExchange(exchange) {
    const relay = new Relay(exchange, {
      head: ({ fields }) => sweepHopByHop(fields),
      done(end) {
        if (end.kind === "failed") {
          exchange.abort();
        }
      },
    });
    const { method, target, fields } = exchange.head;
    relay.attach(
      client.send(
        { origin, method, target, fields: sweepHopByHop(fields), body: exchange.body, limits },
        relay,
      ),
    );
  },
});

server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`${JSON.stringify({ port: (server.address() as AddressInfo).port })}\n`);
});
