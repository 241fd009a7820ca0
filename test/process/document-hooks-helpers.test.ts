import { gzipSync } from "node:zlib";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type DocumentEdge, openDocumentEdge } from "../support/document-edge.ts";
import { rawClient } from "../support/raw-client.ts";

/*
 * What the document for script authors says of forward(), fetchUpstream() and pipeResponse(), met as a client of a
 * running edge meets it. The same is tried on a worker alone in worker-helpers.test.ts, in more spellings.
 */

let d: DocumentEdge;
let endlessClosed = 0;
let readsOfEndless = 0;

beforeAll(async () => {
  d = await openDocumentEdge((req, res, body) => {
    const path = req.url?.split("?")[0] ?? "";
    switch (path) {
      case "/cookies":
        res.setHeader("Set-Cookie", ["a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT", "b=2"]);
        res.writeHead(200, {
          connection: "X-Hop",
          "x-hop": "1",
          "keep-alive": "timeout=9",
          "x-up": "up",
          "content-type": "text/plain",
        });
        return void res.end("ok");
      case "/gzip":
        res.writeHead(200, { "content-encoding": "gzip", "content-type": "text/plain" });
        return void res.end(gzipSync("plain text"));
      case "/204":
        res.writeHead(204, { "content-length": "5" });
        return void res.end();
      case "/304":
        res.writeHead(304, { "content-length": "12", etag: '"x"' });
        return void res.end();
      case "/head":
        res.writeHead(200, { "content-length": "1234" });
        return void res.end();
      case "/401":
        res.writeHead(401, { "content-type": "text/plain" });
        return void res.end("inner words");
      case "/reset":
        return void req.socket.resetAndDestroy();
      case "/break":
        res.writeHead(200, { "content-length": "10" });
        res.write("abc");
        return void setTimeout(() => res.destroy(), 100);
      case "/endless":
        res.writeHead(200, { "content-type": "text/event-stream" });
        res.write("data: 1\n\n");
        readsOfEndless++;
        return void req.socket.once("close", () => endlessClosed++);
      case "/never":
        return void req.socket.once("close", () => endlessClosed++);
      default:
        res.writeHead(200, { "content-type": "application/json" });
        res.end(
          JSON.stringify({
            method: req.method,
            url: req.url,
            headers: req.rawHeaders,
            body: body.toString("latin1"),
          }),
        );
    }
  });
}, 30_000);
afterAll(() => d.close());

const FORWARD = "await hook.forward(req, res);";
const PIPE = "await hook.pipeResponse(await hook.fetchUpstream(req), res);";
const RETURN = "return await hook.fetchUpstream(req);";
const ROUTES = [
  ["forward()", FORWARD],
  ["fetchUpstream() and pipeResponse()", PIPE],
  ["a returned fetchUpstream()", RETURN],
] as const;

interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly string[];
  readonly body: string;
}
const seen = (answer: { json: unknown }) => answer.json as Seen;
const valuesOf = (headers: readonly string[], name: string) =>
  headers.filter((_, at) => at % 2 === 1 && headers[at - 1]?.toLowerCase() === name);

test("metadata.hook shows five members; its helpers are not among its keys", async () => {
  const answer = await d.run(
    `const own = Object.getOwnPropertyNames(hook);
return { keys: Object.keys(hook), json: JSON.parse(JSON.stringify(hook)), hidden: ['forward', 'fetchUpstream', 'pipeResponse'].map((name) => [typeof hook[name], Object.keys(hook).includes(name)]), arity: hook.forward.name, url: req.url, method: req.method };`,
    { method: "POST", path: "/api/login?a=1", body: "x" },
  );
  expect(answer.json).toMatchObject({
    keys: ["auditId", "origMethod", "origPath", "service", "upstream"],
    json: {
      auditId: expect.stringMatching(/^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/),
      origMethod: "POST",
      origPath: "/api/login",
      service: "terminal",
      upstream: { host: "127.0.0.1", port: d.upstream.port },
    },
    hidden: [
      ["function", false],
      ["function", false],
      ["function", false],
    ],
    url: "/api/login?a=1&terminal_id=1",
    method: "POST",
  });
});

