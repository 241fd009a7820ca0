import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

// The service behind every contender: 1 KiB of JSON with about ten fields; a POST is counted and its size told.
const BODY = Buffer.from(JSON.stringify({ ok: true, pad: "x".repeat(1024 - 22) }));

const server = createServer((request, response) => {
  let bytes = 0;
  request.on("data", (chunk: Buffer) => (bytes += chunk.length));
  request.on("end", () => {
    const body = request.method === "POST" ? Buffer.from(JSON.stringify({ bytes })) : BODY;
    response.writeHead(200, {
      "content-type": "application/json",
      "content-length": body.length,
      "cache-control": "max-age=0",
      etag: '"bench"',
      vary: "accept-encoding",
      "x-request-kind": "bench",
      "x-frame-options": "DENY",
      "x-content-type-options": "nosniff",
    });
    response.end(body);
  });
});
server.keepAliveTimeout = 120_000;
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`${JSON.stringify({ port: (server.address() as AddressInfo).port })}\n`);
});
