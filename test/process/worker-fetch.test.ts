import {
  brotliCompressSync,
  deflateRawSync,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startUpstream, type TestUpstream } from "../support/start-upstream.ts";
import { startWorker, type TestWorker, type WorkerCall } from "../support/start-worker.ts";

const TEXT = "hello, coded world";
const ENCODERS: Readonly<Record<string, ((data: Buffer) => Buffer) | undefined>> = {
  gzip: gzipSync,
  "x-gzip": gzipSync,
  deflate: deflateSync,
  "deflate-raw": deflateRawSync,
  br: brotliCompressSync,
  zstd: zstdCompressSync,
  compress: (data) => Buffer.concat([Buffer.from("Z:"), data]),
  identity: (data) => data,
  none: (data) => data,
};

let worker: TestWorker;
let web: TestUpstream;
let count = 0;

/** Encodes with every coding of `codings` in turn; the header says `field`. */
function coded(codings: string): Buffer {
  return codings
    .split(",")
    .map((coding) => coding.trim())
    .filter((coding) => coding !== "")
    .reduce<Buffer>((data, coding) => ENCODERS[coding]?.(data) ?? data, Buffer.from(TEXT));
}

beforeAll(async () => {
  worker = await startWorker();
  await worker.write("default/1/lib/foreign.js", "exports.get = (...args) => fetch(...args);");
  web = await startUpstream((req, res, body) => {
    const url = new URL(req.url ?? "/", "http://x");
    const path = url.pathname;
    if (path === "/coded") {
      const data = coded(url.searchParams.get("codings") ?? "");
      const field = url.searchParams.get("field");
      res.writeHead(200, {
        "content-length": data.length,
        "content-type": "text/plain",
        ...(field === null ? {} : { "content-encoding": field }),
      });
      res.end(req.method === "HEAD" ? undefined : data);
      return;
    }
    if (path.startsWith("/to/")) {
      res.writeHead(Number(path.slice(4)), {
        location: url.searchParams.get("location") ?? "/seen#frag",
      });
      res.end("moved");
      return;
    }
    if (path === "/never") {
      return;
    }
    res.setHeader("set-cookie", ["a=1", "b=2"]);
    res.end(
      JSON.stringify({
        method: req.method,
        url: req.url,
        headers: req.headers,
        body: String(body),
      }),
    );
  });
});
afterAll(async () => {
  await worker.stop();
  await web.stop();
});

/** Runs `body` as a hook script in which `base` is the web server's address. */
async function run(body: string, call: WorkerCall = {}) {
  const name = `f${count++}`;
  await worker.write(
    `default/1/${name}.js`,
    `const { get } = require('./lib/foreign.js');\nmodule.exports = async (req, res, metadata) => { const hook = metadata.hook; const base = ${JSON.stringify(web.url)};\n${body}\n};`,
  );
  return worker.hook(`/${name}`, { ...call }, { upstreamPort: web.port });
}

const urlOf = (codings: string, field: string) =>
  `base + '/coded?codings=${encodeURIComponent(codings)}&field=${encodeURIComponent(field)}'`;

const PIPED = (expression: string) => `const r = ${expression}; await hook.pipeResponse(r, res);`;
const RETURNED = (expression: string) => `const r = ${expression}; return r;`;
const BOTH = [
  ["pipeResponse()", PIPED],
  ["a returned Response", RETURNED],
] as const;

