import { afterAll, beforeAll, expect, test } from "vitest";
import { ask } from "../support/ask.ts";
import { type DocumentEdge, openDocumentEdge } from "../support/document-edge.ts";
import { startUpstream, type TestUpstream } from "../support/start-upstream.ts";

/*
 * Every member of a helper call's overrides through a running edge: what it does, what is refused, and that it is
 * read once, at the start, as an own member.
 */

let d: DocumentEdge;
let other: TestUpstream;

beforeAll(async () => {
  const echo: Parameters<typeof startUpstream>[0] = (req, res, body) => {
    if (req.url?.startsWith("/never") === true) {
      return;
    }
    res.writeHead(200, { "content-type": "application/json" });
    res.end(
      JSON.stringify({
        method: req.method,
        url: req.url,
        headers: req.rawHeaders,
        body: body.toString("latin1"),
      }),
    );
  };
  d = await openDocumentEdge(echo);
  other = await startUpstream(echo);
}, 30_000);
afterAll(async () => {
  await d.close();
  await other.stop();
});

interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly string[];
  readonly body: string;
}

/** Both helpers with these overrides; what the service saw of each. */
async function both(overrides: string, request: Parameters<DocumentEdge["run"]>[1] = {}) {
  const all: Seen[] = [];
  for (const body of [
    `await hook.forward(req, res, ${overrides});`,
    `await hook.pipeResponse(await hook.fetchUpstream(req, ${overrides}), res);`,
  ]) {
    const answer = await d.run(body, request);
    expect(answer.status, overrides).toBe(200);
    all.push(answer.json as unknown as Seen);
  }
  return all;
}
const valuesOf = (seen: Seen, name: string) =>
  seen.headers.filter((_, at) => at % 2 === 1 && seen.headers[at - 1]?.toLowerCase() === name);

const POST = { method: "POST", path: "/p?x=1", body: "old", headers: { "x-a": "1", "x-b": "2" } };

test("method, pathAndQuery, headers and body replace the client's", async () => {
  for (const seen of await both("{ method: 'PURGE' }", POST)) {
    expect([seen.method, seen.url, seen.body]).toEqual(["PURGE", "/p?x=1&terminal_id=1", "old"]);
  }
  for (const seen of await both("{ pathAndQuery: '/new//%7e?q=../\"<>|' }", POST)) {
    expect(seen.url).toBe('/new//%7e?q=../"<>|');
  }
  const headers =
    "{ headers: { 'X-A': null, 'x-B': 'new', 'X-List': ['1', '2'], host: 'h.example' } }";
  for (const seen of await both(headers, POST)) {
    expect(valuesOf(seen, "x-a")).toEqual([]);
    expect(valuesOf(seen, "x-b")).toEqual(["new"]);
    expect(valuesOf(seen, "x-list")).toEqual(["1", "2"]);
    expect(valuesOf(seen, "host")).toEqual(["h.example"]);
  }
  for (const seen of await both("{ body: 'new text' }", POST)) {
    expect([seen.body, valuesOf(seen, "content-length")]).toEqual(["new text", ["8"]]);
  }
  for (const seen of await both("{ body: null }", POST)) {
    expect([seen.method, seen.body]).toEqual(["POST", ""]);
    expect(["", "0"]).toContain(valuesOf(seen, "content-length").join());
    expect(valuesOf(seen, "transfer-encoding")).toEqual([]);
  }
  for (const body of ["new Blob(['b'])", "new Uint8Array([98])", "new Response('b').body"]) {
    for (const seen of await both(`{ body: ${body} }`, POST)) {
      expect(seen.body).toBe("b");
    }
  }
});

test("host and port lead elsewhere, and the client's Host stays", async () => {
  for (const host of ["'127.0.0.1'", "'localhost'"]) {
    const before = other.received.length;
    for (const seen of await both(`{ host: ${host}, port: ${other.port} }`, POST)) {
      expect(valuesOf(seen, "host")).toEqual([d.edge.host("terminal-1")]);
    }
    expect(other.received.length).toBe(before + 2);
  }
});

