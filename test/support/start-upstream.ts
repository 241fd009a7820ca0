import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";

/** A request as the service behind a hook received it. */
export interface ReceivedRequest {
  readonly method: string;
  readonly url: string;
  readonly rawHeaders: readonly string[];
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
}

export interface TestUpstream {
  readonly port: number;
  readonly url: string;
  readonly received: ReceivedRequest[];
  readonly connections: () => number;
  stop(): Promise<void>;
}

type Handler = (req: IncomingMessage, res: ServerResponse, body: Buffer) => void;

/** A recording HTTP service on a free port. Without a handler it answers 200 with what it received as JSON. */
export async function startUpstream(
  handler: Handler = echo,
  options: { readonly streamed?: boolean } = {},
): Promise<TestUpstream> {
  const received: ReceivedRequest[] = [];
  const sockets = new Set<Socket>();
  let connections = 0;
  const server: Server = createServer((req, res) => {
    req.on("error", () => {});
    res.on("error", () => {});
    if (options.streamed === true) {
      handler(req, res, Buffer.alloc(0));
      return;
    }
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const body = Buffer.concat(chunks);
      received.push({
        method: req.method ?? "",
        url: req.url ?? "",
        rawHeaders: req.rawHeaders,
        headers: req.headers,
        body,
      });
      handler(req, res, body);
    });
  });
  server.on("connection", (socket) => {
    connections++;
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://127.0.0.1:${port}`,
    received,
    connections: () => connections,
    stop: () =>
      new Promise((resolve) => {
        for (const socket of sockets) {
          socket.destroy();
        }
        server.close(() => resolve());
      }),
  };
}

function echo(req: IncomingMessage, res: ServerResponse, body: Buffer): void {
  const answer = Buffer.from(
    JSON.stringify({ method: req.method, url: req.url, body: body.toString("latin1") }),
  );
  res.writeHead(200, { "content-type": "application/json", "content-length": answer.length });
  res.end(req.method === "HEAD" ? undefined : answer);
}
