import { stat } from "node:fs/promises";
import type { Clock } from "../policy/kernel/clock.ts";
import type { Log } from "../policy/kernel/log.ts";
import { type Config, loadConfig } from "./config.ts";

/** What a new configuration is handed to. */
export interface Reloadable {
  readonly config: Config;
  reload(config: Config): Promise<void>;
}

/** Keys that a running process cannot change. */
const FIXED = ["listen", "workers", "dataDir", "control", "store"] as const;

/**
 * Reloads when the file changes and on SIGHUP (contract.md 2). An invalid file is refused whole: its problems
 * are logged and the configuration in force stays.
 */
export function watchConfig(
  file: string,
  env: Readonly<Record<string, string | undefined>>,
  edge: Reloadable,
  { clock, log }: { clock: Clock; log: Log },
): { close(): void } {
  let seen: string | null = null;
  let running: Promise<void> = Promise.resolve();

  async function apply(): Promise<void> {
    const result = loadConfig(file, env);
    if (!result.ok) {
      log.error({ file, problems: result.issues }, "configuration refused, the one in force stays");
      return;
    }
    const before = edge.config;
    for (const key of FIXED) {
      if (JSON.stringify(before[key]) !== JSON.stringify(result.config[key])) {
        log.warn({ key }, `a change of ${key} needs a restart`);
      }
    }
    await edge.reload({
      ...result.config,
      ...Object.fromEntries(FIXED.map((key) => [key, before[key]])),
    });
    log.info({ file }, "configuration applied");
  }

  function schedule(): void {
    running = running.then(apply).catch((cause: unknown) => {
      log.error({ err: cause }, "configuration could not be applied, the one in force stays");
    });
  }

  const check = async () => {
    const found = await stat(file, { bigint: true }).catch(() => null); // absent while an editor swaps it
    if (found === null) {
      return;
    }
    const version = `${found.ino}:${found.size}:${found.mtimeNs}`;
    if (seen !== null && seen !== version) {
      schedule();
    }
    seen = version;
  };
  const timer = clock.every(500, () => void check());
  void check();
  process.on("SIGHUP", schedule);
  return {
    close() {
      timer.cancel();
      process.off("SIGHUP", schedule);
    },
  };
}
