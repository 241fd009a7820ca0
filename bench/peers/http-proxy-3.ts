import { Agent, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProxyServer } from "http-proxy-3";

// http-proxy-3 with a keep-alive agent; without one it opens a connection for every request.
const proxy = createProxyServer({
  target: `http://127.0.0.1:${process.argv[2]}`,
  agent: new Agent({ keepAlive: true }),
});
proxy.on("error", (_error, _request, response) => {
  response?.end();
});
const server = createServer((request, response) => {
  proxy.web(request, response);
});
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`${JSON.stringify({ port: (server.address() as AddressInfo).port })}\n`);
});
