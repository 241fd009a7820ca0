import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { expect, onTestFinished, test } from "vitest";
import { head, namesOf, readAnswers } from "../support/faults.ts";
import { type FaultRoute, startFaultEdge } from "../support/fault-routes.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";

/** K11: bytes of a body and the fields that describe them belong together, on every way of answering. */

const GZ = gzipSync("some text that is coded").toString("latin1");

/** What the service says to `X-Case`, and what a client of 1.1 must get for each method. */
const CASES: Record<string, string> = {
  length: `${head("HTTP/1.1 200 OK", "Content-Length: 4")}body`,
  zero: head("HTTP/1.1 200 OK", "Content-Length: 0"),
  chunked: `${head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked")}2;x=y\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n`,
  close: `${head("HTTP/1.1 200 OK", "Connection: close")}body`,
  old: `${head("HTTP/1.0 200 OK")}body`,
  gzip: `${head("HTTP/1.1 200 OK", "Content-Encoding: gzip", `Content-Length: ${GZ.length}`)}${GZ}`,
  gzipChunked: `${head("HTTP/1.1 200 OK", "Content-Encoding: gzip", "Transfer-Encoding: chunked")}${GZ.length.toString(16)}\r\n${GZ}\r\n0\r\n\r\n`,
  liar: `${head("HTTP/1.1 200 OK", "Content-Encoding: gzip", "Content-Length: 4")}body`,
  unknown: `${head("HTTP/1.1 200 OK", "Content-Encoding: zstd, br", "Content-Length: 4")}body`,
  created: `${head("HTTP/1.1 201 Created", "Content-Length: 4", "Location: /x")}body`,
  partial: `${head("HTTP/1.1 206 Partial Content", "Content-Range: bytes 0-3/9", "Content-Length: 4")}body`,
  error: `${head("HTTP/1.1 500 Broken", "Content-Length: 4")}body`,
  "204": head("HTTP/1.1 204 No Content"),
  "204len": head("HTTP/1.1 204 No Content", "Content-Length: 4"),
  "304": head("HTTP/1.1 304 Not Modified", "ETag: x"),
  "304len": head("HTTP/1.1 304 Not Modified", "Content-Length: 4", "ETag: x"),
  "205": head("HTTP/1.1 205 Reset Content", "Content-Length: 0"),
};
const BODIES: Record<string, string> = {
  zero: "",
  gzip: GZ,
  gzipChunked: GZ,
  "204": "",
  "204len": "",
  "304": "",
  "304len": "",
  "205": "",
};
const CLOSES = new Set(["close", "old"]);

const respond = (
  request: { method: string; lines: readonly string[] },
  socket: { end(text: Buffer): void },
) => {
  const name = request.lines.find((line) => line.startsWith("X-Case: "))?.slice(8) ?? "";
  const bytes = CASES[name] ?? "";
  const sent = request.method === "HEAD" ? bytes.slice(0, bytes.indexOf("\r\n\r\n") + 4) : bytes;
  if (CLOSES.has(name)) {
    socket.end(Buffer.from(sent, "latin1"));
    return null;
  }
  return sent;
};

const value = (lines: readonly string[] | undefined, name: string): string | undefined =>
  (lines ?? [])
    .find((line) => line.toLowerCase().startsWith(`${name}:`))
    ?.slice(name.length + 1)
    .trim();

const WAYS = ["plain", "alias", "forward", "pipe", "return"];
const ways = (routes: readonly FaultRoute[]) => routes.filter(({ name }) => WAYS.includes(name));

