import {
  DEFAULT_EXEC_ID,
  DEFAULT_SUBDOMAIN,
  isExecId,
  isSubdomain,
} from "../scripts/coordinates.ts";
import { parseDirectives } from "../scripts/directives.ts";
import { resolveScript } from "../scripts/resolve.ts";
import { isLogName, listLogs, pickLines, searchLogs } from "./log-files.ts";
import { countScripts, SORTS, type Sort } from "./monitor.ts";
import { decodeScriptPath, ManageError, type ScriptFiles } from "./script-files.ts";
import {
  kindOf,
  redactTokens,
  toFinding,
  toMagicComments,
  validateJson,
  validateScript,
  type Validation,
} from "./validate.ts";

/** One management request, decoded as far as all routes share it. */
export interface ManageRequest {
  readonly method: string;
  /** Path behind `/api/v1/exec`. */
  readonly path: string;
  readonly query: URLSearchParams;
  /** Of a JSON body; empty without one. */
  readonly body: Readonly<Record<string, unknown>>;
  /** From the host name; query and body win. */
  readonly subdomain: string | null;
  readonly execId: string | null;
}

/** What a management route answers. */
export type ManageReply =
  | { readonly kind: "json"; readonly status: number; readonly body: unknown }
  /** Lines of a log file as server-sent events. */
  | { readonly kind: "stream"; readonly file: string; readonly follow: boolean };

/** What the management routes build on. */
export interface ManageDeps {
  readonly files: ScriptFiles;
  readonly logs: string;
  /** ms since this process started, for `health`. */
  readonly uptimeMs: () => number;
}

type Handler = (request: ManageRequest, deps: ManageDeps) => ManageReply | Promise<ManageReply>;

const EXECUTION_ID = /^[A-Za-z0-9_-]{1,64}$/;
const MAX_REGEX = 64;
const MAX_HITS = 1000;
const LIST_FILTERS_MAX = 200;

/** The table of routes; everything else under the base path is 404, a wrong method 405. */
const ROUTES: ReadonlyMap<string, Readonly<Record<string, Handler>>> = new Map<
  string,
  Record<string, Handler>
>([
  ["/health", { GET: health }],
  ["/scripts/write", { POST: writeScript }],
  ["/scripts/read", { GET: readScript }],
  ["/scripts/list", { GET: listScripts }],
  ["/scripts/delete", { DELETE: deleteScript }],
  ["/validate/script", { POST: validate }],
  ["/validate/magic-comments", { POST: validateComments }],
  ["/route/resolve", { POST: resolveRoute }],
  ["/logs/list", { GET: logsList }],
  ["/logs/read", { POST: logsRead }],
  ["/logs/search", { POST: logsSearch }],
  ["/logs/stream", { GET: logsStream }],
  ["/monitor/scripts", { GET: monitorScripts }],
]);

/**
 * Answers a management request (exec-host.md 7, decision 44).
 *
 * @throws ManageError for everything that is refused.
 */
export async function handleManage(request: ManageRequest, deps: ManageDeps): Promise<ManageReply> {
  const methods = ROUTES.get(request.path);
  if (methods === undefined) {
    throw new ManageError(404, "NOT_FOUND", "There is no such management route");
  }
  const handler = Object.hasOwn(methods, request.method) ? methods[request.method] : undefined;
  if (handler === undefined) {
    throw new ManageError(405, "METHOD_NOT_ALLOWED", "This route does not take this method", {
      allow: Object.keys(methods),
    });
  }
  return await handler(request, deps);
}

function json(body: unknown, status = 200): ManageReply {
  return { kind: "json", status, body };
}

function health(_: ManageRequest, deps: ManageDeps): ManageReply {
  return json({ status: "ok", success: true, uptimeMs: Math.round(deps.uptimeMs()) });
}

