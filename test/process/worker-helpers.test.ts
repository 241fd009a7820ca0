import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { HookEnvelope } from "../../dispatcher/envelope.ts";
import { startUpstream, type TestUpstream } from "../support/start-upstream.ts";
import { startWorker, type TestWorker, type WorkerCall } from "../support/start-worker.ts";

let worker: TestWorker;
let upstream: TestUpstream;
let count = 0;

beforeAll(async () => {
  worker = await startWorker();
  upstream = await startUpstream((req, res, body) => {
    switch (req.url?.split("?")[0] ?? "") {
      case "/cookies":
        res.writeHead(200, [
          "Set-Cookie",
          "a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT",
          "Set-Cookie",
          "b=2",
          "X-Up",
          "up",
          "Connection",
          "X-Hop",
          "X-Hop",
          "1",
        ]);
        return void res.end("ok");
      case "/gzip":
        res.writeHead(200, { "content-encoding": "gzip", "content-type": "text/plain" });
        return void res.end(gzipSync("plain text"));
      case "/204":
        res.writeHead(204);
        return void res.end();
      case "/304":
        res.writeHead(304, { "content-length": "12", etag: '"x"' });
        return void res.end();
      case "/302":
        res.writeHead(302, { location: "http://elsewhere.example/" });
        return void res.end();
      case "/head":
        res.writeHead(200, { "content-length": "1234" });
        return void res.end();
      case "/outcome":
        res.writeHead(200, { "x-hoody-hook-outcome": "denied", "x-hoody-hook-audit": "mine" });
        return void res.end("x");
      case "/high":
        res.writeHead(299, "Fine enough", ["X-High", "caf\u00e9"]);
        return void res.end("x");
      case "/999":
        res.writeHead(999);
        return void res.end("odd");
      case "/break":
        res.writeHead(200, { "content-length": "10" });
        res.write("abc");
        return void setTimeout(() => res.destroy(), 50);
      case "/never":
        return;
      case "/interim":
        res.writeEarlyHints({ link: "</a.css>; rel=preload" });
        res.writeHead(200, { "content-length": "2" });
        return void res.end("ok");
      default: {
        const seen = JSON.stringify({
          method: req.method,
          url: req.url,
          headers: req.rawHeaders,
          body: body.toString("latin1"),
        });
        res.writeHead(200, { "content-type": "application/json" });
        res.end(seen);
      }
    }
  });
});
afterAll(async () => {
  await worker.stop();
  await upstream.stop();
});

/** Runs `body` as the script of one dispatch: `(req, res, metadata) => { body }`. */
async function run(body: string, call: WorkerCall = {}, envelope: Partial<HookEnvelope> = {}) {
  const name = `s${count++}`;
  const head = body.startsWith("//") ? `${body.split("\n")[0]}\n` : "";
  await worker.write(
    `default/1/${name}.js`,
    `${head}module.exports = async (req, res, metadata) => { const hook = metadata.hook;\n${body}\n};`,
  );
  return worker.hook(`/${name}`, call, { upstreamPort: upstream.port, ...envelope });
}

const FORWARD = "await hook.forward(req, res);";
const PIPE = "await hook.pipeResponse(await hook.fetchUpstream(req), res);";
const RETURN = "return await hook.fetchUpstream(req);";
const ROUTES = [
  ["forward", FORWARD],
  ["fetchUpstream and pipeResponse", PIPE],
  ["a returned fetchUpstream", RETURN],
] as const;

