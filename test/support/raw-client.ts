import net from "node:net";
import tls from "node:tls";
import { onTestFinished } from "vitest";

/** A client that sends bytes as they are and repairs nothing. */
export interface RawClient {
  readonly socket: net.Socket;
  /** Everything received so far, latin1. */
  received(): string;
  send(bytes: string | Buffer): void;
  /** Closes the sending side only. */
  end(): void;
  /** Resolves with everything received once `text` (or a match) is among it; rejects after `ms` or when the connection closes. */
  waitFor(text: string | RegExp, ms?: number): Promise<string>;
  /** Resolves with everything received when the peer closed the connection; rejects after `ms`. */
  closed(ms?: number): Promise<string>;
}

export interface RawClientOptions {
  readonly host?: string;
  readonly tls?: tls.ConnectionOptions;
}

/** Connects to `port` on loopback; the socket is destroyed when the test ends. */
export async function rawClient(port: number, options: RawClientOptions = {}): Promise<RawClient> {
  const host = options.host ?? "127.0.0.1";
  const socket = options.tls
    ? tls.connect({ host, port, rejectUnauthorized: false, ...options.tls })
    : net.connect({ host, port, allowHalfOpen: true, noDelay: true });
  onTestFinished(() => void socket.destroy());
  let text = "";
  let isClosed = false;
  const watchers = new Set<() => void>();
  const changed = (): void => {
    for (const watcher of watchers) {
      watcher();
    }
  };
  socket.on("data", (chunk: Buffer) => {
    text += chunk.toString("latin1");
    changed();
  });
  socket.on("error", () => {});
  for (const event of ["end", "close"]) {
    socket.on(event, () => {
      isClosed = true;
      changed();
    });
  }
  await new Promise<void>((resolve, reject) => {
    socket.once(options.tls ? "secureConnect" : "connect", resolve);
    socket.once("error", reject);
  });

  function until(what: string, reached: () => boolean, ms: number): Promise<string> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        if (reached()) {
          stop();
          resolve(text);
        } else if (isClosed) {
          stop();
          reject(
            new Error(`closed before ${what}; received ${JSON.stringify(text.slice(0, 500))}`),
          );
        }
      };
      const timer = setTimeout(() => {
        stop();
        reject(
          new Error(`no ${what} within ${ms} ms; received ${JSON.stringify(text.slice(0, 500))}`),
        );
      }, ms);
      const stop = (): void => {
        clearTimeout(timer);
        watchers.delete(look);
      };
      watchers.add(look);
      look();
    });
  }

  return {
    socket,
    received: () => text,
    send: (bytes) =>
      void socket.write(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes),
    end: () => void socket.end(),
    waitFor: (wanted, ms = 8000) =>
      until(
        String(wanted),
        () => (typeof wanted === "string" ? text.includes(wanted) : wanted.test(text)),
        ms,
      ),
    closed: (ms = 8000) => until("end of the connection", () => isClosed, ms),
  };
}

/** Sends `bytes` on a new connection and resolves with all that came when the peer closed it. */
export async function rawExchange(
  port: number,
  bytes: string | Buffer,
  ms?: number,
): Promise<string> {
  const client = await rawClient(port);
  client.send(bytes);
  return client.closed(ms);
}
