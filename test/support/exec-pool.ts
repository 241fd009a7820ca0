import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import type { ExecEndpoint } from "../../dispatcher/envelope.ts";
import type { ExecPoolOptions, ReportSink } from "../../exec-host/pool/options.ts";
import { createExecPool, type ExecPool } from "../../exec-host/pool/pool.ts";
import type { ExecContainer } from "../../exec-host/pool/worker.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics, type Metrics } from "../../policy/kernel/metrics.ts";
import { callWorker } from "./frame-call.ts";

export const FAKE_WORKER = fileURLToPath(new URL("exec-fake-worker.ts", import.meta.url));

export interface PoolSetup {
  readonly pool: ExecPool;
  readonly metrics: Metrics;
  readonly dataDir: string;
  readonly containers: Map<string, ExecContainer>;
}

/** A container's settings with room for tests on a busy machine. */
export function execContainer(
  scripts: string,
  changes: Partial<ExecContainer> = {},
): ExecContainer {
  return {
    scripts,
    memoryMb: 256,
    cpuMs: 1000,
    user: null,
    allow: { childProcess: false, read: [], write: [] },
    ...changes,
  };
}

/** A temporary folder that goes with the test. */
export async function tempDir(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "interpose-test-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** A pool over a temporary data folder; containers `a` and `b` with the given changes. Closed with the test. */
export async function startPool(
  changes: Partial<ExecContainer> = {},
  options: Partial<ExecPoolOptions> = {},
  reports?: ReportSink,
): Promise<PoolSetup> {
  const dataDir = await tempDir();
  const metrics = createMetrics();
  const containers = new Map<string, ExecContainer>();
  for (const id of ["a", "b"]) {
    containers.set(id, execContainer(join(dataDir, "containers", id, "scripts"), changes));
  }
  const pool = await createExecPool(
    {
      clock: systemClock,
      log: silentLog(),
      metrics,
      dataDir,
      containers: () => containers,
      ...(reports === undefined ? {} : { reports }),
    },
    options,
  );
  onTestFinished(() => pool.close());
  return { pool, metrics, dataDir, containers };
}

export interface Reply {
  readonly status: number;
  readonly body: string;
}

/** One request straight to a worker's socket. */
export async function ask(
  endpoint: ExecEndpoint,
  path: string,
  signal?: AbortSignal,
): Promise<Reply> {
  const { origin, secret } = endpoint;
  const envelope = {
    kind: "ordinary",
    subdomain: null,
    execId: null,
    clientAddress: "127.0.0.1",
    manage: false,
  } as const;
  const at = { path: origin.kind === "unix" ? origin.path : "", secret };
  const answer = await callWorker(at, envelope, {
    url: path,
    ...(signal === undefined ? {} : { signal }),
  });
  if (answer.isCut) {
    throw new Error("the answer was cut");
  }
  return { status: answer.status, body: answer.text };
}

/** Waits until `check` gives something, up to `ms`. */
export async function eventually<T>(check: () => T | undefined | false, ms = 15_000): Promise<T> {
  const end = performance.now() + ms;
  for (;;) {
    const value = check();
    if (value !== undefined && value !== false) {
      return value;
    }
    if (performance.now() > end) {
      throw new Error("did not happen in time");
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
