import { afterAll, beforeAll, describe, test } from "vitest";
import {
  BESIDE,
  compareBoth,
  fields,
  FORWARD,
  late,
  LOOK,
  pieces,
  type Row,
} from "../support/order-cases.ts";
import { startWorker, type TestWorker } from "../support/start-worker.ts";

// Decision 16: "scripts never notice". Each script runs twice, and all that could be noticed is compared.

let worker: TestWorker;
beforeAll(async () => {
  worker = await startWorker({ limits: { maxHeaderBytes: 65_536 } });
});
afterAll(() => worker.stop());

describe("a script that only forwards", () => {
  test.for<Row>([
    ["and awaits it", true, { script: LOOK }],
    ["and returns it", true, { script: "return hook.forward(req, res);" }],
    ["and does not await it", true, { script: `${BESIDE} look("behind");` }],
    ["and then has its say", true, { script: `${FORWARD} throw new Error("too late");` }],
    [
      "and listens afterwards",
      true,
      {
        script: `${FORWARD} res.on("finish", () => log("finish heard")); res.on("close", () => log("close heard"));`,
      },
    ],
    ["twice, one after the other", true, { script: `${FORWARD} ${FORWARD}` }],
    ["a method of its own", true, { script: FORWARD, method: "DELETE" }],
    ["OPTIONS", true, { script: FORWARD, method: "OPTIONS" }],
    [
      "in serverless mode with one slot",
      true,
      { directives: "// @mode serverless\n// @concurrent 1", script: LOOK },
    ],
    ["unlogged", true, { directives: "// @log-level none", script: LOOK }],
    [
      "with its promise not awaited by the host",
      true,
      { directives: "// @await-promises false", script: `await sleep(5); ${LOOK}` },
    ],
    [
      "after a fetch of its own",
      true,
      {
        script: `const up = await hook.fetchUpstream(req, { host: "127.0.0.1", port: 1 }).catch((e) => log(e.kind)); ${FORWARD}`,
      },
    ],
    [
      "with files around it",
      true,
      {
        files: {
          "pre.js": "module.exports = () => console.log('pre')",
          "post.js":
            "module.exports = (req, res) => console.log('post', res.headersSent, res.writableEnded)",
        },
        script: LOOK,
      },
    ],
    [
      "in the file before it",
      true,
      {
        files: { "pre.js": "module.exports = (req, res, m) => m.hook.forward(req, res)" },
        script: "log('not run');",
      },
    ],
    ["and a status that it had set", true, { script: `res.statusCode = 418; ${LOOK}` }],
    ["what it looked at", true, { script: `log(req.headers["x-a"]); ${FORWARD}`, headers: fields }],
  ])("%s", (row) => compareBoth(worker, row));
});

describe("the request", () => {
  test.for<Row>([
    [
      "keeps its fields in order",
      true,
      {
        script: FORWARD,
        headers: [
          ...fields,
          "TE",
          "trailers",
          "X-Foo",
          "gone",
          "Connection",
          "x-foo",
          "Proxy-Authorization",
          "s",
          "X-High",
          "caf\u00e9",
        ],
      },
    ],
    ["has no Expect of a client", true, { script: FORWARD, headers: ["Expect", "100-continue"] }],
    [
      "has the changed headers",
      true,
      {
        script: `req.headers["x-a"] = "new"; delete req.headers.cookie; ${FORWARD}`,
        headers: fields,
      },
    ],
    [
      "has the changed lines",
      true,
      {
        script: `req.rawHeaders.push("X-New", "1"); req.rawHeaders[3] = "2"; ${FORWARD}`,
        headers: fields,
      },
    ],
    [
      "cannot be framed by a script",
      true,
      {
        script: `req.rawHeaders.push("Content-Length", "5", "Transfer-Encoding", "chunked"); req.headers["content-length"] = "7"; ${FORWARD}`,
      },
    ],
    [
      "has the given headers",
      true,
      {
        script: `await hook.forward(req, res, { headers: { "X-A": "new", cookie: null, "x-list": ["1", "2"], host: "else.example" } });`,
        headers: fields,
      },
    ],
    ["has the changed query", true, { script: `req.url = "/y?z=1"; ${FORWARD}`, path: "/x?a=1" }],
    [
      "has the given target",
      true,
      { script: `await hook.forward(req, res, { pathAndQuery: "/other?q=\\y&a=%2e" });` },
    ],
    [
      "keeps odd bytes of its path",
      true,
      { script: FORWARD, path: "/a%2e/%zz/@b|c?x=\\y&z=%2e%2e" },
    ],
    ["has the given method", false, { script: `await hook.forward(req, res, { method: "PUT" });` }],
    [
      "goes to the given host",
      false,
      { script: `await hook.forward(req, res, { host: "127.0.0.1", port: hook.upstream.port });` },
    ],
    [
      "has the given body",
      false,
      { script: `await hook.forward(req, res, { method: "POST", body: "mine" });` },
    ],
    [
      "ends with the given time",
      false,
      {
        script: `await tell(hook.forward(req, res, { timeoutMs: 100 }));`,
        answer: late(300),
        settleMs: 400,
      },
    ],
    [
      "ends with the given signal",
      false,
      {
        script: `await tell(hook.forward(req, res, { signal: AbortSignal.timeout(50) }));`,
        answer: late(300),
        settleMs: 400,
      },
    ],
    ["is refused for its path", null, { script: LOOK, path: "/a/../b" }],
    ["is refused for its path, not awaited", null, { script: BESIDE, path: "//b" }],
    [
      "has a method that the script set on `req`",
      undefined,
      { script: `req.method = "DELETE"; ${FORWARD}` },
    ],
    [
      "of HEAD is one of GET when the script says so",
      undefined,
      { script: `req.method = "GET"; ${FORWARD}`, method: "HEAD" },
    ],
  ])("%s", (row) => compareBoth(worker, row));
});

