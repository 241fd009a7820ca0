import { mkdir } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { dirname, join, resolve } from "node:path";
import { z } from "zod";
import { systemClock } from "../../policy/kernel/clock.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import { readConfigFile } from "../../policy/kernel/config-file.ts";
import { formatIssues, toIssues } from "../../policy/kernel/issues.ts";
import type { Issue } from "../../policy/kernel/issues.ts";
import { createLog } from "../../policy/kernel/log.ts";
import type { Log } from "../../policy/kernel/log.ts";
import { createMetrics } from "../../policy/kernel/metrics.ts";
import { createGuards } from "./hooks/guards.ts";
import { detectSandbox } from "./sandbox.ts";
import { createAgentServer } from "./server.ts";

const secret = z.string().min(16, "expected at least 16 characters");
const ADDRESS = /^(?<host>[^:]+|\[[^\]]+\]):(?<port>\d{1,5})$/;

/** Configuration of `interpose agent-host`: the gateway alone, beside the tools it runs. */
const configSchema = z.strictObject({
  /** host:port; port 0 is any free one. */
  listen: z.string().regex(ADDRESS, "expected host:port"),
  /** The secret the edge signs with; two while they are being exchanged. */
  secret: z.union([secret, z.array(secret).min(1).max(2)]),
  container: z.string().default("standalone"),
  home: z.string().min(1),
  dataDir: z.string().min(1),
  fleet: z.boolean().default(false),
  realms: z.array(z.string().regex(/^[0-9a-f]{24}$/, "expected 24 hex digits")).default([]),
  rateLimit: z
    .union([
      z.literal("off"),
      z.literal(false),
      z.strictObject({ perSecond: z.int().positive(), burst: z.int().positive() }),
    ])
    .default({ perSecond: 50, burst: 100 }),
  judge: z
    .strictObject({ url: z.url(), apiKey: z.string(), model: z.string().min(1) })
    .nullable()
    .default(null),
  log: z.strictObject({ level: z.string().default("info") }).prefault({}),
});

/** A decoded configuration; folders are absolute. */
export type AgentHostConfig = z.infer<typeof configSchema>;

/** The configuration, or every problem in it at once. */
export type DecodedAgentHost =
  | { readonly ok: true; readonly config: AgentHostConfig }
  | { readonly ok: false; readonly issues: readonly Issue[] };

/**
 * Reads and decodes the file, YAML or JSON. `${NAME}` takes an environment variable; relative paths start at the
 * file's folder.
 */
export function loadAgentHostConfig(
  file: string,
  env: Readonly<Record<string, string | undefined>>,
): DecodedAgentHost {
  const read = readConfigFile(file, env);
  if (!read.ok) {
    return read;
  }
  const decoded = configSchema.safeParse(read.value);
  if (!decoded.success || read.issues.length > 0) {
    const unset = new Set(read.issues.map((issue) => issue.path));
    const found = decoded.success ? [] : toIssues(decoded.error);
    return { ok: false, issues: [...read.issues, ...found.filter(({ path }) => !unset.has(path))] };
  }
  const { data } = decoded;
  const base = dirname(resolve(file));
  return {
    ok: true,
    config: { ...data, home: resolve(base, data.home), dataDir: resolve(base, data.dataDir) },
  };
}

/** A gateway on a TCP address. */
export interface AgentHost {
  readonly address: AddressInfo;
  close(): Promise<void>;
}

/** Starts a gateway in this process. `env` is what its tools' processes get; keep secrets out of it. */
export async function startAgentHost(
  deps: { readonly clock: Clock; readonly log: Log },
  config: AgentHostConfig,
  env: Readonly<Record<string, string>>,
): Promise<AgentHost> {
  const { clock, log } = deps;
  await mkdir(config.home, { recursive: true, mode: 0o700 });
  await mkdir(join(config.dataDir, "agent"), { recursive: true, mode: 0o700 });
  const sandbox = await detectSandbox(clock, env["PATH"] ?? "");
  if (sandbox.kind === "none") {
    log.warn({ reason: sandbox.reason }, "read-only command lines are held by the gate alone");
  }
  const metrics = createMetrics();
  const server = createAgentServer(
    {
      clock,
      log,
      sandbox,
      createGuards,
      metrics: {
        toolRun: (tool, outcome) => metrics.agentToolRuns.inc({ tool, outcome }),
        hookRun: (event, outcome) => metrics.agentHookRuns.inc({ event, outcome }),
      },
    },
    {
      ...config,
      // a folder of its own: the home may lie beside it in the data folder
      dataDir: join(config.dataDir, "agent"),
      containerId: config.container,
      secrets: typeof config.secret === "string" ? [config.secret] : config.secret,
      rateLimit: config.rateLimit === "off" || config.rateLimit === false ? null : config.rateLimit,
      env,
    },
  );
  const groups = ADDRESS.exec(config.listen)?.groups;
  await new Promise<void>((done, failed) => {
    server.http.once("error", failed);
    server.http.listen(
      Number(groups?.["port"]),
      (groups?.["host"] ?? "").replaceAll(/[[\]]/g, ""),
      done,
    );
  });
  return { address: server.http.address() as AddressInfo, close: () => server.close() };
}

/** Variables of our own environment that tools may see; everything else may be a secret. */
const PASSED_ON = ["PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM"];

/** The environment for tools' processes out of our own. */
export function toolEnvironment(
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  return Object.fromEntries(
    PASSED_ON.flatMap((name) => {
      const value = env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

/** `interpose agent-host --config FILE`: runs until it is told to stop. Resolves to the exit code. */
export async function runAgentHost(
  file: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<number> {
  const decoded = loadAgentHostConfig(file, env);
  if (!decoded.ok) {
    process.stderr.write(`${file}: ${formatIssues(decoded.issues)}\n`);
    return 1;
  }
  const log = createLog({ level: decoded.config.log.level, pretty: false }).child({
    component: "agent",
  });
  const host = await startAgentHost(
    { clock: systemClock, log },
    decoded.config,
    toolEnvironment(env),
  );
  log.info({ agent: `${host.address.address}:${host.address.port}` }, "ready");
  await new Promise<void>((done) => {
    process.once("SIGTERM", done);
    process.once("SIGINT", done);
  });
  await host.close();
  return 0;
}
