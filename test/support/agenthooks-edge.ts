import { createServer, request as httpRequest } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { edgeAuthField } from "../../exec-host/agent/edge-auth.ts";
import { SECRET } from "./agent-gateway.ts";

/**
 * What an edge does for a gateway, and nothing more: signs each request and passes it on. Clients that cannot sign (curl, the typed
 * client) reach a test gateway through it.
 *
 * @returns the base address.
 */
export async function startSigner(port: number): Promise<string> {
  const server = createServer((incoming, outgoing) => {
    const target = incoming.url ?? "/";
    const method = incoming.method ?? "GET";
    const upstream = httpRequest(
      {
        port,
        host: "127.0.0.1",
        method,
        path: target,
        headers: {
          ...incoming.headers,
          "x-hoody-edge-auth": edgeAuthField(SECRET, method, target, Date.now()),
        },
      },
      (answer) => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(outgoing);
      },
    );
    upstream.on("error", () => outgoing.destroy());
    outgoing.on("close", () => upstream.destroy());
    incoming.pipe(upstream);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