describe.each(BOTH)("%s of a response that the script's fetch", (way, send) => {
  test.each([
    ["gzip", "gzip"],
    ["gzip", "GZip"],
    ["x-gzip", "x-gzip"],
    ["deflate", "deflate"],
    ["deflate-raw", "deflate"],
    ["br", "br"],
    ["zstd", "zstd"],
    ["gzip", "gzip, identity"],
    ["br", "identity,, br ,"],
  ])("decoded (%s, sent as %s) has plain bytes and no coding", async (codings, field) => {
    for (const fetcher of ["fetch", "Bun.fetch"]) {
      const answer = await run(send(`await ${fetcher}(${urlOf(codings, field)})`));
      expect(answer.text).toBe(TEXT);
      expect(answer.headers["content-encoding"]).toBeUndefined();
      expect([undefined, String(TEXT.length)]).toContain(answer.headers["content-length"]);
      expect(answer.outcome).toBe("answered");
    }
  });

  test.each([
    ["none", "identity"],
    ["compress", "compress"],
    ["gzip,br", "gzip, br"],
    ["gzip,gzip", "gzip, gzip"],
  ])("left alone (%s, sent as %s) keeps its coding", async (codings, field) => {
    const answer = await run(send(`await fetch(${urlOf(codings, field)})`));
    expect(answer.body.equals(coded(codings))).toBe(true);
    expect(answer.headers["content-encoding"]).toBe(field);
    expect(answer.headers["content-length"]).toBe(String(coded(codings).length));
  });

  test.each([
    ["{ decompress: false }", true],
    ["{ decompress: 0 }", true],
    ["{ decompress: NaN }", true],
    ["{ decompress: -0.5 }", true],
    ["{ decompress: 0.999 }", true],
    ["{ decompress: true }", false],
    ["{ decompress: 1 }", false],
    ["{ decompress: -1 }", false],
    ["{ decompress: Infinity }", false],
    ["{ decompress: 'false' }", false],
    ["{ decompress: null }", false],
    ["{ decompress: { } }", false],
    ["Object.assign(() => {}, { decompress: false })", true],
    ["Object.create({ decompress: false })", true],
  ])("was told %s", async (options, isRaw) => {
    const answer = await run(send(`await fetch(${urlOf("gzip", "gzip")}, ${options})`));
    expect(answer.body.equals(isRaw ? coded("gzip") : Buffer.from(TEXT))).toBe(true);
    expect(answer.headers["content-encoding"]).toBe(isRaw ? "gzip" : undefined);
  });

  test.each([
    [`{ url: URL_, decompress: false }`, "undefined", true],
    [`Object.assign(new Request(URL_), { decompress: false })`, "undefined", true],
    [`Object.assign(new Request(URL_), { decompress: 0 })`, "{ decompress: 'x' }", true],
    [`Object.assign(new Request(URL_), { decompress: false })`, "{ decompress: 2 }", false],
    [`{ url: URL_, decompress: true }`, "{ decompress: false }", true],
    [`Object.assign(new URL(URL_), { decompress: false })`, "undefined", false],
    [`URL_`, "undefined", false],
  ])("was given %s and %s", async (input, options, isRaw) => {
    const given = input.replace("URL_", urlOf("gzip", "gzip"));
    const answer = await run(send(`await fetch(${given}, ${options})`));
    expect(answer.headers["content-encoding"]).toBe(isRaw ? "gzip" : undefined);
    expect(answer.body.equals(isRaw ? coded("gzip") : Buffer.from(TEXT))).toBe(true);
  });

  test("made with options that changed after the call", async () => {
    const answer = await run(
      send(
        `await (() => { const o = { decompress: false }; const p = fetch(${urlOf("gzip", "gzip")}, o); o.decompress = true; return p; })()`,
      ),
    );
    expect(answer.headers["content-encoding"]).toBe("gzip");
  });

  test("made, cloned by its own clone(), keeps its origin; by the prototype's it does not", async () => {
    const raw = `await fetch(${urlOf("gzip", "gzip")}, { decompress: false })`;
    const own = await run(send(`(${raw}).clone()`));
    expect(own.headers["content-encoding"]).toBe("gzip");
    expect((await run(send(`(${raw}).clone().clone()`))).headers["content-encoding"]).toBe("gzip");
    const decoded = await run(send(`(await fetch(${urlOf("gzip", "gzip")})).clone()`));
    expect(decoded).toMatchObject({ text: TEXT });
    expect(decoded.headers["content-encoding"]).toBeUndefined();
    const borrowed = await run(send(`Response.prototype.clone.call(${raw})`));
    expect(borrowed.headers["content-encoding"]).toBeUndefined();
    expect(borrowed.body.equals(coded("gzip"))).toBe(true);
  });

  test("never saw, a helper module having fetched it, counts as decoded when it had a coding", async () => {
    const answer = await run(send(`await get(${urlOf("gzip", "gzip")})`));
    expect(answer.text).toBe(TEXT);
    expect(answer.headers["content-encoding"]).toBeUndefined();
    const chain = await run(send(`await get(${urlOf("gzip,br", "gzip, br")})`));
    expect(chain.body.equals(coded("gzip,br"))).toBe(true);
    expect(chain.headers["content-encoding"]).toBe("gzip, br");
    const plain = await run(send("await get(base + '/coded')"));
    expect(plain.text).toBe(TEXT);
    const compress = await run(send(`await get(${urlOf("compress", "compress")})`));
    expect(compress.headers["content-encoding"]).toBe("compress");
  });

  test("gave the body of, to a response built anew", async () => {
    const answer = await run(
      send(
        "new Response(Buffer.from('zz'), { status: 201, headers: { 'content-encoding': 'gzip', 'content-length': '77', connection: 'x-a', 'x-a': '1' } })",
      ),
    );
    expect(answer).toMatchObject({ status: 201, text: "zz" });
    expect(answer.headers["content-encoding"]).toBe("gzip");
    expect(answer.headers["content-length"]).not.toBe("77");
    expect(answer.headers["x-a"]).toBeUndefined();
    const rewrapped = await run(
      send(
        `await (async () => { const r = await fetch(${urlOf("gzip", "gzip")}); const n = new Response(r.body, r); n.headers.delete('content-encoding'); return n; })()`,
      ),
    );
    expect(rewrapped.text).toBe(TEXT);
    expect(rewrapped.headers["content-encoding"]).toBeUndefined();
  });

  test("has no body for HEAD, 204 and 304", async () => {
    const built = (status: number) =>
      send(
        `new Response(null, { status: ${status}, headers: { 'content-length': '9', 'x-s': '1' } })`,
      );
    const head = await run(
      send("new Response('abcdefghi', { headers: { 'content-length': '9' } })"),
      { method: "HEAD" },
    );
    expect(head.body.length).toBe(0);
    const isPiped = way === "pipeResponse()";
    expect(head.headers["content-length"]).toBe(isPiped ? "9" : undefined);
    expect((await run(built(204))).headers["content-length"]).toBeUndefined();
    expect((await run(built(304))).headers["content-length"]).toBe(isPiped ? "9" : undefined);
    const empty = await run(built(200));
    expect(empty.headers["content-length"]).toBe("0");
    expect(empty.isCut).toBe(false);
  });
});