test.for(ROUTES)("%s reads a request and gives the service's answer", async ([route, body]) => {
  const answer = await d.run(body, {
    method: "POST",
    path: "/cookies?x=1",
    headers: { connection: "x-private", "x-private": "1", "keep-alive": "5", te: "trailers" },
    body: "field=1",
  });
  expect(answer).toMatchObject({ status: 200, body: "ok" });
  expect(answer.headers["set-cookie"]).toEqual([
    "a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT",
    "b=2",
  ]);
  expect(answer.headers["x-up"]).toBe("up");
  expect(answer.headers["x-hop"]).toBeUndefined();
  const got = d.upstream.received.at(-1);
  expect(got).toMatchObject({ method: "POST", url: "/cookies?x=1&terminal_id=1" });
  expect(String(got?.body)).toBe("field=1");
  expect(got?.headers.host).toBe(d.edge.host("terminal-1"));
  expect(got?.headers["content-length"]).toBe("7");
  for (const name of ["x-private", "te", "transfer-encoding"]) {
    expect(got?.headers[name], name).toBeUndefined();
  }
  // Compression: the service's own bytes and their name.
  const zipped = await d.run(body, { path: "/gzip" });
  expect(zipped.headers["content-encoding"]).toBe("gzip");
  expect(zipped.bytes.equals(gzipSync("plain text"))).toBe(true);
  // No body for 204 and 304 and HEAD; a 204 has no length, whatever the service says.
  const empty = await d.run(body, { path: "/204" });
  expect([empty.status, empty.headers["content-length"], empty.body]).toEqual([204, undefined, ""]);
  const cached = await d.run(body, { path: "/304" });
  expect([cached.status, cached.headers["etag"], cached.body]).toEqual([304, '"x"', ""]);
  const head = await d.run(body, { method: "HEAD", path: "/head" });
  expect([head.status, head.body, head.cut]).toEqual([200, "", false]);
  if (route !== "a returned fetchUpstream()") {
    expect(head.headers["content-length"]).toBe("1234");
  }
});

test.for([
  ["/@babel/core", "/@babel/core"],
  ["/a\\b", "/a%5Cb"],
  ["/a#b", "/a%23b"],
  ["/x?p=a\\b&q=@", "/x?p=a\\b&q=@"],
  ["/%2F%zz%41", "/%2F%zz%41"],
  ["/caf%C3%A9/", "/caf%C3%A9/"],
  ["/a//b;c=1", "/a//b;c=1"],
] as const)("the path %s arrives as %s", async ([path, sent]) => {
  for (const body of [FORWARD, PIPE]) {
    const answer = await d.run(body, { path });
    expect(seen(answer).url.replace(/[?&]terminal_id=1$/, "")).toBe(sent);
  }
});

test.for(["/a/../b", "/a/%2e%2E/b", "/./x", "/x/.%2e", "//x"])(
  "the path %s is refused, and the service is not asked",
  async (path) => {
    const before = d.upstream.received.length;
    const forwarded = await d.run(FORWARD, { path });
    const uncaught = await d.run(PIPE, { path });
    const later = await d.run(
      "try { await hook.fetchUpstream(req) } catch {} throw new TypeError('another reason');",
      { path },
    );
    for (const answer of [forwarded, uncaught, later]) {
      expect([answer.status, answer.json["error"]]).toEqual([400, "bad request path"]);
      expect(answer.headers["cache-control"]).toBe("no-store");
    }
    const own = await d.run(
      "try { await hook.fetchUpstream(req) } catch (e) { res.writeHead(418); res.end(e.kind); }",
      { path },
    );
    expect([own.status, own.body]).toEqual([418, "unforwardable-path"]);
    const answeredThenThrew = await d.run(
      "try { await hook.fetchUpstream(req) } catch {} res.writeHead(203); res.end('mine'); throw new Error('late');",
      { path },
    );
    expect([answeredThenThrew.status, answeredThenThrew.body]).toEqual([203, "mine"]);
    expect(d.upstream.received.length).toBe(before);
  },
);