describe.each(ROUTES)("%s", (route, body) => {
  test("passes status, reason, fields and bytes, each cookie on its own line", async () => {
    const answer = await run(body, { url: "/cookies" });
    expect(answer.status).toBe(200);
    expect(answer.headers["set-cookie"]).toEqual([
      "a=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT",
      "b=2",
    ]);
    expect(answer.headers["x-up"]).toBe("up");
    expect(answer.headers["x-hop"]).toBeUndefined();
    expect(answer.text).toBe("ok");
    expect(answer.outcome).toBe("forwarded");
    const high = await run(body, { url: "/high" });
    expect(high).toMatchObject({ status: 299, reason: "Fine enough" });
    expect(high.headers["x-high"]).toBe("caf\u00e9");
  });

  test("lets nobody else tell the outcome", async () => {
    for (const before of ["", "res.setHeader('X-Hoody-Hook-Outcome', 'denied');\n"]) {
      const answer = await run(`${before}${body}`, { url: "/outcome" });
      expect(answer.outcome).toBe("forwarded");
      expect(answer.rawHeaders.filter((name) => /^x-hoody-hook-outcome$/i.test(name))).toHaveLength(
        1,
      );
      expect(answer.headers["x-hoody-hook-audit"]).toBe("mine");
    }
  });

  test("leaves a coded body alone", async () => {
    const answer = await run(body, { url: "/gzip" });
    expect(answer.headers["content-encoding"]).toBe("gzip");
    expect(answer.body.equals(gzipSync("plain text"))).toBe(true);
  });

  test("frames 204, 304 and HEAD", async () => {
    const empty = await run(body, { url: "/204" });
    expect(empty.status).toBe(204);
    expect(empty.headers["content-length"]).toBeUndefined();
    const cached = await run(body, { url: "/304" });
    expect(cached.status).toBe(304);
    expect(cached.headers["content-length"]).toBe(route.startsWith("a ") ? undefined : "12");
    const head = await run(body, { url: "/head", method: "HEAD" });
    expect(head.status).toBe(200);
    expect(head.body.length).toBe(0);
    expect(head.headers["content-length"]).toBe(route.startsWith("a ") ? undefined : "1234");
  });

  test("passes redirects through and drops interim answers", async () => {
    const answer = await run(body, { url: "/302" });
    expect(answer.status).toBe(302);
    expect(answer.headers["location"]).toBe("http://elsewhere.example/");
    expect((await run(body, { url: "/interim" })).text).toBe("ok");
  });

  test("strips the connection's fields upwards and keeps the others in order", async () => {
    const answer = await run(body, {
      headers: [
        "Host",
        "svc.example:8080",
        "X-A",
        "1",
        "x-a",
        "2",
        "Connection",
        "close, x-foo",
        "X-Foo",
        "gone",
        "TE",
        "trailers",
        "Proxy-Authorization",
        "secret",
        "Accept",
        "a/b",
      ],
    });
    const { headers } = JSON.parse(answer.text) as { headers: string[] };
    expect(headers.slice(0, 8)).toEqual([
      "Host",
      "svc.example:8080",
      "X-A",
      "1",
      "x-a",
      "2",
      "Accept",
      "a/b",
    ]);
    expect(headers.join()).not.toMatch(/gone|trailers|secret/);
  });

  test("sends a buffered body with its length and a raw one as it comes", async () => {
    const buffered = await run(body, { method: "POST", url: "/echo", body: "a\u0000b" });
    expect(JSON.parse(buffered.text)).toMatchObject({ method: "POST", body: "a\u0000b" });
    const raw = await run(`// @rawBody\n${body}`, {
      method: "DELETE",
      url: "/echo",
      headers: ["Transfer-Encoding", "chunked"],
      body: "piece",
    });
    const seen = JSON.parse(raw.text) as { body: string; headers: string[] };
    expect(seen.body).toBe("piece");
    expect(seen.headers).toContain("Transfer-Encoding");
    expect(seen.headers).not.toContain("Content-Length");
  });

  test("honours what the script changed in req.headers", async () => {
    const answer = await run(
      `delete req.headers.cookie; req.headers['x-b'] = 'changed'; req.headers['x-new'] = ['1', '2'];\n${body}`,
      { headers: ["X-A", "1", "Cookie", "secret", "X-B", "old", "x-a", "2"] },
    );
    const { headers } = JSON.parse(answer.text) as { headers: string[] };
    expect(headers.slice(0, 4)).toEqual(["X-A", "1", "x-a", "2"]);
    expect(headers.join()).toContain("x-b,changed,x-new,1,x-new,2");
    expect(headers.join()).not.toMatch(/secret|old/);
    const broken = await run(`req.headers['x-a'] = 'b\\r\\nc: d';\n${body}`);
    expect(broken.status).toBe(500);
  });

  test("does not pass on a body of GET", async () => {
    const answer = await run(body, { url: "/echo", body: "unasked" });
    const seen = JSON.parse(answer.text) as { body: string; headers: string[] };
    expect(seen.body).toBe("");
    expect(seen.headers.join()).not.toMatch(/content-length|transfer-encoding/i);
  });

  test("cuts the client off when the service breaks off in mid-body", async () => {
    const answer = await run(body, { url: "/break" });
    expect(answer).toMatchObject({ status: 200, isCut: true, text: "abc" });
  });

  test("keeps what the script staged, the service's fields winning, cookies of both", async () => {
    const answer = await run(
      `res.setHeader('X-Mine', 'mine'); res.setHeader('X-Up', 'mine'); res.setHeader('Set-Cookie', ['c=3']);\n${body}`,
      { url: "/cookies" },
    );
    expect(answer.headers["x-mine"]).toBe("mine");
    expect(answer.headers["x-up"]).toBe("up");
    expect(answer.headers["set-cookie"]?.map((cookie) => cookie.slice(0, 3))).toEqual([
      "c=3",
      "a=1",
      "b=2",
    ]);
  });
});

