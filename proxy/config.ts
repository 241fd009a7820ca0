import { dirname, resolve } from "node:path";
import type { z } from "zod";
import { readConfigFile, substituteEnv } from "../policy/kernel/config-file.ts";
import { type Issue, toIssues } from "../policy/kernel/issues.ts";
import {
  type ConfigFile,
  agentSchema,
  configSchema,
  crossIssues,
  customDomainsSchema,
  execSchema,
  parseListen,
} from "./config-schema.ts";

/** Where to listen; port 0 is any free one. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

type FileContainer = ConfigFile["containers"][number];

/** A container's exec host as configured. */
export type ExecConfig =
  | (Omit<Extract<FileContainer["exec"], { kind: "embedded" }>, "scripts"> & {
      readonly scripts: string;
    })
  | Extract<FileContainer["exec"], { kind: "remote" }>
  | { readonly kind: "none" };

/** A container's agent gateway as configured. */
export type AgentConfig =
  | (Omit<Extract<FileContainer["agent"], { kind: "embedded" }>, "home"> & {
      readonly home: string;
    })
  | Extract<FileContainer["agent"], { kind: "remote" }>
  | { readonly kind: "none" };

/** A container as configured, paths absolute. */
export interface ContainerConfig {
  readonly project: string;
  readonly container: string;
  readonly host: string;
  readonly state: "running" | "stopped";
  /** Service → port: this container's over the general ones over the built-in table. */
  readonly ports: ReadonlyMap<string, number>;
  readonly exec: ExecConfig;
  readonly agent: AgentConfig;
}

/** The configuration in use: frozen, paths absolute, addresses split. */
export interface Config extends Omit<
  ConfigFile,
  "listen" | "control" | "dataDir" | "containers" | "tls" | "ports"
> {
  readonly file: string | null;
  readonly listen: { readonly http: ListenAddress | null; readonly https: ListenAddress | null };
  readonly tls: readonly {
    readonly cert: string;
    readonly key: string;
    readonly hosts: readonly string[];
  }[];
  readonly control: {
    readonly listen: ListenAddress;
    readonly token: string | null;
    readonly tokenFile: string | null;
  };
  readonly dataDir: string;
  readonly containers: ReadonlyMap<string, ContainerConfig>;
}

/** The configuration, or every problem in it at once. */
export type ConfigResult =
  | { readonly ok: true; readonly config: Config }
  | { readonly ok: false; readonly issues: readonly Issue[] };

/**
 * Reads and decodes a configuration file (YAML or JSON).
 *
 * @param env where `${NAME}` is taken from.
 * @returns the frozen configuration or every problem at once, each with its JSON pointer.
 */
export function loadConfig(
  file: string,
  env: Readonly<Record<string, string | undefined>>,
): ConfigResult {
  const read = readConfigFile(file, env);
  return read.ok ? decode(read.value, read.issues, file, dirname(resolve(file))) : read;
}

/** Decodes an already parsed configuration without a file; relative paths are relative to `base`. */
export function decodeConfig(
  value: unknown,
  { base, env }: { base: string; env: Readonly<Record<string, string | undefined>> },
): ConfigResult {
  const issues: Issue[] = [];
  return decode(substituteEnv(value, env, [], issues), issues, null, resolve(base));
}

/** @param found problems of single strings; what is said of such a string beside that is left out. */
function decode(
  value: unknown,
  found: readonly Issue[],
  file: string | null,
  base: string,
): ConfigResult {
  const unset = new Set(found.map((issue) => issue.path));
  const parsed = configSchema.safeParse(value);
  const wrong = parsed.success ? [] : toIssues(withBranchIssues(parsed.error, value));
  const issues = [...found, ...wrong.filter(({ path }) => !unset.has(path)), ...crossIssues(value)];
  if (issues.length > 0 || !parsed.success) {
    return { ok: false, issues };
  }
  return { ok: true, config: toConfig(parsed.data, file, base) };
}

/** zod reports a failed union as one issue; what helps is the problems of the branch that `kind` names. */
function withBranchIssues(error: z.ZodError, value: unknown): Pick<z.ZodError, "issues"> {
  const issues = error.issues.flatMap((issue): z.core.$ZodIssue[] => {
    const last = issue.path.at(-1);
    if (
      issue.code !== "invalid_union" ||
      (last !== "exec" && last !== "agent" && last !== "customDomains")
    ) {
      return [issue];
    }
    const entry = issue.path.reduce<unknown>(
      (at, key) => (at as Record<PropertyKey, unknown>)?.[key],
      value,
    );
    const inside = (schema: z.ZodType | undefined): z.core.$ZodIssue[] => {
      const result = schema?.safeParse(entry);
      return result && !result.success
        ? result.error.issues.map((inner) => ({ ...inner, path: [...issue.path, ...inner.path] }))
        : [issue];
    };
    if (last === "customDomains") {
      const isObject = typeof entry === "object" && entry !== null && !Array.isArray(entry);
      return isObject ? inside(customDomainsSchema) : [issue];
    }
    const kind = (entry as { kind?: unknown } | null)?.kind ?? "embedded";
    const branch = ["embedded", "remote", "none"].indexOf(kind as string);
    if (branch < 0 || typeof entry !== "object" || entry === null) {
      const message =
        branch < 0
          ? `expected "embedded", "remote" or "none", found ${JSON.stringify(kind)}`
          : `expected an object with kind, found ${JSON.stringify(entry)}`;
      return [
        {
          code: "custom",
          path: branch < 0 ? [...issue.path, "kind"] : issue.path,
          message,
          input: entry,
        },
      ];
    }
    const schema = (last === "exec" ? execSchema : agentSchema).options[branch];
    return inside(schema);
  });
  return { issues };
}

function toConfig(data: ConfigFile, file: string | null, base: string): Config {
  const dataDir = resolve(base, data.dataDir);
  const address = (text: string | undefined) => (text === undefined ? null : parseListen(text));
  const containers = new Map<string, ContainerConfig>();
  for (const entry of data.containers) {
    const own = resolve(dataDir, "containers", entry.container);
    containers.set(entry.container, {
      project: entry.project,
      container: entry.container,
      host: entry.host,
      state: entry.state,
      ports: new Map(Object.entries({ ...data.ports, ...entry.ports })),
      exec:
        entry.exec.kind === "embedded"
          ? {
              ...entry.exec,
              scripts:
                entry.exec.scripts === undefined
                  ? resolve(own, "scripts")
                  : resolve(base, entry.exec.scripts),
              allow: {
                ...entry.exec.allow,
                read: entry.exec.allow.read.map((path) => resolve(base, path)),
                write: entry.exec.allow.write.map((path) => resolve(base, path)),
              },
            }
          : entry.exec,
      agent:
        entry.agent.kind === "embedded"
          ? {
              ...entry.agent,
              home:
                entry.agent.home === undefined
                  ? resolve(own, "home")
                  : resolve(base, entry.agent.home),
            }
          : entry.agent,
    });
  }
  return Object.freeze({
    ...data,
    file,
    listen: { http: address(data.listen.http), https: address(data.listen.https) },
    tls: data.tls.map((t) => ({
      cert: resolve(base, t.cert),
      key: resolve(base, t.key),
      hosts: t.hosts,
    })),
    control: {
      listen: parseListen(data.control.listen) as ListenAddress,
      token: data.control.token ?? null,
      tokenFile:
        data.control.tokenFile === undefined ? null : resolve(base, data.control.tokenFile),
    },
    dataDir,
    containers,
  });
}
