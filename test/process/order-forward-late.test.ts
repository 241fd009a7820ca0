import { afterAll, beforeAll, describe, test } from "vitest";
import {
  BESIDE,
  compareBoth,
  FORWARD,
  inAnyOrder,
  late,
  LOOK,
  pieces,
  rawUpload,
  upload,
  type Row,
} from "../support/order-cases.ts";
import { askOnce, leaveAfter } from "../support/order-parity.ts";
import { startWorker, type TestWorker } from "../support/start-worker.ts";

// Decision 16: "scripts never notice". Each script runs twice, and all that could be noticed is compared.

let worker: TestWorker;
beforeAll(async () => {
  worker = await startWorker({ limits: { maxHeaderBytes: 65_536 } });
});
afterAll(() => worker.stop());

const slow = { answer: late(300), settleMs: 350 };

describe("while the service is waited for, a script", () => {
  test.for<Row>([
    [
      "looks at its messages",
      true,
      { ...slow, script: `look("before"); ${BESIDE} await sleep(50); look("50 ms");` },
    ],
    [
      "sets a field",
      undefined,
      { ...slow, script: `${BESIDE} await sleep(50); res.setHeader("X-Late", "1");` },
    ],
    [
      "sets a status",
      undefined,
      {
        ...slow,
        script: `${BESIDE} await sleep(50); res.statusCode = 418; res.statusMessage = "Mine";`,
      },
    ],
    [
      "answers itself",
      undefined,
      { ...slow, script: `${BESIDE} await sleep(50); res.statusCode = 503; res.end("fallback");` },
    ],
    [
      "answers itself if nothing is out",
      undefined,
      {
        ...slow,
        script: `await Promise.race([hook.forward(req, res), sleep(50)]); if (!res.headersSent) { res.writeHead(503, { "x-fallback": "1" }); res.end("slow"); }`,
      },
    ],
    [
      "begins an answer of its own",
      undefined,
      {
        ...slow,
        script: `${BESIDE} await sleep(50); log(res.write("mine")); await sleep(20); res.end();`,
      },
    ],
    [
      "writes a head of its own",
      undefined,
      {
        ...slow,
        script: `${BESIDE} await sleep(50); res.writeHead(201, { "x-mine": "1" }); res.end("mine");`,
      },
    ],
    [
      "sends the head",
      undefined,
      {
        ...slow,
        script: `${BESIDE} await sleep(50); res.flushHeaders(); await sleep(20); res.end("mine");`,
      },
    ],
    [
      "returns a value",
      undefined,
      { ...slow, script: `${BESIDE} await sleep(50); return { mine: 1 };` },
    ],
    [
      "returns a Response",
      undefined,
      {
        ...slow,
        script: `${BESIDE} await sleep(50); return new Response("mine", { status: 201 });`,
      },
    ],
    [
      "pipes another answer",
      undefined,
      {
        ...slow,
        script: `${BESIDE} await sleep(50); await hook.pipeResponse(new Response("mine"), res);`,
      },
    ],
    ["forwards once more", undefined, { ...slow, script: `${BESIDE} await sleep(50); ${FORWARD}` }],
    [
      "throws",
      undefined,
      { ...slow, script: `${BESIDE} await sleep(50); throw new Error("mine");` },
    ],
    [
      "throws in a timer",
      undefined,
      {
        ...slow,
        script: `${BESIDE} setTimeout(() => { throw new Error("mine"); }, 50); await sleep(100);`,
      },
    ],
    [
      "destroys its response",
      true,
      { ...slow, script: `${BESIDE} await sleep(50); res.destroy();` },
    ],
    [
      "destroys its request",
      true,
      { ...slow, script: `${BESIDE} await sleep(50); req.destroy();` },
    ],
    [
      "destroys its socket",
      true,
      { ...slow, script: `${BESIDE} await sleep(50); res.socket.destroy();` },
    ],
  ])("%s", (row) => compareBoth(worker, row, inAnyOrder)); // a forward() that lost hears it earlier
});

describe("while the answer streams, a script", () => {
  const streamed = { answer: pieces(5, 50), settleMs: 300 };
  test.for<Row>([
    [
      "looks at its messages",
      true,
      { ...streamed, script: `${BESIDE} await sleep(120); look("in mid-body");` },
    ],
    [
      "sets a field too late",
      true,
      {
        ...streamed,
        script: `${BESIDE} await sleep(120); try { res.setHeader("a", "b"); } catch (e) { log(e.code); }`,
      },
    ],
    [
      "returns a value too late",
      true,
      { ...streamed, script: `${BESIDE} await sleep(120); return "mine";` },
    ],
    [
      "throws",
      true,
      { ...streamed, script: `${BESIDE} await sleep(120); throw new Error("mine");` },
    ],
    [
      "destroys its response",
      true,
      { ...streamed, script: `${BESIDE} await sleep(120); res.destroy();` },
    ],
  ])("%s", (row) => compareBoth(worker, row));
});

