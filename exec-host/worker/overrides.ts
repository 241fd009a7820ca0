import { isHopByHop } from "../../policy/kernel/fields.ts";
import { isForwardablePath, splitTarget } from "../../policy/kernel/target.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";

/** The overrides of a helper call, read once and checked (exec-host.md 5.5). */
export interface Overrides {
  readonly method: string | null;
  /** latin1 text: the bytes of the target. */
  readonly target: string | null;
  readonly host: string | null;
  readonly port: number | null;
  /** By lower-case name, in the order given; null deletes. */
  readonly headers: ReadonlyMap<string, HeaderOverride>;
  /** undefined = not given, null = no body. */
  readonly body: unknown;
  readonly signal: AbortSignal | null;
  readonly timeoutMs: number | null;
  readonly onUpstreamError: ((error: HookUpstreamError) => unknown) | null;
}

export interface HeaderOverride {
  /** As the author spelled it. */
  readonly name: string;
  readonly values: readonly string[] | null;
}

export const NO_OVERRIDES: Overrides = {
  method: null,
  target: null,
  host: null,
  port: null,
  headers: new Map(),
  body: undefined,
  signal: null,
  timeoutMs: null,
  onUpstreamError: null,
};

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const MAX_TIMEOUT_MS = 86_400_000;
const MEMBERS = [
  "method",
  "pathAndQuery",
  "host",
  "port",
  "headers",
  "body",
  "signal",
  "timeoutMs",
  "onUpstreamError",
] as const;

/**
 * Reads each member once, as an own property, before any of them is judged: what a getter or a proxy says later
 * changes nothing. Inherited members do not exist.
 *
 * @throws HookUpstreamError `invalid-override`.
 */
export function readOverrides(given: unknown): Overrides {
  if (given === undefined || given === null) {
    return NO_OVERRIDES;
  }
  const read = readOwn(given, MEMBERS);
  const headers = snapshotHeaders(read.headers);
  return {
    method: checkMethod(read.method),
    target: checkPathAndQuery(read.pathAndQuery),
    host: checkHost(read.host),
    port: checkPort(read.port),
    headers: checkHeaders(headers),
    body: read.body,
    signal: checkSignal(read.signal),
    timeoutMs: checkTimeout(read.timeoutMs),
    onUpstreamError: checkListener(read.onUpstreamError),
  };
}

/** The named own properties of an object, each read exactly once; absent ones are undefined. */
export function readOwn<const N extends readonly string[]>(
  given: unknown,
  names: N,
): { [K in N[number]]: unknown } {
  if ((typeof given !== "object" && typeof given !== "function") || given === null) {
    throw invalid("the options must be an object");
  }
  const read: Record<string, unknown> = {};
  for (const name of names) {
    read[name] = Object.hasOwn(given, name) ? (given as Record<string, unknown>)[name] : undefined;
  }
  return read as { [K in N[number]]: unknown };
}

function checkMethod(value: unknown): string | null {
  if (value === undefined) {
    return null;
  }
  if (typeof value !== "string" || !TOKEN.test(value)) {
    throw invalid("method must be a token");
  }
  return value;
}

