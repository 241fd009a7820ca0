import { readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Metrics } from "../../policy/kernel/metrics.ts";
import { startSmallEdge } from "../support/exec-edge.ts";
import { eventually } from "../support/exec-pool.ts";
import { availableConfinements, startHost } from "../support/exec-scripts.ts";

async function reasons(metrics: Metrics): Promise<Record<string, number>> {
  const { values } = await metrics.execRestarts.get();
  return Object.fromEntries(values.map(({ labels, value }) => [labels.reason, value]));
}

/** A bad script in container `a`, a good one in `b`, and a steady stream of calls to `b` meanwhile. */
async function startFault(source: string, timeoutMs: number, changes = {}) {
  const setup = await startHost(changes);
  await setup.script("a", "hook.js", source);
  await setup.script("a", "good.js", "module.exports = (req, res) => res.end('good');");
  await setup.script("b", "hook.js", "module.exports = (req, res) => res.end('fine');");
  await setup.host.warmAll();
  const edge = await startSmallEdge(setup.host, { timeoutMs });
  const good = await startSmallEdge(setup.host, { script: { path: "/good.js" }, timeoutMs: 5000 });
  const other = await startSmallEdge(setup.host, { container: "b", timeoutMs: 5000 });
  const neighbour = await setup.host.endpoint("b");
  const statuses: number[] = [];
  let isRunning = true;
  const stream = (async () => {
    while (isRunning) {
      statuses.push(
        await fetch(other.origin).then(
          (answer) => answer.status,
          () => 0,
        ),
      );
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  onTestFinished(() => {
    isRunning = false;
    return stream;
  });
  return {
    ...setup,
    edge,
    /** Container `a` answers again; how long that took. */
    async recovered(): Promise<number> {
      const before = performance.now();
      for (;;) {
        const answer = await fetch(good.origin);
        await answer.text();
        if (answer.status === 200) {
          return performance.now() - before;
        }
        if (performance.now() - before > 15_000) {
          throw new Error(`still ${answer.status}`);
        }
      }
    },
    /** The other container went on without a failure, in the same process. */
    async neighbourUnhurt(): Promise<void> {
      isRunning = false;
      await stream;
      expect(statuses.length).toBeGreaterThan(0);
      expect(statuses.every((status) => status === 200)).toBe(true);
      expect((await setup.host.endpoint("b")).generation).toBe(neighbour.generation);
    },
  };
}

describe("a script that blocks", () => {
  test.for([
    ["before its first await", "module.exports = async () => { for (;;) {} };"],
    [
      "after its first await",
      "module.exports = async () => { await new Promise((r) => setTimeout(r, 20)); for (;;) {} };",
    ],
    ["in a microtask chain", "module.exports = async () => { for (;;) await null; };"],
  ] as const)("%s gets its client a 504 on time and is replaced", async ([, source]) => {
    const fault = await startFault(source, 400);
    const before = performance.now();
    const answer = await fetch(fault.edge.origin);
    expect(answer.status).toBe(504);
    expect(performance.now() - before).toBeLessThan(3000);
    expect(await fault.recovered()).toBeLessThan(10_000);
    await eventually(() => fault.host.isGone("a", 1));
    await fault.neighbourUnhurt();
    await expect.poll(() => reasons(fault.metrics), { timeout: 10_000 }).toMatchObject({ cpu: 1 });
  });
});

describe("a script that ends its process", () => {
  test.for([
    ["process.exit", "module.exports = () => process.exit(0);"],
    ["SIGKILL to itself", "module.exports = () => process.kill(process.pid, 'SIGKILL');"],
    ["process.abort", "module.exports = () => process.abort();"],
  ] as const)("with %s answers 500 once and recovers", async ([, source]) => {
    const fault = await startFault(source, 5000);
    const answer = await fetch(fault.edge.origin);
    expect(answer.status).toBe(500);
    expect(((await answer.json()) as { code: string }).code).toMatch(
      /^HOOK_(CRASHED|SCRIPT_ERROR)$/,
    );
    expect(await fault.recovered()).toBeLessThan(10_000);
    await fault.neighbourUnhurt();
  });
});

describe("a memory bomb", () => {
  test.for([
    ["in the heap", "const a = []; for (;;) a.push(new Array(50000).fill(a.length));"],
    ["in buffers", "const a = []; for (;;) a.push(Buffer.alloc(4194304, 1));"],
    [
      "in buffers, slowly",
      "const a = []; for (;;) { a.push(Buffer.alloc(8388608, 1)); await new Promise((r) => setTimeout(r, 5)); }",
    ],
  ] as const)("%s ends its own process only", async ([, body]) => {
    const fault = await startFault(`module.exports = async () => { ${body} };`, 10_000, {
      memoryMb: 200,
      cpuMs: 8000,
    });
    const answer = await fetch(fault.edge.origin);
    expect(answer.status).toBe(500);
    expect(await fault.recovered()).toBeLessThan(10_000);
    await fault.neighbourUnhurt();
    await expect
      .poll(() => reasons(fault.metrics), { timeout: 10_000 })
      .toMatchObject({ memory: 1 });
  });
});

test("memory asked for at once is refused by the kernel, not found by a look", async () => {
  const fault = await startFault(
    "module.exports = async (req, res) => { const all = []; try { for (let i = 0; i < 64; i++) all.push(new ArrayBuffer(2 ** 30)); } catch (error) { res.end(error.message); return; } res.end('took it'); };",
    10_000,
  );
  const answer = await fetch(fault.edge.origin);
  const hasHelper = (await availableConfinements()).some((kind) => kind.prlimit !== null);
  if (hasHelper) {
    expect(await answer.text()).not.toBe("took it");
  }
  await fault.recovered();
  await fault.neighbourUnhurt();
});

test("a fork bomb does not start a process", async () => {
  const fault = await startFault(
    "module.exports = async () => { const { spawn } = require('child_process'); for (let i = 0; i < 1000; i++) spawn(process.execPath, ['-e', 'setInterval(()=>{},1e6)']); };",
    5000,
  );
  expect((await fetch(fault.edge.origin)).status).toBe(500);
  expect(await fault.recovered()).toBeLessThan(10_000);
  await fault.neighbourUnhurt();
  expect(fault.host.isGone("a", 1)).toBe(false);
});

test.for([
  ["an uncaught throw in a timer", "setTimeout(() => { throw new Error('stray'); }, 5);"],
  ["an unawaited rejection", "Promise.reject(new Error('stray'));"],
  ["an error event nobody hears", "setTimeout(() => require('net').connect(1, '127.0.0.1'), 5);"],
] as const)("%s leaves the process running", async ([, body]) => {
  const fault = await startFault(
    `module.exports = async (req, res) => { ${body} await new Promise((r) => setTimeout(r, 80)); if (!res.headersSent) res.end('ok'); };`,
    5000,
  );
  const answer = await fetch(fault.edge.origin);
  expect([200, 500]).toContain(answer.status);
  await fault.recovered();
  expect(fault.host.isGone("a", 1)).toBe(false);
  await fault.neighbourUnhurt();
});

test("ten thousand log lines a second are bounded, and the gap is said", async () => {
  const fault = await startFault(
    "module.exports = async (req, res) => { for (let i = 0; i < 30000; i++) { console.log('line ' + i + ' ' + 'x'.repeat(300)); if (i % 1000 === 0) await new Promise((r) => setTimeout(r, 1)); } res.end('logged'); };",
    20_000,
    { cpuMs: 8000 },
  );
  const answer = await fetch(fault.edge.origin);
  expect(answer.status).toBe(200);
  expect(await fault.recovered()).toBeLessThan(10_000);
  await fault.neighbourUnhurt();
  const folder = join(fault.dataDir, "containers/a/logs");
  await expect
    .poll(async () => (await readFile(join(folder, "scripts.log"), "utf8")).includes("dropped"), {
      timeout: 10_000,
    })
    .toBe(true);
  let total = 0;
  for (const name of await readdir(folder)) {
    total += (await stat(join(folder, name))).size;
  }
  expect(total).toBeLessThan(12_000_000);
});

test("a flood on standard output and on the channel costs the flooder only", async () => {
  const fault = await startFault(
    "module.exports = async () => { const fs = require('fs'); const line = 'x'.repeat(65536) + '\\n'; for (let i = 0; i < 20000; i++) { try { fs.writeSync(i % 2 ? 1 : 3, line); } catch (e) {} } };",
    3000,
  );
  const answer = await fetch(fault.edge.origin);
  expect([500, 504]).toContain(answer.status);
  expect(await fault.recovered()).toBeLessThan(10_000);
  await fault.neighbourUnhurt();
});

test("a scripts folder that vanishes is a missing script", async () => {
  const fault = await startFault("module.exports = (req, res) => res.end('there');", 5000);
  expect((await fetch(fault.edge.origin)).status).toBe(200);
  await rm(join(fault.containers.get("a")!.scripts, "default"), { recursive: true });
  expect((await fetch(fault.edge.origin)).status).toBe(404);
  await fault.script("a", "hook.js", "module.exports = (req, res) => res.end('again');");
  expect(await (await fetch(fault.edge.origin)).text()).toBe("again");
});