test("signal and timeoutMs end the call, whichever is first", async () => {
  const kind = (overrides: string) =>
    `try { await hook.fetchUpstream(req, ${overrides}); return 'none' } catch (e) { return e.kind }`;
  const path = "/never";
  const cases = [
    ["{ signal: AbortSignal.timeout(60), timeoutMs: 60000 }", "abort"],
    ["{ signal: new AbortController().signal, timeoutMs: 60 }", "timeout"],
    ["{ signal: AbortSignal.abort() }", "abort"],
    ["{ timeoutMs: 1 }", "timeout"],
  ] as const;
  for (const [overrides, wanted] of cases) {
    expect((await d.run(kind(overrides), { path })).body).toBe(wanted);
  }
  expect((await d.run(kind("{ timeoutMs: 86400000 }"), { path: "/" })).body).toBe("none");
});

const INVALID = {
  method: ["'A B'", "''", "7", "'G\\u00c9T'", "null"],
  pathAndQuery: [
    "'/a#b'",
    "'/a/../b'",
    "'/..'",
    "'/a/%2e%2e/b'",
    "'/a\\\\b'",
    "'/a b'",
    "'/a\\tb'",
    "'/a\\u0000'",
    "'/a\\r\\nX: y'",
    "'http://h.example/'",
    "'//h.example/'",
    "'relative'",
    "''",
    "5",
  ],
  host: [
    "'010.0.0.1'",
    "'127.0.0.01'",
    "'0177.0.0.1'",
    "'256.0.0.1'",
    "'1.2.3'",
    "'a_b c'",
    "'h.example:80'",
    "'u@h.example'",
    "'[::1]'",
    "''",
    "4",
  ],
  port: ["0", "65536", "-1", "80.5", "'80'", "NaN"],
  headers: [
    "{ 'a b': '1' }",
    "{ a: 'x\\r\\ny: z' }",
    "{ a: 'x\\u0000' }",
    "{ '': '1' }",
    "{ a: 5 }",
    "'x'",
  ],
  timeoutMs: ["0", "-1", "86400001", "'5'", "NaN", "Infinity"],
  signal: ["{}", "'x'", "5"],
  onUpstreamError: ["{}", "'x'", "5"],
} as const;

test.for(Object.entries(INVALID))(
  "a bad %s is invalid-override, and nothing is sent",
  async ([name, values]) => {
    const before = d.upstream.received.length;
    const answer = await d.run(
      `const wrong = [];
for (const value of [${values.join(", ")}]) {
  for (const call of [(o) => hook.fetchUpstream(req, o), (o) => hook.forward(req, res, o)]) {
    try { await call({ ${name}: value }); wrong.push(['accepted', String(value)]); }
    catch (e) { if (e.kind !== 'invalid-override' || !(e instanceof HookUpstreamError)) wrong.push([String(e), String(value)]); }
  }
}
return { wrong, started: res.headersSent };`,
      POST,
    );
    expect(answer.json).toEqual({ wrong: [], started: false });
    expect(d.upstream.received.length).toBe(before);
    // Uncaught it is the author's error, not the service's.
    const uncaught = await d.run(`await hook.forward(req, res, { ${name}: ${values[0]} });`, POST);
    expect(uncaught.status).toBe(500);
  },
);

test("onUpstreamError answers in forward() for errors of the service only", async () => {
  const answer = await d.run(
    "await hook.forward(req, res, { port: 1, onUpstreamError: (e) => ({ status: 503, headers: { 'Retry-After': '7', 'X-Kind': e.kind, 'Set-Cookie': ['a=1', 'b=2'] }, body: 'later' }) });",
  );
  expect([answer.status, answer.body]).toEqual([503, "later"]);
  expect(answer.headers).toMatchObject({
    "retry-after": "7",
    "x-kind": "network",
    "set-cookie": ["a=1", "b=2"],
  });
  const late = await d.run(
    "await hook.forward(req, res, { timeoutMs: 50, onUpstreamError: (e) => ({ status: 599, body: e.kind }) });",
    { path: "/never" },
  );
  expect([late.status, late.body]).toEqual([599, "timeout"]);
  const bare = await d.run(
    "await hook.forward(req, res, { port: 1, onUpstreamError: () => ({ status: 204 }) });",
  );
  expect([bare.status, bare.body]).toEqual([204, ""]);
  const path = await d.run(
    "await hook.forward(req, res, { onUpstreamError: () => ({ status: 200 }) });",
    { path: "/a/../b" },
  );
  expect(path.status).toBe(400);
  const fetched = await d.run(
    "let asked = 0; try { await hook.fetchUpstream(req, { port: 1, onUpstreamError: () => { asked++; return { status: 200 } } }) } catch (e) { return [e.kind, asked] }",
  );
  expect(fetched.json).toEqual(["network", 0]);
});

