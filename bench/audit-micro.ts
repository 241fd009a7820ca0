import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createAudit } from "../dispatcher/audit.ts";
import { systemClock } from "../policy/kernel/clock.ts";
import { createLog } from "../policy/kernel/log.ts";
import { createMetrics } from "../policy/kernel/metrics.ts";
import { createAuditStore } from "../policy/store/audit-store.ts";

/**
 * CPU per audit record, all threads of the process: in bursts, as a busy edge makes them, and at a steady pace, less
 * what the pace itself costs (`node bench/audit-micro.ts [records] [per second]`). A process that sleeps between its
 * records runs on cold caches; of the two the first figure varies less.
 */
const COUNT = Number(process.argv[2] ?? 100_000);
const PER_SECOND = Number(process.argv[3] ?? 10_000);
const BURST = 500;
const TICK_MS = 2;
const SLICES = 5;

const clock = systemClock;
const log = createLog({ level: "info", pretty: false });
const dataDir = mkdtempSync(join(tmpdir(), "interpose-audit-"));
const metrics = createMetrics();
const store = createAuditStore({ clock, log }, { dataDir });
const audit = createAudit({ sink: store, clock, metrics, log });
const GROUPS = ["everyone", "staff"];

function recordOne(n: number): void {
  const record = audit.begin({
    project: "67e89abc123def456789abcd",
    container: "890abcdef12345678901cdef",
    service: "terminal",
    hookId: "01k5x0q8w3zr7v2m9n4p6t1a0b",
    method: "POST",
    path: `/api/login/${n}`,
    clientIp: "203.0.113.9",
    matchedGroups: GROUPS,
    script: `default/1/login-audit${n % 10}`,
  });
  if (record !== null) {
    audit.finish(record, { outcome: "answered", status: 200, durationMs: 1.7, upstreamMs: 0.9 });
  }
}

function cpuPer(count: number, before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / count;
}

/** Calls `task` so often a second, however late ticks are. Tells the CPU used, in us per call. */
async function paced(count: number, task: (n: number) => void): Promise<number> {
  const before = process.cpuUsage();
  const start = performance.now();
  for (let done = 0; done < count;) {
    await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    const due = Math.min(count, ((performance.now() - start) / 1000) * PER_SECOND);
    for (; done < due; done++) {
      task(done);
    }
  }
  await audit.flush();
  return cpuPer(count, before);
}

async function burst(count: number): Promise<number> {
  const before = process.cpuUsage();
  for (let n = 0; n < count; n++) {
    recordOne(n);
    if (n % BURST === 0) {
      await audit.flush();
    }
  }
  await audit.flush();
  return cpuPer(count, before);
}

function tell(name: string, figures: readonly number[]): void {
  const sorted = figures.toSorted((a, b) => a - b);
  const shown = [sorted[figures.length >> 1], sorted[0], sorted.at(-1)].map((us) => us?.toFixed(2));
  process.stderr.write(
    `${name.padEnd(9)} ${shown[0]} us per record (${shown[1]} to ${shown[2]})\n`,
  );
}

try {
  await burst(COUNT); // what is compiled on the way must not count
  const bursts: number[] = [];
  const steady: number[] = [];
  for (let slice = 0; slice < SLICES; slice++) {
    bursts.push(await burst(COUNT));
    const pace = await paced(COUNT / SLICES, () => {});
    steady.push((await paced(COUNT / SLICES, recordOne)) - pace);
  }
  tell("bursts", bursts);
  tell("at a pace", steady);
  const dropped = (await metrics.auditDropped.get()).values[0]?.value ?? 0;
  process.stderr.write(`${dropped} records dropped\n`);
} finally {
  await store.close();
  rmSync(dataDir, { recursive: true, force: true });
}