test("bodies of every framing arrive as they are, with one framing that says so", async () => {
  const faults = await startFaultEdge(respond);
  for (const route of ways(faults.routes)) {
    const client = await rawClient(faults.edge.port);
    for (const name of Object.keys(CASES)) {
      const before = client.received().length;
      client.send(head(`GET ${route.path} HTTP/1.1`, `Host: ${route.host}`, `X-Case: ${name}`));
      client.send(head("GET / HTTP/1.1", "Host: marker.example"));
      await client.waitFor(
        new RegExp(`^[^]{${before}}[^]*UNKNOWN_HOST","message":"[^"]*"}$`),
        10_000,
      );
      const [answer, marker, ...more] = readAnswers(client.received().slice(before));
      const wanted = Number(/ ([0-9]{3}) /.exec(CASES[name] ?? "")?.[1]);
      expect([route.name, name, answer?.status, marker?.status, more.length]).toEqual([
        route.name,
        name,
        wanted,
        404,
        0,
      ]);
      expect([route.name, name, answer?.body]).toEqual([route.name, name, BODIES[name] ?? "body"]);
      const length = value(answer?.lines, "content-length");
      const chunked = value(answer?.lines, "transfer-encoding");
      if (name.startsWith("204")) {
        expect([route.name, name, length, chunked]).toEqual([
          route.name,
          name,
          undefined,
          undefined,
        ]);
      } else if (name === "304len" && route.name !== "return") {
        expect([route.name, name, length, chunked]).toEqual([route.name, name, "4", undefined]);
      } else if (!name.startsWith("304")) {
        expect([route.name, name, (length === undefined) !== (chunked === undefined)]).toEqual([
          route.name,
          name,
          true,
        ]);
      }
      const coding = /content-encoding: ([^\r]*)/i.exec(CASES[name] ?? "")?.[1];
      expect([route.name, name, value(answer?.lines, "content-encoding")]).toEqual([
        route.name,
        name,
        coding,
      ]);
    }
    client.socket.destroy();
  }
}, 60_000);

test("HEAD keeps the length of the body that does not come, and waits for none", async () => {
  const faults = await startFaultEdge(respond);
  for (const route of ways(faults.routes)) {
    const client = await rawClient(faults.edge.port);
    for (const name of Object.keys(CASES)) {
      const before = client.received().length;
      client.send(head(`HEAD ${route.path} HTTP/1.1`, `Host: ${route.host}`, `X-Case: ${name}`));
      client.send(head("HEAD / HTTP/1.1", "Host: marker.example"));
      await client.waitFor(new RegExp(`^[^]{${before}}[^]*HTTP/1.1 404 [^]*\r\n\r\n$`), 10_000);
      const [answer, marker, ...more] = readAnswers(client.received().slice(before), true);
      expect([route.name, name, marker?.status, more.length]).toEqual([route.name, name, 404, 0]);
      const said = /content-length: ([0-9]+)/i.exec(CASES[name] ?? "")?.[1];
      if (!name.startsWith("204") && route.name !== "return") {
        expect([route.name, name, value(answer?.lines, "content-length")]).toEqual([
          route.name,
          name,
          said,
        ]);
      }
    }
    client.socket.destroy();
  }
}, 60_000);

test("clients of HTTP/1.0 get no chunks, and a length or the end of the connection", async () => {
  const faults = await startFaultEdge(respond);
  for (const route of ways(faults.routes)) {
    for (const name of Object.keys(CASES)) {
      const text = await rawExchange(
        faults.edge.port,
        head(`GET ${route.path} HTTP/1.0`, `Host: ${route.host}`, `X-Case: ${name}`),
        10_000,
      );
      const at = text.indexOf("\r\n\r\n");
      const names = namesOf(text.slice(0, at).split("\r\n").slice(1));
      expect([route.name, name, names.includes("transfer-encoding")]).toEqual([
        route.name,
        name,
        false,
      ]);
      expect([route.name, name, text.slice(at + 4)]).toEqual([
        route.name,
        name,
        BODIES[name] ?? "body",
      ]);
    }
  }
}, 60_000);

test("a kept-alive client of HTTP/1.0 gets a length or a closed connection", async () => {
  const faults = await startFaultEdge(respond);
  const client = await rawClient(faults.edge.port);
  const get = (name: string) =>
    head(
      "GET /plain HTTP/1.0",
      `Host: ${faults.edge.host("terminal-1")}`,
      "Connection: keep-alive",
      `X-Case: ${name}`,
    );
  client.send(get("length"));
  await client.waitFor("body");
  expect(client.received()).toMatch(/Connection: keep-alive/i);
  client.send(get("chunked"));
  const text = await client.closed();
  expect(text.match(/body/g)).toHaveLength(2);
  expect(text).not.toMatch(/transfer-encoding/i);
});

