import { expect, test } from "vitest";
import { OTHER } from "../support/edge.ts";
import { eachStatus, handshake, head, readAnswers } from "../support/faults.ts";
import { startFaultEdge } from "../support/fault-routes.ts";
import { rawExchange } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

/** K17: the address of the service comes from routing or a checked override, and from nothing a client writes. */

test("no path, query or field of a client moves its request to another address", async () => {
  const elsewhere = await recordingUpstream();
  const faults = await startFaultEdge();
  const { edge } = faults;
  const there = `127.0.0.1:${elsewhere.port}`;
  const targets = [
    `//${there}/x`,
    `///${there}/x`,
    `/\\${there}/x`,
    `/@${there}/x`,
    `/:80@${there}/`,
    `/http://${there}/x`,
    `/%2f%2f${there}/x`,
    `/..//${there}/x`,
    `/?url=http://${there}/&host=${there}`,
    `/#@${there}/`,
    `/;@${there}/`,
    `/.${there}`,
  ];
  const fields = [
    `X-Forwarded-Host: ${there}`,
    `X-Original-URL: http://${there}/x`,
    `X-Rewrite-URL: http://${there}/x`,
    `X-Host: ${there}`,
    "X-Hoody-Hook-Upstream-Host: 127.0.0.1",
    `X-Hoody-Hook-Upstream-Port: ${elsewhere.port}`,
    `Location: http://${there}/`,
  ];
  for (const route of faults.routes) {
    const prefix = route.path === "/plain" ? "" : route.path;
    await eachStatus(
      edge.port,
      targets.map((target) => [
        target,
        head(
          `GET ${prefix}${target} HTTP/1.1`,
          `Host: ${route.host}`,
          ...fields,
          "Connection: close",
        ),
      ]),
    );
    for (const port of [elsewhere.port, 22, 80]) {
      await rawExchange(
        edge.port,
        head(`GET ${route.path} HTTP/1.1`, `Host: ${route.host}:${port}`, "Connection: close"),
        10_000,
      );
    }
  }
  expect(elsewhere.bytes).toEqual([]);
}, 60_000);

test("redirects are passed on, never followed, whoever fetched them", async () => {
  const elsewhere = await recordingUpstream();
  const to = `http://127.0.0.1:${elsewhere.port}/x`;
  const faults = await startFaultEdge(({ target }) => {
    const status = /s=([0-9]{3})/.exec(target)?.[1] ?? "302";
    return head(
      `HTTP/1.1 ${status} Moved`,
      `Location: ${to}`,
      `Content-Location: ${to}`,
      "Refresh: 0",
      "Content-Length: 0",
    );
  });
  for (const route of faults.routes.filter(({ shows }) => shows === "service")) {
    for (const status of [301, 302, 303, 307, 308]) {
      const text = await rawExchange(
        faults.edge.port,
        head(
          `POST ${route.path}?s=${status} HTTP/1.1`,
          `Host: ${route.host}`,
          "Content-Length: 1",
          "Connection: close",
        ) + "x",
        10_000,
      );
      const answer = readAnswers(text)[0];
      expect([route.name, answer?.status]).toEqual([route.name, status]);
      expect(answer?.lines.find((line) => /^location:/i.test(line))?.slice(10)).toBe(to);
    }
  }
  expect(elsewhere.bytes).toEqual([]);
}, 40_000);