describe("the path", () => {
  test.each([
    ["/@babel/core", "/@babel/core"],
    ["/a\\b", "/a%5Cb"],
    ["/a#b", "/a%23b"],
    ["/x?p=a\\b&q=@", "/x?p=a\\b&q=@"],
    ["/%2F%zz", "/%2F%zz"],
    ["/a%2525b/", "/a%2525b/"],
    ["/a//b", "/a//b"],
    ["/...", "/..."],
    ["/..%2fx", "/..%2fx"],
    ["/..;/x", "/..;/x"],
    ["/x?next=../y", "/x?next=../y"],
    ["/[...slug].js", "/[...slug].js"],
    ['/"<>^{}|`', '/"<>^{}|`'],
    ["/%C3%A9", "/%C3%A9"],
  ])("%s is sent as %s", async (path, sent) => {
    for (const body of [FORWARD, PIPE]) {
      const answer = await run(body, { url: path });
      expect((JSON.parse(answer.text) as { url: string }).url).toBe(sent);
    }
  });

  test.each(["/a/../b", "/a/%2e%2e/b", "/./x", "/x/.%2E", "/x/%2e", "//x", "//"])(
    "%s is refused and nothing is sent",
    async (path) => {
      const before = upstream.connections();
      const seen = upstream.received.length;
      const forwarded = await run(FORWARD, { url: path });
      const uncaught = await run(PIPE, { url: path });
      const caught = await run(
        "try { await hook.fetchUpstream(req) } catch (e) { res.setHeader('x-k', e.kind) } throw new Error('another one');",
        { url: path },
      );
      const silent = await run("try { await hook.fetchUpstream(req) } catch {}", { url: path });
      for (const answer of [forwarded, uncaught, caught, silent]) {
        expect(answer.status).toBe(400);
        expect(answer.headers["cache-control"]).toBe("no-store");
        expect(JSON.parse(answer.text)).toMatchObject({ error: "bad request path" });
        expect(answer.outcome).toBe("bad_path");
        expect(answer.headers["x-k"]).toBeUndefined();
      }
      expect(upstream.received.length).toBe(seen);
      expect(upstream.connections()).toBe(before);
    },
  );

  test("leaves an answer of the script alone, and an overridden path unchecked", async () => {
    const own = await run("try { await hook.fetchUpstream(req) } catch (e) { res.end(e.kind) }", {
      url: "//x",
    });
    expect(own).toMatchObject({ status: 200, text: "unforwardable-path" });
    const moved = await run("await hook.forward(req, res, { pathAndQuery: '/ok?a=%2e%2e' });", {
      url: "//x",
    });
    expect(JSON.parse(moved.text)).toMatchObject({ url: "/ok?a=%2e%2e" });
  });

  test("is text in metadata and bytes on the wire when it is not ASCII", async () => {
    const path = Buffer.from("/caf\u00e9/\u20ac").toString("latin1") + "\xff";
    const answer = await run(
      "const up = await hook.fetchUpstream(req); const seen = await up.json(); return { origPath: hook.origPath, url: seen.url };",
      {},
      { path },
    ).catch((error: unknown) => error);
    expect(answer).toMatchObject({ status: 500 }); // Node's own server refuses such bytes: see the next line
    const shown = await run("return { origPath: hook.origPath };", {}, { path });
    expect(JSON.parse(shown.text)).toEqual({ origPath: "/caf\u00e9/\u20ac%FF" });
  });
});

