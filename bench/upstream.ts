import { createHash } from "node:crypto";
import { type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";

// The service behind every contender: 1 KiB of JSON with about ten fields; a POST is counted and its size told;
// `/bytes/N` is answered with so many bytes, and every handshake accepted.
const BODY = Buffer.from(JSON.stringify({ ok: true, pad: "x".repeat(1024 - 22) }));

const PIECE = Buffer.alloc(65_536, "d");

/** `bytes` of body, as fast as they are taken. */
function pour(response: ServerResponse, bytes: number): void {
  let left = bytes;
  response.writeHead(200, { "content-length": bytes });
  const fill = (): void => {
    while (left > 0) {
      const piece = left < PIECE.length ? PIECE.subarray(0, left) : PIECE;
      left -= piece.length;
      if (!response.write(piece)) {
        response.once("drain", fill);
        return;
      }
    }
    response.end();
  };
  fill();
}

const server = createServer((request, response) => {
  const wanted = /^\/bytes\/(\d+)/.exec(request.url ?? "");
  if (wanted !== null) {
    pour(response, Number(wanted[1]));
    return;
  }
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
server.on("upgrade", (request, socket) => {
  const key = `${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
  const accept = createHash("sha1").update(key).digest("base64");
  socket.on("error", () => {});
  socket.write(
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
      `Sec-WebSocket-Accept: ${accept}\r\n\r\n`,
  );
});
server.keepAliveTimeout = 120_000;
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`${JSON.stringify({ port: (server.address() as AddressInfo).port })}\n`);
});
