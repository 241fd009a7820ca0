import { CONTAINERS, changeDocument } from "../../policy/api/context.ts";
import { insertRule } from "../../policy/documents/hooks-edit.ts";
import { rulesOf, withRules } from "../../policy/documents/container-document.ts";
import { foregroundClock } from "../../policy/kernel/clock.ts";
import { newUlid } from "../../policy/kernel/ids.ts";
import { ApiError } from "../../policy/kernel/json-api.ts";
import { createFileStore } from "../../policy/store/file-store.ts";
import { StoreError } from "../../policy/store/store.ts";

/*
 * A process that writes hooks into a container's document, for tests that kill it or take its disk away.
 * Arguments: data folder, project, container, then what to do:
 *   forever     write one version after another; each line is an acknowledged version
 *   race N      write with version N once; the line says done or stale
 *   once        write once with the current version; the line is the version, or what went wrong
 */
const [dataDir = "", project = "", id = "", mode = "", version = "0"] = process.argv.slice(2);
const store = createFileStore({ clock: foregroundClock }, { dataDir });
const container = { id, project, status: "running" as const };

async function write(expected: number): Promise<number> {
  const changed = await changeDocument(store, CONTAINERS, container, expected, (document) => {
    // At most two rules stay, so that every write changes bytes in the middle of the file.
    const rules = rulesOf(document, "terminal").slice(-1);
    const rule = {
      id: newUlid(foregroundClock.now()),
      match: {},
      script: { path: `/v${expected + 1}` },
    };
    return {
      document: withRules(document, "terminal", insertRule(rules, rule, undefined).rules),
      value: null,
    };
  });
  return changed.version;
}

async function current(): Promise<number> {
  const { text } = await store.read(`containers/${id}`);
  return text === null ? 0 : (JSON.parse(text) as { file_version: number }).file_version;
}

const say = (line: string): void => void process.stdout.write(`${line}\n`);

try {
  if (mode === "forever") {
    for (let at = await current(); ;) {
      at = await write(at);
      say(String(at));
    }
  } else {
    say(String(await write(mode === "race" ? Number(version) : await current())));
  }
} catch (cause) {
  if (cause instanceof ApiError || cause instanceof StoreError) {
    say(`${cause.name}: ${cause.message}`);
  } else {
    throw cause;
  }
}