describe("an unreachable service", () => {
  test("is a 502 with the audit id from forward() and a 500 from an uncaught fetchUpstream()", async () => {
    const closed = { upstreamPort: 1 };
    const forwarded = await run(FORWARD, {}, closed);
    expect(forwarded.status).toBe(502);
    expect(forwarded.headers["x-hoody-hook-audit"]).toBe("550e8400-e29b-41d4-a716-446655440000");
    expect(forwarded.headers["cache-control"]).toBe("no-store");
    expect(forwarded.text).not.toMatch(/127\.0\.0\.1|ECONN|:1\b/);
    expect(forwarded.outcome).toBe("upstream_failed");
    const uncaught = await run(PIPE, {}, closed);
    expect(uncaught.status).toBe(500);
    const caught = await run(
      "try { await hook.fetchUpstream(req) } catch (e) { return { kind: e.kind, name: e.name, own: e instanceof HookUpstreamError, same: HookUpstreamError === hook.HookUpstreamError } }",
      {},
      closed,
    );
    expect(JSON.parse(caught.text)).toEqual({
      kind: "network",
      name: "HookUpstreamError",
      own: true,
      same: true,
    });
  });

  test("gives onUpstreamError the last word, read once, own members only", async () => {
    const closed = { upstreamPort: 1 };
    const answer = await run(
      `let reads = 0;
await hook.forward(req, res, { onUpstreamError: async (e) => ({ get status() { reads++; return 503 }, headers: { 'X-Kind': e.kind, 'x-two': ['1', '2'] }, body: 'try ' + reads }) });`,
      {},
      closed,
    );
    expect(answer).toMatchObject({ status: 503, text: "try 0" });
    expect(answer.headers["x-kind"]).toBe("network");
    expect(answer.headers["x-two"]).toBe("1, 2");
    for (const broken of [
      "() => { throw new Error('oops') }",
      "() => ({ status: 99 })",
      "() => undefined",
      "() => Object.create({ status: 503 })",
      "() => ({ status: 200, headers: { 'bad name': 'x' } })",
    ]) {
      const plain = await run(
        `await hook.forward(req, res, { onUpstreamError: ${broken} });`,
        {},
        closed,
      );
      expect(plain.status).toBe(502);
    }
  });

  test("is a timeout when overrides.timeoutMs runs out, an abort when the signal fires", async () => {
    const slow = await run(
      "try { await hook.fetchUpstream(req, { timeoutMs: 100 }) } catch (e) { return e.kind }",
      { url: "/never" },
    );
    expect(slow.text).toBe("timeout");
    expect(
      (await run("await hook.forward(req, res, { timeoutMs: 100 });", { url: "/never" })).status,
    ).toBe(502);
    const aborted = await run(
      "try { await hook.fetchUpstream(req, { signal: AbortSignal.timeout(50) }) } catch (e) { return e.kind }",
      { url: "/never" },
    );
    expect(aborted.text).toBe("abort");
    const already = await run(
      "try { await hook.fetchUpstream(req, { signal: AbortSignal.abort() }) } catch (e) { return e.kind }",
    );
    expect(already.text).toBe("abort");
  });

  test("is a network error when it answers with no status a Response can have", async () => {
    expect((await run(FORWARD, { url: "/999" })).status).toBe(999);
    const answer = await run("try { await hook.fetchUpstream(req) } catch (e) { return e.kind }", {
      url: "/999",
    });
    expect(answer.text).toBe("network");
  });
});

