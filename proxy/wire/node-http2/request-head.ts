import type { FieldLines, RequestHead } from "../../../policy/kernel/exchange.ts";
import { newToken } from "../../../policy/kernel/ids.ts";
import { sameAuthority } from "../../../policy/kernel/target.ts";
import { isMethod } from "../http1/request-parser.ts";

/** A request head of HTTP/2 in the form that all protocols share. */
export interface Http2Request {
  readonly head: RequestHead;
  /** An extended CONNECT for WebSocket. */
  readonly handshake: boolean;
  /** Declared length of the body; null when none is declared. */
  readonly length: number | null;
  readonly expect: string | null;
}

/**
 * Turns the field lines of a stream, pseudo fields included, into a request head: `:authority` becomes Host and must
 * agree with a Host that is there too, cookie crumbs are joined (RFC 9113 8.2.3, 8.3.1). Null when the request cannot
 * be read as one HTTP/1.1 would accept.
 */
export function readHttp2Request(lines: FieldLines): Http2Request | null {
  let method = "";
  let path = "";
  let authority: string | null = null;
  let protocol: string | null = null;
  let length: number | null = null;
  let expect: string | null = null;
  const hosts: string[] = [];
  const cookies: string[] = [];
  const fields: string[] = [];
  for (let i = 0; i + 1 < lines.length; i += 2) {
    const name = lines[i]!;
    const value = lines[i + 1]!;
    switch (name) {
      case ":method":
        method = value;
        break;
      case ":path":
        path = value;
        break;
      case ":authority":
        authority = value;
        break;
      case ":protocol":
        protocol = value;
        break;
      case ":scheme":
        break;
      case "host":
        hosts.push(value);
        break;
      case "cookie":
        cookies.push(value);
        break;
      case "content-length":
        if (!/^[0-9]{1,15}$/.test(value) || length !== null) {
          return null;
        }
        length = Number(value);
        fields.push(name, value);
        break;
      case "expect":
        // Of several lines one that is not 100-continue decides: it is refused.
        expect = expect === null || expect === "100-continue" ? value.toLowerCase() : expect;
        fields.push(name, value);
        break;
      default:
        fields.push(name, value);
    }
  }
  const handshake = method === "CONNECT" && protocol === "websocket";
  if ((method === "CONNECT" || protocol !== null) && !handshake) {
    return null;
  }
  if (!isMethod(method) || !(path.startsWith("/") || (path === "*" && method === "OPTIONS"))) {
    return null;
  }
  const head: string[] = [];
  if (authority !== null) {
    const agreed = authority;
    if (!hosts.every((host) => sameAuthority(host, agreed))) {
      return null;
    }
    head.push("host", agreed);
  } else {
    for (const host of hosts) {
      head.push("host", host);
    }
  }
  for (let i = 0; i < fields.length; i += 2) {
    if (!handshake || fields[i] !== "sec-websocket-key") {
      head.push(fields[i]!, fields[i + 1]!);
    }
  }
  if (cookies.length > 0) {
    head.push("cookie", cookies.join("; "));
  }
  if (handshake) {
    // The service speaks the HTTP/1.1 handshake, which needs a key; the client's protocol has none.
    head.push("sec-websocket-key", Buffer.from(newToken(16), "base64url").toString("base64"));
  }
  return {
    head: { method: handshake ? "GET" : method, target: path, version: "2", fields: head },
    handshake,
    length,
    expect,
  };
}