test("a body goes on as it was buffered, or as it comes with @rawBody", async () => {
  const buffered = await d.run(
    `if (!Buffer.isBuffer(req.rawBody)) throw new Error('no bytes');\n${FORWARD}`,
    { method: "PUT", path: "/e", body: "a\u0000b" },
  );
  expect(seen(buffered).body).toBe("a\u0000b");
  const raw = await d.run(
    `// @rawBody\nif ('rawBody' in req && req.rawBody !== undefined) throw new Error('buffered');\n${FORWARD}`,
    { method: "PUT", path: "/e", headers: { "transfer-encoding": "chunked" }, body: "piece" },
  );
  expect(seen(raw).body).toBe("piece");
  expect(valuesOf(seen(raw).headers, "content-length")).toEqual([]);
  const sized = await d.run(`// @rawBody\n${FORWARD}`, {
    method: "PUT",
    path: "/e",
    body: "12345",
  });
  expect(valuesOf(seen(sized).headers, "content-length")).toEqual(["5"]);
  expect(valuesOf(seen(sized).headers, "transfer-encoding")).toEqual([]);
});

test.for(["/endless", "/never"])(
  "a client that leaves ends the call at the service: %s",
  async (path) => {
    d.edge.script(
      "case.js",
      "module.exports = async (req, res, metadata) => { await metadata.hook.forward(req, res); };",
    );
    const before = endlessClosed;
    const client = await rawClient(d.edge.port);
    client.send(`GET ${path} HTTP/1.1\r\nHost: ${d.edge.host("terminal-1")}\r\n\r\n`);
    if (path === "/endless") {
      await client.waitFor("data: 1");
    } else {
      await expect.poll(() => d.upstream.received.at(-1)?.url, { timeout: 8000 }).toMatch(/never/);
    }
    client.socket.destroy();
    await expect.poll(() => endlessClosed, { timeout: 8000 }).toBe(before + 1);
    expect(readsOfEndless).toBeGreaterThanOrEqual(1);
  },
);

test("a call that the client's leaving ended is an abort for the script", async () => {
  d.edge.script(
    "case.js",
    `module.exports = async (req, res, metadata, shared) => {
      if (req.url.startsWith('/ask')) { return { kind: shared.kind ?? null }; }
      try { await metadata.hook.fetchUpstream(req); } catch (error) { shared.kind = error.kind; throw error; }
    };`,
  );
  const client = await rawClient(d.edge.port);
  client.send(`GET /never HTTP/1.1\r\nHost: ${d.edge.host("terminal-1")}\r\n\r\n`);
  await expect.poll(() => d.upstream.received.at(-1)?.url, { timeout: 8000 }).toMatch(/never/);
  client.socket.destroy();
  await expect
    .poll(async () => (await d.send({ path: "/ask" })).json["kind"], { timeout: 8000 })
    .toBe("abort");
});

test("errors of the service are a bare 502 from forward(), a 500 from an uncaught fetchUpstream()", async () => {
  for (const [overrides, path] of [
    ["{ port: 1 }", "/"],
    ["{ host: 'no-such-host.invalid' }", "/"],
    ["undefined", "/reset"],
    ["{ timeoutMs: 100 }", "/never"],
    ["{ signal: AbortSignal.timeout(100) }", "/never"],
  ] as const) {
    const answer = await d.run(
      `res.setHeader('x-staged', '1'); res.setHeader('set-cookie', 's=1'); await hook.forward(req, res, ${overrides});`,
      { path },
    );
    expect(answer.status, overrides).toBe(502);
    expect(answer.headers["x-hoody-hook-audit"]).toBe(answer.json["auditId"]);
    expect(answer.json["auditId"]).toMatch(/^[0-9a-f-]{36}$/);
    expect(answer.headers["x-staged"]).toBeUndefined();
    expect(answer.headers["set-cookie"]).toBeUndefined();
    expect(answer.body).not.toMatch(/ECONN|ENOTFOUND|127\.0|invalid|timeout|abort|at .*\.js/i);
    const uncaught = await d.run(`await hook.fetchUpstream(req, ${overrides});`, { path });
    expect(uncaught.status, overrides).toBe(500);
  }
  // Errors of the author are real errors: a 500, never a 502.
  const mistake = await d.run("await hook.forward(req, res, { port: 0 });");
  expect([mistake.status, mistake.json["code"]]).toEqual([500, "HOOK_SCRIPT_ERROR"]);
});