describe("the length of a returned Response", () => {
  test("is exact for what is there at once, and chunked for what comes later", async () => {
    const whole = await run("return new Response('abc');");
    expect(whole.headers["content-length"]).toBe("3");
    const late = await run(
      "return new Response(new ReadableStream({ async start(c) { c.enqueue(Buffer.from('a')); await new Promise((r) => setTimeout(r, 50)); c.enqueue(Buffer.from('b')); c.close(); } }));",
    );
    expect(late.headers["transfer-encoding"]).toBe("chunked");
    expect(late.text).toBe("ab");
    const large = await run("return new Response(Buffer.alloc(200000, 'x'));");
    expect(large.body.length).toBe(200_000);
  });

  test("is unknown for an event stream, which starts at once", async () => {
    const started = Date.now();
    let headAfter = Infinity;
    const answer = await run(
      "return new Response(new ReadableStream({ async start(c) { await new Promise((r) => setTimeout(r, 700)); c.enqueue(Buffer.from('data: x\\n\\n')); c.close(); } }), { headers: { 'content-type': 'text/event-stream' } });",
      { onResponse: () => (headAfter = Date.now() - started) },
    );
    expect(answer.text).toBe("data: x\n\n");
    expect(headAfter).toBeLessThan(600);
  });

  test("ends in a cut when its stream fails", async () => {
    const answer = await run(
      "return new Response(new ReadableStream({ async start(c) { c.enqueue(Buffer.from('a')); await new Promise((r) => setTimeout(r, 50)); c.error(new Error('broken')); } }));",
    );
    expect(answer).toMatchObject({ status: 200, text: "a", isCut: true });
  });
});

