import { execFile } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import type { Metrics } from "../../policy/kernel/metrics.ts";
import { ask, eventually, execContainer, FAKE_WORKER, startPool } from "../support/exec-pool.ts";

const fake = { entry: FAKE_WORKER };

async function restarts(metrics: Metrics, reason: string): Promise<number> {
  const { values } = await metrics.execRestarts.get();
  return values.find((entry) => entry.labels.reason === reason)?.value ?? 0;
}

async function ended(metrics: Metrics, reason: string): Promise<void> {
  let count = 0;
  await eventually(() => {
    void restarts(metrics, reason).then((value) => (count = value));
    return count > 0;
  });
  expect(count).toBe(1);
}

describe("createExecPool()", () => {
  test("starts one worker for simultaneous first requests", async () => {
    const { pool } = await startPool({}, fake);
    const endpoints = await Promise.all(Array.from({ length: 20 }, async () => pool.endpoint("a")));
    expect(new Set(endpoints.map((endpoint) => endpoint.generation)).size).toBe(1);
    expect(pool.status().workers).toHaveLength(1);
    expect((await ask(endpoints[0]!, "/pid")).status).toBe(200);
  });

  test("answers at once, without a promise, when the worker is warm", async () => {
    const { pool } = await startPool({}, fake);
    await pool.warm("a");
    expect(pool.endpoint("a")).not.toBeInstanceOf(Promise);
  });

  test("refuses a container that is not configured", async () => {
    const { pool } = await startPool({}, fake);
    expect(() => pool.endpoint("nobody")).toThrow("no embedded exec host");
  });

  test("gives every worker a secret of its own", async () => {
    const { pool } = await startPool({}, fake);
    const [a, b] = await Promise.all([pool.endpoint("a"), pool.endpoint("b")]);
    expect(a.secret).not.toBe(b.secret);
    await expect(ask({ ...a, secret: b.secret }, "/pid")).rejects.toThrow("closed");
  });

  test("replaces a worker that exits", async () => {
    const { pool, metrics } = await startPool({}, fake);
    const first = await pool.endpoint("a");
    const before = performance.now();
    await expect(ask(first, "/exit?code=1")).rejects.toThrow();
    await eventually(() => pool.isGone("a", first.generation));
    const second = await pool.endpoint("a");
    expect((await ask(second, "/pid")).status).toBe(200);
    expect(performance.now() - before).toBeLessThan(10_000);
    expect(second.generation).toBeGreaterThan(first.generation);
    await ended(metrics, "crash");
  });

  test("kills a worker that blocks longer than cpuMs, with a spare ready before that", async () => {
    const { pool, metrics } = await startPool({ cpuMs: 1500 }, fake);
    const first = await pool.endpoint("a");
    const other = await pool.endpoint("b");
    const stuck = ask(first, "/spin?ms=60000").catch((error: Error) => error);
    await eventually(() => pool.status().workers.filter((w) => w.container === "a").length === 2);
    const spare = await pool.endpoint("a");
    expect(spare.generation).not.toBe(first.generation);
    expect((await ask(spare, "/pid")).status).toBe(200);
    expect((await ask(other, "/pid")).status).toBe(200);
    expect(await stuck).toBeInstanceOf(Error);
    await eventually(() => pool.isGone("a", first.generation));
    await ended(metrics, "cpu");
    expect((await pool.endpoint("a")).generation).toBe(spare.generation);
    expect((await pool.endpoint("b")).generation).toBe(other.generation);
  });

  test("keeps a worker that recovers before cpuMs", async () => {
    const { pool, metrics } = await startPool({ cpuMs: 8000 }, fake);
    const first = await pool.endpoint("a");
    expect((await ask(first, "/spin?ms=1200")).body).toBe("spun");
    await eventually(
      () => pool.status().workers.find((w) => w.generation === first.generation)?.state === "ready",
    );
    expect((await pool.endpoint("a")).generation).toBe(first.generation);
    expect(await restarts(metrics, "cpu")).toBe(0);
  });

  test("ends a worker whose resident size passes memoryMb", async () => {
    const { pool, metrics } = await startPool({ memoryMb: 150 }, fake);
    const first = await pool.endpoint("a");
    await ask(first, "/buffers?mb=200").catch(() => {});
    await eventually(() => pool.isGone("a", first.generation));
    await eventually(() => pool.status().workers.every((w) => w.generation !== first.generation));
    await ended(metrics, "memory");
    expect((await ask(await pool.endpoint("a"), "/pid")).status).toBe(200);
  });

  test("ends a worker that floods its channel with something else", async () => {
    const { pool, metrics } = await startPool({}, fake);
    const first = await pool.endpoint("a");
    await ask(first, "/garbage?bytes=600000").catch(() => {});
    await eventually(() => pool.isGone("a", first.generation));
    await pool.endpoint("a");
    await ended(metrics, "crash");
  });

  test("replaces a worker whose socket refuses", async () => {
    const { pool } = await startPool({}, fake);
    const first = await pool.endpoint("a");
    pool.reportSuspect("a", first.generation, "connect");
    expect((await pool.endpoint("a")).generation).toBeGreaterThan(first.generation);
  });

  test("stops an idle worker and starts another on demand", async () => {
    const { pool, metrics } = await startPool({}, { ...fake, idleMs: 500 });
    const first = await pool.endpoint("a");
    await eventually(() => pool.status().workers.length === 0);
    await ended(metrics, "idle");
    expect((await pool.endpoint("a")).generation).toBeGreaterThan(first.generation);
  });

  test("replaces a worker without a cut when the container's settings change", async () => {
    const { pool, metrics, containers } = await startPool({}, fake);
    const first = await pool.endpoint("a");
    const running = ask(first, "/spin?ms=1");
    containers.set("a", { ...execContainer(containers.get("a")!.scripts), cpuMs: 2000 });
    pool.reconcile();
    expect((await running).status).toBe(200);
    await eventually(() => pool.isGone("a", first.generation));
    expect((await ask(await pool.endpoint("a"), "/pid")).status).toBe(200);
    await eventually(() => pool.status().workers.length === 1);
    await ended(metrics, "deploy");
  });

  test("stops the worker of a container that was removed", async () => {
    const { pool, containers } = await startPool({}, fake);
    await pool.endpoint("a");
    containers.delete("a");
    pool.reconcile();
    await eventually(() => pool.status().workers.length === 0);
    expect(() => pool.endpoint("a")).toThrow();
  });

  test("makes room for another container at its cap, at the cost of an idle one only", async () => {
    const { pool } = await startPool({}, { ...fake, maxWorkers: 1 });
    const leave = new AbortController();
    const running = ask(await pool.endpoint("a"), "/never", leave.signal);
    running.catch(() => {}); // cut below
    await eventually(() => pool.status().workers[0]?.active === 1);
    await new Promise((resolve) => setTimeout(resolve, 1200)); // long unused, and yet not idle
    await expect(async () => await pool.endpoint("b")).rejects.toThrow("busy");
    leave.abort();
    await eventually(() => pool.status().workers[0]?.active === 0);
    expect((await ask(await pool.endpoint("b"), "/pid")).status).toBe(200);
  });

  test("leaves nobody waiting for a turn when there is no room", async () => {
    const { pool, containers } = await startPool({}, { ...fake, maxWorkers: 1, maxStarting: 1 });
    for (let i = 0; i < 8; i++) {
      containers.set(`more${i}`, execContainer(`${containers.get("a")!.scripts}${i}`));
    }
    const settled = await Promise.allSettled(
      [...containers.keys()].map(async (id) => pool.endpoint(id)),
    );
    expect(settled.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  });

  test("says why a worker cannot start, and refuses", async () => {
    const { pool } = await startPool({}, { entry: join(import.meta.dirname, "nothing.ts") });
    await expect(async () => await pool.endpoint("a")).rejects.toThrow("before it was ready");
    expect(pool.status().failing[0]?.container).toBe("a");
  });

  test("refuses while this process has no file descriptor left, and starts workers again later", async () => {
    const program = join(import.meta.dirname, "../support/exec-many-files.ts");
    const { stdout } = await promisify(execFile)("/bin/sh", [
      "-c",
      'ulimit -n 80; exec "$@"',
      "sh",
      process.execPath,
      program,
      FAKE_WORKER,
    ]);
    const { refused, later } = JSON.parse(stdout) as { refused: string; later: string };
    expect(refused).not.toBe("started");
    expect(later).toBe("started");
  });

  test("leaves no process and no socket behind after close()", async () => {
    const { pool, dataDir } = await startPool({}, fake);
    const endpoint = await pool.endpoint("a");
    const pid = pool.status().workers[0]?.pid ?? 0;
    expect(existsSync(`/proc/${pid}`)).toBe(true);
    await pool.close();
    await eventually(() => !existsSync(`/proc/${pid}`));
    expect(readdirSync(join(dataDir, "run"))).toEqual([]);
    await expect(ask(endpoint, "/pid")).rejects.toThrow();
  });
});
