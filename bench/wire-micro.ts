/**
 * CPU of the wire alone: one GET through each upstream client, and through the whole relay (listener and client), against
 * an upstream in a process of its own. `node bench/wire-micro.ts [requests]`; rounds are interleaved, the best one counts.
 */
import { fork, type ChildProcess } from "node:child_process";
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { systemClock } from "../policy/kernel/clock.ts";
import { sweepRequest } from "../policy/kernel/fields.ts";
import { createHttp1Client } from "../policy/kernel/http1/client.ts";
import { silentLog } from "../policy/kernel/log.ts";
import { forward } from "../proxy/forward.ts";
import { toOutgoingFields } from "../proxy/outgoing-fields.ts";
import { createListener } from "../proxy/wire/listener.ts";

const REQUESTS = Number(process.argv[2] ?? 20_000);
const AT_ONCE = 32;
const ROUNDS = 5;
const LIMITS = { connectMs: 3000, idleMs: 30_000, maxHeaderBytes: 32_768 };
const FIELDS = [
  "Host",
  "bench.localhost",
  "User-Agent",
  "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
  "Accept",
  "application/json, text/plain, */*",
  "Accept-Language",
  "en-GB,en;q=0.8,de;q=0.5",
  "Accept-Encoding",
  "gzip, deflate, br, zstd",
  "Referer",
  "https://bench.localhost/start",
  "Cookie",
  "session=0123456789abcdef0123456789abcdef; theme=dark",
  "Cache-Control",
  "no-cache",
];
const BODY = JSON.stringify({ text: "x".repeat(1000) });
const ANSWER =
  `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${BODY.length}\r\nETag: "1"\r\nVary: Accept\r\n` +
  `Date: Mon, 30 Nov 2026 12:00:00 GMT\r\nCache-Control: no-store\r\nX-Request-Id: 1234567890\r\n\r\n${BODY}`;

/** Answers as soon as it sees the end of a head: the cheapest upstream there is. */
function upstreamRole(): void {
  const server = net.createServer({ noDelay: true }, (socket) => {
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      for (let at = chunk.indexOf("\r\n\r\n"); at >= 0; at = chunk.indexOf("\r\n\r\n", at + 4)) {
        socket.write(ANSWER, "latin1");
      }
    });
  });
  server.listen(0, "127.0.0.1", () =>
    process.send?.({ port: (server.address() as AddressInfo).port }),
  );
}

/** Keeps `AT_ONCE` connections busy until `REQUESTS` were answered, for each port it is told. */
function loadRole(): void {
  const head = FIELDS.reduce(
    (text, part, index) => text + part + (index % 2 === 0 ? ": " : "\r\n"),
    "GET /bench?x=1 HTTP/1.1\r\n",
  );
  process.on("message", ({ port }: { port: number }) => {
    let left = REQUESTS;
    let open = AT_ONCE;
    for (let i = 0; i < AT_ONCE; i++) {
      const socket = net.connect(port, "127.0.0.1", () => socket.write(`${head}\r\n`));
      let size = 0;
      socket.on("data", (chunk) => {
        size += chunk.length;
        if (size < BODY.length || !chunk.subarray(-2).equals(Buffer.from('"}'))) {
          return;
        }
        size = 0;
        if (--left > 0) {
          socket.write(`${head}\r\n`);
        } else {
          socket.destroy();
        }
        if (left <= 0 && --open >= 0) {
          socket.destroy();
          if (left === 0) {
            process.send?.({ done: true });
          }
        }
      });
    }
  });
}

function spawn(role: string): { child: ChildProcess; next: () => Promise<{ port: number }> } {
  const child = fork(new URL(import.meta.url), [String(REQUESTS)], {
    env: { ...process.env, WIRE_ROLE: role },
  });
  return {
    child,
    next: () =>
      new Promise((resolve) =>
        child.once("message", (message) => resolve(message as { port: number })),
      ),
  };
}