test("members are own ones, each read once, when the call starts", async () => {
  const answer = await d.run(
    `const counts = {};
const watched = (values) => Object.defineProperties({}, Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { get() { counts[name] = (counts[name] ?? 0) + 1; return value; } }])));
const seen = async (overrides) => await (await hook.fetchUpstream(req, overrides)).json();
const all = await seen(watched({ method: 'PUT', pathAndQuery: '/w', host: '127.0.0.1', port: hook.upstream.port, headers: { 'x-w': '1' }, body: 'w', signal: undefined, timeoutMs: 5000, onUpstreamError: undefined }));
const parent = await seen(Object.create({ method: 'PUT', pathAndQuery: '/inherited', body: 'no' }));
class Defaults { own = 1; get pathAndQuery() { return '/class'; } }
const ofClass = await seen(new Defaults());
class Fields { pathAndQuery = '/field'; }
const ofFields = await seen(new Fields());
const moving = { pathAndQuery: '/before', headers: { 'x-m': ['1'] }, body: new Uint8Array([97]) };
const pending = hook.fetchUpstream(req, moving);
moving.pathAndQuery = '/after'; moving.headers['x-m'].push('2'); moving.headers['x-n'] = '3';
const moved = await (await pending).json();
const headersParent = await seen({ headers: Object.create({ 'x-inherited': '1' }) });
return { counts, all: [all.method, all.url, all.body], parent: parent.url, ofClass: ofClass.url, ofFields: ofFields.url, moved: [moved.url, moved.headers.filter((h) => /^x-[mn]$/.test(h))], inherited: headersParent.headers.includes('x-inherited') };`,
    { path: "/own" },
  );
  const counts = Object.fromEntries(
    [
      "method",
      "pathAndQuery",
      "host",
      "port",
      "headers",
      "body",
      "signal",
      "timeoutMs",
      "onUpstreamError",
    ].map((name) => [name, 1]),
  );
  expect(answer.json).toEqual({
    counts,
    all: ["PUT", "/w", "w"],
    parent: "/own?terminal_id=1",
    ofClass: "/own?terminal_id=1",
    ofFields: "/field",
    moved: ["/before", ["x-m"]],
    inherited: false,
  });
});

test("so are the method of pipeResponse() and the answer of onUpstreamError()", async () => {
  const piped = await d.run(
    `let reads = 0;
await hook.pipeResponse(new Response('abc', { headers: { 'x-reads': 'set below' } }), res, { get method() { reads++; if (reads > 1) throw new Error('again'); return 'HEAD'; } });`,
  );
  expect([piped.status, piped.body, piped.cut]).toEqual([200, "", false]);
  const inherited = await d.run(
    "await hook.pipeResponse(new Response('abc'), res, Object.create({ method: 'HEAD' }));",
  );
  expect(inherited.body).toBe("abc");
  const answered = await d.run(
    `const counts = {};
const once = (name, value) => ({ get() { counts[name] = (counts[name] ?? 0) + 1; if (counts[name] > 1) throw new Error('again'); return value; } });
await hook.forward(req, res, { port: 1, onUpstreamError: () => Object.defineProperties({}, { status: once('status', 418), headers: once('headers', { 'x-h': '1' }), body: once('body', 'b') }) });`,
  );
  expect([answered.status, answered.headers["x-h"], answered.body]).toEqual([418, "1", "b"]);
  const parent = await d.run(
    "await hook.forward(req, res, { port: 1, onUpstreamError: () => Object.assign(Object.create({ headers: { 'x-h': '1' }, body: 'inherited' }), { status: 418 }) });",
  );
  expect([parent.status, parent.headers["x-h"], parent.body]).toEqual([418, undefined, ""]);
});

test("the helpers reach the service also when the client names the edge's own address", async () => {
  // An absolute target of the same authority is the same request.
  const host = d.edge.host("terminal-1");
  d.edge.script(
    "case.js",
    "module.exports = (req, res, metadata) => metadata.hook.forward(req, res);",
  );
  const answer = await ask(d.edge.port, { host, path: `http://${host}/abs?x=1` });
  expect(answer.json["url"]).toBe("/abs?x=1&terminal_id=1");
});
