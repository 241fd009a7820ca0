import { isIPv6 } from "node:net";
import { serviceByName, serviceBySpelling } from "../policy/documents/services.ts";

/** The names this edge answers to: hosts end in `.<node>.<domain>`. Both lower case, without a final dot. */
export interface HostSpace {
  readonly node: string;
  readonly domain: string;
}

/** Project and container of a canonical host, 24 hex characters each. */
interface Addressed {
  readonly project: string;
  readonly container: string;
}

/** A host that names something. Its inverse is `formatHost`. */
export type NamedHost =
  | (Addressed & { readonly kind: "service"; readonly service: string; readonly index: number })
  | (Addressed & {
      readonly kind: "exec";
      /** null: no label in front, or the word `default`. */
      readonly subdomain: string | null;
      /** null: none in the name; the exec host then takes its default. */
      readonly execId: string | null;
    })
  | (Addressed & {
      readonly kind: "port";
      readonly scheme: "http" | "https";
      readonly port: number;
    })
  | (Addressed & { readonly kind: "ssh" })
  | { readonly kind: "alias"; readonly name: string }
  | { readonly kind: "custom"; readonly host: string };

/** What a host means. `unknown` lies below our own names and serves nothing (404). */
export type HostRoute = NamedHost | { readonly kind: "unknown" };

/** The Host field is not valid (RFC 9110 7.2): 400. */
export type InvalidHost = { readonly kind: "invalid" };

const INVALID: InvalidHost = { kind: "invalid" };
const UNKNOWN: HostRoute = { kind: "unknown" };