const KIND = (call: string) =>
  `try { ${call}; return { kind: 'none' } } catch (e) { return { kind: e.kind, name: e.name, local: e instanceof HookUpstreamError, member: e instanceof hook.HookUpstreamError, error: e instanceof Error } }`;

test.for([
  ["network", "await hook.fetchUpstream(req, { port: 1 })", "GET", "/"],
  ["network", "await hook.fetchUpstream(req)", "GET", "/reset"],
  ["network", "await hook.fetchUpstream(req, { host: 'no-such-host.invalid' })", "GET", "/"],
  ["abort", "await hook.fetchUpstream(req, { signal: AbortSignal.timeout(50) })", "GET", "/never"],
  ["timeout", "await hook.fetchUpstream(req, { timeoutMs: 50 })", "GET", "/never"],
  ["unforwardable-path", "await hook.fetchUpstream(req)", "GET", "//x"],
  ["no-body", "req.rawBody = undefined; await hook.fetchUpstream(req)", "POST", "/"],
  ["invalid-override", "await hook.fetchUpstream(req, { host: '010.0.0.1' })", "GET", "/"],
  ["invalid-override", "await hook.fetchUpstream(req, { port: 65536 })", "GET", "/"],
  ["invalid-override", "await hook.fetchUpstream(req, { pathAndQuery: '/a/../b' })", "GET", "/"],
  ["invalid-override", "await hook.fetchUpstream(req, { method: 'GE T' })", "GET", "/"],
  ["invalid-override", "await hook.fetchUpstream(req, { headers: { 'a b': '1' } })", "GET", "/"],
  ["invalid-override", "await hook.fetchUpstream(req, { timeoutMs: 86400001 })", "GET", "/"],
  ["invalid-override", "await hook.fetchUpstream(req, { signal: {} })", "GET", "/"],
  ["invalid-override", "await hook.forward(req, res, { onUpstreamError: 1 })", "GET", "/"],
] as const)("HookUpstreamError %s: %s", async ([kind, call, method, path]) => {
  const answer = await d.run(KIND(call), { method, path, ...(method === "POST" && { body: "x" }) });
  expect(answer.json).toEqual({
    kind,
    name: "HookUpstreamError",
    local: true,
    member: true,
    error: true,
  });
});

