import type { AddressInfo } from "node:net";
import { createServer } from "node:http";
import { createHttp1Client } from "../../policy/kernel/http1/client.ts";

// A minimal proxy on our own engine: node:http in front, our client behind, and not one check in between.
const client = createHttp1Client();
const origin = { kind: "tcp", host: "127.0.0.1", port: Number(process.argv[2]) } as const;
const limits = { connectMs: 3000, idleMs: 300_000, maxHeaderBytes: 32_768 };
const server = createServer((request, response) => {
  client.send(
    {
      origin,
      method: request.method ?? "GET",
      target: request.url ?? "/",
      fields: request.rawHeaders,
      body: null,
      limits,
    },
    {
      interim() {},
      head(head) {
        response.writeHead(head.status, head.fields as string[]);
      },
      data: (chunk) => (response.write(chunk), true),
      end: () => void response.end(),
      tunnel() {},
      fail: () => void response.destroy(),
    },
  );
});
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`${JSON.stringify({ port: (server.address() as AddressInfo).port })}\n`);
});