function checkPathAndQuery(value: unknown): string | null {
  if (value === undefined) {
    return null;
  }
  // `\s` covers the blanks above ASCII too.
  if (typeof value !== "string" || /[\s\0-\x1f\x7f#\\]/.test(value)) {
    throw invalid("pathAndQuery has a character that cannot be sent as it is");
  }
  if (!isForwardablePath(splitTarget(value).path)) {
    throw invalid("pathAndQuery must start with one / and have no dot segments");
  }
  return /[^\0-\x7f]/.test(value) ? Buffer.from(value, "utf8").toString("latin1") : value;
}

const LABEL = /^[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$/;
const OCTET = /^(?:0|[1-9][0-9]{0,2})$/;

/**
 * An IPv4 address in its one plain spelling, or a DNS name. A name whose last label could be read as a number is
 * refused: resolvers take `0x7f.1`, `017700000001` or `127.1` for addresses.
 */
function checkHost(value: unknown): string | null {
  if (value === undefined) {
    return null;
  }
  if (typeof value !== "string" || value.length === 0 || value.length > 253) {
    throw invalid("host must be an IPv4 address or a DNS name");
  }
  const labels = value.split(".");
  if (labels.every((label) => /^[0-9]+$/.test(label))) {
    const fits =
      labels.length === 4 && labels.every((label) => OCTET.test(label) && Number(label) <= 255);
    if (!fits) {
      throw invalid("host is not an IPv4 address in plain decimal form");
    }
    return value;
  }
  const last = labels.at(-1) ?? "";
  if (!labels.every((label) => LABEL.test(label)) || /^(?:[0-9]+|0x[0-9a-f]*)$/i.test(last)) {
    throw invalid("host must be an IPv4 address or a DNS name");
  }
  return value;
}

function checkPort(value: unknown): number | null {
  if (value === undefined) {
    return null;
  }
  if (typeof value !== "number" || !Number.isInteger(value) || value < 1 || value > 65_535) {
    throw invalid("port must be an integer from 1 to 65535");
  }
  return value;
}

function checkTimeout(value: unknown): number | null {
  if (value === undefined) {
    return null;
  }
  if (typeof value !== "number" || !(value >= 1 && value <= MAX_TIMEOUT_MS)) {
    throw invalid(`timeoutMs must be a number from 1 to ${MAX_TIMEOUT_MS}`);
  }
  return value;
}

function checkSignal(value: unknown): AbortSignal | null {
  if (value === undefined) {
    return null;
  }
  if (!(value instanceof AbortSignal)) {
    throw invalid("signal must be an AbortSignal");
  }
  return value;
}

function checkListener(value: unknown): ((error: HookUpstreamError) => unknown) | null {
  if (value === undefined) {
    return null;
  }
  if (typeof value !== "function") {
    throw invalid("onUpstreamError must be a function");
  }
  return value as (error: HookUpstreamError) => unknown;
}

type RawHeader = readonly [name: string, value: unknown];

/** The entries of a header record as they are now; arrays are copied, so that a later change cannot reach us. */
export function snapshotHeaders(given: unknown): RawHeader[] {
  if (given === undefined) {
    return [];
  }
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw invalid("headers must be an object of names and values");
  }
  if (isIterable(given)) {
    return readIterable(given);
  }
  return Object.keys(given).map((name) => {
    const value = (given as Record<string, unknown>)[name];
    return [name, Array.isArray(value) ? [...(value as unknown[])] : value] as const;
  });
}

/** A `Headers` object (or a Map): its entries, with several values of one name brought together. */
function readIterable(given: Iterable<unknown>): RawHeader[] {
  const values = new Map<string, unknown>();
  for (const entry of given) {
    if (!Array.isArray(entry) || typeof entry[0] !== "string") {
      throw invalid("headers must be an object of names and values");
    }
    const [name, value] = entry as [string, unknown];
    const earlier = values.get(name);
    values.set(name, earlier === undefined ? value : [earlier, value].flat());
  }
  return [...values];
}

/** @throws HookUpstreamError `invalid-override` for a name or value that cannot be sent. */
export function checkHeaders(entries: readonly RawHeader[]): ReadonlyMap<string, HeaderOverride> {
  const headers = new Map<string, HeaderOverride>();
  for (const [name, value] of entries) {
    const lower = name.toLowerCase();
    if (!TOKEN.test(name)) {
      throw invalid("a header name is not a token");
    }
    if (headers.has(lower)) {
      throw invalid(`header ${lower} is given twice`);
    }
    if (value === undefined) {
      throw invalid(`header ${lower} has no value; null deletes`);
    }
    if (lower === "content-length") {
      continue; // the length follows from the body that is sent
    }
    if (value !== null && isHopByHop(lower)) {
      throw invalid(`header ${lower} belongs to the connection`);
    }
    headers.set(lower, { name, values: checkValues(lower, value) });
  }
  return headers;
}

function checkValues(lower: string, value: unknown): readonly string[] | null {
  if (value === null) {
    return null;
  }
  const values: unknown[] = Array.isArray(value) ? value : [value];
  for (const one of values) {
    if (typeof one !== "string" || !isSendableValue(one)) {
      throw invalid(`header ${lower} has a value that cannot be sent`);
    }
  }
  if (lower === "host" && values.length !== 1) {
    throw invalid("host must have exactly one value");
  }
  return values as string[];
}

/** Bytes only, and no controls but the tab: nothing that could end the line or the head. */
export function isSendableValue(value: string): boolean {
  return !/[^\t\x20-\x7e\x80-\xff]/.test(value);
}

function isIterable(value: object): value is Iterable<unknown> {
  return typeof (value as { [Symbol.iterator]?: unknown })[Symbol.iterator] === "function";
}

function invalid(message: string): HookUpstreamError {
  return new HookUpstreamError("invalid-override", message);
}