/** Overrides that are no address or no path; each is a `HookUpstreamError` of kind `invalid-override`. */
const BAD_OVERRIDES = [
  "{ host: '127.0.0.1:22' }",
  "{ host: 'user@127.0.0.1' }",
  "{ host: '0127.0.0.1' }",
  "{ host: '127.0.0.01' }",
  "{ host: '127.1' }",
  "{ host: '2130706433' }",
  "{ host: '0x7f000001' }",
  "{ host: '0x7f.0.0.1' }",
  "{ host: '127.0.0.256' }",
  "{ host: '127.0.0.1.' }",
  "{ host: '[::1]' }",
  "{ host: '::1' }",
  "{ host: '127.0.0.1/x' }",
  "{ host: '127.0.0.1#' }",
  "{ host: '127.0.0.1\\r\\n' }",
  "{ host: 'a..b' }",
  "{ host: '-a' }",
  "{ host: '' }",
  "{ host: ' a' }",
  "{ host: '\\u00e4' }",
  "{ host: '%31' }",
  "{ host: 1 }",
  "{ host: { toString: () => '127.0.0.1' } }",
  "{ host: 'a'.repeat(64) }",
  "{ port: 0 }",
  "{ port: 65536 }",
  "{ port: -1 }",
  "{ port: 80.5 }",
  "{ port: NaN }",
  "{ port: '80' }",
  "{ port: [80] }",
  "{ pathAndQuery: 'http://127.0.0.1/x' }",
  "{ pathAndQuery: '//127.0.0.1/x' }",
  "{ pathAndQuery: 'x' }",
  "{ pathAndQuery: '' }",
  "{ pathAndQuery: '/a/../b' }",
  "{ pathAndQuery: '/a/%2e%2E/b' }",
  "{ pathAndQuery: '/a/./b' }",
  "{ pathAndQuery: '/a\\\\b' }",
  "{ pathAndQuery: '/a#b' }",
  "{ pathAndQuery: '/a b' }",
  "{ pathAndQuery: '/a\\tb' }",
  "{ pathAndQuery: '/a HTTP/1.1\\r\\nX: y' }",
  "{ pathAndQuery: '/a\\u0000' }",
  "{ method: 'GET /x' }",
  "{ method: 'GET\\r\\n' }",
  "{ method: '' }",
  "{ method: 1 }",
  "{ headers: { 'X Y': '1' } }",
  "{ headers: { X: 'a\\r\\nY: b' } }",
  "{ headers: { X: '\\u4e2d' } }",
  "{ headers: { X: '\\u0000' } }",
  "{ headers: { X: '1', x: '2' } }",
  "{ headers: { Connection: 'X-Real-IP' } }",
  "{ headers: { 'Transfer-Encoding': 'chunked' } }",
  "{ headers: { 'Keep-Alive': '1' } }",
  "{ headers: { X: 1 } }",
  "{ timeoutMs: 0 }",
  "{ timeoutMs: 86400001 }",
  "{ timeoutMs: '5' }",
  "{ signal: {} }",
  "{ onUpstreamError: 1 }",
  "7",
  "'text'",
];

test("an override that is no address, path or field is refused before anything is sent", async () => {
  const faults = await startFaultEdge();
  const { edge, upstream } = faults;
  edge.script(
    "override.js",
    `const bad = [${BAD_OVERRIDES.join(", ")}];
    module.exports = async (req, res, { hook }) => {
      const kinds = [];
      for (const given of bad) {
        for (const call of [() => hook.fetchUpstream(req, given), () => hook.forward(req, res, given)]) {
          kinds.push(await call().then(() => "sent", (error) => error instanceof HookUpstreamError ? error.kind : String(error)));
        }
      }
      res.json(kinds);
    };`,
  );
  await edge.hook("terminal", {
    match: { path: "/override" },
    script: { path: "/override" },
    timeout: 20_000,
  });
  const text = await rawExchange(
    edge.port,
    head("GET /override HTTP/1.1", `Host: ${edge.host("terminal-1")}`, "Connection: close"),
    20_000,
  );
  expect(text).toMatch(/^HTTP.1.1 200 /);
  const kinds = JSON.parse(readAnswers(text)[0]?.body ?? "[]") as string[];
  const seen = BAD_OVERRIDES.map((given, at) => [
    given,
    kinds[2 * at],
    given.startsWith("{ onUp") ? "invalid-override" : kinds[2 * at + 1],
  ]);
  expect(seen).toEqual(
    BAD_OVERRIDES.map((given) => [
      given,
      given.startsWith("{ onUp") ? expect.any(String) : "invalid-override",
      "invalid-override",
    ]),
  );
  expect(upstream.requests.length).toBeLessThanOrEqual(1);
}, 40_000);

