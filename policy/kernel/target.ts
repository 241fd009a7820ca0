/**
 * Request targets as bytes (latin1 text, one character per byte). Nothing here rebuilds a target from a parsed form:
 * what is forwarded is what the client sent, apart from the query pairs that the edge sets.
 */

/** A target cut at its first `?`; `query` is without it, and null when there is none. */
export interface TargetParts {
  readonly path: string;
  readonly query: string | null;
}

/** Path and query at the first question mark, bytes unchanged. */
export function splitTarget(target: string): TargetParts {
  const at = target.indexOf("?");
  return at < 0
    ? { path: target, query: null }
    : { path: target.slice(0, at), query: target.slice(at + 1) };
}

/** Path and query as one target; a null query leaves the question mark out. */
export function joinTarget(path: string, query: string | null): string {
  return query === null ? path : `${path}?${query}`;
}

/** A request target as read, or why it cannot be. */
export type TargetReading =
  /** `target` starts with `/`; `authority` is that of an absolute form and must agree with Host. */
  | { readonly kind: "origin"; readonly target: string; readonly authority: string | null }
  | { readonly kind: "asterisk" }
  | { readonly kind: "refused" };

const VISIBLE_ASCII = /^[\x21-\x7e]+$/;
const ABSOLUTE = /^https?:\/\/([^/?#@\\]+)(.*)$/i;

/**
 * Reads a request target (decision 2, RFC 9112 3.2): origin form, absolute form with its authority split off, `*` for
 * OPTIONS. Bytes above 0x7E, blanks and controls are refused on every protocol alike.
 */
export function readTarget(method: string, target: string): TargetReading {
  if (method === "CONNECT" || !VISIBLE_ASCII.test(target)) {
    return { kind: "refused" };
  }
  if (target.charCodeAt(0) === 47) {
    return { kind: "origin", target, authority: null };
  }
  if (target === "*") {
    return method === "OPTIONS" ? { kind: "asterisk" } : { kind: "refused" };
  }
  const match = ABSOLUTE.exec(target);
  if (match === null) {
    return { kind: "refused" };
  }
  const rest = match[2]!;
  if (rest !== "" && rest.charCodeAt(0) !== 47 && rest.charCodeAt(0) !== 63) {
    return { kind: "refused" };
  }
  return { kind: "origin", target: rest.startsWith("/") ? rest : `/${rest}`, authority: match[1]! };
}

/** True when two authorities name the same host and port: case, one final dot and a default port aside. */
export function sameAuthority(one: string, other: string): boolean {
  return plainAuthority(one) === plainAuthority(other);
}

function plainAuthority(authority: string): string {
  const lower = authority.toLowerCase().replace(/:(?:80|443)?$/, "");
  const match = /^(.*?)\.?(:[0-9]+)?$/.exec(lower);
  return match === null ? lower : `${match[1]}${match[2] ?? ""}`;
}

const MAX_DECODINGS = 4;

/**
 * The readings of a path that a rule is tested against (decision 1): the received bytes first, then the canonical
 * forms, without repeats. Every depth of decoding is a reading: a service that decodes less often than the deepest
 * one sees `/admin/%2e%2e` below `/admin`, whatever a further decoding would make of it. A raw `#` also ends the
 * path in a reading of its own, because services cut there.
 *
 * Work is bounded by a small multiple of the path's length.
 */
export function canonicalForms(path: string): string[] {
  if (!/[%\\#]|\/[/.]/.test(path) || path.charCodeAt(0) !== 47) {
    return [path];
  }
  const forms = [path];
  addForms(forms, path);
  const fragment = path.indexOf("#");
  if (fragment > 0) {
    const cut = path.slice(0, fragment);
    addForm(forms, cut);
    addForms(forms, cut);
  }
  return forms;
}

function addForms(forms: string[], path: string): void {
  let decoded = path;
  for (let depth = 0; ; depth++) {
    const separated = decoded.replaceAll("\\", "/");
    addForm(forms, collapseSlashes(resolveDots(separated)));
    addForm(forms, resolveDots(collapseSlashes(separated)));
    const next = depth === MAX_DECODINGS ? decoded : decodeEscapes(decoded);
    if (next === decoded) {
      return;
    }
    decoded = next;
  }
}

function addForm(forms: string[], form: string): void {
  if (!forms.includes(form)) {
    forms.push(form);
  }
}

function decodeEscapes(text: string): string {
  return text.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
}

function collapseSlashes(path: string): string {
  return path.replace(/\/{2,}/g, "/");
}

/** Removes `.` and `..` segments (RFC 3986 5.2.4); `..` at the root stays at the root. */
function resolveDots(path: string): string {
  const kept: string[] = [];
  const segments = path.split("/");
  const last = segments.length - 1;
  for (let i = 1; i <= last; i++) {
    const segment = segments[i]!;
    if (segment === "..") {
      kept.pop();
    } else if (segment !== ".") {
      kept.push(segment);
      continue;
    }
    if (i === last) {
      kept.push("");
    }
  }
  return `/${kept.join("/")}`;
}

/**
 * False for a path that a service could resolve to another one, or that is no path: a whole segment `.` or `..` in
 * any spelling, a leading `//`, anything not starting with `/` (exec-host.md 5.3).
 */
export function isForwardablePath(path: string): boolean {
  if (path.charCodeAt(0) !== 47 || path.charCodeAt(1) === 47) {
    return false;
  }
  return !/\/(?:\.|%2e){1,2}(?:\/|$)/i.test(path);
}

/**
 * A path as text made sendable: `\`, `#`, `?`, blanks and controls become `%XX`, letters above ASCII their UTF-8
 * bytes, everything else stays (exec-host.md 5.3). The result is latin1 text.
 */
export function encodeForwardPath(path: string): string {
  return toUtf8Bytes(path.replace(/[\x00-\x20\x7f\\#?]/g, toEscape));
}

/** A query made sendable: `#`, blanks and controls become `%XX`. Bytes above ASCII stay as they are. */
export function encodeForwardQuery(query: string): string {
  const encoded = query.replace(/[\x00-\x20\x7f#]/g, toEscape);
  return /[^\x00-\xff]/.test(encoded) ? toUtf8Bytes(encoded) : encoded;
}

function toEscape(char: string): string {
  return `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;
}

function toUtf8Bytes(text: string): string {
  return /[^\x00-\x7f]/.test(text) ? Buffer.from(text, "utf8").toString("latin1") : text;
}

/**
 * Sets a query key to one value: every pair whose decoded key equals `key` goes, the other pairs stay byte for byte in
 * order, `key=value` comes last (edge-proxy.md 1.3). Key and value must be plain query text already.
 */
export function setQueryPair(query: string | null, key: string, value: string): string {
  const rest = removeQueryKey(query, key);
  return rest === null || rest === "" ? `${key}=${value}` : `${rest}&${key}=${value}`;
}

/** Removes every pair whose decoded key equals `key`; null when no pair is left. */
export function removeQueryKey(query: string | null, key: string): string | null {
  if (query === null) {
    return null;
  }
  if (!query.includes(key) && !query.includes("%") && !query.includes("+")) {
    return query; // no spelling of the key is in it
  }
  const pairs = query.split("&");
  const kept = pairs.filter((pair) => !isKey(pair, key));
  if (kept.length === pairs.length) {
    return query;
  }
  return kept.length === 0 ? null : kept.join("&");
}

/** All values of a key, form-decoded once (`+` is a blank, `%XX` a byte; broken escapes stay), as latin1 text. */
export function queryValues(query: string | null, key: string): string[] {
  if (query === null) {
    return [];
  }
  const values: string[] = [];
  for (const pair of query.split("&")) {
    if (isKey(pair, key)) {
      const at = pair.indexOf("=");
      values.push(at < 0 ? "" : decodeForm(pair.slice(at + 1)));
    }
  }
  return values;
}

function isKey(pair: string, key: string): boolean {
  const at = pair.indexOf("=");
  const received = at < 0 ? pair : pair.slice(0, at);
  if (received === key) {
    return true;
  }
  return (received.includes("%") || received.includes("+")) && decodeForm(received) === key;
}

/** One form decoding: `+` is a blank, `%XX` a byte; broken escapes stay. Latin1 text in and out. */
export function decodeForm(text: string): string {
  return decodeEscapes(text.replaceAll("+", " "));
}
