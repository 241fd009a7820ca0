import { InvalidArgumentError } from "commander";
import { parse } from "yaml";
import { readSmallFile } from "./connection.ts";
import { CommandFailure, readStdin, UsageError, type CommandIo } from "./io.ts";

/** Longest document that a command reads from a file or from standard input. */
const MAX_DOCUMENT_BYTES = 8_388_608;

/** Collects a flag that may be repeated and may hold a comma list: always an array. */
export function collectList(value: string, earlier: readonly string[] | undefined): string[] {
  return [...(earlier ?? []), ...value.split(",").map((part) => part.trim())];
}

/** Collects a repeatable flag whose values may hold commas. */
export function collect(value: string, earlier: readonly string[] | undefined): string[] {
  return [...(earlier ?? []), value];
}

/** Splits `KEY=VALUE` flags at the first `=`; the value may be empty and may hold further ones. */
export function parsePairs(flag: string, texts: readonly string[]): Record<string, string> {
  const pairs = new Map<string, string>();
  for (const text of texts) {
    const at = text.indexOf("=");
    if (at < 1) {
      throw new UsageError(`${flag} takes KEY=VALUE, not ${JSON.stringify(text)}`);
    }
    const key = text.slice(0, at);
    if (pairs.has(key)) {
      throw new UsageError(`${flag} names ${JSON.stringify(key)} twice`);
    }
    pairs.set(key, text.slice(at + 1));
  }
  // fromEntries defines own members, so that a key such as __proto__ is sent and refused like any other
  return Object.fromEntries(pairs);
}

/** A whole number; which ones are allowed is the server's to say. */
export function parseInteger(text: string): number {
  if (!/^-?\d{1,15}$/.test(text)) {
    throw new InvalidArgumentError("It must be a whole number.");
  }
  return Number(text);
}

/** `true` or `false`. */
export function parseBoolean(text: string): boolean {
  if (text !== "true" && text !== "false") {
    throw new InvalidArgumentError("It must be true or false.");
  }
  return text === "true";
}

/** An access rule as JSON: `true`, `8080`, `[80,443]`, `"8000-8100"` with its quotes. */
export function parseAccess(text: string): boolean | number | number[] | string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new UsageError(
      `--access takes JSON, not ${text}: true, 8080, [80,443], or a text in its quotes as in '"8000-8100"'`,
    );
  }
  return value as boolean | number | number[] | string; // the server checks the form and says what is wrong
}

/** Where a document comes from. */
export interface DocumentFlags {
  readonly file?: string;
  readonly json?: string;
}

/**
 * The document that `--file` (JSON or YAML, `-` is standard input) or `--json` gives.
 *
 * @throws UsageError when it is not exactly one of them or no object; CommandFailure when it cannot be read.
 */
export async function readDocument(
  io: CommandIo,
  flags: DocumentFlags,
): Promise<Record<string, unknown>> {
  if ((flags.file === undefined) === (flags.json === undefined)) {
    throw new UsageError("exactly one of --file and --json is needed");
  }
  let value: unknown;
  if (flags.json !== undefined) {
    try {
      value = JSON.parse(flags.json);
    } catch (cause) {
      throw new UsageError(`--json is no JSON: ${messageOf(cause)}`);
    }
  } else {
    const file = flags.file ?? "-";
    const text =
      file === "-"
        ? await readStdin(io, MAX_DOCUMENT_BYTES)
        : await readSmallFile(file, MAX_DOCUMENT_BYTES);
    value = parseDocument(text, file === "-" ? "standard input" : file);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new UsageError("the document must be an object");
  }
  return value as Record<string, unknown>;
}

function parseDocument(text: string, source: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // not JSON: YAML, whose errors are told below
  }
  try {
    return parse(text, { schema: "core", maxAliasCount: 100, logLevel: "error" }) as unknown;
  } catch (cause) {
    throw new CommandFailure(`${source} is neither JSON nor YAML: ${messageOf(cause)}`);
  }
}

/**
 * A secret from a flag or from a file beside it, without its final line break.
 *
 * @throws UsageError when it is not exactly one of them.
 */
export async function readSecret(
  name: string,
  value: string | undefined,
  file: string | undefined,
): Promise<string> {
  if ((value === undefined) === (file === undefined)) {
    throw new UsageError(`exactly one of --${name} and --${name}-file is needed`);
  }
  return value ?? (await readSmallFile(file ?? "", MAX_DOCUMENT_BYTES)).replace(/\r?\n$/, "");
}

function messageOf(cause: unknown): string {
  return (cause instanceof Error ? cause.message : String(cause)).split("\n")[0] ?? "";
}
