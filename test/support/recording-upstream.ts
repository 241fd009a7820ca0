import net, { type AddressInfo } from "node:net";
import { onTestFinished } from "vitest";

/** One message as a careless reader of the bytes would understand it. */
export interface RecordedRequest {
  /** Which connection it came on, counted from 0. */
  readonly connection: number;
  readonly method: string;
  readonly target: string;
  /** Field lines as received, `name: value`. */
  readonly lines: readonly string[];
  readonly body: string;
  readonly trailers: readonly string[];
}

export interface RecordingUpstream {
  readonly port: number;
  readonly requests: RecordedRequest[];
  /** All bytes of each connection, latin1. */
  readonly bytes: string[];
  readonly sockets: net.Socket[];
  /** Connections that ended, by index. */
  readonly closed: Set<number>;
  /** Resolves when `count` complete messages arrived; rejects after `ms`. */
  waitForRequests(count: number, ms?: number): Promise<void>;
  /** Resolves when the condition holds; rejects after `ms`. */
  waitUntil(condition: () => boolean, ms?: number): Promise<void>;
}

/** What to send for a message: bytes, or nothing (`null`) when the test writes to the socket itself. */
export type Responder = (request: RecordedRequest, socket: net.Socket) => string | Buffer | null;

const PLAIN = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/**
 * An upstream on a bare socket that keeps connections open and reads messages leniently: what a strict parser would
 * refuse, it splits. Messages that the edge never meant to send show up here as further requests.
 *
 * @param onHead called when a head is complete, before its body.
 */
export async function recordingUpstream(
  respond: Responder = () => PLAIN,
  onHead?: (head: string, socket: net.Socket) => void,
): Promise<RecordingUpstream> {
  const requests: RecordedRequest[] = [];
  const bytes: string[] = [];
  const sockets: net.Socket[] = [];
  const closed = new Set<number>();
  const watchers = new Set<() => void>();
  const changed = (): void => {
    for (const watcher of watchers) {
      watcher();
    }
  };
  const server = net.createServer({ noDelay: true }, (socket) => {
    const connection = sockets.length;
    sockets.push(socket);
    bytes.push("");
    let buffered = "";
    let announced = false;
    socket.on("error", () => {});
    socket.on("close", () => {
      closed.add(connection);
      changed();
    });
    socket.on("data", (chunk) => {
      bytes[connection] += chunk.toString("latin1");
      buffered += chunk.toString("latin1");
      for (;;) {
        const headEnd = buffered.indexOf("\r\n\r\n");
        if (headEnd >= 0 && !announced) {
          announced = true;
          onHead?.(buffered.slice(0, headEnd + 4), socket);
        }
        const parsed = readMessage(buffered, connection);
        if (parsed === null) {
          break;
        }
        announced = false;
        buffered = buffered.slice(parsed.size);
        requests.push(parsed.request);
        const answer = respond(parsed.request, socket);
        if (answer !== null) {
          socket.write(typeof answer === "string" ? Buffer.from(answer, "latin1") : answer);
        }
      }
      changed();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) {
      socket.destroy();
    }
    server.close();
  });
  function waitUntil(condition: () => boolean, ms = 8000): Promise<void> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        if (condition()) {
          clearTimeout(timer);
          watchers.delete(look);
          resolve();
        }
      };
      const timer = setTimeout(() => {
        watchers.delete(look);
        reject(
          new Error(`not within ${ms} ms; upstream saw ${JSON.stringify(bytes).slice(0, 800)}`),
        );
      }, ms);
      watchers.add(look);
      look();
    });
  }
  return {
    port: (server.address() as AddressInfo).port,
    requests,
    bytes,
    sockets,
    closed,
    waitUntil,
    waitForRequests: (count, ms) => waitUntil(() => requests.length >= count, ms),
  };
}

function readMessage(
  text: string,
  connection: number,
): { request: RecordedRequest; size: number } | null {
  const headEnd = text.indexOf("\r\n\r\n");
  if (headEnd < 0) {
    return null;
  }
  const [first = "", ...lines] = text.slice(0, headEnd).split("\r\n");
  const [method = "", target = ""] = first.split(" ");
  const value = (name: string): string | undefined =>
    lines
      .find((line) => line.toLowerCase().startsWith(`${name}:`))
      ?.slice(name.length + 1)
      .trim();
  let at = headEnd + 4;
  let body = "";
  const trailers: string[] = [];
  if (value("transfer-encoding")?.toLowerCase().includes("chunked")) {
    for (;;) {
      const lineEnd = text.indexOf("\r\n", at);
      if (lineEnd < 0) {
        return null;
      }
      const size = Number.parseInt(text.slice(at, lineEnd), 16) || 0;
      at = lineEnd + 2;
      if (size === 0) {
        break;
      }
      if (text.length < at + size + 2) {
        return null;
      }
      body += text.slice(at, at + size);
      at += size + 2;
    }
    for (;;) {
      const lineEnd = text.indexOf("\r\n", at);
      if (lineEnd < 0) {
        return null;
      }
      const line = text.slice(at, lineEnd);
      at = lineEnd + 2;
      if (line === "") {
        break;
      }
      trailers.push(line);
    }
  } else {
    const length = Number.parseInt(value("content-length") ?? "0", 10) || 0;
    if (text.length < at + length) {
      return null;
    }
    body = text.slice(at, at + length);
    at += length;
  }
  return { request: { connection, method, target, lines, body, trailers }, size: at };
}