describe("a dispatch ends early", () => {
  test.for<Row>([
    [
      "at its deadline, before an answer",
      true,
      {
        script: `try { ${FORWARD} } finally { log("finally"); } look("after");`,
        timeoutMs: 300,
        answer: late(700),
        settleMs: 700,
      },
    ],
    [
      "at its deadline, and the promise ends with the answer",
      true,
      {
        script: `hook.forward(req, res).then(() => log("settled"), () => log("settled"));`,
        timeoutMs: 300,
        answer: late(700),
        settleMs: 700,
      },
    ],
    [
      "at its deadline, in mid-body",
      true,
      { script: LOOK, timeoutMs: 300, answer: pieces(20, 40), settleMs: 400 },
    ],
    [
      "by its client, before an answer",
      true,
      { script: LOOK, answer: late(600), client: (port) => leaveAfter(port, 100), settleMs: 300 },
    ],
    [
      "by its client, in mid-body",
      true,
      {
        script: LOOK,
        answer: pieces(20, 40),
        client: (port) => leaveAfter(port, 150),
        settleMs: 300,
      },
    ],
  ])("%s", (row) => compareBoth(worker, row));
});

describe("an upload", () => {
  const many = 20 * 1024 * 1024;
  const large = {
    ...rawUpload,
    headers: ["Content-Length", String(many)],
    body: Buffer.alloc(many, "x"),
  };
  const expecting = { headers: ["Content-Length", "9", "Expect", "100-continue"] };
  const closed = { ...rawUpload, answer: null };
  test.for<Row>([
    [
      "in JSON is buffered",
      false,
      {
        ...upload,
        headers: ["Content-Length", "9", "Content-Type", "application/json"],
        body: '{"a": 12}',
        script: `log(JSON.stringify(req.body)); ${LOOK}`,
      },
    ],
    [
      "of nothing",
      true,
      { ...rawUpload, headers: ["Content-Length", "0"], body: "", script: LOOK },
    ],
    ["of a GET goes nowhere", false, { ...rawUpload, method: "GET", script: FORWARD }],
    ["of a buffered GET goes nowhere", false, { ...upload, method: "GET", script: FORWARD }],
    [
      "is passed on",
      true,
      { ...rawUpload, script: `${LOOK} log(req.readableEnded, req.destroyed);` },
    ],
    [
      "in chunks is passed on",
      true,
      { ...rawUpload, headers: ["Transfer-Encoding", "chunked"], script: LOOK },
    ],
    ["of 20 MiB is passed on", true, { ...large, script: LOOK }],
    ["is asked for", true, { ...rawUpload, ...expecting, script: LOOK }],
    [
      "is refused early",
      true,
      {
        ...large,
        script: FORWARD,
        answer: (_req, res) => {
          res.writeHead(413, { "content-length": 3, connection: "close" });
          res.end("big");
        },
        client: async (port) => {
          const { status, body } = await askOnce(port, large);
          return [status, body];
        },
      },
    ],
    [
      "that was read before is not there",
      null,
      {
        ...rawUpload,
        script: `req.resume(); await sleep(20); ${FORWARD}`,
        timeoutMs: 300,
        settleMs: 400,
      },
    ],
    ["to nobody", null, { ...closed, script: FORWARD }],
    [
      "of 20 MiB to nobody",
      null,
      {
        ...large,
        answer: null,
        script: FORWARD,
        client: async (port) => (await askOnce(port, large)).status,
      },
    ],
    [
      "that is asked for, to nobody",
      null,
      {
        ...closed,
        ...expecting,
        script: FORWARD,
        client: async (port) => (await askOnce(port, { ...rawUpload, ...expecting })).status,
      },
    ],
    [
      "to nobody, that the script then reads",
      null,
      {
        ...closed,
        script: `await hook.forward(req, res, { onUpstreamError: async () => { await new Promise((resolve) => req.on("end", resolve).resume()); return { status: 503 }; } });`,
        timeoutMs: 1000,
      },
    ],
    [
      "that nobody answers in time",
      true,
      { ...rawUpload, script: FORWARD, timeoutMs: 300, answer: late(600), settleMs: 600 },
    ],
    [
      "whose script throws",
      true,
      {
        ...rawUpload,
        script: `${BESIDE} await sleep(50); throw new Error("mine");`,
        answer: late(300),
        settleMs: 500,
      },
    ],
  ])("%s", (row) => compareBoth(worker, row));
});