/** Nothing outside visible ASCII; also keeps letters out whose lower case is an ASCII letter. */
const VISIBLE = /^[\x21-\x7e]+$/;
/** RFC 3986 3.2.2 reg-name, which covers IPv4 addresses as well. */
const REG_NAME = /^(?:[a-z0-9\-._~!$&'()*+,;=]|%[0-9a-f]{2})+$/;
const IP_FUTURE = /^v[0-9a-f]+\.[a-z0-9\-._~!$&'()*+,;=:]+$/;
const PORT = /^0*[0-9]{0,5}$/;
const CANONICAL = /^([0-9a-f]{24})-([0-9a-f]{24})(?:-(.+))?$/;
const ALIAS = /^[a-z0-9](?:[a-z0-9-]{1,59}[a-z0-9])$/;
const SUBDOMAIN = /^[a-z0-9]{1,63}$/;
const EXEC_ID = /^[a-z0-9]{1,64}$/;
const INDEX = /^(?:0|[1-9][0-9]{0,4})$/;
const PORT_NUMBER = /^[1-9][0-9]{0,4}$/;

/** RFC 1035 2.3.4. A longer label cannot be looked up, so no address has one (edge-proxy.md 1.1). */
const MAX_LABEL = 63;

/**
 * Reads a Host field or an `:authority` (edge-proxy.md 1.1 and 1.2): what it routes to, `unknown` when it is one of our
 * names that nothing answers to, `invalid` when the value is no `uri-host [":" port]`. Letter case, one final dot
 * and a port are taken off first, so that every equal spelling gives the same route (K02).
 */
export function parseHost(host: string, space: HostSpace): HostRoute | InvalidHost {
  const name = normalizeHost(host);
  if (name === null) {
    return INVALID;
  }
  const suffix = `.${space.node}.${space.domain}`;
  if (!name.endsWith(suffix)) {
    return name === suffix.slice(1) ? UNKNOWN : { kind: "custom", host: name };
  }
  const own = name.slice(0, -suffix.length);
  const dot = own.indexOf(".");
  if (dot === -1) {
    return own.length > MAX_LABEL ? UNKNOWN : parsePrimary(null, own);
  }
  const primary = own.slice(dot + 1);
  return primary.length > MAX_LABEL ? UNKNOWN : parsePrimary(own.slice(0, dot), primary);
}

/**
 * The name of a Host field: lower case, without port and one final dot; an address in brackets keeps them. null when the
 * value is not valid: empty, white space, user information, a bad port, bad escapes, bytes outside ASCII.
 */
export function normalizeHost(host: string): string | null {
  if (!VISIBLE.test(host)) {
    return null;
  }
  const text = host.toLowerCase();
  if (text.startsWith("[")) {
    const close = text.indexOf("]");
    const inner = text.slice(1, close);
    // A zone (`%eth0`) means something on this machine only; RFC 9110 has no room for it.
    const valid = close > 0 && ((isIPv6(inner) && !inner.includes("%")) || IP_FUTURE.test(inner));
    return valid && isPortPart(text.slice(close + 1)) ? text.slice(0, close + 1) : null;
  }
  const colon = text.indexOf(":");
  let name = text;
  if (colon !== -1) {
    if (!isPortPart(text.slice(colon))) {
      return null;
    }
    name = text.slice(0, colon);
  }
  if (!REG_NAME.test(name)) {
    return null;
  }
  return name.endsWith(".") && name.length > 1 ? name.slice(0, -1) : name;
}

/** `""`, `:` or `:<port>`: RFC 3986 allows an empty port and leading zeros. */
function isPortPart(text: string): boolean {
  if (text === "") {
    return true;
  }
  const digits = text.slice(1);
  return text.startsWith(":") && PORT.test(digits) && Number(digits) <= 65535;
}

function parsePrimary(prefix: string | null, primary: string): HostRoute {
  const match = CANONICAL.exec(primary);
  if (match === null) {
    // Canonical names come before aliases, and nothing may stand in front of an alias.
    return prefix === null && ALIAS.test(primary) ? { kind: "alias", name: primary } : UNKNOWN;
  }
  const [, project = "", container = "", tail] = match;
  const route = parseTail({ project, container }, tail);
  if (prefix === null || route.kind !== "exec") {
    return prefix === null ? route : UNKNOWN;
  }
  if (!SUBDOMAIN.test(prefix)) {
    return UNKNOWN;
  }
  return prefix === "default" ? route : { ...route, subdomain: prefix };
}

function parseTail(to: Addressed, tail: string | undefined): HostRoute {
  if (tail === undefined) {
    return { kind: "exec", ...to, subdomain: null, execId: null };
  }
  if (tail === "ssh") {
    return { kind: "ssh", ...to };
  }
  // An index has no hyphen, so the last one divides; a name with a hyphen (`d-tcp`) is tried whole first. Thus the
  // longest known name wins and `d-tcp-1` is never read as `d`.
  const hyphen = tail.lastIndexOf("-");
  const whole = hyphen === -1 || serviceBySpelling(tail) !== undefined;
  const name = whole ? tail : tail.slice(0, hyphen);
  const rest = whole ? undefined : tail.slice(hyphen + 1);
  if (name === "http" || name === "https") {
    const port = rest ?? (name === "http" ? "80" : "443");
    return PORT_NUMBER.test(port) && Number(port) <= 65535
      ? { kind: "port", ...to, scheme: name, port: Number(port) }
      : UNKNOWN;
  }
  const service = serviceBySpelling(name);
  if (service === undefined) {
    return UNKNOWN;
  }
  if (service.name === "exec") {
    return rest === undefined || EXEC_ID.test(rest)
      ? { kind: "exec", ...to, subdomain: null, execId: rest ?? null }
      : UNKNOWN;
  }
  const text = rest ?? "1";
  const index = Number(text);
  return INDEX.test(text) && index >= service.minIndex && index <= service.maxIndex
    ? { kind: "service", ...to, service: service.name, index }
    : UNKNOWN;
}

/**
 * The canonical host of a route, without port. `parseHost` gives the route back as long as the label fits into DNS; a
 * longer one (terminal indexes above 9999, long execIds) still serves as the Host of an alias's upstream request.
 */
export function formatHost(route: NamedHost, space: HostSpace): string {
  if (route.kind === "custom") {
    return route.host;
  }
  return `${formatLabels(route)}.${space.node}.${space.domain}`;
}

function formatLabels(route: Exclude<NamedHost, { kind: "custom" }>): string {
  if (route.kind === "alias") {
    return route.name;
  }
  const base = `${route.project}-${route.container}`;
  switch (route.kind) {
    case "service": {
      // `notifications` would not fit into a label; the table has a slug for it.
      const slug = serviceByName(route.service)?.slug ?? route.service;
      return `${base}-${slug}-${route.index}`;
    }
    case "exec": {
      const prefix = route.subdomain === null ? "" : `${route.subdomain}.`;
      return `${prefix}${base}${route.execId === null ? "" : `-exec-${route.execId}`}`;
    }
    case "port":
      return `${base}-${route.scheme}-${route.port}`;
    case "ssh":
      return `${base}-ssh`;
  }
}
