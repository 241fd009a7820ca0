import { chmodSync, mkdirSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics } from "../../policy/kernel/metrics.ts";
import { createPolicyCache } from "../../policy/store/cache.ts";
import { createFileStore } from "../../policy/store/file-store.ts";
import { createMemoryStore } from "../../policy/store/memory-store.ts";
import { CONTAINER, policyTempDir, PROJECT } from "../support/policy-api.ts";

const RULE = { id: "0".repeat(26), match: {}, script: { path: "/a" } };
const text = (version: number, hooks: unknown) => JSON.stringify({ file_version: version, hooks });

function manualClock() {
  let now = 0;
  return { ...systemClock, monotonic: () => now, advance: (ms: number) => void (now += ms) };
}

function fileCache(clock = manualClock()) {
  const dataDir = policyTempDir();
  const store = createFileStore({ clock: systemClock }, { dataDir });
  const cache = createPolicyCache({ store, clock, log: silentLog(), metrics: createMetrics() });
  const path = join(dataDir, "policy/containers", `${CONTAINER}.json`);
  return { clock, dataDir, store, cache, path };
}

test("get() is synchronous on a hit and one load serves everybody who waits", async () => {
  const { cache } = fileCache();
  const [first, second] = [cache.get(PROJECT, CONTAINER), cache.get(PROJECT, CONTAINER)];
  expect(first).toBeInstanceOf(Promise);
  expect(second).toBe(first);
  const policy = await first;
  expect(cache.get(PROJECT, CONTAINER)).toBe(policy);
  expect(policy).toMatchObject({ revision: 0, unavailable: null });
});

test("get() sees a hand edit once the check is due, also of the project document", async () => {
  const { cache, clock, path, dataDir } = fileCache();
  const before = await cache.get(PROJECT, CONTAINER);
  writeFileSync(path, text(1, { terminal: [RULE] }));
  expect(cache.get(PROJECT, CONTAINER)).toBe(before);
  clock.advance(60);
  const after = await cache.get(PROJECT, CONTAINER);
  expect(after.hooks.get("terminal")).toMatchObject({ kind: "rules" });
  writeFileSync(join(dataDir, "policy/projects", `${PROJECT}.json`), '{"enable_proxy": false}');
  clock.advance(60);
  expect((await cache.get(PROJECT, CONTAINER)).access.enableProxy).toBe(false);
});

test("get() joins no load that began before a write of this process", async () => {
  const store = createMemoryStore();
  const cache = createPolicyCache({
    store,
    clock: manualClock(),
    log: silentLog(),
    metrics: createMetrics(),
  });
  const old = cache.get(PROJECT, CONTAINER);
  await store.update(`containers/${CONTAINER}`, 0, () => ({ text: text(1, {}), value: null }));
  expect((await cache.get(PROJECT, CONTAINER)).revision).toBe(1);
  await old;
  expect((await cache.get(PROJECT, CONTAINER)).revision).toBe(1);
});

test("a document that is no JSON refuses every request until it is repaired", async () => {
  const { cache, clock, path } = fileCache();
  writeFileSync(path, "{");
  const broken = await cache.get(PROJECT, CONTAINER);
  expect(broken.unavailable).toContain("container document: the document is not valid JSON");
  expect(broken.access).toMatchObject({ enableProxy: false, defaultAllow: false });
  expect(broken.hooks.get("terminal")).toMatchObject({ kind: "unreadable" });
  writeFileSync(path, text(1, {}));
  clock.advance(60);
  expect((await cache.get(PROJECT, CONTAINER)).unavailable).toBeNull();
});

test("a store that is gone is not taken for an empty one", async () => {
  const { cache, clock, dataDir, path } = fileCache();
  writeFileSync(path, text(1, { terminal: [RULE] }));
  const before = await cache.get(PROJECT, CONTAINER);
  rmSync(join(dataDir, "policy"), { recursive: true });
  clock.advance(60);
  expect(await cache.get(PROJECT, CONTAINER)).toBe(before);
  expect(cache.storeProblem()).toBe("the data folder is gone");
  const unseen = await cache.get(PROJECT, "0".repeat(24));
  expect(unseen.unavailable).toBe("the data folder is gone");
  mkdirSync(join(dataDir, "policy/containers"), { recursive: true });
  mkdirSync(join(dataDir, "policy/projects"));
  clock.advance(60);
  expect((await cache.get(PROJECT, CONTAINER)).revision).toBe(0);
  expect(cache.storeProblem()).toBeNull();
});

test("the file store removes leftovers of killed processes, but not fresh ones", async () => {
  const dataDir = policyTempDir();
  const folder = join(dataDir, "policy/containers");
  mkdirSync(folder, { recursive: true });
  for (const name of [".a.tmp", "b.lock", ".fresh.tmp"]) {
    writeFileSync(join(folder, name), "");
  }
  utimesSync(join(folder, ".a.tmp"), 1, 1);
  utimesSync(join(folder, "b.lock"), 1, 1);
  const store = createFileStore({ clock: systemClock }, { dataDir });
  await store.close();
  const exists = (name: string) =>
    statSync(join(folder, name), { throwIfNoEntry: false }) !== undefined;
  expect([".a.tmp", "b.lock", ".fresh.tmp"].map(exists)).toEqual([false, false, true]);
});

test("the lock of a process that died is taken over at once", async () => {
  const { store, path } = fileCache();
  // The highest pid there can be is not in use on any test machine.
  writeFileSync(
    `${path}.lock`,
    JSON.stringify({ pid: 4_194_304, host: (await import("node:os")).hostname(), token: "x" }),
  );
  const result = await store.update(`containers/${CONTAINER}`, 0, () => ({ text: "{}", value: 1 }));
  expect(result).toEqual({ kind: "done", value: 1 });
});

test("documents are owner-only files", async () => {
  const { store, path } = fileCache();
  await store.update(`containers/${CONTAINER}`, 0, () => ({ text: "{}", value: 1 }));
  expect(statSync(path).mode & 0o777).toBe(0o600);
  chmodSync(path, 0o644);
  await store.update(`containers/${CONTAINER}`, 0, () => ({
    text: '{"file_version":1}',
    value: 1,
  }));
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test("the cache keeps no more containers than it may", async () => {
  const cache = createPolicyCache(
    {
      store: createMemoryStore(),
      clock: manualClock(),
      log: silentLog(),
      metrics: createMetrics(),
    },
    { maxEntries: 2 },
  );
  for (const id of ["a", "b", "c"]) {
    await cache.get(PROJECT, id.repeat(24));
  }
  expect(cache.get(PROJECT, "a".repeat(24))).toBeInstanceOf(Promise);
  expect(cache.get(PROJECT, "c".repeat(24))).not.toBeInstanceOf(Promise);
});
