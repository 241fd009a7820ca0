import type { FieldLines } from "../../policy/kernel/exchange.ts";
import { queryValues } from "../../policy/kernel/target.ts";

/** What a request is judged by: its fields as received, its query as received, and the resolved client address. */
export interface AuthRequest {
  readonly fields: FieldLines;
  /** Without `?`; null when there is none. */
  readonly query: string | null;
  readonly clientAddress: string;
}

/** The names whose values some group of a container looks at. */
export interface Wanted {
  /** Lower case. */
  readonly headers: ReadonlySet<string>;
  readonly cookies: boolean;
}

/**
 * What a request presents. One rule for repeats: a header, cookie or parameter that occurs twice counts as absent,
 * because whoever reads it next may choose the other one (decision 25, K16).
 */
export interface Presented {
  readonly address: string;
  /** Seconds since the epoch, rounded down. */
  readonly now: number;
  /** Value of a wanted header by its lower-case name. */
  header(lower: string): string | undefined;
  /** Raw value of a cookie; names are case-sensitive (RFC 6265). */
  cookie(name: string): string | undefined;
  /** Value of a query parameter after one form decoding, as latin1 text. `name` is latin1 text too. */
  param(name: string): string | undefined;
}

const AUTHORIZATION = "authorization";
const NO_HEADERS = new Map<string, string | undefined>();

/**
 * Reads a request in one pass over its fields. null when `Authorization` occurs twice, which is refused whatever the
 * groups are (decision 25).
 */
export function readPresented(
  request: AuthRequest,
  wanted: Wanted,
  nowMs: number,
): Presented | null {
  const { fields, query } = request;
  const anyHeader = wanted.headers.size > 0;
  const headers = anyHeader ? new Map<string, string | undefined>() : NO_HEADERS;
  let cookieText: string | null = null;
  let authorized = false;
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const received = fields[i] as string;
    if (!anyHeader && received.length !== AUTHORIZATION.length && received.length !== 6) {
      continue; // neither this one nor `cookie`
    }
    const name = received.toLowerCase();
    if (name === AUTHORIZATION) {
      if (authorized) {
        return null;
      }
      authorized = true;
    } else if (name === "cookie" && wanted.cookies) {
      const value = fields[i + 1] as string;
      // HTTP/2 may spread cookies over lines (RFC 9113 8.2.3).
      cookieText = cookieText === null ? value : `${cookieText}; ${value}`;
    }
    if (anyHeader && wanted.headers.has(name)) {
      headers.set(name, headers.has(name) ? undefined : fields[i + 1]);
    }
  }
  let cookies: ReadonlyMap<string, string | undefined> | null = null;
  return {
    address: request.clientAddress,
    now: Math.floor(nowMs / 1000),
    header: (lower) => headers.get(lower),
    cookie: (name) => {
      cookies ??= readCookies(cookieText ?? "");
      return cookies.get(name);
    },
    param: (name) => {
      const values = queryValues(query, name);
      return values.length === 1 ? values[0] : undefined;
    },
  };
}

/** Cookies by name, raw; undefined for a name that occurs twice. Nothing is decoded, so nothing can fail. */
function readCookies(text: string): Map<string, string | undefined> {
  const cookies = new Map<string, string | undefined>();
  for (const pair of text.split(";")) {
    const at = pair.indexOf("=");
    if (at > 0) {
      const name = pair.slice(0, at).trim();
      cookies.set(name, cookies.has(name) ? undefined : pair.slice(at + 1).trim());
    }
  }
  return cookies;
}
