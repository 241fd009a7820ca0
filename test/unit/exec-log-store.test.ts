import { readdir, readFile, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import {
  createLogStore,
  DEFAULT_LOG_OPTIONS,
  type LogStoreOptions,
} from "../../exec-host/manage/log-store.ts";
import { createTail, isLogName, listLogs, pickLines } from "../../exec-host/manage/log-files.ts";
import { lineBytes, type ExecutionRecord } from "../../exec-host/execution-records.ts";
import type { LogLine } from "../../exec-host/protocol.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { tempDir } from "../support/exec-pool.ts";

const line = (msg: string): LogLine => ({
  ts: 1_767_225_600_000,
  level: "info",
  executionId: "e1",
  script: "default/1/a.js",
  auditId: null,
  msg,
});

const record = (changes: Partial<ExecutionRecord>): ExecutionRecord => ({
  executionId: "e1",
  auditId: "id",
  path: "/x",
  startedAt: 1_767_225_600_000,
  durationMs: 3,
  labels: {
    kind: "hook",
    subdomain: "default",
    execId: "1",
    script: "default/1/a.js",
    method: "GET",
    status: 200,
    outcome: "answered",
  },
  ...changes,
});

async function setUp(changes: Partial<LogStoreOptions> = {}) {
  const root = await tempDir();
  const store = createLogStore(
    { clock: systemClock, log: silentLog(), folder: (id) => join(root, id) },
    { ...DEFAULT_LOG_OPTIONS, ...changes },
  );
  onTestFinished(() => store.close());
  return { root, store, folder: join(root, "a") };
}

test("createLogStore() writes JSON lines, requests and process output to files of their own", async () => {
  const { store, folder } = await setUp();
  store.logs("a", [line("one"), { ...line("two"), auditId: "id", ts: 9e18 }], 0);
  store.output("a", "raw");
  store.executions(
    "a",
    [record({}), record({ auditId: null, path: "/\u2028", durationMs: 0.25 })],
    0,
  );
  await store.close();
  const scripts = (await readFile(join(folder, "scripts.log"), "utf8")).trim().split("\n");
  expect(JSON.parse(scripts[0] ?? "")).toEqual({
    ts: "2026-01-01T00:00:00.000Z",
    level: "info",
    executionId: "e1",
    script: "default/1/a.js",
    msg: "one",
  });
  expect(JSON.parse(scripts[1] ?? "")).toMatchObject({ auditId: "id", msg: "two" });
  const access = await pickLines(folder, ["access/access.log"], () => true, 10, true);
  expect(JSON.parse(access[0] ?? "")).toEqual({
    ts: "2026-01-01T00:00:00.000Z",
    executionId: "e1",
    auditId: "id",
    kind: "hook",
    subdomain: "default",
    execId: "1",
    script: "default/1/a.js",
    method: "GET",
    path: "/x",
    status: 200,
    outcome: "answered",
    durationMs: 3,
  });
  expect(access.length).toBe(2);
  expect(JSON.parse(access[1] ?? "")).toMatchObject({
    auditId: null,
    path: "/\u2028",
    durationMs: 0.25,
  });
  expect(await readFile(join(folder, "worker.log"), "utf8")).toContain('"msg":"raw"');
  expect((await listLogs(folder)).map((file) => file.name).sort()).toEqual([
    "access/access.log",
    "scripts.log",
    "worker.log",
  ]);
});

test("createLogStore() drops what exceeds a container's allowance and says how much", async () => {
  const { store, folder } = await setUp({ burstBytes: 1000, bytesPerSecond: 1 });
  store.logs(
    "a",
    Array.from({ length: 100 }, (_, i) => line(`line ${i}`)),
    7,
  );
  store.logs("b", [line("other")], 0);
  await store.close();
  const text = await readFile(join(folder, "scripts.log"), "utf8");
  expect(text.length).toBeLessThan(1300);
  const kept = text.split("\n").filter((entry) => entry.includes('"line ')).length;
  expect(text).toContain(`${107 - kept} log lines were dropped`);
});

test("createLogStore() keeps the calls that fit the allowance, and says how many do not", async () => {
  const { store, folder } = await setUp({ burstBytes: 2000, bytesPerSecond: 1 });
  const calls = Array.from({ length: 100 }, (_, i) => record({ path: `/${i}` }));
  store.executions("a", calls, 5);
  store.executions("b", calls.slice(0, 1), 0);
  await store.close();
  const access = await readFile(join(folder, "access/access.log"), "utf8");
  const kept = access.trimEnd().split("\n");
  expect(kept.length).toBeGreaterThan(4);
  expect(access.length).toBeLessThan(2200);
  expect(kept.map((entry) => (JSON.parse(entry) as { path: string }).path)).toEqual(
    kept.map((_, i) => `/${i}`),
  );
  expect(Math.abs((kept[0] ?? "").length - lineBytes(calls[0]!))).toBeLessThan(20);
  const scripts = await readFile(join(folder, "scripts.log"), "utf8");
  expect(scripts).toContain(`${105 - kept.length} log lines were dropped`);
});

test("createLogStore() puts long files aside, and removes the oldest and the too old", async () => {
  const { store, folder } = await setUp({ maxFileBytes: 2000, maxTotalBytes: 12_000 });
  store.logs("a", [line("first")], 0);
  await writeFile(join(folder, "scripts.1000000000000.log"), "old\n");
  for (let round = 0; round < 12; round++) {
    store.logs("a", [line("x".repeat(2000))], 0);
    await new Promise((resolve) => setTimeout(resolve, 120));
  }
  await store.close();
  const names = (await readdir(folder)).filter((name) => name.endsWith(".log"));
  expect(names).not.toContain("scripts.1000000000000.log");
  let total = 0;
  for (const name of names) {
    expect(isLogName(name), name).toBe(true);
    total += (await stat(join(folder, name))).size;
  }
  expect(names.length).toBeGreaterThan(2);
  expect(total).toBeLessThan(16_000);
});

test("createTail() follows a file through being put aside", async () => {
  const folder = await tempDir();
  const file = join(folder, "scripts.log");
  await writeFile(file, "one\n");
  const tail = createTail(folder, "scripts.log", "end");
  expect(await tail.next()).toEqual([]);
  await writeFile(file, "one\ntwo\nthr");
  expect(await tail.next()).toEqual(["two"]);
  await writeFile(file, "one\ntwo\nthree\n");
  expect(await tail.next()).toEqual(["three"]);
  await writeFile(file, "new\n"); // shorter than what was read
  await utimes(file, new Date(), new Date());
  expect(await tail.next()).toEqual(["new"]);
});

test("pickLines() gives the first or the last lines that fit, over several files", async () => {
  const folder = await tempDir();
  await writeFile(join(folder, "a.log"), Array.from({ length: 50 }, (_, i) => `a${i}\n`).join(""));
  await writeFile(join(folder, "b.log"), "b0\nb1\n");
  const all = (): boolean => true;
  expect(await pickLines(folder, ["a.log", "b.log"], all, 3, true)).toEqual(["a49", "b0", "b1"]);
  expect(await pickLines(folder, ["a.log", "b.log"], all, 2, false)).toEqual(["a0", "a1"]);
  expect(await pickLines(folder, ["gone.log"], all, 2, true)).toEqual([]);
});

test.for([
  ["scripts.log", true],
  ["access/access.log", true],
  ["scripts.1767225600000.log", true],
  ["../scripts.log", false],
  ["access/../scripts.log", false],
  ["/etc/passwd", false],
  ["scripts.log/", false],
  ["SCRIPTS.log", false],
  ["", false],
] as const)("isLogName(%j) is %s", ([name, expected]) => {
  expect(isLogName(name)).toBe(expected);
});
