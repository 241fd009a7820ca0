import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { parseDocument } from "yaml";
import type { z } from "zod";
import { type Issue, toIssues, toPointer } from "../policy/kernel/issues.ts";
import {
  type ConfigFile,
  agentSchema,
  configSchema,
  crossIssues,
  execSchema,
  parseListen,
} from "./config-schema.ts";

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

type FileContainer = ConfigFile["containers"][number];

export type ExecConfig =
  | (Omit<Extract<FileContainer["exec"], { kind: "embedded" }>, "scripts"> & {
      readonly scripts: string;
    })
  | Extract<FileContainer["exec"], { kind: "remote" }>
  | { readonly kind: "none" };

export type AgentConfig =
  | (Omit<Extract<FileContainer["agent"], { kind: "embedded" }>, "home"> & {
      readonly home: string;
    })
  | Extract<FileContainer["agent"], { kind: "remote" }>
  | { readonly kind: "none" };

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
  let source: string;
  try {
    source = readFileSync(file, "utf8");
  } catch (cause) {
    const reason = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    return { ok: false, issues: [{ path: "", message: `cannot be read (${reason})` }] };
  }
  const document = parseDocument(source, { version: "1.2", schema: "core", uniqueKeys: true });
  if (document.errors.length > 0) {
    return {
      ok: false,
      issues: document.errors.map((e) => ({
        path: "",
        message: e.message.split("\n")[0] ?? "not YAML",
      })),
    };
  }
  let value: unknown;
  try {
    value = document.toJS({ maxAliasCount: 100 });
  } catch (cause) {
    return { ok: false, issues: [{ path: "", message: (cause as Error).message }] };
  }
  return decodeConfig(value, { file, env });
}

/** Decodes an already parsed configuration; relative paths are relative to `file`, or to `base` without one. */
export function decodeConfig(
  value: unknown,
  source: { file: string | null; base?: string; env: Readonly<Record<string, string | undefined>> },
): ConfigResult {
  const issues: Issue[] = [];
  const substituted = substitute(value ?? {}, source.env, [], issues);
  const parsed = configSchema.safeParse(substituted);
  if (!parsed.success) {
    const unset = new Set(issues.map((issue) => issue.path));
    issues.push(
      ...toIssues(withBranchIssues(parsed.error, substituted)).filter(
        (issue) => !unset.has(issue.path),
      ),
    );
  }
  issues.push(...crossIssues(substituted));
  if (issues.length > 0 || !parsed.success) {
    return { ok: false, issues };
  }
  const base = source.file === null ? (source.base ?? ".") : dirname(resolve(source.file));
  return { ok: true, config: toConfig(parsed.data, source.file, resolve(base)) };
}

/** Replaces `${NAME}` in every string; a missing variable is a problem at that place. */
function substitute(
  value: unknown,
  env: Readonly<Record<string, string | undefined>>,
  path: PropertyKey[],
  issues: Issue[],
): unknown {
  if (typeof value === "string") {
    return value.replace(/\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g, (whole, name: string) => {
      const found = env[name];
      if (found === undefined) {
        issues.push({
          path: toPointer(path),
          message: `the environment variable ${name} is not set`,
        });
        return whole;
      }
      return found;
    });
  }
  if (Array.isArray(value)) {
    return value.map((item, index) => substitute(item, env, [...path, index], issues));
  }
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [
        key,
        substitute(item, env, [...path, key], issues),
      ]),
    );
  }
  return value;
}

/** zod reports a failed union as one issue; what helps is the problems of the branch that `kind` names. */
function withBranchIssues(error: z.ZodError, value: unknown): Pick<z.ZodError, "issues"> {
  const issues = error.issues.flatMap((issue): z.core.$ZodIssue[] => {
    const last = issue.path.at(-1);
    if (issue.code !== "invalid_union" || (last !== "exec" && last !== "agent")) {
      return [issue];
    }
    const entry = issue.path.reduce<unknown>(
      (at, key) => (at as Record<PropertyKey, unknown>)?.[key],
      value,
    );
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
    const result = schema?.safeParse(entry);
    return result && !result.success
      ? result.error.issues.map((inner) => ({ ...inner, path: [...issue.path, ...inner.path] }))
      : [issue];
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
