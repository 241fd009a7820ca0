import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ExecEndpoint } from "../dispatcher/envelope.ts";
import { createFrameClient } from "../dispatcher/frame-client.ts";
import { usedCpuMs } from "../exec-host/pool/child.ts";
import { createExecPool, type ExecPool } from "../exec-host/pool/pool.ts";
import type { ExecContainer } from "../exec-host/pool/worker.ts";
import { systemClock } from "../policy/kernel/clock.ts";
import { silentLog } from "../policy/kernel/log.ts";
import { createMetrics } from "../policy/kernel/metrics.ts";

/**
 * Figures of the worker processes: how long a start takes, and what other containers notice while one container's
 * worker is blocked and replaced over and over. Run: `node bench/exec-host.ts`.
 */
const STARTS = 10;
const SECONDS = 8;

const folder = mkdtempSync(join(tmpdir(), "interpose-bench-"));
const containers = new Map<string, ExecContainer>();
for (const [id, source] of [
  ...Array.from({ length: STARTS }, (_, i) => [`start${i}`, ""] as const),
  ["bad", "module.exports = () => { for (;;) {} };"],
  ["good", "module.exports = (req, res) => res.end('ok');"],
] as const) {
  const scripts = join(folder, id);
  mkdirSync(join(scripts, "default/1"), { recursive: true });
  writeFileSync(join(scripts, "default/1/hook.js"), source);
  containers.set(id, {
    scripts,
    memoryMb: 256,
    cpuMs: 500,
    user: null,
    allow: { childProcess: false, read: [], write: [] },
  });
}
const pool = await createExecPool({
  clock: systemClock,
  log: silentLog(),
  metrics: createMetrics(),
  dataDir: folder,
  containers: () => containers,
});
const client = createFrameClient(systemClock);

await measureStarts(pool);
const quiet = await measureNeighbour(pool, false);
const noisy = await measureNeighbour(pool, true);
print("neighbour, quiet", quiet);
print("neighbour, beside a worker that blocks", noisy);
await pool.close();
client.close();
rmSync(folder, { recursive: true });
process.exit(0);

async function measureStarts(of: ExecPool): Promise<void> {
  const wall: number[] = [];
  const cpu: number[] = [];
  for (let i = 0; i < STARTS; i++) {
    const before = performance.now();
    await of.endpoint(`start${i}`);
    wall.push(performance.now() - before);
    const pid = of.status().workers.find((w) => w.container === `start${i}`)?.pid ?? 0;
    cpu.push(usedCpuMs(pid) ?? 0);
  }
  process.stdout.write(
    `start (${of.status().confinement.kind}): wall ms median ${at(wall, 0.5)}, best ${at(wall, 0)}; CPU ms median ${at(cpu, 0.5)}\n`,
  );
}

/** Latencies of a good container, one call after the other, while the bad one is called or not. */
async function measureNeighbour(of: ExecPool, withBad: boolean): Promise<number[]> {
  await of.warm("good");
  const end = performance.now() + SECONDS * 1000;
  const bad = (async () => {
    while (withBad && performance.now() < end) {
      await call(await of.endpoint("bad")).catch(() => {});
    }
  })();
  const times: number[] = [];
  while (performance.now() < end) {
    const before = performance.now();
    await call(await of.endpoint("good"));
    times.push(performance.now() - before);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  await bad;
  return times;
}

function call(endpoint: ExecEndpoint): Promise<number> {
  const envelope = {
    kind: "hook",
    auditId: "none",
    method: "GET",
    path: "/",
    service: "files",
    upstreamHost: "127.0.0.1",
    upstreamPort: 9,
    subdomain: null,
    execId: null,
    scriptPath: "/hook.js",
    timeoutMs: 5000,
    clientAddress: "127.0.0.1",
  } as const;
  return new Promise((resolve, reject) => {
    let status = 0;
    client.send(
      {
        endpoint,
        envelope,
        method: "GET",
        target: "/",
        fields: ["Host", "bench"],
        body: null,
        awaitContinue: false,
        idleMs: 10_000,
        orders: null,
      },
      {
        interim() {},
        head: (head) => void (status = head.status),
        data: () => true,
        end: () => resolve(status),
        tunnel: () => reject(new Error("unexpected switch")),
        fail: reject,
      },
    );
  });
}

function print(label: string, times: number[]): void {
  process.stdout.write(
    `${label}: ${times.length} calls, ms p50 ${at(times, 0.5)}, p99 ${at(times, 0.99)}\n`,
  );
}

function at(values: number[], share: number): string {
  const sorted = values.toSorted((a, b) => a - b);
  return (sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0).toFixed(2);
}
