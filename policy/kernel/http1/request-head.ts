import type { FieldLines } from "../exchange.ts";
import { TOKEN } from "./field-section.ts";

/** A target may hold any byte but blanks and control characters; encoding is the caller's business. */
const TARGET = /^[\x21-\x7e\x80-\xff]+$/;
/** CR, LF, NUL and everything that is not one byte. */
const UNSENDABLE = /[\0\r\n]|[^\x00-\xff]/;

/** The methods that may be sent twice (RFC 9110 9.2.2, and the WebDAV ones that only read or set). */
export const IDEMPOTENT: ReadonlySet<string> = new Set([
  "GET",
  "HEAD",
  "OPTIONS",
  "TRACE",
  "PUT",
  "DELETE",
  "PROPFIND",
  "PROPPATCH",
  "MKCOL",
  "COPY",
  "REPORT",
  "SEARCH",
]);

/** Methods whose request always says how long its body is, also when there is none (RFC 9110 8.6). */
export const EXPECTS_BODY: ReadonlySet<string> = new Set(["POST", "PUT", "PATCH"]);

/** How the request's body is framed: none, a length, or chunks. */
export type RequestFraming = "none" | "length" | "chunked" | "upgrade";

/**
 * Writes a request head with our own framing; whatever framing the fields of a received message had is not looked
 * at, it must not be among `fields`.
 *
 * @throws TypeError when method, target or a field cannot be sent without changing the message's structure.
 */
export function writeRequestHead(
  method: string,
  target: string,
  fields: FieldLines,
  framing: RequestFraming,
  length: number | null,
): string {
  if (!isSendableStart(method, target)) {
    throw new TypeError("method or target cannot be sent");
  }
  let head = `${method} ${target} HTTP/1.1\r\n`;
  head += writeFields(fields);
  if (framing === "length") {
    head += `Content-Length: ${length}\r\n`;
  } else if (framing === "chunked") {
    head += "Transfer-Encoding: chunked\r\n";
  } else if (framing === "upgrade") {
    head += "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  } else if (EXPECTS_BODY.has(method)) {
    head += "Content-Length: 0\r\n";
  }
  return head + "\r\n";
}

/** True for a method and a target that can stand in a request line. */
export function isSendableStart(method: string, target: string): boolean {
  return TOKEN.test(method) && TARGET.test(target);
}

/**
 * Field lines as they go on the wire.
 *
 * @throws TypeError for a name that is no token or a value that cannot be sent.
 */
export function writeFields(fields: FieldLines): string {
  let text = "";
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!;
    const value = fields[i + 1]!;
    if (!TOKEN.test(name) || UNSENDABLE.test(value)) {
      throw new TypeError("a header field cannot be sent");
    }
    text += `${name}: ${value}\r\n`;
  }
  return text;
}

/** True when every line can be sent as it is. */
export function areSendable(fields: FieldLines): boolean {
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if (!TOKEN.test(fields[i]!) || UNSENDABLE.test(fields[i + 1]!)) {
      return false;
    }
  }
  return true;
}
