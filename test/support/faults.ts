import { rawClient } from "./raw-client.ts";
import type { RecordingUpstream } from "./recording-upstream.ts";

/** Head of a request with CRLF lines; `lines` without the empty one. */
export function head(first: string, ...lines: string[]): string {
  return `${[first, ...lines].join("\r\n")}\r\n\r\n`;
}

/** A complete WebSocket handshake for `path`, with further lines behind it. */
export function handshake(host: string, path = "/", ...lines: string[]): string {
  return head(
    `GET ${path} HTTP/1.1`,
    `Host: ${host}`,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ...lines,
  );
}

export const SWITCH =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/** What came back on a connection, cut into answers as a client without tricks reads them. */
export interface RawAnswer {
  readonly status: number;
  readonly lines: readonly string[];
  readonly body: string;
}

/** Reads answers of known length, chunked or bodyless ones (by status); interim answers count as answers. */
export function readAnswers(text: string, bodyless = false): RawAnswer[] {
  const answers: RawAnswer[] = [];
  let at = 0;
  while (at < text.length) {
    const end = text.indexOf("\r\n\r\n", at);
    if (end < 0) {
      answers.push({ status: 0, lines: [], body: text.slice(at) });
      break;
    }
    const [first = "", ...lines] = text.slice(at, end).split("\r\n");
    at = end + 4;
    const status = Number(/^HTTP\/1\.1 ([0-9]{3}) /.exec(first)?.[1] ?? 0);
    const value = (name: string) =>
      lines
        .find((line) => line.toLowerCase().startsWith(`${name}:`))
        ?.slice(name.length + 1)
        .trim();
    let body = "";
    if (!bodyless && status >= 200 && status !== 204 && status !== 304) {
      if (value("transfer-encoding") === "chunked") {
        for (;;) {
          const lineEnd = text.indexOf("\r\n", at);
          const size = Number.parseInt(text.slice(at, lineEnd), 16);
          if (lineEnd < 0 || !(size > 0)) {
            const last = text.indexOf("\r\n\r\n", at);
            at = last < 0 ? text.length : last + 4;
            break;
          }
          body += text.slice(lineEnd + 2, lineEnd + 2 + size);
          at = lineEnd + size + 4;
        }
      } else {
        const size = Number(value("content-length") ?? text.length - at);
        body = text.slice(at, at + size);
        at += size;
      }
    }
    answers.push({ status, lines, body });
  }
  return answers;
}

/**
 * Sends `bytes` on a connection of its own and resolves with the statuses of all answers that came until the edge
 * closed it, or until nothing more came for a while after the first one.
 */
export async function statusesOf(port: number, bytes: string): Promise<string> {
  const client = await rawClient(port);
  client.send(bytes);
  await client.waitFor("HTTP/1.1 ", 6000).catch(() => {});
  await client.closed(300).catch(() => {});
  const text = client.received();
  client.socket.destroy();
  return [...text.matchAll(/HTTP\/1\.1 ([0-9]{3}) /g)].map((match) => match[1]).join(" ");
}

/** Like `statusesOf` for every input, at most eight at a time; keeps the order. */
export async function eachStatus(
  port: number,
  inputs: readonly (readonly [string, string])[],
): Promise<Record<string, string>> {
  const found = new Map<string, string>();
  const queue = [...inputs];
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        found.set(next[0], await statusesOf(port, next[1]));
      }
    }),
  );
  return Object.fromEntries(inputs.map(([name]) => [name, found.get(name) ?? ""]));
}

/** The same value for every name. */
export function all<T>(inputs: readonly (readonly [string, ...unknown[]])[], value: T) {
  return Object.fromEntries(inputs.map(([name]) => [name, value]));
}

/** Lower-case field names of a recorded request. */
export function namesOf(lines: readonly string[] | undefined): string[] {
  return (lines ?? []).map((line) => (line.split(":")[0] ?? "").toLowerCase());
}

/** Targets that an upstream saw, without the forced query. */
export function pathsOf(upstream: RecordingUpstream): string[] {
  return upstream.requests.map((request) => request.target.split("?")[0] ?? "");
}

/** Resolves when the condition holds; rejects after `ms`. */
export async function until(what: string, holds: () => boolean, ms = 5000): Promise<void> {
  const end = performance.now() + ms;
  while (!holds()) {
    if (performance.now() > end) {
      throw new Error(`not within ${ms} ms: ${what}`);
    }
    await new Promise((wait) => setTimeout(wait, 10));
  }
}