async function writeScript(request: ManageRequest, { files }: ManageDeps): Promise<ManageReply> {
  const { content } = request.body;
  if (typeof content !== "string") {
    throw new ManageError(400, "VALIDATION_ERROR", "content must be a string");
  }
  const path = scriptPath(request);
  const validation = flag(request, "validate", true) ? check(content, path, files, false) : null;
  if (validation !== null && !validation.valid) {
    throw new ManageError(400, "VALIDATION_ERROR", "The script is not valid", { validation });
  }
  const { created } = await files.write(path, content, {
    createDirs: flag(request, "createDirs", true),
    ifNotExists: flag(request, "ifNotExists", false),
  });
  const size = Buffer.byteLength(content);
  return json({ success: true, path, name: path, created, size, validation });
}

async function readScript(request: ManageRequest, { files }: ManageDeps): Promise<ManageReply> {
  const path = scriptPath(request);
  const { content, ...file } = await files.read(path);
  const { directives, warnings } = parseDirectives(content);
  return json({
    success: true,
    path,
    name: path,
    content: redactTokens(content),
    magicComments: toMagicComments(directives),
    warnings: warnings.map(toFinding),
    ...file,
  });
}

async function listScripts(request: ManageRequest, { files }: ManageDeps): Promise<ManageReply> {
  const { subdomain, execId } = deployment(request);
  const dir = option(request, "dir");
  const base = dir === null ? `${subdomain}/${execId}` : decodeScriptPath(dir, subdomain, execId);
  const filter = option(request, "filter")?.toLowerCase() ?? null;
  const label = option(request, "label");
  const tags = option(request, "tags")?.split(",").slice(0, LIST_FILTERS_MAX) ?? [];
  const mode = option(request, "mode");
  const enabled = option(request, "enabled");
  const withComments = flag(request, "include_comments", false);
  const scripts: unknown[] = [];
  for (const path of await files.list(base, flag(request, "recursive", true))) {
    const name = path.slice(path.lastIndexOf("/") + 1);
    if (filter !== null && !path.toLowerCase().includes(filter)) {
      continue;
    }
    const file = await files.read(path).catch(() => null);
    if (file === null) {
      continue; // too large, or gone since it was listed
    }
    const { directives } = parseDirectives(file.content);
    if (
      (label !== null && directives.label !== label) ||
      !tags.every((tag) => directives.tags.includes(tag.trim())) ||
      (mode !== null && directives.mode !== mode) ||
      (enabled !== null && String(directives.enabled) !== enabled)
    ) {
      continue;
    }
    scripts.push({
      name,
      path,
      type: kindOf(path),
      size: file.size,
      modified: file.modified,
      mode: directives.mode,
      enabled: directives.enabled,
      label: directives.label,
      tags: directives.tags,
      description: directives.description,
      ...(withComments ? { magicComments: toMagicComments(directives) } : {}),
    });
  }
  return json({ success: true, scripts, count: scripts.length });
}

async function deleteScript(request: ManageRequest, { files }: ManageDeps): Promise<ManageReply> {
  if (option(request, "confirm") !== "true" && request.body["confirm"] !== true) {
    throw new ManageError(400, "VALIDATION_ERROR", "confirm=true is required");
  }
  const path = scriptPath(request);
  await files.remove(path);
  return json({ success: true, path, deleted: true });
}

function validate(request: ManageRequest, { files }: ManageDeps): ManageReply {
  const text = codeOf(request);
  const path = option(request, "path") ?? "script.js";
  const { subdomain, execId } = deployment(request);
  const at = decodeScriptPath(path, subdomain, execId);
  const isTypeScript = option(request, "language") === "typescript";
  const validation = check(text, isTypeScript ? at.replace(/\.js$/, ".ts") : at, files, true);
  return json({ success: true, ...validation, validation });
}

function validateComments(request: ManageRequest): ManageReply {
  const { directives, warnings } = parseDirectives(codeOf(request));
  return json({
    success: true,
    valid: warnings.length === 0,
    magicComments: toMagicComments(directives),
    warnings: warnings.map(toFinding),
  });
}

