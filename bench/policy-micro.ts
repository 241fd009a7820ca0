import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { selectHook } from "../dispatcher/select.ts";
import type { CompiledPolicy, RuleRequest } from "../policy/compile/compiled-policy.ts";
import { systemClock } from "../policy/kernel/clock.ts";
import { newUlid } from "../policy/kernel/ids.ts";
import { silentLog } from "../policy/kernel/log.ts";
import { createMetrics } from "../policy/kernel/metrics.ts";
import { createPolicyCache } from "../policy/store/cache.ts";
import { createFileStore } from "../policy/store/file-store.ts";
import { createDocumentHealth } from "../policy/store/health.ts";

/*
 * Figures of the policy side: many containers with eight hooks each. Prints start, look-ups, writes and
 * evaluation. Arguments: number of containers (10000).
 */

const COUNT = Number(process.argv[2] ?? 10_000);
const PROJECT = "67e89abc123def456789abcd";
const idOf = (n: number): string => n.toString(16).padStart(24, "0");

const out = (line: string): void => void process.stdout.write(`${line}\n`);
const micro = (ms: number): string => `${(ms * 1000).toFixed(2)} us`;

function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

function documentOf(container: string): string {
  const rules = Array.from({ length: 8 }, (_, i) => ({
    id: newUlid(systemClock.now()),
    match: {
      method: ["POST", "PUT"],
      path: `/api/v${i}/*/items/*`,
      headers: { "x-tenant": "alice" },
    },
    script: { path: `/hook-${i}` },
    timeout: 500,
    applies_to: { groups: ["staff"] },
  }));
  return JSON.stringify(
    {
      project: PROJECT,
      container,
      schema_version: 2,
      file_version: 1,
      groups: { staff: { type: "ip", range: "10.0.0.0/8" } },
      permissions: { staff: { terminal: true } },
      hooks: { terminal: rules },
    },
    null,
    2,
  );
}

const dataDir = mkdtempSync(join(tmpdir(), "interpose-bench-"));
try {
  const folder = join(dataDir, "policy/containers");
  mkdirSync(folder, { recursive: true });
  for (let n = 0; n < COUNT; n++) {
    writeFileSync(join(folder, `${idOf(n)}.json`), documentOf(idOf(n)));
  }
  out(`${COUNT} containers with 8 hooks each, Node ${process.version}`);

  let began = performance.now();
  const store = createFileStore({ clock: systemClock }, { dataDir });
  const cache = createPolicyCache(
    { store, clock: systemClock, log: silentLog(), metrics: createMetrics() },
    { maxEntries: 1000 },
  );
  await cache.get(PROJECT, idOf(0));
  out(`start until the first policy         ${(performance.now() - began).toFixed(1)} ms`);

  began = performance.now();
  const health = createDocumentHealth({ store, clock: systemClock });
  let problem = await health.problem();
  while (health.looking()) {
    problem = await health.problem();
  }
  out(
    `check of every document (readiness)  ${(performance.now() - began).toFixed(0)} ms${problem === null ? "" : `: ${problem}`}`,
  );

  const misses: number[] = [];
  for (let n = 1; n < COUNT; n += 7) {
    const at = performance.now();
    await cache.get(PROJECT, idOf(n));
    misses.push(performance.now() - at);
  }
  out(
    `look-up of an uncached container     p50 ${micro(percentile(misses, 0.5))}, p99 ${micro(percentile(misses, 0.99))}`,
  );

  const hot = idOf(1);
  await cache.get(PROJECT, hot);
  const rounds = 1_000_000;
  began = performance.now();
  for (let n = 0; n < rounds; n++) {
    if (cache.get(PROJECT, hot) instanceof Promise) {
      await cache.get(PROJECT, hot);
    }
  }
  out(`look-up of a cached container        ${micro((performance.now() - began) / rounds)}`);

  const writes: number[] = [];
  for (let n = 0; n < 200; n++) {
    const at = performance.now();
    await store.update(`containers/${hot}`, null, (text, version) => ({
      text: (text ?? "").replace(/"file_version": \d+/, `"file_version": ${version + 1}`),
      value: null,
    }));
    const policy = await cache.get(PROJECT, hot);
    if (policy.revision !== n + 2) {
      throw new Error("a write was not live for the next look-up");
    }
    writes.push(performance.now() - at);
  }
  out(
    `write until live here                p50 ${micro(percentile(writes, 0.5))}, p99 ${micro(percentile(writes, 0.99))}`,
  );

  const otherStore = createFileStore({ clock: systemClock }, { dataDir });
  const other = createPolicyCache({
    store: otherStore,
    clock: systemClock,
    log: silentLog(),
    metrics: createMetrics(),
  });
  const spread: number[] = [];
  for (let n = 0; n < 60; n++) {
    const written = await store.update(`containers/${hot}`, null, (text, version) => ({
      text: (text ?? "").replace(/"file_version": \d+/, `"file_version": ${version + 1}`),
      value: version + 1,
    }));
    const acknowledged = performance.now();
    while (written.kind === "done" && (await other.get(PROJECT, hot)).revision !== written.value) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    spread.push(performance.now() - acknowledged);
  }
  out(
    `write until live in another process  p50 ${micro(percentile(spread, 0.5))}, p99 ${micro(percentile(spread, 0.99))} after the answer`,
  );
  other.close();
  await otherStore.close();

  const policy = await cache.get(PROJECT, hot);
  measure("no rule fits (all 8 asked)          ", policy, "/other/path", "POST", rounds);
  measure("method fails on all 8               ", policy, "/api/v7/a/items/b", "GET", rounds);
  measure("the last of 8 fits                  ", policy, "/api/v7/a/items/b/c", "POST", rounds);
  out(
    `memory with 1000 entries cached      ${(process.memoryUsage().rss / 1048576).toFixed(0)} MiB resident`,
  );
  cache.close();
  await store.close();
} finally {
  rmSync(dataDir, { recursive: true, force: true });
}

function measure(
  name: string,
  policy: CompiledPolicy,
  path: string,
  method: string,
  rounds: number,
): void {
  const hooks = policy.hooks.get("terminal");
  const granting = new Set(["staff"]);
  const request: RuleRequest = {
    method,
    paths: [path],
    header: (field) => (field === "x-tenant" ? "alice" : undefined),
  };
  for (let n = 0; n < 100_000; n++) {
    selectHook(hooks, request, granting, false, path.length);
  }
  const began = performance.now();
  let chosen = 0;
  for (let n = 0; n < rounds; n++) {
    chosen += selectHook(hooks, request, granting, false, path.length).kind === "dispatch" ? 1 : 0;
  }
  out(
    `evaluation: ${name} ${micro((performance.now() - began) / rounds)}${chosen > 0 ? " (dispatch)" : ""}`,
  );
}