async function inFlight(one: () => Promise<void>): Promise<void> {
  let left = REQUESTS;
  const worker = async (): Promise<void> => {
    while (left-- > 0) {
      await one();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

async function main(): Promise<void> {
  const upstream = spawn("upstream");
  const { port } = await upstream.next();
  const load = spawn("load");
  const origin = { kind: "tcp", host: "127.0.0.1", port } as const;
  const client = createHttp1Client();
  const agent = new http.Agent({ keepAlive: true, maxSockets: AT_ONCE });

  const ours = (): Promise<void> =>
    new Promise((resolve, reject) => {
      client.send(
        { origin, method: "GET", target: "/bench?x=1", fields: FIELDS, body: null, limits: LIMITS },
        {
          interim() {},
          head() {},
          data: () => true,
          end: () => resolve(),
          tunnel() {},
          fail: reject,
        },
      );
    });
  const nodeHttp = (): Promise<void> =>
    new Promise((resolve, reject) => {
      http
        .request(
          { host: "127.0.0.1", port, agent, path: "/bench?x=1", headers: FIELDS },
          (answer) => {
            answer.resume();
            answer.on("end", resolve);
          },
        )
        .on("error", reject)
        .end();
    });

  const listener = createListener(
    {
      limits: {
        headMs: 10_000,
        requestMs: 0,
        keepAliveMs: 65_000,
        maxHeaderBytes: 32_768,
        maxHeaderLines: 200,
        maxTargetBytes: 16_384,
        maxConnections: 1000,
      },
      clock: systemClock,
      log: silentLog(),
      onExchange(exchange) {
        const fields = toOutgoingFields(sweepRequest(exchange.head.fields), {
          clientAddress: exchange.peer.address,
          encrypted: false,
        });
        void forward(exchange, {
          client,
          clock: systemClock,
          origin,
          method: exchange.head.method,
          target: exchange.head.target,
          fields,
          limits: LIMITS,
        });
      },
    },
    { proxyProtocol: null, certificates: null },
  );
  await new Promise<void>((resolve) => listener.server.listen(0, "127.0.0.1", resolve));
  const relayPort = (listener.server.address() as AddressInfo).port;
  const barePipe = http.createServer((request, response) => {
    const out = http.request(
      { host: "127.0.0.1", port, agent, path: request.url, headers: request.rawHeaders },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
        answer.pipe(response);
      },
    );
    out.on("error", () => response.destroy());
    request.pipe(out);
  });
  await new Promise<void>((resolve) => barePipe.listen(0, "127.0.0.1", resolve));
  const pipePort = (barePipe.address() as AddressInfo).port;
  const loaded = (to: number) => async (): Promise<void> => {
    load.child.send({ port: to });
    await load.next();
  };

  const contenders: [string, () => Promise<void>][] = [
    ["client: ours", () => inFlight(ours)],
    ["client: node:http", () => inFlight(nodeHttp)],
    ["relay: listener and client", loaded(relayPort)],
    ["relay: bare node:http pipe", loaded(pipePort)],
  ];
  const best = new Map<string, number>();
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [name, run] of contenders) {
      const before = process.cpuUsage();
      await run();
      const { user, system } = process.cpuUsage(before);
      if (round > 0) {
        best.set(
          name,
          Math.min(best.get(name) ?? Number.POSITIVE_INFINITY, (user + system) / REQUESTS),
        );
      }
    }
  }
  for (const [name, micros] of best) {
    process.stdout.write(`${name.padEnd(30)} ${micros.toFixed(1)} us CPU per request\n`);
  }
  upstream.child.kill();
  load.child.kill();
  client.close();
  agent.destroy();
  listener.drain();
  listener.destroy();
  barePipe.close();
  barePipe.closeAllConnections();
}

const role = process.env["WIRE_ROLE"];
if (role === "upstream") {
  upstreamRole();
} else if (role === "load") {
  loadRole();
} else {
  await main();
}