function resolveRoute(request: ManageRequest, { files }: ManageDeps): ManageReply {
  const path = option(request, "path");
  if (path === null) {
    throw new ManageError(400, "VALIDATION_ERROR", "path is required");
  }
  const { subdomain, execId } = deployment(request);
  const { script, triedDirectories } = resolveScript(files.root, {
    subdomain,
    execId,
    path: (path.startsWith("/") ? path : `/${path}`).split("?", 1)[0] ?? "/",
    withExtension: flag(request, "withExtension", true),
  });
  return json({
    success: true,
    matched: script !== null,
    path,
    script: script?.name ?? null,
    name: script?.name ?? null,
    type: script?.kind ?? null,
    parameters: script === null ? {} : { ...script.parameters },
    shadowed: script?.shadowed ?? null,
    triedDirectories,
  });
}

async function logsList(_: ManageRequest, { logs }: ManageDeps): Promise<ManageReply> {
  const files = await listLogs(logs);
  return json({ success: true, logs: files, files, count: files.length });
}

async function logsRead(request: ManageRequest, { logs }: ManageDeps): Promise<ManageReply> {
  const count = integer(request, "lines", 100, 1, 10_000);
  const tail = flag(request, "tail", true);
  const search = option(request, "search");
  const executionId = option(request, "executionId");
  const file = option(request, "file");
  let names: string[];
  let keep = (line: string): boolean => search === null || line.includes(search);
  if (executionId !== null) {
    if (!EXECUTION_ID.test(executionId)) {
      throw new ManageError(400, "VALIDATION_ERROR", "executionId is not valid");
    }
    // Lines are ours, made by JSON.stringify: the member looks the same in every one of them.
    const member = `"executionId":${JSON.stringify(executionId)}`;
    const matches = keep;
    keep = (line) => line.includes(member) && matches(line);
    names = await oldestFirst(logs, "scripts");
  } else {
    names = [await existingLog(logs, file)];
  }
  const lines = await pickLines(logs, names, keep, count, tail);
  return json({
    success: true,
    file: file ?? names.at(-1) ?? null,
    executionId,
    lines,
    count: lines.length,
  });
}

async function logsSearch(request: ManageRequest, { logs }: ManageDeps): Promise<ManageReply> {
  const query = option(request, "query");
  const regex = option(request, "regex");
  if (query === null && regex === null) {
    throw new ManageError(400, "VALIDATION_ERROR", "query or regex is required");
  }
  if (regex !== null && regex.length > MAX_REGEX) {
    throw new ManageError(400, "VALIDATION_ERROR", `regex may have ${MAX_REGEX} characters`);
  }
  let expression: RegExp | null = null;
  try {
    expression = regex === null ? null : new RegExp(regex);
  } catch {
    throw new ManageError(400, "VALIDATION_ERROR", "regex is not a regular expression");
  }
  const file = option(request, "file");
  const names =
    file !== null
      ? [await existingLog(logs, file)]
      : [...(await oldestFirst(logs, "scripts")), ...(await oldestFirst(logs, "access/access"))];
  const limit = integer(request, "limit", 100, 1, MAX_HITS);
  // A pattern that never comes to an end blocks this process only; its parent then replaces it.
  const { hits, truncated } = await searchLogs(
    logs,
    names,
    (line) =>
      (query === null || line.includes(query)) && (expression === null || expression.test(line)),
    limit,
  );
  return json({ success: true, results: hits, matches: hits, count: hits.length, truncated });
}

async function logsStream(request: ManageRequest, { logs }: ManageDeps): Promise<ManageReply> {
  const file = await existingLog(logs, option(request, "file"));
  return { kind: "stream", file, follow: flag(request, "follow", true) };
}

