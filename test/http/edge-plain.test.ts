import { test } from "vitest";
import { ask } from "../support/ask.ts";
import { CONTAINER, PROJECT, startTestEdge } from "../support/edge.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

test("a plain request reaches the service with the client's bytes and our fields", async ({
  expect,
}) => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const answer = await ask(edge.port, {
    host: edge.host("terminal-2"),
    path: "/a%2Fb/@scope//x?q=1&terminal_id=9&p=a\\b",
    headers: {
      "X-Hoody-Hook-Path": "/x",
      "X-Forwarded-For": "9.9.9.9",
      "X-Hoody-Cwd": "/srv",
      Connection: "X-Gone, close",
      "X-Gone": "1",
    },
  });
  expect([answer.status, answer.body]).toEqual([200, "ok"]);
  const [request] = upstream.requests;
  expect(request?.target).toBe("/a%2Fb/@scope//x?q=1&p=a\\b&terminal_id=2&display=2");
  const names = request?.lines.map((line) => line.split(":")[0]?.toLowerCase());
  expect(names).not.toContain("x-hoody-hook-path");
  expect(names).not.toContain("x-gone");
  expect(names).toContain("x-hoody-cwd");
  expect(request?.lines).toContain("X-Forwarded-For: 127.0.0.1");
  expect(request?.lines).toContain("X-Real-IP: 127.0.0.1");
  const line = await edge.accessLine((entry) => entry["path"] === "/a%2Fb/@scope//x");
  expect(line).toMatchObject({
    status: 200,
    outcome: "passed",
    service: "terminal",
    instance: 2,
    clientIp: "127.0.0.1",
  });
});

test.for([
  ["an unknown container", `${PROJECT}-${"0".repeat(24)}-terminal-1`, 404, "UNKNOWN_HOST"],
  [
    "a container under another project",
    `${"0".repeat(24)}-${CONTAINER}-terminal-1`,
    404,
    "UNKNOWN_HOST",
  ],
  ["an unknown service", `${PROJECT}-${CONTAINER}-nothing-1`, 404, "UNKNOWN_HOST"],
  ["an unknown alias", "some-alias", 404, "UNKNOWN_HOST"],
  ["an ssh endpoint", `${PROJECT}-${CONTAINER}-ssh`, 404, "UNKNOWN_HOST"],
  ["a container without an agent", `${PROJECT}-${CONTAINER}-agent-1`, 503, "SERVICE_UNAVAILABLE"],
] as const)("%s is answered with a JSON refusal", async ([, label, status, code], { expect }) => {
  const edge = await startTestEdge();
  const answer = await ask(edge.port, { host: `${label}.local.containers.localhost` });
  expect(answer.status).toBe(status);
  expect(answer.json).toMatchObject({ statusCode: status, code });
  expect(answer.headers["cache-control"]).toBe("no-store");
});

