import { readFileSync } from "node:fs";
import { parseDocument } from "yaml";
import { toPointer, type Issue } from "./issues.ts";

/** What is in a file, or why nothing is. */
export type ConfigFileResult =
  | { readonly ok: true; readonly value: unknown; readonly issues: readonly Issue[] }
  | { readonly ok: false; readonly issues: readonly Issue[] };

/**
 * Reads a YAML (1.2 core schema) or JSON file and puts in the environment variables named as `${NAME}`.
 *
 * @returns the plain value with the problems of single strings, or why there is no value.
 */
export function readConfigFile(
  file: string,
  env: Readonly<Record<string, string | undefined>>,
): ConfigFileResult {
  let source: string;
  try {
    source = readFileSync(file, "utf8");
  } catch (cause) {
    const reason = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    return { ok: false, issues: [{ path: "", message: `cannot be read (${reason})` }] };
  }
  const document = parseDocument(source, { version: "1.2", schema: "core", uniqueKeys: true });
  const issues: Issue[] = document.errors.map(({ message }) => ({
    path: "",
    message: message.split("\n")[0] ?? "not YAML",
  }));
  if (issues.length > 0) {
    return { ok: false, issues };
  }
  try {
    const value: unknown = document.toJS({ maxAliasCount: 100 });
    return { ok: true, value: substituteEnv(value ?? {}, env, [], issues), issues };
  } catch (cause) {
    return { ok: false, issues: [{ path: "", message: (cause as Error).message }] };
  }
}

/** Replaces `${NAME}` in every string below `value`; a variable that is not set becomes an issue at its place. */
export function substituteEnv(
  value: unknown,
  env: Readonly<Record<string, string | undefined>>,
  path: readonly PropertyKey[],
  issues: Issue[],
): unknown {
  if (typeof value === "string") {
    return value.replace(/\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g, (whole, name: string) => {
      const found = env[name];
      if (found === undefined) {
        const message = `the environment variable ${name} is not set`;
        issues.push({ path: toPointer(path), message });
      }
      return found ?? whole;
    });
  }
  if (Array.isArray(value)) {
    return value.map((item, index) => substituteEnv(item, env, [...path, index], issues));
  }
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value);
    return Object.fromEntries(
      entries.map(([key, item]) => [key, substituteEnv(item, env, [...path, key], issues)]),
    );
  }
  return value;
}
