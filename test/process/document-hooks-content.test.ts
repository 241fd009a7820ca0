import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type DocumentEdge, openDocumentEdge } from "../support/document-edge.ts";

/*
 * Content-Encoding and Content-Length of a Response by where it came from, and the switch that leaves a fetched body
 * encoded: every row of the document, through a running edge.
 */

const TEXT = "hello, coded world";
const CODERS: Readonly<Record<string, (data: Buffer) => Buffer>> = {
  gzip: gzipSync,
  "x-gzip": gzipSync,
  deflate: deflateSync,
  br: brotliCompressSync,
  zstd: zstdCompressSync,
  compress: (data) => Buffer.concat([Buffer.from("Z:"), data]),
  identity: (data) => data,
};

/** What the service sends under a `Content-Encoding` of this text. */
function encode(field: string): Buffer {
  return field
    .split(",")
    .map((coding) => coding.trim().toLowerCase())
    .reduce<Buffer>((data, coding) => CODERS[coding]?.(data) ?? data, Buffer.from(TEXT));
}

let d: DocumentEdge;

beforeAll(async () => {
  d = await openDocumentEdge((req, res) => {
    const url = new URL(req.url ?? "/", "http://service");
    const field = url.searchParams.get("coding");
    const status = Number(url.searchParams.get("status") ?? 200);
    const data = encode(field ?? "");
    res.writeHead(status, {
      "content-type": "text/plain",
      "content-length": status === 304 ? 77 : data.length,
      ...(field === null ? {} : { "content-encoding": field }),
    });
    res.end(req.method === "HEAD" || status !== 200 ? undefined : data);
  });
  d.edge.script("lib/plain.js", "exports.get = (...args) => fetch(...args);");
  d.edge.script("lib/esm.mjs", "export const get = (...args) => fetch(...args);");
}, 30_000);
afterAll(() => d.close());

/** An expression with the address of a body in this coding. */
const at = (coding: string | null, more = "") =>
  `\`http://\${hook.upstream.host}:\${hook.upstream.port}/x?${coding === null ? "" : `coding=${encodeURIComponent(coding)}`}${more}\``;

const WAYS = [
  ["piped", (expression: string) => `const r = ${expression}; await hook.pipeResponse(r, res);`],
  ["returned", (expression: string) => `return ${expression};`],
] as const;

/** Runs the expression both ways; what must hold of both is asserted here. */
async function both(
  expression: string,
  wanted: {
    readonly bytes: Buffer;
    readonly coding: string | undefined;
    readonly keepsLength?: boolean;
  },
  request: { method?: string; path?: string } = {},
): Promise<void> {
  for (const [way, send] of WAYS) {
    const answer = await d.run(send(expression), request);
    const label = `${way}: ${expression}`;
    expect(answer.status, label).toBe(200);
    expect(answer.cut, label).toBe(false);
    expect(answer.headers["content-encoding"], label).toBe(wanted.coding);
    expect(answer.bytes.equals(wanted.bytes), label).toBe(true);
    const length = answer.headers["content-length"];
    if (wanted.keepsLength === true && way === "piped") {
      expect(length, label).toBe(String(wanted.bytes.length));
    } else {
      expect([undefined, String(wanted.bytes.length)], label).toContain(length);
    }
  }
}

const plain = Buffer.from(TEXT);

test.for([null, "identity", "compress", "gzip", "gzip, br"] as const)(
  "the service's own answer keeps coding %s and its length",
  async (coding) => {
    await both(
      "await hook.fetchUpstream(req)",
      { bytes: encode(coding ?? ""), coding: coding ?? undefined, keepsLength: true },
      { path: `/x?${coding === null ? "" : `coding=${encodeURIComponent(coding)}`}` },
    );
  },
);

test.for([
  [null, ""],
  ["identity", ""],
  ["compress", ""],
  ["gzip, br", ""],
  ["gzip", ", { decompress: false }"],
  ["br", ", { decompress: false }"],
] as const)(
  "a fetch that left %s alone (%s) keeps it and its length",
  async ([coding, options]) => {
    for (const fetcher of ["fetch", "Bun.fetch"]) {
      await both(`await ${fetcher}(${at(coding)}${options})`, {
        bytes: encode(coding ?? ""),
        coding: coding ?? undefined,
        keepsLength: true,
      });
    }
  },
);

test.for(["gzip", "X-GZip", "deflate", "br", "zstd", "gzip, identity", "identity,, br ,"])(
  "a fetch that decoded %s has no coding and the length of what is sent",
  async (coding) => {
    for (const fetcher of ["fetch", "Bun.fetch"]) {
      await both(`await ${fetcher}(${at(coding)})`, { bytes: plain, coding: undefined });
    }
    await both(`(await fetch(${at(coding)})).clone()`, { bytes: plain, coding: undefined });
  },
);

test.for([
  ["a helper by require()", "require('./lib/plain.js').get"],
  ["a helper by import()", "(await import('./lib/esm.mjs')).get"],
  ["the runtime's module", "(await import('bun')).fetch"],
] as const)("%s counts as decoded with one of the codings", async ([, get]) => {
  for (const coding of ["gzip", "br", "deflate"]) {
    await both(`await ${get}(${at(coding)})`, { bytes: plain, coding: undefined });
  }
  await both(`await ${get}(${at("compress")})`, { bytes: encode("compress"), coding: "compress" });
  await both(`await ${get}(${at(null)})`, { bytes: plain, coding: undefined });
  // The case that the document calls mistaken: still encoded, and no longer said.
  await both(`await ${get}(${at("gzip")}, { decompress: false })`, {
    bytes: encode("gzip"),
    coding: undefined,
  });
});

