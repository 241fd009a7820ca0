/** Directives of a script: comment lines `// @name value` before its first line of code (exec-host.md 3). */
export interface Directives {
  readonly rawBody: boolean;
  readonly mode: "worker" | "serverless";
  readonly enabled: boolean;
  /** ms; 0 = no deadline; null = not given. */
  readonly timeoutMs: number | null;
  readonly awaitPromises: boolean;
  /** Calls that may run at the same time; `Infinity` = no cap. Holds in serverless mode only. */
  readonly concurrent: number;
  readonly tokens: readonly string[];
  /** `none` is the default (decision 45). */
  readonly cors: "none" | "reflective" | "*" | { readonly origin: string };
  readonly corsCredentials: boolean;
  readonly corsMethods: string | null;
  readonly corsHeaders: string | null;
  readonly corsMaxAge: number | null;
  readonly logLevel: "none" | "minimal" | "standard" | "full" | "debug";
  readonly description: string | null;
  readonly label: string | null;
  readonly tags: readonly string[];
}

/** Something wrong with a directive: it keeps its default, and the author is told. */
export interface DirectiveWarning {
  readonly line: number;
  readonly directive: string;
  readonly message: string;
}

/** The directives of a file, and those that made no sense. */
export interface ParsedDirectives {
  readonly directives: Directives;
  readonly warnings: readonly DirectiveWarning[];
}

/** Later lines are not looked at, comment or not. */
const WINDOW_LINES = 100;
const MAX_TIMEOUT_MS = 86_400_000;

const DEFAULTS: Directives = {
  rawBody: false,
  mode: "worker",
  enabled: true,
  timeoutMs: null,
  awaitPromises: true,
  concurrent: Infinity,
  tokens: [],
  cors: "none",
  corsCredentials: false,
  corsMethods: null,
  corsHeaders: null,
  corsMaxAge: null,
  logLevel: "standard",
  description: null,
  label: null,
  tags: [],
};

/** What a value reader gives: the fields it sets, or why the value is not taken. */
type Reading = Partial<{ -readonly [K in keyof Directives]: Directives[K] }> | string;
type Reader = (value: string, so: Directives) => Reading;

const READERS: ReadonlyMap<string, Reader> = new Map<string, Reader>([
  ["rawBody", (value) => readFlag(value, (rawBody) => ({ rawBody }), true)],
  ["mode", (value) => readMode(value)],
  ["enabled", (value) => readFlag(value, (enabled) => ({ enabled }))],
  ["timeout", (value) => readTimeout(value)],
  ["await-promises", (value) => readFlag(value, (awaitPromises) => ({ awaitPromises }))],
  ["concurrent", (value) => readConcurrent(value)],
  ["cors", (value) => readCors(value)],
  ["cors-credentials", (value) => readFlag(value, (corsCredentials) => ({ corsCredentials }))],
  ["cors-methods", (value) => readList(value, (corsMethods) => ({ corsMethods }))],
  ["cors-headers", (value) => readList(value, (corsHeaders) => ({ corsHeaders }))],
  ["cors-max-age", (value) => readMaxAge(value)],
  ["log-level", (value) => readLogLevel(value)],
  ["description", (value) => ({ description: value })],
  ["label", (value) => ({ label: value })],
  ["tags", (value) => ({ tags: splitList(value) })],
]);

/** Known to the vendor's host but without effect here: named in a warning, so that nobody waits for them. */
const WITHOUT_EFFECT: ReadonlySet<string> = new Set([
  "log-request-body",
  "log-response-body",
  "log-max-body-size",
  "log-exclude-headers",
  "log-retention-days",
  "debug",
  "debug-instrument",
  "websocket",
  "websocket-pre",
  "schedule",
  "schedule-timeout",
  "ai",
  "ai-model",
  "ai-temperature",
  "ai-max-tokens",
  "ai-key",
  "remote-messages",
  "remote-call",
  "remote-eval",
  "remote-token",
]);

const LINE = /^\/\/\s*@([A-Za-z][A-Za-z0-9-]*)(?:[ \t]+(.*))?$/;