describe("overrides", () => {
  const INVALID = [
    "{ method: 'A B' }",
    "{ method: '' }",
    "{ method: 1 }",
    "{ pathAndQuery: 'x' }",
    "{ pathAndQuery: '//x' }",
    "{ pathAndQuery: '/a#b' }",
    "{ pathAndQuery: '/a/../b' }",
    "{ pathAndQuery: '/a/%2e%2E/b' }",
    "{ pathAndQuery: '/a\\\\b' }",
    "{ pathAndQuery: '/a b' }",
    "{ pathAndQuery: '/a\\u00a0b' }",
    "{ pathAndQuery: '/a\\r\\nX: y' }",
    "{ pathAndQuery: 'http://x/' }",
    "{ host: '' }",
    "{ host: '010.0.0.1' }",
    "{ host: '1.2.3' }",
    "{ host: '256.1.1.1' }",
    "{ host: '0x7f.0.0.1' }",
    "{ host: 'a.0x10' }",
    "{ host: 'a.1' }",
    "{ host: '[::1]' }",
    "{ host: '::1' }",
    "{ host: 'a:80' }",
    "{ host: 'u@a' }",
    "{ host: 'a b' }",
    "{ host: '-a' }",
    "{ host: 'a..b' }",
    "{ host: null }",
    "{ port: 0 }",
    "{ port: 65536 }",
    "{ port: 1.5 }",
    "{ port: '80' }",
    "{ port: NaN }",
    "{ headers: 'x' }",
    "{ headers: ['a', 'b'] }",
    "{ headers: { 'a b': 'x' } }",
    "{ headers: { a: 'x\\r\\nb: c' } }",
    "{ headers: { a: 'x\\u0000' } }",
    "{ headers: { a: '\\u0100' } }",
    "{ headers: { a: 1 } }",
    "{ headers: { a: undefined } }",
    "{ headers: { a: ['x', 2] } }",
    "{ headers: { a: 'x', A: 'y' } }",
    "{ headers: { connection: 'x' } }",
    "{ headers: { 'Transfer-Encoding': 'chunked' } }",
    "{ headers: null }",
    "{ signal: {} }",
    "{ signal: null }",
    "{ timeoutMs: 0 }",
    "{ timeoutMs: 86400001 }",
    "{ timeoutMs: '5' }",
    "{ timeoutMs: NaN }",
    "{ onUpstreamError: 5 }",
    "5",
    "'x'",
    "true",
  ];
  test("that cannot be used are refused before anything is sent, also on a refused path", async () => {
    const before = upstream.received.length;
    const answer = await run(
      `const kinds = {};
for (const [text, overrides] of [${INVALID.map((text) => `[${JSON.stringify(text)}, (${text})]`).join(",")}]) {
  for (const call of [() => hook.fetchUpstream(req, overrides), () => hook.forward(req, res, overrides)]) {
    try { await call(); kinds[text] = 'accepted'; } catch (e) { if (e.kind !== 'invalid-override') kinds[text] = String(e); }
  }
}
return kinds;`,
      { url: "//refused" },
    );
    expect(JSON.parse(answer.text)).toEqual({});
    expect(upstream.received.length).toBe(before);
  });

  test("change method, path, fields and body", async () => {
    const answer = await run(
      `await hook.forward(req, res, {
  method: 'PURGE', pathAndQuery: '/p?x=../', body: new URLSearchParams({ a: 'b c' }),
  headers: { Host: 'other.example', 'X-Gone': null, 'X-List': ['1', '2'], 'Content-Length': '999', 'x-new': 'n' },
});`,
      { method: "POST", headers: { "X-Gone": "1", "Content-Type": "text/plain" }, body: "old" },
    );
    const seen = JSON.parse(answer.text) as { headers: string[] };
    expect(seen).toMatchObject({
      method: "PURGE",
      url: "/p?x=../",
      body: "a=b+c",
    });
    expect(seen.headers).toEqual(
      expect.arrayContaining(["Host", "other.example", "X-List", "1", "X-List", "2", "x-new", "n"]),
    );
    expect(seen.headers).not.toContain("X-Gone");
    expect(seen.headers[seen.headers.indexOf("Content-Length") + 1]).toBe("5");
    expect(seen.headers[seen.headers.indexOf("Content-Type") + 1]).toMatch(
      /^application\/x-www-form-urlencoded/,
    );
    expect(seen.headers.filter((name) => name === "Host")).toHaveLength(1);
  });

  test.each([
    ["'text'", "text"],
    ["Buffer.from([1, 2])", "\u0001\u0002"],
    ["new Uint8Array([65])", "A"],
    ["new Blob(['blob'])", "blob"],
    ["new ReadableStream({ start(c) { c.enqueue(Buffer.from('st')); c.close(); } })", "st"],
    ["null", ""],
  ])("send %s as body", async (given, sent) => {
    const answer = await run(`await hook.forward(req, res, { body: ${given} });`, {
      method: "PUT",
      body: "old",
    });
    expect(JSON.parse(answer.text)).toMatchObject({ method: "PUT", body: sent });
  });

  test("send a form with its boundary", async () => {
    const answer = await run(
      "const form = new FormData(); form.set('a', '1'); await hook.forward(req, res, { body: form });",
      { method: "POST", headers: { "content-type": "application/json" }, body: "{}" },
    );
    const seen = JSON.parse(answer.text) as { headers: string[]; body: string };
    const type = seen.headers[seen.headers.indexOf("Content-Type") + 1] ?? "";
    const boundary = /boundary=(.*)$/.exec(type)?.[1] ?? "?";
    expect(seen.body).toContain(`--${boundary}`);
    expect(seen.headers.filter((name) => name.toLowerCase() === "content-type")).toHaveLength(1);
  });

  test("are own members, each read once, at the start of the call", async () => {
    const answer = await run(`
let reads = 0;
const own = { get method() { reads++; return 'PUT' } };
const inherited = Object.create({ method: 'PATCH', pathAndQuery: '/inherited' });
class Defaults { get port() { return 1 } }
const changed = { pathAndQuery: '/before', headers: { 'x-h': ['1'] } };
const pending = hook.fetchUpstream(req, changed);
changed.pathAndQuery = '/after'; changed.headers['x-h'].push('2');
const seen = async (o) => (await (await hook.fetchUpstream(req, o)).json());
return { own: (await seen(own)).method, reads, inherited: (await seen(inherited)).url, defaults: (await seen(new Defaults())).url, changed: await (await pending).json() };`);
    const got = JSON.parse(answer.text) as { changed: { url: string; headers: string[] } };
    expect(got).toMatchObject({ own: "PUT", reads: 1, inherited: "/", defaults: "/" });
    expect(got.changed.url).toBe("/before");
    expect(got.changed.headers.filter((name) => name === "x-h")).toHaveLength(1);
  });

  test("keep the case of the method and the bytes of the path on the wire", async () => {
    let text = "";
    const plain = createServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", (data) => {
        text = data.toString("latin1");
        socket.end("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
      });
    });
    await new Promise<void>((resolve) => plain.listen(0, "127.0.0.1", resolve));
    try {
      const { port } = plain.address() as AddressInfo;
      await run(
        "await hook.forward(req, res, { method: 'pUrge', pathAndQuery: '/caf\\u00e9' });",
        {},
        { upstreamPort: port },
      );
      expect(text.split("\r\n")[0]).toBe("pUrge /caf\u00c3\u00a9 HTTP/1.1");
    } finally {
      plain.close();
    }
  });

  test("that turn a GET into a HEAD leave the client no length to wait for", async () => {
    for (const body of [
      "await hook.forward(req, res, { method: 'HEAD' });",
      "await hook.pipeResponse(await hook.fetchUpstream(req, { method: 'HEAD' }), res);",
      "return await hook.fetchUpstream(req, { method: 'HEAD' });",
    ]) {
      const answer = await run(body, { url: "/head" });
      expect(answer).toMatchObject({ status: 200, text: "", isCut: false });
      expect(answer.headers["content-length"]).toBe("0");
    }
  });

  test("redirect the call to another host and port, the client's Host staying", async () => {
    const answer = await run(
      `await hook.forward(req, res, { host: 'localhost', port: ${upstream.port} });`,
      { headers: { Host: "kept.example" } },
      { upstreamHost: "192.0.2.1" },
    );
    expect((JSON.parse(answer.text) as { headers: string[] }).headers).toContain("kept.example");
  });
});