test("overrides are read once, as own properties, and what was checked is what is used", async () => {
  const elsewhere = await recordingUpstream();
  const faults = await startFaultEdge();
  const { edge, upstream } = faults;
  edge.script(
    "once.js",
    `module.exports = async (req, res, { hook }) => {
      const port = ${elsewhere.port};
      let reads = 0;
      const turning = { get host() { return ++reads === 1 ? "127.0.0.1" : "evil/../x"; }, get port() { return reads > 1 ? port : hook.upstream.port; } };
      const inherited = Object.create({ port, host: "127.0.0.1" });
      class Defaults { get port() { return port; } }
      const polluted = JSON.parse('{"__proto__": {"port": ' + port + '}}');
      const results = [];
      for (const given of [turning, inherited, new Defaults(), polluted]) {
        results.push((await hook.fetchUpstream(req, given)).status);
      }
      try { hook.upstream.port = port; } catch {}
      try { hook.origPath = "//127.0.0.1:" + port + "/"; } catch {}
      results.push((await hook.fetchUpstream(req)).status);
      req.url = "http://127.0.0.1:" + port + "/x";
      results.push(await hook.fetchUpstream(req).then((r) => r.status, (e) => e.kind));
      req.headers.host = "127.0.0.1:" + port;
      results.push((await hook.fetchUpstream(req)).status);
      res.json({ results, reads });
    };`,
  );
  await edge.hook("terminal", {
    match: { path: "/once" },
    script: { path: "/once" },
    timeout: 20_000,
  });
  const text = await rawExchange(
    edge.port,
    head("GET /once HTTP/1.1", `Host: ${edge.host("terminal-1")}`, "Connection: close"),
    20_000,
  );
  const { results, reads } = JSON.parse(readAnswers(text)[0]?.body ?? "{}") as {
    results: unknown[];
    reads: number;
  };
  expect([results, reads]).toEqual([results.map(() => 200), 1]);
  expect(results).toHaveLength(7);
  expect(elsewhere.bytes).toEqual([]);
  expect(upstream.requests.every(({ target }) => /^\/once(?:\?|$)/.test(target))).toBe(true);
}, 40_000);

test("a container's address never serves another's request", async () => {
  const other = await recordingUpstream();
  const faults = await startFaultEdge(undefined, { otherUpstream: other.port });
  const { edge, upstream } = faults;
  // The same port number in both containers would be two addresses; here two ports on one host stand for them.
  const inputs = Array.from({ length: 40 }, (_, at) => {
    const container = at % 2 === 0 ? undefined : OTHER;
    return [
      `/${at}`,
      head(
        `GET /${at} HTTP/1.1`,
        `Host: ${edge.host("terminal-1", container)}`,
        "Connection: close",
      ),
    ] as const;
  });
  await eachStatus(edge.port, inputs);
  const numbers = (seen: typeof upstream) =>
    seen.requests.map(({ target }) => Number(/^\/([0-9]+)/.exec(target)?.[1]) % 2);
  expect([new Set(numbers(upstream)), new Set(numbers(other))]).toEqual([
    new Set([0]),
    new Set([1]),
  ]);
});

test("no host name of a container leads to the edge's own listeners", async () => {
  const faults = await startFaultEdge();
  const { edge } = faults;
  const control = new URL(edge.control).port;
  for (const port of [String(edge.port), control]) {
    for (const scheme of ["http", "https"]) {
      for (const path of ["/metrics", "/healthz", "/api/v1/containers"]) {
        const host = edge.host(`${scheme}-${port}`);
        for (const bytes of [
          head(`GET ${path} HTTP/1.1`, `Host: ${host}`, "Connection: close"),
          handshake(host, path),
        ]) {
          const answers = readAnswers(await rawExchange(edge.port, bytes));
          expect([host, answers.map(({ status }) => status)]).toEqual([host, [404]]);
        }
      }
    }
  }
  const metrics = await (await fetch(`${edge.control}/metrics`)).text();
  // Nothing went round: as many requests as were sent.
  expect(metrics).toMatch(/service="http",outcome="refused",code_class="4xx"\} 12$/m);
  // The script of a hook may talk to anybody, but the inner way to embedded hosts knows only its own.
  edge.script("up.js", "module.exports = (req, res, { hook }) => res.json(hook?.upstream ?? {});");
  await edge.hook("exec", { match: { path: "/up" }, script: { path: "/up" }, timeout: 15_000 });
  const text = await rawExchange(
    edge.port,
    head("GET /up HTTP/1.1", `Host: ${edge.host("exec-1")}`, "Connection: close"),
    10_000,
  );
  const { port } = JSON.parse(readAnswers(text)[0]?.body ?? "{}") as { port: number };
  const inner = await rawExchange(
    edge.port,
    head("GET /echo HTTP/1.1", `Host: ${edge.host(`http-${port}`)}`, "Connection: close"),
  );
  expect(readAnswers(inner)[0]?.status).toBe(404);
  for (const token of [
    "",
    "x",
    "x.y",
    `${Buffer.from('{"until":1e15,"service":"exec"}').toString("base64url")}.${"A".repeat(43)}`,
  ]) {
    const direct = await rawExchange(
      port,
      head(
        "GET /echo HTTP/1.1",
        "Host: x",
        `X-Hoody-Hook-Upstream-Token: ${token}`,
        "Connection: close",
      ),
    );
    expect(readAnswers(direct)[0]?.status).toBe(403);
  }
}, 30_000);
