import { test } from "vitest";
import { ConnectionError, InterposeClient } from "../../client/client.ts";
import { startEcho } from "../support/client-echo.ts";

const C = "890abcdef12345678901cdef";

/** The echo server under a name that only RFC 6761 resolves. */
function named(baseURL: string): string {
  return baseURL.replace("127.0.0.1", "p-c-agent-1.local.containers.localhost");
}

test("a host under .localhost is reached on loopback, with its name as Host", async ({
  expect,
}) => {
  const { baseURL, seen } = await startEcho((_request, response) => {
    response.writeHead(200, { "content-type": "application/json", "retry-after": "1" });
    response.end('{"statusCode":200,"message":"ok","data":{"wide":"ä漢"}}');
  });
  const base = named(baseURL);
  const client = new InterposeClient({ baseURL: base, token: "secret-token" });
  const answer = await client.api.proxy.settings.update(
    C,
    { default: "deny" },
    { ifMatch: "file:v1" },
  );
  expect(answer.data).toEqual({ wide: "ä漢" });
  expect(seen).toMatchObject([
    {
      line: `PUT /api/v1/containers/${C}/proxy/settings`,
      body: { default: "deny" },
      headers: {
        host: base.slice("http://".length),
        authorization: "Bearer secret-token",
        "content-length": "18",
        "if-match": "file:v1",
      },
    },
  ]);
  await client.agent.hooks.getRules();
  expect(seen[1]?.headers).not.toHaveProperty("transfer-encoding");
});

test("streams, errors and time limits work there too", async ({ expect }) => {
  const { baseURL } = await startEcho((request, response) => {
    if (request.url?.endsWith("/stream") === true) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write('event: start\ndata: {}\n\nevent: end\ndata: {"tool":"bash"}\n\n');
    } else if (request.url?.endsWith("/changes") === true) {
      response.writeHead(409, { "content-type": "application/json" });
      response.end('{"code":"turn_in_flight","message":"busy"}');
    }
  });
  const client = new InterposeClient({ baseURL: named(baseURL), timeoutMs: 500 });
  const events: string[] = [];
  for await (const frame of client.agent.tools.streamTool("bash")) {
    events.push(frame.event);
  }
  expect(events).toEqual(["start", "end"]);
  await expect(client.agent.changes.get()).rejects.toMatchObject({
    status: 409,
    code: "turn_in_flight",
  });
  await expect(client.agent.tools.list()).rejects.toBeInstanceOf(ConnectionError);
  const reason = new Error("enough");
  await expect(client.agent.tools.list({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
});
