import { expect, test } from "vitest";
import { CONTAINER } from "../support/edge.ts";
import { head, readAnswers } from "../support/faults.ts";
import { startFaultEdge } from "../support/fault-routes.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";

/** K07: answers below 200 are not the answer, and whoever waits for one gets one at most. */

const INTERIM =
  head("HTTP/1.1 100 Continue", "X-Interim: a") +
  head("HTTP/1.1 102 Processing") +
  head(
    "HTTP/1.1 103 Early Hints",
    "Link: </a.css>; rel=preload",
    "Connection: X-Gone",
    "X-Gone: 1",
  ) +
  head("HTTP/1.1 103 Early Hints", "Link: </b.css>; rel=preload", "Set-Cookie: early=1") +
  head("HTTP/1.1 199 Whatever");
const FINAL = `${head("HTTP/1.1 200 OK", "X-Final: 1", "Content-Length: 2")}ok`;

test("any number of interim answers come first, the final one once and with its own fields", async () => {
  const faults = await startFaultEdge(() => INTERIM + FINAL);
  for (const route of faults.routes.filter(({ shows }) => shows === "service")) {
    const text = await rawExchange(
      faults.edge.port,
      head(`GET ${route.path} HTTP/1.1`, `Host: ${route.host}`, "Connection: close"),
      10_000,
    );
    const answers = readAnswers(text);
    const final = answers.at(-1);
    expect([route.name, final?.status, final?.body]).toEqual([route.name, 200, "ok"]);
    expect([route.name, answers.filter(({ status }) => status >= 200).length]).toEqual([
      route.name,
      1,
    ]);
    expect([
      route.name,
      (final?.lines ?? []).filter((line) => /Link|Set-Cookie|X-Interim/.test(line)),
    ]).toEqual([route.name, []]);
    expect([route.name, text.includes("X-Gone")]).toEqual([route.name, false]);
    if (["plain", "port", "alias", "agent"].includes(route.name)) {
      expect(answers.map(({ status }) => status)).toEqual([102, 103, 103, 199, 200]);
    }
  }
}, 40_000);

test("an HTTP/1.0 client gets no interim answer", async () => {
  const faults = await startFaultEdge(() => INTERIM + FINAL);
  const text = await rawExchange(
    faults.edge.port,
    head("GET /x HTTP/1.0", `Host: ${faults.edge.host("terminal-1")}`, "Expect: 100-continue"),
  );
  expect(text).toMatch(/^HTTP\/1\.[01] 200 OK\r\n/);
  expect(text.match(/HTTP\/1/g)).toHaveLength(1);
});

test("endless interim answers end in a 502, not in memory", async () => {
  const faults = await startFaultEdge((_request, socket) => {
    const flood = setInterval(() => socket.write(head("HTTP/1.1 102 Processing").repeat(50)), 5);
    socket.on("close", () => clearInterval(flood));
    return null;
  });
  const text = await rawExchange(
    faults.edge.port,
    head("GET /plain HTTP/1.1", `Host: ${faults.edge.host("terminal-1")}`, "Connection: close"),
  );
  expect(readAnswers(text).at(-1)?.status).toBe(502);
});

const EXPECTS = ["Expect: 100-continue", "Expect: 100-Continue", "expect:  100-CONTINUE "];

test("a waiting client is told once to go on, on every route, and its body arrives whole", async () => {
  const faults = await startFaultEdge(() => head("HTTP/1.1 100 Continue").repeat(2) + FINAL);
  for (const [at, route] of faults.routes.entries()) {
    const client = await rawClient(faults.edge.port);
    client.send(
      head(
        `POST ${route.path} HTTP/1.1`,
        `Host: ${route.host}`,
        EXPECTS[at % EXPECTS.length]!,
        "Content-Length: 4",
        "Connection: close",
      ),
    );
    await client.waitFor("100 Continue\r\n\r\n");
    client.send("body");
    const answers = readAnswers(await client.closed(10_000));
    expect([route.name, answers.map(({ status }) => status)]).toEqual([route.name, [100, 200]]);
    if (route.shows === "service" && route.name !== "agent") {
      const request = faults.upstream.requests.at(-1);
      expect([route.name, request?.body]).toEqual([route.name, "body"]);
      expect([route.name, request?.lines.filter((line) => /^expect/i.test(line))]).toEqual([
        route.name,
        [],
      ]);
    }
  }
}, 40_000);

/** Path and host of a request that is refused, and its status. */
type Refused = readonly [name: string, host: string, path: string, status: number];