/** Scripts that say one thing about their body and do another; the client must never be led astray. */
const SCRIPTS: Record<string, string> = {
  "too-long": `res.setHeader("Content-Length", "2"); res.end("body");`,
  "too-short": `res.setHeader("Content-Length", "9"); res.end("body");`,
  both: `res.setHeader("Content-Length", "4"); res.setHeader("Transfer-Encoding", "chunked"); res.end("body");`,
  "own-chunks": `res.setHeader("Transfer-Encoding", "chunked"); res.end("4\\r\\nbody\\r\\n0\\r\\n\\r\\n");`,
  "no-length": `res.removeHeader("Transfer-Encoding"); res.write("bo"); res.end("dy");`,
  "204-body": `res.writeHead(204, { "Content-Length": "4" }); res.end("body");`,
  "304-body": `res.writeHead(304, { "Content-Length": "4" }); res.end("body");`,
  "head-of-another": `res.writeHead(200, { "Content-Length": "4", Connection: "close", "Keep-Alive": "x" }); res.end("body");`,
  upgrade: `res.writeHead(200, { Upgrade: "h2c", Connection: "Upgrade" }); res.end("body");`,
  interim: `res.writeContinue(); res.writeProcessing(); res.end("body");`,
  response: `return new Response("body", { headers: { "Content-Length": "400", "Transfer-Encoding": "chunked" } });`,
  "response-gzip": `return new Response("body", { headers: { "Content-Encoding": "gzip" } });`,
  rewrapped: `const r = await fetch(process.env.UP || "http://127.0.0.1:" + req.headers["x-port"] + "/gz"); return new Response(r.body, r);`,
  fetched: `return fetch("http://127.0.0.1:" + req.headers["x-port"] + "/gz");`,
  "fetched-raw": `return fetch("http://127.0.0.1:" + req.headers["x-port"] + "/gz", { decompress: false });`,
  "fetched-piped": `return hook.pipeResponse(await fetch("http://127.0.0.1:" + req.headers["x-port"] + "/gz"), res);`,
};

test("a script that misdescribes its body breaks its own answer only, and never the next one", async () => {
  const faults = await startFaultEdge();
  const { edge } = faults;
  const gzip = createServer((_req, res) => {
    res.setHeader("Content-Encoding", "gzip");
    res.end(Buffer.from(GZ, "latin1"));
  });
  await new Promise<void>((done) => gzip.listen(0, "127.0.0.1", done));
  onTestFinished(() => void gzip.close());
  const port = (gzip.address() as AddressInfo).port;
  edge.script(
    "all.js",
    `const cases = { ${Object.entries(SCRIPTS)
      .map(([name, code]) => `${JSON.stringify(name)}: async (req, res, hook) => { ${code} }`)
      .join(",\n")} };
    module.exports = (req, res, { hook }) => cases[req.headers["x-case"]](req, res, hook);`,
  );
  await edge.hook("terminal", {
    match: { path: "/all*" },
    script: { path: "/all" },
    timeout: 15_000,
  });
  for (const [host, method] of [
    [edge.host("terminal-1"), "GET"],
    [edge.host("terminal-1"), "HEAD"],
  ] as const) {
    for (const name of Object.keys(SCRIPTS)) {
      const client = await rawClient(edge.port);
      client.send(
        head(`${method} /all HTTP/1.1`, `Host: ${host}`, `X-Case: ${name}`, `X-Port: ${port}`),
      );
      client.send(head(`${method} / HTTP/1.1`, "Host: marker.example", "Connection: close"));
      const text = await client.closed(10_000);
      const answers = readAnswers(text, method === "HEAD");
      const [answer] = answers;
      const last = answers.at(-1);
      const cut = !text.includes("HTTP/1.1 404");
      const where = [method, name, cut] as const;
      if (!cut) {
        expect([
          ...where,
          answers.map(({ status }) => status).filter((status) => status >= 200).length,
          last?.status,
        ]).toEqual([...where, 2, 404]);
        if (method === "GET" && answer?.status === 200) {
          const text =
            value(answer.lines, "content-encoding") === "gzip" &&
            name !== "response-gzip" &&
            name !== "rewrapped"
              ? GZ
              : name.startsWith("fetched") || name === "rewrapped"
                ? "some text that is coded"
                : name === "own-chunks"
                  ? "4\r\nbody\r\n0\r\n\r\n"
                  : "body";
          expect([...where, answer.body]).toEqual([...where, text]);
        }
      } else {
        expect(["too-long", "too-short"]).toContain(name);
      }
      client.socket.destroy();
    }
  }
}, 60_000);

