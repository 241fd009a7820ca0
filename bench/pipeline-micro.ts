import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../policy/kernel/clock.ts";
import type { DrainingSink, Exchange, FieldLines, RequestHead } from "../policy/kernel/exchange.ts";
import type { AnswerHandler, Http1Client } from "../policy/kernel/http1/types.ts";
import { createLog } from "../policy/kernel/log.ts";
import { createMetrics } from "../policy/kernel/metrics.ts";
import { createPolicyCache } from "../policy/store/cache.ts";
import { createFileStore } from "../policy/store/file-store.ts";
import { decodeConfig } from "../proxy/config.ts";
import { createDataPlane } from "../proxy/data-plane.ts";

/*
 * What the edge's own code costs per request, plain and hooked, without clients and services: the whole pipeline with its
 * access line and metrics, between an exchange and a client that answer at once. Calls of scripts go over a real socket to a
 * process that stands for a worker. The log goes to standard output, so run it with `> /dev/null`; figures go to standard
 * error. Much less noisy than traffic, so good for comparisons.
 *
 * Arguments: number of requests (200000).
 */

const COUNT = Number(process.argv[2] ?? 200_000);
const PROJECT = "67e89abc123def456789abcd";
const CONTAINER = "890abcdef12345678901cdef";
const HOST = `${PROJECT}-${CONTAINER}-terminal-1.local.containers.localhost`;

const ANSWER_FIELDS: FieldLines = [
  ["content-type", "application/json"],
  ["content-length", "1024"],
  ["cache-control", "max-age=0"],
  ["etag", '"bench"'],
  ["vary", "accept-encoding"],
  ["x-frame-options", "DENY"],
  ["Date", "Mon, 30 Nov 2026 12:00:00 GMT"],
  ["Connection", "keep-alive"],
  ["Keep-Alive", "timeout=5"],
].flat();

/** A head as a parser makes it: every string new. */
function makeHead(target: string): RequestHead {
  const text =
    `host|${HOST}|accept|application/json, text/plain, */*|accept-encoding|gzip, deflate, br|` +
    `accept-language|en-GB,en;q=0.8|cache-control|no-cache|referer|http://bench.invalid/page|` +
    `user-agent|bench/1.0 (X11; Linux x86_64)|x-request-id|${Math.random()}|Connection|keep-alive`;
  return { method: "GET", target, version: "1.1", fields: text.split("|") };
}

const CHUNK = Buffer.alloc(1024, "x");
let answered = 0;
let due = 0;
let tellAll = (): void => {};

function answeredUpTo(count: number): Promise<void> {
  due = count;
  return new Promise((resolve) => (tellAll = resolve));
}

class QuickSink implements DrainingSink {
  data(): boolean {
    return true;
  }
  end(): void {
    if (++answered === due) {
      tellAll();
    }
  }
  fail(): void {}
  onDrain(): void {}
}

class QuickExchange implements Exchange {
  readonly head: RequestHead;
  readonly peer = { address: "127.0.0.1", port: 1, encrypted: false };
  readonly body = null;
  readonly handshake = false;
  answered = false;
  constructor(target: string) {
    this.head = makeHead(target);
  }
  onGone(): void {}
  sendContinue(): void {}
  sendInterim(): void {}
  answer(): void {
    this.answered = true;
  }
  startAnswer(): DrainingSink {
    this.answered = true;
    return new QuickSink();
  }
  tunnel(): never {
    throw new Error("no tunnels here");
  }
  abort(): void {}
}

/** Answers after everything that was sent in this turn. */
const waiting: AnswerHandler[] = [];
const client: Http1Client = {
  send(_request, handler) {
    if (waiting.push(handler) === 1) {
      setImmediate(answerAll);
    }
    return { resume() {}, abort() {} };
  },
  close() {},
};

function answerAll(): void {
  for (const handler of waiting.splice(0)) {
    handler.head({ status: 200, reason: "OK", fields: ANSWER_FIELDS }, 1024, false);
    handler.data(CHUNK);
    handler.end([]);
  }
}

const dataDir = mkdtempSync(join(tmpdir(), "interpose-bench-"));
const socket = join(dataDir, "worker.sock");
const worker = spawn(process.execPath, [
  join(import.meta.dirname, "peers/call-answerer.ts"),
  socket,
]);
await once(worker.stdout, "data");
try {
  const folder = join(dataDir, "policy/containers");
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    join(folder, `${CONTAINER}.json`),
    JSON.stringify({
      project: PROJECT,
      container: CONTAINER,
      groups: {},
      permissions: {},
      default: "allow",
      enable_proxy: true,
      hooks: {
        terminal: [
          {
            id: "01hzzzzzzzzzzzzzzzzzzzzzz1",
            match: { method: "*", path: "/hooked*" },
            script: { path: "/forward" },
            timeout: 30_000,
          },
          {
            id: "01hzzzzzzzzzzzzzzzzzzzzzz2",
            match: { method: "*", path: "/answered*" },
            script: { path: "/answer" },
            timeout: 30_000,
          },
        ],
      },
      schema_version: 2,
      file_version: 1,
    }),
  );
  const decoded = decodeConfig(
    {
      listen: { http: "127.0.0.1:0" },
      control: { listen: "127.0.0.1:0", token: "bench-control-token-0000" },
      dataDir,
      containers: [
        {
          project: PROJECT,
          container: CONTAINER,
          ports: { terminal: 80 },
          exec: { kind: "embedded", scripts: dataDir },
        },
      ],
    },
    { base: ".", env: {} },
  );
  if (!decoded.ok) {
    throw new Error(JSON.stringify(decoded.issues));
  }
  const clock = systemClock;
  const log = createLog({ level: "info", pretty: false });
  const metrics = createMetrics();
  const store = createFileStore({ clock }, { dataDir });
  const policies = createPolicyCache({ store, clock, log, metrics });
  const none = () => {
    throw new Error("not here");
  };
  const { pipeline } = createDataPlane(decoded.config, {
    clock,
    log,
    metrics,
    client,
    policies,
    aliases: () => null,
    auditStore: { append: async () => {} },
    execHosts: {
      endpoint: () => ({ origin: { kind: "unix", path: socket }, secret: "s", generation: 1 }),
      reportSuspect() {},
      isGone: () => false,
      takeEnded: none,
    },
    agents: { endpoint: none, sign: () => [] },
    management: () => ({ owns: () => false, handle: none }),
    own: { add() {}, has: () => false },
  });

  const first = answeredUpTo(1);
  pipeline(new QuickExchange("/plain"));
  await first;
  for (const target of ["/plain?a=1", "/answered?a=1", "/hooked?a=1"]) {
    let best = Number.POSITIVE_INFINITY;
    answered = 0;
    for (let round = 0; round < 8; round++) {
      const before = process.cpuUsage();
      for (let n = 0; n < COUNT / 8; n += 16) {
        const all = answeredUpTo(answered + 16);
        for (let i = 0; i < 16; i++) {
          pipeline(new QuickExchange(target));
        }
        await all;
      }
      const { user, system } = process.cpuUsage(before);
      best = Math.min(best, (user + system) / (COUNT / 8));
    }
    process.stderr.write(
      `${target.padEnd(12)} ${best.toFixed(2)} us per request (${answered} answered)\n`,
    );
  }
} finally {
  worker.kill();
  rmSync(dataDir, { recursive: true, force: true });
}
process.exit(0);