test("who is refused reads the refusal first, never a 100, and the connection stays sound", async () => {
  const faults = await startFaultEdge();
  const { edge, upstream } = faults;
  await edge.hook("files", { match: { path: "/guarded*" }, script: { path: "/x" } });
  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions`;
  const etag = (await edge.api("GET", path)).etag ?? "";
  const stored = await edge.api(
    "PUT",
    path,
    {
      groups: { ci: { type: "token", header: "X-Key", value: "k" } },
      permissions: { ci: { notes: true } },
      default: "allow",
    },
    etag,
  );
  expect(stored.status).toBe(200);
  const { body } = await edge.api(
    "PUT",
    path,
    {
      groups: {
        ci: { type: "token", header: "X-Key", value: "k" },
        web: { type: "password", username: "u", password: "p", salt: "s" },
        near: { type: "ip", range: "127.0.0.0/8" },
      },
      permissions: { ci: { notes: true }, web: { notes: true }, near: { run: false } },
      default: "allow",
    },
    stored.etag ?? "",
  );
  expect(body["statusCode"]).toBe(200);
  const refusals: Refused[] = [
    ["unknown host", "nobody.example", "/", 404],
    ["password wanted", edge.host("notes-1"), "/", 401],
    ["group refuses", edge.host("run-1"), "/", 403],
    ["strict service", edge.host("logs-1"), "/", 403],
    ["long hooked path", edge.host("files-1"), `/guarded/${"x".repeat(4096)}`, 414],
    ["no such service", edge.host("bogus-1"), "/", 404],
  ];
  for (const [name, host, target, status] of refusals) {
    const client = await rawClient(edge.port);
    client.send(
      head(`POST ${target} HTTP/1.1`, `Host: ${host}`, "Expect: 100-continue", "Content-Length: 4"),
    );
    await client.waitFor(`HTTP/1.1 ${status} `);
    // The client may give its body up, or send it after all; neither may be taken for a request.
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    const statuses = [...(await client.closed(6000)).matchAll(/HTTP\/1\.1 ([0-9]{3})/g)].map(
      (m) => m[1],
    );
    expect([name, statuses]).toEqual([name, [String(status)]]);
  }
  expect(upstream.bytes).toEqual([]);
});

test("other expectations are 417, and no body is waited for", async () => {
  const faults = await startFaultEdge();
  for (const expectation of ["200-ok", "100-continue, more", "100-continue;q=1", "", "100"]) {
    const text = await rawExchange(
      faults.edge.port,
      head(
        "POST /x HTTP/1.1",
        `Host: ${faults.edge.host("terminal-1")}`,
        `Expect: ${expectation}`,
        "Content-Length: 4",
      ),
    );
    expect([expectation, readAnswers(text).map(({ status }) => status)]).toEqual([
      expectation,
      [417],
    ]);
  }
  expect(faults.upstream.bytes).toEqual([]);
});

test("a script that refuses without wanting the body is not preceded by a 100", async () => {
  const faults = await startFaultEdge();
  const { edge } = faults;
  edge.script(
    "deny.js",
    "// @rawBody\nmodule.exports = (req, res) => { res.statusCode = 401; res.end('no'); };",
  );
  await edge.hook("terminal", {
    match: { path: "/deny*" },
    script: { path: "/deny" },
    timeout: 10_000,
  });
  await edge.hook("terminal", {
    match: { path: "/missing*" },
    script: { path: "/missing" },
    timeout: 10_000,
  });
  for (const [path, status] of [
    ["/deny", 401],
    ["/missing", 404],
  ] as const) {
    const client = await rawClient(edge.port);
    client.send(
      head(
        `POST ${path} HTTP/1.1`,
        `Host: ${edge.host("terminal-1")}`,
        "Expect: 100-continue",
        "Content-Length: 4",
      ),
    );
    const text = await client.closed(10_000);
    expect([path, readAnswers(text).map((answer) => answer.status)]).toEqual([path, [status]]);
  }
});

test("a body that comes without waiting for the 100 arrives whole, and the next request behind it too", async () => {
  const faults = await startFaultEdge();
  for (const route of faults.routes) {
    const client = await rawClient(faults.edge.port);
    const one = head(
      `POST ${route.path} HTTP/1.1`,
      `Host: ${route.host}`,
      "Expect: 100-continue",
      "Content-Length: 4",
    );
    client.send(`${one}body${one}body`);
    client.send(head(`GET ${route.path} HTTP/1.1`, `Host: ${route.host}`, "Connection: close"));
    const statuses = readAnswers(await client.closed(15_000)).map(({ status }) => status);
    const finals = statuses.filter((status) => status >= 200);
    expect([route.name, finals]).toEqual([route.name, [200, 200, 200]]);
    expect(statuses.length - finals.length).toBeLessThanOrEqual(2);
  }
}, 40_000);

test("an early final answer of the service reaches a client that is still sending", async () => {
  const faults = await startFaultEdge(undefined);
  const upstream = faults.upstream;
  const client = await rawClient(faults.edge.port);
  client.send(
    head(
      "POST /plain HTTP/1.1",
      `Host: ${faults.edge.host("terminal-1")}`,
      "Expect: 100-continue",
      "Content-Length: 1000000",
    ),
  );
  await client.waitFor("100 Continue");
  client.send("x".repeat(1000));
  await upstream.waitUntil(() => (upstream.bytes[0] ?? "").includes("xxx"));
  upstream.sockets[0]?.write(`${head("HTTP/1.1 413 Content Too Large", "Content-Length: 4")}much`);
  const text = await client.waitFor("much");
  expect(readAnswers(text).map(({ status }) => status)).toEqual([100, 413]);
  expect(await client.closed()).toBe(text);
});
