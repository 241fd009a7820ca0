import { join } from "node:path";
import { systemClock } from "../policy/kernel/clock.ts";
import { createLog } from "../policy/kernel/log.ts";
import { watchConfig } from "./config-watch.ts";
import { type Config, decodeConfig, loadConfig } from "./config.ts";
import { controlToken } from "./control-token.ts";
import { type Demo, demoGreeting, prepareDemo, storeDemoHook } from "./demo.ts";
import { startEdge } from "./serve.ts";

type Env = Readonly<Record<string, string | undefined>>;

/**
 * `interpose serve`: runs until SIGTERM or SIGINT; a second signal exits at once.
 *
 * @param file the configuration; null runs the demo.
 * @returns the exit code.
 */
export async function runServe(file: string | null, env: Env): Promise<number> {
  const demo =
    file === null
      ? await prepareDemo(env["INTERPOSE_DATA_DIR"] ?? "./data", examplesFolder())
      : null;
  const loaded =
    demo === null
      ? loadConfig(file as string, env)
      : decodeConfig(demo.config, { base: ".", env: {} });
  if (!loaded.ok) {
    for (const issue of loaded.issues) {
      process.stderr.write(
        `${file}: ${issue.path === "" ? "" : `${issue.path}: `}${issue.message}\n`,
      );
    }
    return 1;
  }
  try {
    await serve(loaded.config, demo, env);
    return 0;
  } catch (cause) {
    process.stderr.write(`${(cause as Error).message}\n`);
    return 1;
  } finally {
    demo?.close();
  }
}

async function serve(config: Config, demo: Demo | null, env: Env): Promise<void> {
  const terminal = process.stdout.isTTY === true;
  const pretty = config.log.pretty === "auto" ? terminal : config.log.pretty;
  const log = createLog({ level: config.log.level, pretty });
  const stopped = new Promise<void>((stop) => {
    let signals = 0;
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      process.on(signal, () => (++signals === 1 ? stop() : process.exit(1)));
    }
  });
  const token = await controlToken(config);
  const edge = await startEdge(config, { clock: systemClock, log, token, env });
  if (demo !== null) {
    await storeDemoHook(edge.addresses.control, token);
    const addresses = {
      http: edge.addresses.http ?? edge.addresses.control,
      control: edge.addresses.control,
    };
    for (const line of demoGreeting(addresses, config.dataDir, demo.remarks)) {
      process.stdout.write(`${line}\n`);
    }
  }
  const watch =
    config.file === null ? null : watchConfig(config.file, env, edge, { clock: systemClock, log });
  await stopped;
  watch?.close();
  await edge.drain();
}

/** The example scripts, beside the sources and beside `dist` alike. */
function examplesFolder(): string {
  const root = import.meta.filename.endsWith(".ts") ? ".." : "../..";
  return join(import.meta.dirname, root, "examples");
}