describe("a request body", () => {
  test("may be fetched again when buffered, once when raw", async () => {
    const twice =
      "const kinds = []; for (let i = 0; i < 2; i++) { try { kinds.push((await (await hook.fetchUpstream(req)).json()).body) } catch (e) { kinds.push(e.kind) } } return kinds;";
    const post = { method: "POST", body: "data" };
    expect(JSON.parse((await run(twice, post)).text)).toEqual(["data", "data"]);
    expect(JSON.parse((await run(`// @rawBody\n${twice}`, post)).text)).toEqual([
      "data",
      "body-consumed",
    ]);
    const replaced = await run(
      "// @rawBody\nawait (await hook.fetchUpstream(req)).text(); const again = await hook.fetchUpstream(req, { body: 'new' }); return await again.json();",
      post,
    );
    expect(JSON.parse(replaced.text)).toMatchObject({ body: "new" });
  });

  test("is gone when the script read a raw one itself or cleared a buffered one", async () => {
    const post = { method: "POST", body: "data" };
    const read = await run(
      "// @rawBody\nfor await (const chunk of req) {} try { await hook.forward(req, res) } catch (e) { return e.kind }",
      post,
    );
    expect(read.text).toBe("no-body");
    const cleared = await run(
      "req.rawBody = undefined; try { await hook.forward(req, res) } catch (e) { return e.kind }",
      post,
    );
    expect(cleared.text).toBe("no-body");
    const changed = await run(
      "req.rawBody = Buffer.from('changed'); await hook.forward(req, res);",
      post,
    );
    expect(JSON.parse(changed.text)).toMatchObject({ body: "changed" });
  });

  test("stays readable as a stream after it was buffered", async () => {
    const answer = await run(
      "let text = ''; for await (const chunk of req) text += chunk; const seen = await (await hook.fetchUpstream(req)).json(); return [text, seen.body];",
      { method: "POST", body: "data" },
    );
    expect(JSON.parse(answer.text)).toEqual(["data", "data"]);
  });

  test("beyond the limit is a 413", async () => {
    const small = await startWorker({ limits: { maxBufferedBodyBytes: 1000 } });
    try {
      await small.write("default/1/x.js", "module.exports = (req, res) => res.end('ran');");
      const answer = await small.hook("/x", { method: "POST", body: "x".repeat(5000) });
      expect(answer.status).toBe(413);
      expect((await small.hook("/x", { method: "POST", body: "x" })).text).toBe("ran");
    } finally {
      await small.stop();
    }
  });
});

