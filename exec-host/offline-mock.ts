import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

/** A request that reached the made-up service. */
export interface ReceivedRequest {
  readonly method: string;
  readonly target: string;
  /** Name, value, name, value… as received. */
  readonly fields: readonly string[];
  readonly body: Buffer;
}

/** A service made up for one run: it answers 200 and says what it got. */
export interface MockUpstream {
  readonly host: string;
  readonly port: number;
  readonly received: readonly ReceivedRequest[];
  stop(): void;
}

/** Bodies beyond this are cut in the record; they are answered all the same. */
const KEPT_BYTES = 1_048_576;
const MAX_KEPT_REQUESTS = 100;

/** Starts it on a free port of the loopback interface. */
export function startMock(): Promise<MockUpstream> {
  const received: ReceivedRequest[] = [];
  const server = createServer((req, res) => {
    const chunks: Buffer[] = [];
    let size = 0;
    req.on("data", (chunk: Buffer) => {
      if (size < KEPT_BYTES) {
        chunks.push(chunk);
      }
      size += chunk.length;
    });
    req.on("error", () => {}); // a script that gives up its own request
    req.on("end", () => {
      const { method = "", url: target = "" } = req;
      if (received.length < MAX_KEPT_REQUESTS) {
        const body = Buffer.concat(chunks).subarray(0, KEPT_BYTES);
        received.push({ method, target, fields: req.rawHeaders, body });
      }
      const answer = Buffer.from(
        `${JSON.stringify({ service: "mock", method, url: target, bodyBytes: size })}\n`,
      );
      res.writeHead(200, { "content-type": "application/json", "content-length": answer.length });
      res.end(method === "HEAD" ? undefined : answer);
    });
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      resolve({
        host: "127.0.0.1",
        port,
        received,
        stop() {
          server.closeAllConnections();
          server.close();
        },
      });
    });
  });
}
