import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { generateSchema } from "../../client/generate.ts";
import { createControlApi, type ControlApiDeps } from "../../policy/api/server.ts";
import { silentLog } from "../../policy/kernel/log.ts";

/*
 * The client's types as they have to be for the control API of this checkout. Run as a program it writes them:
 * `node test/support/client-schema.ts`.
 */

const ROOT = resolve(import.meta.dirname, "../..");
export const SCHEMA_FILE = join(ROOT, "client/schema.ts");

/** The description that the control API gives of itself. Routes are only described, so their parts are not needed. */
export async function controlDescription(): Promise<unknown> {
  const app = createControlApi({ log: silentLog(), token: "not-used" } as ControlApiDeps);
  return (await app.request("/openapi.json")).json();
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