test.for([
  ["no Host", "GET / HTTP/1.1\r\n\r\n"],
  ["two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"],
  ["a Host that is none", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"],
  ["an absolute target for another host", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"],
] as const)("%s is answered 400", async ([, bytes], { expect }) => {
  const edge = await startTestEdge();
  const answer = await rawExchange(
    edge.port,
    bytes.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"),
  );
  expect(answer).toMatch(/^HTTP\/1\.1 400 /);
});

test("a stopped container is 503 with Retry-After", async ({ expect }) => {
  const edge = await startTestEdge({ container: { state: "stopped" } });
  const answer = await ask(edge.port, { host: edge.host("terminal-1") });
  expect([answer.status, answer.json["code"], answer.headers["retry-after"]]).toEqual([
    503,
    "CONTAINER_UNAVAILABLE",
    "2",
  ]);
});

test("a dead service is one 502 without any of its details, logged once", async ({ expect }) => {
  const edge = await startTestEdge({ upstream: 1 });
  const answer = await ask(edge.port, { host: edge.host("terminal-1"), path: "/dead" });
  expect([answer.status, answer.json["code"]]).toEqual([502, "UPSTREAM_UNREACHABLE"]);
  expect(answer.body).not.toMatch(/127\.0\.0\.1|ECONN/);
  await edge.accessLine((line) => line["path"] === "/dead");
  const lines = edge.log.filter((line) => line["msg"] === "request" && line["path"] === "/dead");
  expect(lines).toHaveLength(1);
  expect(lines[0]).toMatchObject({
    status: 502,
    outcome: "upstream_failed",
    code: "UPSTREAM_UNREACHABLE",
  });
});

test("a service that resets before its answer is 502, in mid-body the client is cut", async ({
  expect,
}) => {
  const upstream = await recordingUpstream((request, socket) => {
    if (request.target.startsWith("/half")) {
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", () =>
        socket.resetAndDestroy(),
      );
    } else {
      socket.resetAndDestroy();
    }
    return null;
  });
  const edge = await startTestEdge({ upstream: upstream.port });
  const before = await ask(edge.port, { host: edge.host("terminal-1"), method: "POST", body: "x" });
  expect([before.status, before.json["code"]]).toEqual([502, "UPSTREAM_FAILED"]);
  const half = await ask(edge.port, { host: edge.host("terminal-1"), path: "/half" });
  expect([half.status, half.cut]).toEqual([200, true]);
});

test("a client that leaves ends the request at the service", async ({ expect }) => {
  const upstream = await recordingUpstream(() => null);
  const edge = await startTestEdge({ upstream: upstream.port });
  const client = await rawClient(edge.port);
  client.send(`GET /wait HTTP/1.1\r\nHost: ${edge.host("terminal-1")}\r\n\r\n`);
  await upstream.waitForRequests(1);
  client.socket.destroy();
  await upstream.waitUntil(() => upstream.closed.size === 1, 5000);
  expect(await edge.accessLine((line) => line["path"] === "/wait")).toMatchObject({
    status: 499,
    outcome: "client_gone",
  });
});

test("a reload leaves running answers and kept-alive connections alone", async ({ expect }) => {
  const upstream = await recordingUpstream(({ target }) => {
    const head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    return target.startsWith("/slow") ? `${head}first` : `${head}0123456789`;
  });
  const edge = await startTestEdge({ upstream: upstream.port });
  const client = await rawClient(edge.port);
  const get = (path: string): void =>
    client.send(`GET ${path} HTTP/1.1\r\nHost: ${edge.host("terminal-1")}\r\n\r\n`);
  get("/slow");
  await client.waitFor("first");
  const { config } = edge.edge;
  await edge.edge.reload({ ...config, limits: { ...config.limits, maxTargetBytes: 300 } });
  upstream.sockets[0]?.write("-half");
  await client.waitFor("first-half");
  get("/next");
  await client.waitFor("0123456789");
  get(`/${"a".repeat(400)}`); // the new generation decides about requests that come after it
  await client.waitFor("HTTP/1.1 414 ");
  expect(upstream.requests.map(({ target }) => target.split("?")[0])).toEqual(["/slow", "/next"]);
});

test.for(["DELETE", "OPTIONS"])(
  "%s with a chunked body on kept-alive connections arrives as exactly one message each",
  async (method, { expect }) => {
    const upstream = await recordingUpstream();
    const edge = await startTestEdge({ upstream: upstream.port });
    const hidden = "GET /secret HTTP/1.1\r\nHost: x\r\n\r\n";
    const one = `${method} /public HTTP/1.1\r\nHost: ${edge.host("terminal-1")}\r\nTransfer-Encoding: chunked\r\n`;
    const body = `${hidden.length.toString(16)}\r\n${hidden}\r\n0\r\n\r\n`;
    await rawExchange(edge.port, `${one}\r\n${body}${one}Connection: close\r\n\r\n${body}`);
    expect(upstream.requests.map((r) => [r.method, r.target.split("?")[0], r.body])).toEqual([
      [method, "/public", hidden],
      [method, "/public", hidden],
    ]);
  },
);

test("OPTIONS * is answered by the edge for a known host only", async ({ expect }) => {
  const edge = await startTestEdge();
  const known = await rawExchange(
    edge.port,
    `OPTIONS * HTTP/1.1\r\nHost: ${edge.host("terminal-1")}\r\nConnection: close\r\n\r\n`,
  );
  expect(known).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  const unknown = await rawExchange(
    edge.port,
    "OPTIONS * HTTP/1.1\r\nHost: nobody.example\r\nConnection: close\r\n\r\n",
  );
  expect(unknown).toMatch(/^HTTP\/1\.1 404 /);
});

test("a request that outlives its budget is answered 504", async ({ expect }) => {
  const upstream = await recordingUpstream(() => null);
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: { limits: { requestBudgetMs: 300 } },
  });
  const answer = await ask(edge.port, { host: edge.host("terminal-1") });
  expect([answer.status, answer.json["code"]]).toEqual([504, "REQUEST_BUDGET_SPENT"]);
});
