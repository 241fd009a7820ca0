import type { FieldLines } from "./exchange.ts";

/**
 * Fields of one connection (RFC 9110 7.6.1 and its predecessors), and those that frame a message: every message we
 * send is framed by us, so what the peer said about framing never travels. `expect` is answered by the edge itself.
 */
const NEVER_FORWARDED: ReadonlySet<string> = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "http2-settings",
  "content-length",
  "expect",
]);

/** Bit n is set when a name of n characters is in the set above: most names are let through by their length alone. */
const LENGTHS = [...NEVER_FORWARDED].reduce((bits, name) => bits | (1 << name.length), 0);

/** What `Connection` cannot take away: where the message goes. Framing is ours in any case. */
const HOST = "host";

/** Fields that mean something only in front of the body (RFC 9110 6.5.1). */
const NOT_IN_TRAILERS: ReadonlySet<string> = new Set([
  HOST,
  "age",
  "authorization",
  "cache-control",
  "content-encoding",
  "content-range",
  "content-type",
  "cookie",
  "date",
  "expires",
  "if-match",
  "if-modified-since",
  "if-none-match",
  "if-range",
  "if-unmodified-since",
  "location",
  "max-forwards",
  "pragma",
  "range",
  "retry-after",
  "set-cookie",
  "vary",
  "www-authenticate",
]);

const RESERVED_PREFIXES = ["x-hoody-hook-", "x-hoody-identity-", "x-forwarded-"];
const RESERVED_NAMES: ReadonlySet<string> = new Set([
  "x-hoody-edge-auth",
  "forwarded",
  "x-real-ip",
]);

/**
 * True for a name that only we may set (decision 24), in any case and with `_` for `-`: services behind us may read
 * both spellings as one.
 */
export function isReserved(name: string): boolean {
  const first = name.charCodeAt(0) | 32;
  if (first !== 120 && first !== 102) {
    return false; // neither "x" nor "f"
  }
  const plain = name.toLowerCase().replaceAll("_", "-");
  return RESERVED_NAMES.has(plain) || RESERVED_PREFIXES.some((prefix) => plain.startsWith(prefix));
}

/** True for a field of one connection or of a message's framing; `lower` is the lower-case name. */
export function isHopByHop(lower: string): boolean {
  return NEVER_FORWARDED.has(lower);
}

/**
 * The fields of a received request that may travel: without hop-by-hop and framing fields, without what `Connection`
 * names, without reserved names. Order, spelling and repeats stay. Our own fields are added after this, so that no
 * peer can name them away.
 */
export function sweepRequest(fields: FieldLines): string[] {
  return sweep(fields, true);
}

/** The fields of an upstream's answer that may travel; scripts set `x-hoody-hook-audit` themselves, so reserved names stay. */
export function sweepResponse(fields: FieldLines): string[] {
  return sweep(fields, false);
}

/** Only hop-by-hop, framing and nominated fields go: for a hop inside the edge, where reserved fields are our own. */
export function sweepHopByHop(fields: FieldLines): string[] {
  return sweep(fields, false);
}

/** Trailers that may travel, in either direction. */
export function sweepTrailers(fields: FieldLines): FieldLines {
  if (fields.length === 0) {
    return fields;
  }
  const swept = sweep(fields, true);
  const kept: string[] = [];
  for (let i = 0; i < swept.length; i += 2) {
    if (!NOT_IN_TRAILERS.has(swept[i]!.toLowerCase())) {
      kept.push(swept[i]!, swept[i + 1]!);
    }
  }
  return kept;
}

function sweep(fields: FieldLines, reservedToo: boolean): string[] {
  const nominated = nominatedNames(fields);
  const kept: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!;
    if (
      name.length < 32 &&
      (LENGTHS & (1 << name.length)) !== 0 &&
      NEVER_FORWARDED.has(name.toLowerCase())
    ) {
      continue;
    }
    if (nominated !== null && nominated.has(name.toLowerCase())) {
      continue;
    }
    if (reservedToo && isReserved(name)) {
      continue;
    }
    kept.push(name, fields[i + 1]!);
  }
  return kept;
}

/** The lower-case names in all `Connection` fields; null when there is nothing but `close`, `keep-alive`, `upgrade`. */
function nominatedNames(fields: FieldLines): Set<string> | null {
  let names: Set<string> | null = null;
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!;
    if (name.length !== 10 || name.toLowerCase() !== "connection") {
      continue;
    }
    const value = fields[i + 1]!.toLowerCase();
    if (value === "keep-alive" || value === "close" || value === "upgrade") {
      continue;
    }
    for (const part of value.split(",")) {
      const option = part.trim();
      if (option !== "" && option !== HOST && !NEVER_FORWARDED.has(option)) {
        names ??= new Set();
        names.add(option);
      }
    }
  }
  return names;
}

/** First value of a field, or undefined. `lower` is the lower-case name. */
export function fieldValue(fields: FieldLines, lower: string): string | undefined {
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!;
    if (name.length === lower.length && (name === lower || name.toLowerCase() === lower)) {
      return fields[i + 1]!;
    }
  }
  return undefined;
}

/** All values of a field in order. `lower` is the lower-case name. */
export function fieldValues(fields: FieldLines, lower: string): string[] {
  const values: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!;
    if (name.length === lower.length && (name === lower || name.toLowerCase() === lower)) {
      values.push(fields[i + 1]!);
    }
  }
  return values;
}
