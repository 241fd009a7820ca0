import { dirname, resolve } from "node:path";
import { z } from "zod";
import { readConfigFile } from "../policy/kernel/config-file.ts";
import { toIssues, type Issue } from "../policy/kernel/issues.ts";

/**
 * Configuration of an exec host that runs by itself inside a container, for an edge elsewhere. The edge's side of it
 * is `exec: { kind: remote, port, secret }` of the container.
 */
const schema = z.strictObject({
  /** `host:port`; port 0 is any free one. */
  listen: z
    .string()
    .regex(/^(?:\[[0-9A-Fa-f:.]+\]|[^:[\]\s]+):\d{1,5}$/, 'expected "host:port"')
    .default("0.0.0.0:7700"),
  /** What every request must carry; the same as in the edge's configuration. */
  secret: z.string().min(16, "expected at least 16 characters"),
  dataDir: z.string().min(1).default("./data"),
  scripts: z.string().min(1).optional(),
  memoryMb: z.int().min(64).max(65_536).default(256),
  cpuMs: z.int().min(50).max(600_000).default(1000),
  user: z
    .string()
    .regex(/^\d{1,9}:\d{1,9}$/, 'expected "uid:gid" in numbers')
    .nullable()
    .default(null),
  allow: z
    .strictObject({
      childProcess: z.boolean().default(false),
      read: z.array(z.string().min(1)).default([]),
      write: z.array(z.string().min(1)).default([]),
    })
    .prefault({}),
  limits: z
    .strictObject({
      headMs: z.int().min(1).max(3_600_000).default(10_000),
      keepAliveMs: z.int().min(1).max(86_400_000).default(65_000),
      upstreamConnectMs: z.int().min(1).max(600_000).default(3_000),
      upstreamIdleMs: z.int().min(1).max(86_400_000).default(300_000),
      maxHeaderBytes: z.int().min(1024).max(1_048_576).default(32_768),
      maxTargetBytes: z.int().min(256).max(1_048_576).default(16_384),
      maxBufferedBodyBytes: z.int().min(1024).max(4_294_967_296).default(33_554_432),
      maxConnections: z.int().min(1).max(1_000_000).default(10_000),
      drainMs: z.int().min(0).max(3_600_000).default(10_000),
    })
    .prefault({}),
  log: z
    .strictObject({
      level: z.enum(["debug", "info", "warn", "error"]).default("info"),
      pretty: z.union([z.boolean(), z.literal("auto")]).default("auto"),
    })
    .prefault({}),
});

/** Paths are absolute, `listen` is split. */
export interface ExecHostConfig extends Omit<z.output<typeof schema>, "listen" | "scripts"> {
  readonly listen: { readonly host: string; readonly port: number };
  readonly scripts: string;
}

/** The configuration, or every problem in it at once. */
export type ExecHostConfigResult =
  | { readonly ok: true; readonly config: ExecHostConfig }
  | { readonly ok: false; readonly issues: readonly Issue[] };

/** Reads and decodes the file: the configuration, or every problem at once with its JSON pointer. */
export function loadExecHostConfig(
  file: string,
  env: Readonly<Record<string, string | undefined>>,
): ExecHostConfigResult {
  const read = readConfigFile(file, env);
  if (!read.ok) {
    return read;
  }
  const parsed = schema.safeParse(read.value);
  if (!parsed.success || read.issues.length > 0) {
    const unset = new Set(read.issues.map((issue) => issue.path));
    const found = parsed.success ? [] : toIssues(parsed.error);
    return { ok: false, issues: [...read.issues, ...found.filter(({ path }) => !unset.has(path))] };
  }
  const { listen, scripts, ...data } = parsed.data;
  const colon = listen.lastIndexOf(":");
  const port = Number(listen.slice(colon + 1));
  if (port > 65_535) {
    return { ok: false, issues: [{ path: "/listen", message: "expected a port up to 65535" }] };
  }
  const base = dirname(resolve(file));
  return {
    ok: true,
    config: {
      ...data,
      listen: { host: listen.slice(0, colon).replace(/^\[|\]$/g, ""), port },
      dataDir: resolve(base, data.dataDir),
      scripts: resolve(base, scripts ?? `${data.dataDir}/containers/${LOCAL_CONTAINER}/scripts`),
      allow: {
        childProcess: data.allow.childProcess,
        read: data.allow.read.map((path) => resolve(base, path)),
        write: data.allow.write.map((path) => resolve(base, path)),
      },
    },
  };
}

/** The one container such a host serves, as its folders and log lines call it. */
export const LOCAL_CONTAINER = "local";