describe("a response that the script has touched", () => {
  test.for<Row>([
    [
      "before: staged fields",
      true,
      { script: `res.setHeader("X-Mine", "1"); res.setHeader("Set-Cookie", "c=3"); ${LOOK}` },
    ],
    ["before: a reason", false, { script: `res.statusMessage = "Mine"; ${LOOK}` }],
    ["before: trailers", false, { script: `res.addTrailers({ "x-t": "1" }); ${FORWARD}` }],
    ["right behind: a field", true, { script: `${BESIDE} res.setHeader("X-Late", "1");` }],
    [
      "right behind: bytes",
      false,
      { script: `${BESIDE} res.write("mine"); await sleep(30); res.end();`, answer: late(60) },
    ],
    ["right behind: its end", false, { script: `${BESIDE} res.end("mine");` }],
    [
      "right behind: a head",
      false,
      { script: `${BESIDE} res.writeHead(201, { a: "b" }); res.end("x");` },
    ],
    [
      "right behind: a value returned",
      false,
      { script: `${BESIDE} return { mine: 1 };`, answer: late(60) },
    ],
    [
      "right behind: an error",
      false,
      { script: `${BESIDE} throw new Error("mine");`, answer: late(60) },
    ],
    ["right behind: destroyed", null, { script: `${BESIDE} res.destroy();`, answer: late(60) }],
    [
      "by a `write` of its own",
      false,
      {
        script: `const { write } = res; res.write = function (chunk, ...rest) { log("write", chunk.length); return write.call(this, chunk, ...rest); }; ${FORWARD}`,
      },
    ],
    [
      "by an `end` of its own",
      false,
      {
        script: `const { end } = res; res.end = function (...all) { log("end"); return end.apply(this, all); }; ${FORWARD}`,
      },
    ],
    [
      "by a `writeHead` of its own",
      false,
      {
        script: `const { writeHead } = res; res.writeHead = function (...all) { log("writeHead", all[0]); return writeHead.apply(this, all); }; ${FORWARD}`,
      },
    ],
    [
      "by a `setHeader` of its own",
      true,
      { script: `res.setHeader = () => log("never asked"); ${FORWARD}` },
    ],
    [
      "by a `write` of its own below",
      undefined,
      {
        script: `const P = Object.getPrototypeOf(Object.getPrototypeOf(res)); const { write } = P; P.write = function (chunk, ...rest) { log("write", chunk.length); return write.call(this, chunk, ...rest); }; try { ${FORWARD} } finally { P.write = write; }`,
      },
    ],
    [
      "behind another object",
      false,
      {
        script: `const mine = new Proxy(res, {}); await tell(hook.forward(req, mine));`,
        timeoutMs: 300,
        settleMs: 400,
      },
    ],
    [
      "by an idle time that is kept",
      true,
      { script: `res.setTimeout(150); ${LOOK}`, answer: pieces(6, 50), settleMs: 200 },
    ],
    [
      "by an idle time with a listener",
      true,
      {
        script: `res.setTimeout(150, () => log("idle")); ${LOOK}`,
        answer: pieces(6, 50),
        settleMs: 200,
      },
    ],
  ])("%s", (row) => compareBoth(worker, row));
});
