import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { generateSchema } from "../../client/generate.ts";
import { createControlApi } from "../../policy/api/server.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics } from "../../policy/kernel/metrics.ts";
import { createPolicyCache } from "../../policy/store/cache.ts";
import { createMemoryStore } from "../../policy/store/memory-store.ts";

/*
 * The client's types as they have to be for the control API of this checkout. Run as a program it writes them:
 * `node test/support/client-schema.ts`.
 */

const ROOT = resolve(import.meta.dirname, "../..");
export const SCHEMA_FILE = join(ROOT, "client/schema.ts");

/** The description that the control API gives of itself. */
export async function controlDescription(): Promise<unknown> {
  const metrics = createMetrics();
  const store = createMemoryStore();
  const cache = createPolicyCache({ store, clock: systemClock, log: silentLog(), metrics });
  try {
    const app = createControlApi({
      store,
      cache,
      metrics,
      log: silentLog(),
      clock: systemClock,
      token: "not-used",
      containers: () => new Map(),
      node: "local",
      readiness: () => ({}),
      limits: () => [],
      publicKeys: () => [],
    });
    return await (await app.request("/openapi.json")).json();
  } finally {
    cache.close();
  }
}

/** `text` as the repository's formatter leaves it. */
export function formatted(text: string): string {
  const folder = mkdtempSync(join(tmpdir(), "interpose-schema-"));
  try {
    const file = join(folder, "schema.ts");
    writeFileSync(file, text);
    const run = spawnSync(
      join(ROOT, "node_modules/.bin/oxfmt"),
      ["-c", join(ROOT, ".oxfmtrc.json"), file],
      { encoding: "utf8" },
    );
    if (run.status !== 0) {
      throw new Error(`oxfmt: ${run.stderr}`);
    }
    return readFileSync(file, "utf8");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (import.meta.main) {
  writeFileSync(SCHEMA_FILE, formatted(generateSchema(await controlDescription())));
}