async function monitorScripts(request: ManageRequest, { logs }: ManageDeps): Promise<ManageReply> {
  const sort = option(request, "sort") ?? "lastActivity";
  if (!(SORTS as readonly string[]).includes(sort)) {
    throw new ManageError(400, "VALIDATION_ERROR", `sort must be one of ${SORTS.join(", ")}`);
  }
  const limit = integer(request, "limit", 100, 1, 500);
  const names = (await oldestFirst(logs, "access/access")).slice(-4);
  const scripts = await countScripts(logs, names, sort as Sort, limit);
  return json({ success: true, scripts, count: scripts.length });
}

/** A log's files, the put-aside ones first, in the order of their ends. */
async function oldestFirst(logs: string, stem: string): Promise<string[]> {
  const names = (await listLogs(logs)).map((file) => file.name);
  return names
    .filter((name) => name === `${stem}.log` || name.startsWith(`${stem}.`))
    .sort((a, b) => rank(a) - rank(b));
}

function rank(name: string): number {
  return Number(/\.(\d+)\.log$/.exec(name)?.[1] ?? Number.POSITIVE_INFINITY);
}

async function existingLog(logs: string, name: string | null): Promise<string> {
  if (name === null) {
    throw new ManageError(400, "VALIDATION_ERROR", "file is required");
  }
  if (!isLogName(name)) {
    throw new ManageError(400, "VALIDATION_ERROR", "file is not the name of a log");
  }
  if (!(await listLogs(logs)).some((file) => file.name === name)) {
    throw new ManageError(404, "NOT_FOUND", "There is no such log file");
  }
  return name;
}

function check(text: string, path: string, files: ScriptFiles, strict: boolean): Validation {
  switch (kindOf(path)) {
    case "js":
      return validateScript(text, false, files.root, path, strict);
    case "ts":
      return validateScript(text, true, files.root, path, strict);
    case "json":
      return validateJson(text);
    case "other":
      return { valid: true, errors: [], warnings: [], magicComments: {} };
  }
}

function codeOf(request: ManageRequest): string {
  const text = request.body["code"] ?? request.body["content"];
  if (typeof text !== "string") {
    throw new ManageError(400, "VALIDATION_ERROR", "code or content must be a string");
  }
  return text;
}

function scriptPath(request: ManageRequest): string {
  const { subdomain, execId } = deployment(request);
  return decodeScriptPath(option(request, "path"), subdomain, execId);
}

/** Query, then body, then host name, then the defaults. */
function deployment(request: ManageRequest): { subdomain: string; execId: string } {
  const subdomain = option(request, "subdomain") ?? request.subdomain ?? DEFAULT_SUBDOMAIN;
  const execId =
    option(request, "execId") ?? option(request, "exec_id") ?? request.execId ?? DEFAULT_EXEC_ID;
  if (!isSubdomain(subdomain) || !isExecId(execId)) {
    throw new ManageError(400, "VALIDATION_ERROR", "subdomain or execId is not valid");
  }
  return { subdomain, execId };
}

/** A parameter from the query, else from the body; a number or flag there is given as text. */
function option(request: ManageRequest, name: string): string | null {
  const value =
    request.query.get(name) ?? (Object.hasOwn(request.body, name) ? request.body[name] : null);
  if (value === null || value === undefined || value === "") {
    return null;
  }
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") {
    return String(value);
  }
  throw new ManageError(400, "VALIDATION_ERROR", `${name} must be a string`);
}

function flag(request: ManageRequest, name: string, otherwise: boolean): boolean {
  const value = option(request, name);
  if (value === null) {
    return otherwise;
  }
  if (value !== "true" && value !== "false") {
    throw new ManageError(400, "VALIDATION_ERROR", `${name} must be true or false`);
  }
  return value === "true";
}

function integer(
  request: ManageRequest,
  name: string,
  otherwise: number,
  min: number,
  max: number,
): number {
  const value = option(request, name);
  if (value === null) {
    return otherwise;
  }
  const number = /^\d{1,9}$/.test(value) ? Number(value) : Number.NaN;
  if (!(number >= min && number <= max)) {
    throw new ManageError(
      400,
      "VALIDATION_ERROR",
      `${name} must be a whole number from ${min} to ${max}`,
    );
  }
  return number;
}
