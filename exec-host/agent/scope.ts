import { isAbsolute } from "node:path";
import { AgentError } from "./errors.ts";
import type { DirScope, ToolMode } from "./seams.ts";

/**
 * Which selectors a route takes (agent-gateway specification, table B).
 *
 * `R1` and `R1b` take a realm; `R2`, `R3` and `R5` take neither realm nor container; `R4` takes a container that
 * equals the session's binding (the handler compares it); `own` takes both.
 */
export type HeaderRow = "R1" | "R1b" | "R2" | "R3" | "R4" | "R5" | "own";

/** The scope selectors of one request; null where the request names none. */
export interface RequestScope {
  /** `global` or 24 hex, served by this gateway. */
  readonly realm: string | null;
  readonly container: string | null;
  /** Absolute, not resolved. */
  readonly cwd: string | null;
  /** Absolute, not resolved. */
  readonly configDir: string | null;
  /** Rows `R5` only. */
  readonly toolMode: ToolMode | null;
  /** Rows `R5` only. */
  readonly dirScope: DirScope | null;
}

/** Where selectors come from: a header look-up by lower-case name and the query. */
export interface SelectorSource {
  header(name: string): string | undefined;
  readonly query: URLSearchParams;
}

const REALM = /^(?:global|[0-9a-f]{24})$/;
const MAX_PATH_LENGTH = 4096;

/** True for `global` or 24 lower-case hex digits. */
function isRealm(value: string): boolean {
  return REALM.test(value);
}

/**
 * Reads and checks the scope selectors of a request.
 *
 * @param realms realms served besides `global`.
 * @throws AgentError `realm_scope_unsupported`, `invalid_realm`, `not_found`, `bad_request`, `invalid_tool_mode`, `invalid_dir_scope`.
 */
export function readScope(
  source: SelectorSource,
  row: HeaderRow,
  realms: readonly string[],
): RequestScope {
  const cwd = absoluteHeader(source, "x-hoody-cwd");
  const configDir = absoluteHeader(source, "x-hoody-config-dir");
  return {
    realm: readRealm(source, row, realms),
    container: readContainer(source, row),
    cwd,
    configDir,
    toolMode: row === "R5" ? readToolMode(source.header("x-hoody-tool-mode")) : null,
    dirScope: row === "R5" ? readDirScope(source.header("x-hoody-dir-scope")) : null,
  };
}

function readRealm(
  source: SelectorSource,
  row: HeaderRow,
  realms: readonly string[],
): string | null {
  const selector = source.header("x-hoody-realm") ?? source.query.get("realm") ?? undefined;
  if (selector === undefined) {
    return null;
  }
  if (row !== "R1" && row !== "R1b" && row !== "own") {
    throw new AgentError("realm_scope_unsupported", undefined, { header: "X-Hoody-Realm" });
  }
  return servedRealm(selector, realms);
}

/**
 * Checks a realm name against the served ones.
 *
 * @throws AgentError `invalid_realm` for a malformed name, `not_found` for one that is not served.
 */
export function servedRealm(value: string, realms: readonly string[]): string {
  if (!isRealm(value)) {
    throw new AgentError("invalid_realm");
  }
  if (value !== "global" && !realms.includes(value)) {
    throw new AgentError("not_found");
  }
  return value;
}

function readContainer(source: SelectorSource, row: HeaderRow): string | null {
  const container = source.header("x-hoody-container");
  if (container === undefined || container === "") {
    return null;
  }
  if (row !== "R4" && row !== "own") {
    throw new AgentError("realm_scope_unsupported", undefined, { header: "X-Hoody-Container" });
  }
  return container;
}

function absoluteHeader(source: SelectorSource, name: string): string | null {
  const value = source.header(name);
  if (value === undefined || value === "") {
    return null;
  }
  return checkAbsolute(decodeHeader(value), name);
}

/** Header bytes arrive as latin1; paths are UTF-8. */
function decodeHeader(value: string): string {
  return Buffer.from(value, "latin1").toString("utf8");
}

/**
 * Refuses anything but an absolute path without NUL.
 *
 * @param field the name for `details.field`.
 * @throws AgentError `bad_request`.
 */
export function checkAbsolute(path: string, field: string): string {
  if (!isAbsolute(path) || path.includes("\0") || path.length > MAX_PATH_LENGTH) {
    throw new AgentError("bad_request", "The path must be absolute.", { field });
  }
  return path;
}

function readToolMode(value: string | undefined): ToolMode | null {
  if (value === undefined || value === "") {
    return null;
  }
  if (value === "read_only" || value === "full") {
    return value;
  }
  if (value === "standard") {
    return "full";
  }
  throw new AgentError("invalid_tool_mode", undefined, { header: "X-Hoody-Tool-Mode" });
}

function readDirScope(value: string | undefined): DirScope | null {
  if (value === undefined || value === "") {
    return null;
  }
  if (value === "home" || value === "full") {
    return value;
  }
  throw new AgentError("invalid_dir_scope", undefined, { header: "X-Hoody-Dir-Scope" });
}