describe("fetch", () => {
  test("takes texts, URLs, Requests and option objects, with bodies of every kind", async () => {
    const answer = await run(`
const out = [];
const seen = async (...args) => { const { method, body, headers } = await (await fetch(...args)).json(); out.push([method, body, headers['content-type'] ?? null, headers['content-length'] ?? headers['transfer-encoding'] ?? null]); };
await seen(base + '/a');
await seen(new URL(base));
await seen(base, { method: 'POST', body: 'text' });
await seen(base, { method: 'PUT', body: new URLSearchParams({ a: 'b' }) });
await seen(base, { method: 'POST', body: new Uint8Array([65]), headers: { 'content-type': 'x/y' } });
await seen(new Request(base, { method: 'POST', body: 'in request' }));
await seen({ url: base, method: 'PATCH', body: 'object' });
await seen(base, { method: 'POST', body: new ReadableStream({ start(c) { c.enqueue(Buffer.from('st')); c.enqueue(Buffer.from('ream')); c.close(); } }) });
return out;`);
    expect(JSON.parse(answer.text)).toEqual([
      ["GET", "", null, null],
      ["GET", "", null, null],
      ["POST", "text", "text/plain;charset=UTF-8", "4"],
      ["PUT", "a=b", "application/x-www-form-urlencoded;charset=UTF-8", "3"],
      ["POST", "A", "x/y", "1"],
      ["POST", "in request", "text/plain;charset=UTF-8", "10"],
      ["PATCH", "object", "text/plain;charset=UTF-8", "6"],
      ["POST", "stream", null, "chunked"],
    ]);
  });

  test("describes its responses", async () => {
    const answer = await run(
      "const r = await fetch(base + '/seen?x=1#frag'); return { url: r.url.slice(base.length), redirected: r.redirected, type: r.type, ok: r.ok, is: r instanceof Response, cookies: r.headers.getSetCookie() };",
    );
    expect(JSON.parse(answer.text)).toEqual({
      url: "/seen?x=1",
      redirected: false,
      type: "basic",
      ok: true,
      is: true,
      cookies: ["a=1", "b=2"],
    });
  });

  test("follows redirects the way the standard says", async () => {
    const answer = await run(`
const out = {};
for (const status of [301, 302, 303, 307, 308]) {
  const r = await fetch(base + '/to/' + status, { method: 'POST', body: 'b', headers: { authorization: 'secret' } });
  const seen = await r.json();
  out[status] = [seen.method, seen.body, seen.headers['content-type'] ? 'typed' : '', seen.headers.authorization ?? '', r.redirected];
}
out.manual = (await fetch(base + '/to/302', { redirect: 'manual' })).status;
out.error = await fetch(base + '/to/302', { redirect: 'error' }).catch((e) => e.name);
out.loop = await fetch(base + '/to/302?location=' + encodeURIComponent(base + '/to/302?location=' )).catch((e) => e.name);
const elsewhere = base.replace('127.0.0.1', 'localhost') + '/seen';
const far = await fetch(base + '/to/307?location=' + encodeURIComponent(elsewhere), { headers: { authorization: 'secret', cookie: 'c', 'x-kept': '1' } }).then((r) => r.json()).catch((e) => String(e.cause));
out.far = far.headers ? [far.headers.authorization ?? '', far.headers.cookie ?? '', far.headers['x-kept']] : far;
return out;`);
    const got = JSON.parse(answer.text) as Record<string, unknown>;
    expect(got).toMatchObject({
      "301": ["GET", "", "", "secret", true],
      "302": ["GET", "", "", "secret", true],
      "303": ["GET", "", "", "secret", true],
      "307": ["POST", "b", "typed", "secret", true],
      "308": ["POST", "b", "typed", "secret", true],
      manual: 302,
      error: "TypeError",
      far: ["", "", "1"],
    });
  });

  test("fails with a TypeError, or with the reason of its signal", async () => {
    const answer = await run(`
const name = (promise) => promise.then(() => 'fine', (e) => e.name);
const controller = new AbortController();
const pending = name(fetch(base + '/never', { signal: controller.signal }));
setTimeout(() => controller.abort(), 30);
return [await name(fetch('http://127.0.0.1:1/')), await name(fetch('not a url')), await name(fetch('ftp://x/')), await name(fetch(base, { method: 'GET', body: 'x' })), await pending, await name(fetch(base + '/never', { signal: AbortSignal.timeout(30) })), await (await fetch('data:text/plain,abc')).text()];`);
    expect(JSON.parse(answer.text)).toEqual([
      "TypeError",
      "TypeError",
      "TypeError",
      "TypeError",
      "AbortError",
      "TimeoutError",
      "abc",
    ]);
  });
});
