import { closeSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bareConfinement } from "../../exec-host/pool/confinement.ts";
import { createExecPool } from "../../exec-host/pool/pool.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics } from "../../policy/kernel/metrics.ts";

/** Program of a test: a pool in a process that has used up its file descriptors, and then has some again. */
const keepAlive = setInterval(() => {}, 1000);
const dataDir = mkdtempSync(join(tmpdir(), "interpose-test-"));
const container = {
  scripts: join(dataDir, "scripts"),
  memoryMb: 256,
  cpuMs: 1000,
  user: null,
  allow: { childProcess: false, read: [], write: [] },
};
const containers = new Map([["a", container]]);
const pool = await createExecPool(
  {
    clock: systemClock,
    log: silentLog(),
    metrics: createMetrics(),
    dataDir,
    containers: () => containers,
  },
  { confinement: bareConfinement(false), ...(process.argv[2] ? { entry: process.argv[2] } : {}) },
);
const open: number[] = [];
for (;;) {
  try {
    open.push(openSync("/dev/null", "r"));
  } catch {
    break;
  }
}
const refused = await Promise.resolve()
  .then(() => pool.endpoint("a"))
  .then(
    () => "started",
    (error: Error) => error.message,
  );
for (const fd of open) {
  closeSync(fd);
}
const later = await Promise.resolve()
  .then(() => pool.endpoint("a"))
  .then(
    () => "started",
    (error: Error) => error.message,
  );
process.stdout.write(`${JSON.stringify({ refused, later })}\n`);
await pool.close();
rmSync(dataDir, { recursive: true });
clearInterval(keepAlive);