describe("pipeResponse()", () => {
  test("refuses a started response, a used body, and options of no use", async () => {
    const answer = await run(`
const kinds = [];
const up = await hook.fetchUpstream(req);
await up.text();
try { await hook.pipeResponse(up, res) } catch (e) { kinds.push(e.constructor.name) }
try { await hook.pipeResponse({}, res) } catch (e) { kinds.push(e.constructor.name) }
try { await hook.pipeResponse(new Response('x'), res, { method: 5 }) } catch (e) { kinds.push(e.kind) }
res.write(JSON.stringify(kinds));
try { await hook.pipeResponse(new Response('x'), res) } catch (e) { res.end(e.kind) }`);
    expect(answer.text).toBe('["TypeError","TypeError","invalid-override"]bytes-already-sent');
  });

  test("sends no body for HEAD when told so, inherited options not counting", async () => {
    const answer = await run(
      "await hook.pipeResponse(new Response('abc'), res, { method: 'HEAD' });",
    );
    expect(answer).toMatchObject({ status: 200, text: "" });
    const whole = await run(
      "await hook.pipeResponse(new Response('abc'), res, Object.create({ method: 'HEAD' }));",
    );
    expect(whole.text).toBe("abc");
  });

  test("lets the script change the head first", async () => {
    const answer = await run(
      "const up = await hook.fetchUpstream(req); up.headers.set('content-security-policy', \"default-src 'self'\"); up.headers.delete('x-up'); await hook.pipeResponse(up, res);",
      { url: "/cookies" },
    );
    expect(answer.headers["content-security-policy"]).toBe("default-src 'self'");
    expect(answer.headers["x-up"]).toBeUndefined();
    expect(answer.headers["set-cookie"]).toHaveLength(2);
  });

  test("never lets a wrong length reach the wire", async () => {
    for (const route of ["await hook.pipeResponse(r, res);", "return r;"]) {
      const answer = await run(
        `const r = new Response('abc', { headers: { 'content-length': '99' } });\n${route}`,
      );
      expect(answer).toMatchObject({ text: "abc", isCut: false });
      expect(answer.headers["content-length"]).not.toBe("99");
    }
    const wrong = await run(
      "const up = await hook.fetchUpstream(req); up.headers.set('content-length', '3'); await hook.pipeResponse(up, res);",
    );
    expect(wrong.isCut || wrong.status === 500).toBe(true);
  });
});

