import type { ErrorCode } from "../../../policy/kernel/errors.ts";
import type { RequestHead } from "../../../policy/kernel/exchange.ts";
import { isForbidden, readFields } from "../../../policy/kernel/http1/field-section.ts";
import type { WireLimits } from "../limits.ts";

/** A request head with what its framing and connection fields mean. */
export interface ParsedHead {
  readonly head: RequestHead;
  /** Length of the body; null for chunks. */
  readonly length: number | null;
  readonly keepAlive: boolean;
  /** The client wants a 100 before it sends its body. */
  readonly waits: boolean;
  /** Decision 3: a real WebSocket handshake. */
  readonly handshake: boolean;
}

/** A request head, or why it is refused. */
export type HeadReading =
  | { readonly kind: "more" }
  | { readonly kind: "refused"; readonly code: ErrorCode }
  /** `size`: bytes of the head, empty lines before it included. */
  | { readonly kind: "head"; readonly parsed: ParsedHead; readonly size: number };

const HEAD_END = Buffer.from("\r\n\r\n", "latin1");
const METHOD = /^[A-Z][A-Z0-9_-]{0,31}$/;
const REQUEST_LINE = /^([A-Z][A-Z0-9_-]{0,31}) ([\x21-\x7e]+) HTTP\/1\.([01])$/;
/** What stands beside the target in the longest request line. */
const LINE_REST_BYTES = 32 + " ".length + " HTTP/1.1".length;
const LENGTH = /^[0-9]{1,15}$/;
const WEBSOCKET_KEY = /^[A-Za-z0-9+/]{22}==$/;
const MORE: HeadReading = { kind: "more" };
const BAD: HeadReading = { kind: "refused", code: "BAD_REQUEST" };
const TOO_LARGE: HeadReading = { kind: "refused", code: "HEAD_TOO_LARGE" };
const TARGET_TOO_LONG: HeadReading = { kind: "refused", code: "TARGET_TOO_LONG" };

/**
 * True for a method that any protocol may bring: a token in capitals, known or not. Services that read `get` as GET
 * would be reached past rules about GET.
 */
export function isMethod(method: string): boolean {
  return METHOD.test(method);
}

/**
 * Reads the request head at the start of `bytes` (RFC 9112 2, 3, 5), as strictly as answers are read: what two readers
 * could understand differently is refused. The result does not depend on how the bytes came.
 */
export function readRequestHead(bytes: Buffer, limits: WireLimits): HeadReading {
  let from = 0;
  while (bytes[from] === 13 && bytes[from + 1] === 10 && from < 8) {
    from += 2; // empty lines before a request are overlooked (RFC 9112 2.2)
  }
  const end = bytes.indexOf(HEAD_END, from);
  if (end < 0) {
    return unfinished(bytes, from, limits);
  }
  const text = bytes.toString("latin1", from, end + 2);
  const lineEnd = text.indexOf("\r\n");
  const line = REQUEST_LINE.exec(text.slice(0, lineEnd));
  if (line !== null && line[1] === "CONNECT") {
    return { kind: "refused", code: "BAD_TARGET" }; // the edge opens no tunnels to places that clients name
  }
  if (line === null) {
    return lineEnd > limits.maxTargetBytes + LINE_REST_BYTES ? TARGET_TOO_LONG : BAD;
  }
  if (line[2]!.length > limits.maxTargetBytes) {
    return TARGET_TOO_LONG;
  }
  if (isForbidden(text)) {
    return BAD;
  }
  const fields: string[] = [];
  if (!readFields(text, lineEnd + 2, fields)) {
    return BAD;
  }
  if (fields.length > limits.maxHeaderLines * 2 || text.length + 2 > limits.maxHeaderBytes) {
    return TOO_LARGE;
  }
  return readMeaning(line[1]!, line[2]!, line[3]! === "0" ? "1.0" : "1.1", fields, end + 4);
}

/** No end of the head yet: more bytes may come, unless it is too large or wrong already. */
function unfinished(bytes: Buffer, from: number, limits: WireLimits): HeadReading {
  const lineEnd = bytes.indexOf("\r\n", from);
  const lineSize = (lineEnd < 0 ? bytes.length : lineEnd) - from;
  if (lineSize > limits.maxTargetBytes + LINE_REST_BYTES) {
    return TARGET_TOO_LONG;
  }
  if (bytes.length - from > limits.maxHeaderBytes) {
    return TOO_LARGE;
  }
  for (let lf = bytes.indexOf(10, from); lf >= 0; lf = bytes.indexOf(10, lf + 1)) {
    if (lf === 0 || bytes[lf - 1] !== 13) {
      return BAD; // told now: the head could never end
    }
  }
  const first = bytes[from];
  if (lineEnd >= 0 && !REQUEST_LINE.test(bytes.toString("latin1", from, lineEnd))) {
    return BAD;
  }
  return first === undefined || first === 13 || (first >= 65 && first <= 90) ? MORE : BAD;
}

function readMeaning(
  method: string,
  target: string,
  version: "1.0" | "1.1",
  fields: string[],
  size: number,
): HeadReading {
  let length: number | null = 0;
  let lengthLine = false;
  let keepAlive = version === "1.1";
  let waits = false;
  let upgrades = 0;
  let keys = 0;
  let nominated = false;
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i]!;
    switch (name.length) {
      case 6:
        if (name.toLowerCase() === "expect" && version === "1.1") {
          if (fields[i + 1]!.toLowerCase() !== "100-continue") {
            return { kind: "refused", code: "EXPECTATION_FAILED" };
          }
          waits = true;
        }
        break;
      case 7:
        if (name.toLowerCase() === "upgrade") {
          upgrades += fields[i + 1]!.toLowerCase() === "websocket" ? 1 : 2;
        }
        break;
      case 10:
        if (name.toLowerCase() === "connection") {
          const value = fields[i + 1]!.toLowerCase();
          if (value === "close") {
            keepAlive = false;
          } else {
            for (const part of value.split(",")) {
              const option = part.trim();
              if (option === "close") {
                keepAlive = false;
              } else if (option === "keep-alive" && version === "1.0") {
                keepAlive = true;
              } else if (option === "upgrade") {
                nominated = true;
              }
            }
          }
        }
        break;
      case 14:
        if (name.toLowerCase() === "content-length") {
          if (lengthLine || length === null || !LENGTH.test(fields[i + 1]!)) {
            return BAD;
          }
          lengthLine = true;
          length = Number(fields[i + 1]);
        }
        break;
      case 17:
        if (name.toLowerCase() === "transfer-encoding") {
          if (
            lengthLine ||
            length === null ||
            version === "1.0" ||
            fields[i + 1]!.toLowerCase() !== "chunked"
          ) {
            return BAD;
          }
          length = null;
        } else if (name.toLowerCase() === "sec-websocket-key") {
          keys += WEBSOCKET_KEY.test(fields[i + 1]!) ? 1 : 2;
        }
        break;
      default:
        break;
    }
  }
  const handshake =
    upgrades === 1 &&
    keys === 1 &&
    nominated &&
    method === "GET" &&
    version === "1.1" &&
    length === 0;
  return {
    kind: "head",
    parsed: { head: { method, target, version, fields }, length, keepAlive, waits, handshake },
    size,
  };
}