test("HookUpstreamError of a body that was streamed away, of sent bytes, of a broken stream", async () => {
  const post = { method: "POST", path: "/e", body: "data" };
  const twice = await d.run(
    `// @rawBody\n${KIND("await hook.fetchUpstream(req); await hook.fetchUpstream(req)")}`,
    post,
  );
  expect(twice.json["kind"]).toBe("body-consumed");
  const given = await d.run(
    "// @rawBody\nawait hook.fetchUpstream(req); await hook.forward(req, res, { body: 'other' });",
    post,
  );
  expect(seen(given).body).toBe("other");
  const sent = await d.run(
    "const up = await hook.fetchUpstream(req); res.writeHead(200); res.write('begun;'); try { await hook.pipeResponse(up, res) } catch (e) { res.end(e.kind) }",
  );
  expect(sent.body).toBe("begun;bytes-already-sent");
  d.edge.script("sub/pre.js", "for await (const chunk of req) {}");
  d.edge.script(
    "sub/raw.js",
    "// @rawBody\nmodule.exports = async (req, res, metadata) => { try { await metadata.hook.fetchUpstream(req); } catch (e) { return e.kind; } };",
  );
  await d.edge.hook("files", { match: {}, script: { path: "/sub/raw" }, timeout: 15_000 });
  const drained = await d.send({ ...post, host: d.edge.host("files-1") });
  expect(drained.body).toBe("no-body");
  // The client is still there when the service breaks off: the script learns it, the client sees a cut.
  d.edge.script(
    "case.js",
    `module.exports = async (req, res, metadata, shared) => {
      if (req.url.startsWith('/ask')) { return { kinds: shared.kinds ?? [] }; }
      try { await metadata.hook.pipeResponse(await metadata.hook.fetchUpstream(req), res); }
      catch (e) { (shared.kinds ??= []).push(e.kind); throw e; }
    };`,
  );
  const broken = await d.send({ path: "/break" });
  expect([broken.status, broken.body, broken.cut]).toEqual([200, "abc", true]);
  await expect
    .poll(async () => (await d.send({ path: "/ask" })).json["kinds"], { timeout: 8000 })
    .toEqual(["stream-aborted"]);
  // A client that leaves while its answer is piped is no error.
  const client = await rawClient(d.edge.port);
  client.send(`GET /endless HTTP/1.1\r\nHost: ${d.edge.host("terminal-1")}\r\n\r\n`);
  await client.waitFor("data: 1");
  client.socket.destroy();
  await sleep(500);
  expect((await d.send({ path: "/ask" })).json["kinds"]).toEqual(["stream-aborted"]);
});

test("the class is a global also for helper modules and by globalThis", async () => {
  d.edge.script(
    "lib/kinds.js",
    "exports.same = (other) => HookUpstreamError === other && globalThis.HookUpstreamError === other;",
  );
  const answer = await d.run(
    "return [HookUpstreamError === hook.HookUpstreamError, globalThis.HookUpstreamError === hook.HookUpstreamError, require('./lib/kinds.js').same(hook.HookUpstreamError)];",
  );
  expect(answer.json).toEqual([true, true, true]);
  // Without a hook the global is there all the same.
  d.edge.script(
    "plain.js",
    "module.exports = (req, res, metadata) => ({ hook: typeof metadata.hook, name: HookUpstreamError.name });",
  );
  const plain = await d.send({ host: d.edge.host("exec-1"), path: "/plain" });
  expect(plain.json).toEqual({ hook: "undefined", name: "HookUpstreamError" });
});

test("pipeResponse() sends a built response with framing of its own", async () => {
  const wrong =
    "new Response('abc', { headers: { 'content-length': '99', 'transfer-encoding': 'chunked', connection: 'x-a', 'x-a': '1', 'x-b': '2' } })";
  for (const body of [`await hook.pipeResponse(${wrong}, res);`, `return ${wrong};`]) {
    const answer = await d.run(body);
    expect([answer.status, answer.body, answer.cut]).toEqual([200, "abc", false]);
    expect([answer.headers["x-a"], answer.headers["x-b"]]).toEqual([undefined, "2"]);
    const { "content-length": length, "transfer-encoding": coding } = answer.headers;
    expect(length === "3" ? coding === undefined : coding === "chunked").toBe(true);
  }
  const cookies = await d.run(
    "const up = new Response('x'); up.headers.append('set-cookie', 'a=1'); up.headers.append('set-cookie', 'b=2'); await hook.pipeResponse(up, res);",
  );
  expect(cookies.headers["set-cookie"]).toEqual(["a=1", "b=2"]);
  const quiet = await d.run(
    "await hook.pipeResponse(new Response('abc', { status: 201 }), res, { method: 'HEAD' });",
  );
  expect([quiet.status, quiet.body, quiet.cut]).toEqual([201, "", false]);
  // The head may be changed first, which is what transforms are for.
  const changed = await d.run(
    "const up = await hook.fetchUpstream(req); up.headers.delete('x-up'); up.headers.set('content-security-policy', \"default-src 'none'\"); await hook.pipeResponse(up, res, { method: req.method });",
    { path: "/cookies" },
  );
  expect(changed.headers["x-up"]).toBeUndefined();
  expect(changed.headers["content-security-policy"]).toBe("default-src 'none'");
});