describe("a client that leaves", () => {
  test.each(ROUTES)("cancels an endless answer through %s", async (_route, body) => {
    let closed: () => void = () => {};
    const gone = new Promise<void>((resolve) => (closed = resolve));
    const endless = await startUpstream((req, res) => {
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write("data: 1\n\n");
      req.socket.on("close", () => closed());
    });
    try {
      const controller = new AbortController();
      const answer = run(
        body,
        {
          signal: controller.signal,
          onResponse: (response) => response.once("data", () => controller.abort()),
        },
        { upstreamPort: endless.port },
      ).catch(() => {});
      await expect(Promise.race([gone, sleep(5000, "late")])).resolves.toBeUndefined();
      await answer;
    } finally {
      await endless.stop();
    }
  });

  test.each([
    [
      "forward",
      "await hook.forward(req, res); console.log('upload ended quietly');",
      "upload ended quietly",
    ],
    [
      "fetchUpstream",
      "try { await hook.fetchUpstream(req) } catch (e) { console.log('upload', e.kind) }",
      "upload abort",
    ],
  ])("cancels an upload through %s", async (_name, body, logged) => {
    let arrived: () => void = () => {};
    const begun = new Promise<void>((resolve) => (arrived = resolve));
    let left: () => void = () => {};
    const gone = new Promise<void>((resolve) => (left = resolve));
    const service = await startUpstream(
      (req) => {
        req.on("data", () => arrived());
        req.socket.on("close", () => left());
      },
      { streamed: true },
    );
    try {
      const controller = new AbortController();
      const upload = new Readable({ read() {} });
      upload.push("some bytes");
      const answer = run(
        `// @rawBody\n${body}`,
        {
          method: "POST",
          headers: ["Content-Length", "1000"],
          body: upload,
          signal: controller.signal,
        },
        { upstreamPort: service.port },
      ).catch(() => {});
      await begun;
      controller.abort();
      await expect(Promise.race([gone, sleep(5000, "late")])).resolves.toBeUndefined();
      await answer;
      await worker.untilLogged((line) => line.msg === logged);
      upload.destroy();
    } finally {
      await service.stop();
    }
  });

  test("cancels a call that waits for its head", async () => {
    let arrived: () => void = () => {};
    const asked = new Promise<void>((resolve) => (arrived = resolve));
    let left: () => void = () => {};
    const gone = new Promise<void>((resolve) => (left = resolve));
    const silent = createServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", arrived);
      socket.on("close", () => left());
    });
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    try {
      const controller = new AbortController();
      const answer = run(
        FORWARD,
        { signal: controller.signal },
        { upstreamPort: (silent.address() as AddressInfo).port },
      ).catch(() => {});
      await asked;
      controller.abort();
      await expect(Promise.race([gone, sleep(5000, "late")])).resolves.toBeUndefined();
      await answer;
    } finally {
      silent.close();
    }
  });
});
