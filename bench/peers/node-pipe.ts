import { Agent, createServer, request as send } from "node:http";
import type { AddressInfo } from "node:net";

// The floor on node:http: both sides piped, hop-by-hop fields left to Node, no checks at all.
const upstream = { host: "127.0.0.1", port: Number(process.argv[2]) };
const agent = new Agent({ keepAlive: true });
const server = createServer((request, response) => {
  const outgoing = send(
    {
      ...upstream,
      agent,
      method: request.method ?? "GET",
      path: request.url ?? "/",
      headers: request.headers,
    },
    (incoming) => {
      response.writeHead(incoming.statusCode ?? 502, incoming.rawHeaders);
      incoming.pipe(response);
    },
  );
  outgoing.on("error", () => response.destroy());
  request.pipe(outgoing);
});
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`${JSON.stringify({ port: (server.address() as AddressInfo).port })}\n`);
});