test("changed request bodies get a length of their own, GET and HEAD through a hook none", async () => {
  const faults = await startFaultEdge();
  const { edge, upstream } = faults;
  edge.script(
    "change.js",
    `const bodies = { text: "\\u00e4\\u4e2d", bytes: Buffer.from([255, 0]), none: null, form: new URLSearchParams({ a: "b c" }), stream: new Blob(["stream"]).stream() };
    module.exports = (req, res, { hook }) => hook.forward(req, res, { body: bodies[req.headers["x-case"]], headers: { "x-case": null } });`,
  );
  await edge.hook("terminal", {
    match: { path: "/change*" },
    script: { path: "/change" },
    timeout: 15_000,
  });
  const send = async (
    method: string,
    path: string,
    name: string,
    framing: string,
    body: string,
  ) => {
    const answer = await rawExchange(
      edge.port,
      head(
        `${method} ${path} HTTP/1.1`,
        `Host: ${edge.host("terminal-1")}`,
        `X-Case: ${name}`,
        framing,
        "Connection: close",
      ) + body,
      10_000,
    );
    expect([name, answer.slice(0, 12)]).toEqual([name, "HTTP/1.1 200"]);
    const request = upstream.requests.at(-1);
    return [
      request?.body,
      (request?.lines ?? [])
        .filter((line) => /^(?:content-length|transfer-encoding):/i.test(line))
        .join(),
    ];
  };
  const chunks = "3\r\nold\r\n0\r\n\r\n";
  expect(await send("POST", "/change", "text", "Content-Length: 3", "old")).toEqual([
    "\xc3\xa4\xe4\xb8\xad",
    "Content-Length: 5",
  ]);
  expect(await send("POST", "/change", "bytes", "Transfer-Encoding: chunked", chunks)).toEqual([
    "\xff\0",
    "Content-Length: 2",
  ]);
  expect(await send("PUT", "/change", "none", "Content-Length: 3", "old")).toEqual([
    "",
    "Content-Length: 0",
  ]);
  expect(await send("DELETE", "/change", "none", "Transfer-Encoding: chunked", chunks)).toEqual([
    "",
    "",
  ]);
  expect(await send("POST", "/change", "form", "Content-Length: 3", "old")).toEqual([
    "a=b+c",
    "Content-Length: 5",
  ]);
  expect(await send("POST", "/change", "stream", "Content-Length: 3", "old")).toEqual([
    "stream",
    "Transfer-Encoding: chunked",
  ]);
  expect(await send("GET", "/change", "text", "Content-Length: 3", "old")).toEqual(["", ""]);
  expect(await send("GET", "/pass", "x", "Transfer-Encoding: chunked", chunks)).toEqual(["", ""]);
  expect(await send("DELETE", "/pass", "x", "Transfer-Encoding: chunked", chunks)).toEqual([
    "old",
    "Content-Length: 3",
  ]);
  expect(await send("GET", "/plain", "x", "Content-Length: 3", "old")).toEqual([
    "old",
    "Content-Length: 3",
  ]);
}, 40_000);