/** Reads the directives of a script's text. Never throws: a bad value keeps the default and gives a warning. */
export function parseDirectives(source: string): ParsedDirectives {
  let directives: Directives = DEFAULTS;
  const warnings: DirectiveWarning[] = [];
  let inBlock = false;
  let line = 0;
  for (const raw of leadingLines(source)) {
    line += 1;
    const text = raw.trim();
    if (inBlock) {
      inBlock = !text.includes("*/");
      continue;
    }
    if (text === "" || (line === 1 && text.startsWith("#!"))) {
      continue;
    }
    if (text.startsWith("/*")) {
      const close = text.indexOf("*/", 2);
      if (close !== -1 && text.slice(close + 2).trim() !== "") {
        break; // code behind the comment
      }
      inBlock = close === -1;
      continue;
    }
    if (!text.startsWith("//")) {
      break;
    }
    const found = LINE.exec(text);
    const name = found?.[1];
    if (name === undefined) {
      continue;
    }
    const value = (found?.[2] ?? "").trim();
    const warn = (message: string): void => {
      warnings.push({ line, directive: name, message });
    };
    if (name === "token") {
      directives = readToken(directives, value, warn);
      continue;
    }
    const reader = READERS.get(name);
    if (reader === undefined) {
      if (WITHOUT_EFFECT.has(name)) {
        warn("has no effect on this host");
      }
      continue;
    }
    const reading = reader(value, directives);
    if (typeof reading === "string") {
      warn(reading);
    } else {
      directives = { ...directives, ...reading };
    }
  }
  return { directives, warnings };
}

function* leadingLines(source: string): Generator<string> {
  let from = source.startsWith("\uFEFF") ? 1 : 0;
  for (let count = 0; count < WINDOW_LINES && from <= source.length; count++) {
    const end = source.indexOf("\n", from);
    yield source.slice(from, end === -1 ? source.length : end);
    if (end === -1) {
      return;
    }
    from = end + 1;
  }
}

function readFlag(value: string, make: (flag: boolean) => Reading, bare?: boolean): Reading {
  if (value === "true") {
    return make(true);
  }
  if (value === "false") {
    return make(false);
  }
  if (value === "" && bare !== undefined) {
    return make(bare);
  }
  return "must be true or false";
}

function readMode(value: string): Reading {
  return value === "worker" || value === "serverless"
    ? { mode: value }
    : "must be worker or serverless";
}

function readTimeout(value: string): Reading {
  if (value === "unlimited") {
    return { timeoutMs: 0 };
  }
  const ms = readInteger(value, 0, MAX_TIMEOUT_MS);
  return ms === null ? `must be 0 to ${MAX_TIMEOUT_MS} ms, or unlimited` : { timeoutMs: ms };
}

function readConcurrent(value: string): Reading {
  if (value === "true") {
    return { concurrent: Infinity };
  }
  if (value === "false") {
    return { concurrent: 1 };
  }
  const cap = readInteger(value, 1, 1_000_000);
  return cap === null ? "must be a positive integer, true or false" : { concurrent: cap };
}

function readCors(value: string): Reading {
  if (value === "none" || value === "reflective" || value === "*") {
    return { cors: value };
  }
  return /^[a-z][a-z0-9+.-]*:\/\/[^\s/?#@,]+$/i.test(value)
    ? { cors: { origin: value } }
    : "must be reflective, *, none or an origin such as https://app.example";
}

function readList(value: string, make: (list: string) => Reading): Reading {
  const items = splitList(value);
  const fits =
    items.length > 0 && items.every((item) => /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(item));
  return fits ? make(items.join(", ")) : "must be a comma-separated list of names";
}

function readMaxAge(value: string): Reading {
  const seconds = readInteger(value, 0, 86_400 * 365);
  return seconds === null ? "must be a number of seconds" : { corsMaxAge: seconds };
}

function readLogLevel(value: string): Reading {
  const levels = ["none", "minimal", "standard", "full", "debug"] as const;
  const level = levels.find((name) => name === value);
  return level === undefined ? `must be one of ${levels.join(", ")}` : { logLevel: level };
}

/**
 * One word; what follows it on the line is ignored with a warning. A token line without a word closes the script
 * to everybody: the author meant a gate, and an open script would be the worst reading of a slip.
 */
function readToken(so: Directives, value: string, warn: (message: string) => void): Directives {
  const [word, ...rest] = value.split(/\s+/);
  if (word === undefined || word === "") {
    warn("needs a value; no caller is let in by this line");
    return { ...so, tokens: [...so.tokens, ""] };
  }
  if (rest.length > 0) {
    warn("takes one word; the rest of the line is ignored");
  }
  return { ...so, tokens: [...so.tokens, word] };
}

function readInteger(value: string, min: number, max: number): number | null {
  const number = /^[0-9]{1,12}$/.test(value) ? Number(value) : Number.NaN;
  return number >= min && number <= max ? number : null;
}

function splitList(value: string): string[] {
  return value
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "");
}