test("a built response says what its author says, with a length of our own", async () => {
  const bytes = Buffer.from("zz");
  await both(
    "new Response('zz', { headers: { 'content-encoding': 'gzip', 'content-length': '77' } })",
    { bytes, coding: "gzip" },
  );
  // Built anew from a decoded body, it no longer knows that it was decoded.
  await both(
    `await (async () => { const r = await fetch(${at("gzip")}); return new Response(r.body, r); })()`,
    { bytes: plain, coding: "gzip" },
  );
  await both(
    `await (async () => { const r = await fetch(${at("gzip")}); const n = new Response(r.body, r); n.headers.delete('content-encoding'); return n; })()`,
    { bytes: plain, coding: undefined },
  );
});

test("lengths of answers without a body", async () => {
  const built = (status: number, body = "null") =>
    `await hook.pipeResponse(new Response(${body}, { status: ${status}, headers: { 'content-length': '9' } }), res);`;
  const head = await d.run(built(200, "'abcdefghi'"), { method: "HEAD" });
  expect([head.headers["content-length"], head.body]).toEqual(["9", ""]);
  expect((await d.run(built(304))).headers["content-length"]).toBe("9");
  expect((await d.run(built(204))).headers["content-length"]).toBeUndefined();
  for (const expression of [
    "await hook.fetchUpstream(req)",
    `await fetch(${at(null, "status=204")})`,
  ]) {
    const answer = await d.run(`await hook.pipeResponse(${expression}, res);`, {
      path: "/x?status=204",
    });
    expect([answer.status, answer.headers["content-length"]]).toEqual([204, undefined]);
  }
  const cached = await d.run("await hook.pipeResponse(await hook.fetchUpstream(req), res);", {
    path: "/x?status=304",
  });
  expect([cached.status, cached.headers["content-length"]]).toEqual([304, "77"]);
});

test("a copy by its own clone() keeps its origin, a borrowed clone() loses it", async () => {
  const raw = `(await fetch(${at("gzip")}, { decompress: false }))`;
  await both(`${raw}.clone()`, { bytes: encode("gzip"), coding: "gzip" });
  await both(
    "(await hook.fetchUpstream(req)).clone()",
    { bytes: encode("gzip"), coding: "gzip" },
    { path: "/x?coding=gzip" },
  );
  await both(`Response.prototype.clone.call(${raw})`, {
    bytes: encode("gzip"),
    coding: undefined,
  });
});

test.for([
  ["{ decompress: false }", true],
  ["{ decompress: NaN }", true],
  ["{ decompress: 0 }", true],
  ["{ decompress: -0.5 }", true],
  ["{ decompress: 0.999 }", true],
  ["{ decompress: 1 }", false],
  ["{ decompress: -1 }", false],
  ["{ decompress: Infinity }", false],
  ["{ decompress: true }", false],
  ["{ decompress: 'false' }", false],
  ["{ decompress: null }", false],
  ["{ decompress: 0n }", false],
  ["Object.assign(() => {}, { decompress: false })", true],
  ["Object.create({ decompress: false })", true],
  ["null", false],
] as const)("fetch(url, %s)", async ([options, isRaw]) => {
  await both(`await fetch(${at("gzip")}, ${options})`, {
    bytes: isRaw ? encode("gzip") : plain,
    coding: isRaw ? "gzip" : undefined,
  });
});

test.for([
  ["{ url: URL_, decompress: false }", "undefined", true],
  ["{ url: URL_, decompress: false }", "{ decompress: 'no' }", true],
  ["{ url: URL_, decompress: false }", "{ decompress: true }", false],
  ["{ url: URL_, decompress: true }", "{ decompress: false }", true],
  ["Object.assign(new Request(URL_), { decompress: 0 })", "undefined", true],
  ["Object.assign(new Request(URL_), { decompress: false })", "{}", true],
  ["Object.assign(new URL(URL_), { decompress: false })", "undefined", false],
  ["Object.assign(new String(URL_), { decompress: false })", "undefined", false],
] as const)("fetch(%s, %s)", async ([input, options, isRaw]) => {
  await both(`await fetch(${input.replace("URL_", at("gzip"))}, ${options})`, {
    bytes: isRaw ? encode("gzip") : plain,
    coding: isRaw ? "gzip" : undefined,
  });
});

test("the switch is read during the call, and not again", async () => {
  const answer = await d.run(
    `let reads = 0; const order = [];
const options = { get decompress() { reads++; order.push('read'); return false; } };
const pending = fetch(${at("gzip")}, options); order.push('returned');
Object.defineProperty(options, 'decompress', { value: true });
const input = { url: ${at("gzip")}, decompress: false };
const second = fetch(input); input.decompress = true;
const third = { decompress: true }; const late = fetch(${at("gzip")}, third); third.decompress = false;
return { codings: [(await pending).headers.get('content-encoding'), (await (await pending).bytes()).length, (await (await second).bytes()).length, await (await late).text()], order, reads };`,
  );
  expect(answer.json).toEqual({
    codings: ["gzip", encode("gzip").length, encode("gzip").length, TEXT],
    order: ["read", "returned"],
    reads: 1,
  });
});
