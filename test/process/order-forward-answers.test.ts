import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, test } from "vitest";
import {
  big,
  compareBoth,
  FORWARD,
  head,
  LOOK,
  pieces,
  raw,
  type Row,
} from "../support/order-cases.ts";
import { askOnce } from "../support/order-parity.ts";
import { startWorker, type TestWorker } from "../support/start-worker.ts";

// Decision 16: "scripts never notice". Each script runs twice, and all that could be noticed is compared.

let worker: TestWorker;
beforeAll(async () => {
  worker = await startWorker({ limits: { maxHeaderBytes: 65_536 } });
});
afterAll(() => worker.stop());

describe("the answer", () => {
  test.for<Row>([
    ["204", true, { script: LOOK, answer: head(204, {}) }],
    [
      "304 with a length",
      true,
      { script: LOOK, answer: head(304, { "content-length": 12, etag: '"x"' }) },
    ],
    [
      "to HEAD",
      true,
      { script: LOOK, method: "HEAD", answer: head(200, { "content-length": 1234 }) },
    ],
    ["to HEAD without a length", true, { script: LOOK, method: "HEAD", answer: head(200, {}) }],
    ["403", true, { script: FORWARD, answer: head(403, {}, "no") }],
    ["500", true, { script: FORWARD, answer: head(500, {}, "no") }],
    [
      "a redirect",
      true,
      { script: FORWARD, answer: head(302, { location: "http://else.example/" }) },
    ],
    [
      "with an odd status and reason",
      true,
      { script: LOOK, answer: raw("HTTP/1.1 999 caf\xe9 x\r\nContent-Length: 0\r\n\r\n") },
    ],
    [
      "without a reason",
      true,
      { script: LOOK, answer: raw("HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n") },
    ],
    [
      "without a reason that anybody knows",
      true,
      { script: LOOK, answer: raw("HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n") },
    ],
    [
      "until the connection ends",
      true,
      { script: LOOK, answer: raw("HTTP/1.0 200 OK\r\nX-A: 1\r\nX-a: 2\r\n\r\nall of it") },
    ],
    [
      "behind interim ones",
      true,
      {
        script: FORWARD,
        answer: (_req, res) => {
          res.writeProcessing();
          res.writeEarlyHints({ link: "</a>; rel=preload" });
          res.end("ok");
        },
      },
    ],
    [
      "with trailers",
      true,
      {
        script: FORWARD,
        answer: (_req, res) => {
          res.writeHead(200, { trailer: "X-T" });
          res.write("a");
          res.addTrailers({ "X-T": "1" });
          res.end("b");
        },
      },
    ],
    [
      "in a coding",
      true,
      {
        script: FORWARD,
        answer: (_req, res) => {
          res.writeHead(200, { "content-encoding": "gzip" });
          res.end(gzipSync("plain"));
        },
      },
    ],
    [
      "with repeated and swept fields",
      true,
      {
        script: FORWARD,
        answer: head(
          200,
          [
            "Set-Cookie",
            "a=1",
            "X-A",
            "1",
            "Set-Cookie",
            "b=2",
            "x-a",
            "2",
            "Connection",
            "X-Hop",
            "X-Hop",
            "1",
            "Proxy-Authenticate",
            "x",
            "X-Hoody-Hook-Outcome",
            "denied",
            "X-Hoody-Hook-Audit",
            "mine",
            "Upgrade",
            "h2c",
          ],
          "x",
        ),
      },
    ],
    ["that comes slowly", true, { script: LOOK, answer: pieces(5, 40) }],
    [
      "of 5 MiB to a slow client",
      true,
      {
        script: LOOK,
        answer: (_req, res) => void res.end(big),
        client: (port) => askOnce(port, {}, 2),
      },
    ],
    [
      "with a head of 40 KiB",
      true,
      {
        script: FORWARD,
        answer: head(
          200,
          Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`x-${at}`, "y".repeat(1000)])),
          "x",
        ),
        client: async (port) =>
          (await fetch(`http://127.0.0.1:${port}/`).catch(() => ({ status: 0 }))).status,
      },
    ],
    ["that is none", true, { script: LOOK, answer: raw("HELLO\r\n\r\n") }],
    [
      "that switches protocols",
      true,
      {
        script: LOOK,
        answer: raw("HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
      },
    ],
    ["that never begins", true, { script: LOOK, answer: (req) => void req.socket.destroy() }],
    [
      "that breaks off",
      true,
      {
        script: LOOK,
        answer: (_req, res) => {
          res.writeHead(200, { "content-length": 10 });
          res.write("abc");
          setTimeout(() => res.destroy(), 30);
        },
      },
    ],
    ["of nobody", null, { script: LOOK, answer: null }],
    [
      "of nobody, put right by the script",
      null,
      {
        script: `await hook.forward(req, res, { onUpstreamError: (e) => { look("in it"); log(e.name, e.kind, e.message, e.cause?.kind, e.cause?.message); return { status: 503, headers: { "x-kind": e.kind }, body: "try" }; } }); look("after");`,
        answer: null,
      },
    ],
    [
      "of nobody, with its cause",
      null,
      {
        script: `await hook.forward(req, res, { onUpstreamError: (e) => { log(e.cause?.cause?.code); return { status: 503 }; } });`,
        answer: null,
      },
    ],
    [
      "that never begins, put right by the script",
      true,
      {
        script: `await hook.forward(req, res, { onUpstreamError: (e) => { log(e.kind, e.message, e.cause?.kind); return { status: 503 }; } });`,
        answer: (req) => void req.socket.destroy(),
      },
    ],
  ])("%s", (row) => compareBoth(worker, row));
});
