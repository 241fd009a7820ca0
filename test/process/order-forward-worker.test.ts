import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { createFrameClient } from "../../dispatcher/frame-client.ts";
import { FRAME } from "../../dispatcher/frames.ts";
import { encodeOrder } from "../../dispatcher/order.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { startSmallEdge } from "../support/exec-edge.ts";
import { eventually } from "../support/exec-pool.ts";
import { FRAME_SECRET, sendCall, startFrameServer } from "../support/frame-server.ts";
import { afterUpload, big, late, pieces, rawUpload } from "../support/order-cases.ts";
import { askOnce, edgeOf, startService, type Answerer } from "../support/order-parity.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";
import { startWorker, WORKER_SECRET } from "../support/start-worker.ts";

const MODES = [
  ["orders", true],
  ["no orders", false],
] as const;
const FORWARD = "async (req, res, { hook }) => { await hook.forward(req, res); }";

/** A worker of the test's own with these scripts, a service, and an edge; `/name` runs the script of that name. */
async function start(
  scripts: Readonly<Record<string, string>>,
  takesOrders: boolean,
  answer: Answerer | null = (_req, res) => void res.end("ok"),
  timeoutMs = 4000,
) {
  const worker = await startWorker({ limits: { maxHeaderBytes: 65_536 } });
  onTestFinished(() => worker.stop());
  for (const [name, source] of Object.entries({ ...scripts, own: "() => 'own'" })) {
    const [first = "", ...rest] = source.split("\n");
    const isDirective = first.startsWith("//");
    const body = isDirective ? rest.join("\n") : source;
    await worker.write(
      `default/1/${name}.js`,
      `${isDirective ? first : ""}\nmodule.exports = ${body};`,
    );
  }
  const service = await startService(answer ?? (() => {}));
  const edge = await edgeOf(worker, takesOrders, {
    timeoutMs,
    upstreamPort: answer === null ? 1 : service.port,
    request: (dispatch) => {
      const { rule, path } = dispatch;
      return { ...dispatch, rule: { ...rule, script: { ...rule.script, path: `${path}.js` } } };
    },
  });
  const ask = (path: string, more: Parameters<typeof askOnce>[1] = {}, pauseMs = 0) =>
    askOnce(edge.port, { ...more, path }, pauseMs);
  return { worker, service, edge, ask };
}

describe.for(MODES)("with %s", ([, takesOrders]) => {
  test.for<readonly [string, string, Answerer | null, number?]>([
    ["nobody answers in time", `// @rawBody\n${FORWARD}`, late(600), 200],
    ["nobody listens", `// @rawBody\n${FORWARD}`, null],
    [
      "the script throws",
      "// @rawBody\nasync (req, res, { hook }) => { hook.forward(req, res).catch(() => {}); await new Promise((r) => setTimeout(r, 50)); throw new Error('x'); }",
      late(200),
    ],
    [
      "the service refuses it",
      `// @rawBody\n${FORWARD}`,
      (_req, res) => void res.writeHead(413).end(),
    ],
    ["the script answers without it", "// @rawBody\n() => 'early'", afterUpload],
    ["all is well", `// @rawBody\n${FORWARD}`, afterUpload],
  ])("an upload leaves the connection as it was when %s", async ([, script, answer, timeoutMs]) => {
    const { worker, ask } = await start({ upload: script }, takesOrders, answer, timeoutMs);
    const { method, headers, body } = rawUpload;
    const first: number[] = [];
    const next: (number | string)[] = [];
    for (let round = 0; round < 3; round++) {
      first.push((await ask("/upload", { method, headers, body })).status);
      await sleep(20);
      next.push(...(await Promise.all([ask("/own"), ask("/own")])).map((each) => each.body));
    }
    expect(new Set(first).size).toBe(1);
    expect(next).toEqual(Array.from({ length: 6 }, () => "own"));
    expect(worker.isRunning()).toBe(true);
  });

  test.for([
    ["reads too", "hook.forward(req, res); for await (const chunk of req) { void chunk; }"],
    ["resumes", "hook.forward(req, res); req.resume();"],
    ["has paused", "req.pause(); await hook.forward(req, res);"],
  ])("an upload that its script %s reaches the service whole", async ([, source]) => {
    const { service, ask } = await start(
      { upload: `// @rawBody\nasync (req, res, { hook }) => { ${source} }` },
      takesOrders,
      afterUpload,
      600,
    );
    const { method, headers, body } = rawUpload;
    const answers: string[] = [];
    for (let round = 0; round < 5; round++) {
      answers.push((await ask("/upload", { method, headers, body })).body);
    }
    expect(answers).toEqual(Array.from({ length: 5 }, () => "done"));
    expect(new Set(service.served.map((each) => each.body))).toEqual(
      new Set(["9 bytes: 123456789"]),
    );
  });

  test("lines and failures of a call's events are its own, also on a connection used again", async () => {
    const { worker, ask } = await start(
      {
        hook: `async (req, res, { hook }) => {
          const { url } = req;
          console.log("start", url);
          for (const event of ["finish", "close"]) { res.on(event, () => console.log(event, url)); }
          await hook.forward(req, res);
        }`,
      },
      takesOrders,
    );
    for (const at of [1, 2, 3]) {
      await ask(`/hook?${at}`);
      await sleep(20);
    }
    await eventually(() => worker.logs.length >= 9);
    const idOf = new Map(
      worker.logs.flatMap(({ msg, executionId }) =>
        msg.startsWith("start") ? [[msg.slice(6), executionId] as const] : [],
      ),
    );
    expect(idOf.size).toBe(3);
    for (const { msg, executionId } of worker.logs) {
      expect([msg, executionId]).toEqual([msg, idOf.get(msg.slice(msg.indexOf("/")))]);
    }
  });

  test.for([
    ["a frozen response", "Object.freeze(res);"],
    [
      "a response with a `write` that cannot be looked at twice",
      "let looks = 0; const { write } = res; Object.defineProperty(res, 'write', { get() { if (looks++ > 0) { throw new Error('mine'); } return write; } });",
    ],
    ["a field of 2 MiB", "overrides = { headers: { 'x-big': 'a'.repeat(2 ** 21) } };"],
    [
      "no field at all",
      "overrides = { headers: Object.fromEntries(Object.keys(req.headers).map((name) => [name, null])) };",
    ],
  ])("a script with %s harms no other call", async ([, before]) => {
    const { worker, ask } = await start(
      {
        odd: `async (req, res, { hook }) => { let overrides; ${before} await hook.forward(req, res, overrides); }`,
        slow: "async () => { await new Promise((resolve) => setTimeout(resolve, 200)); return 'slow'; }",
        hook: FORWARD,
      },
      takesOrders,
      undefined,
      600,
    );
    const both = () => [ask("/slow"), ask("/hook")];
    const others = [both(), both(), both()];
    const odd = [ask("/odd"), ask("/odd")];
    others.push(both(), both(), both());
    const bodies = (await Promise.all(others.flat())).map(({ body }) => body);
    expect(bodies).toEqual(Array.from({ length: 6 }, () => ["slow", "ok"]).flat());
    await Promise.all(odd);
    expect((await ask("/hook")).body).toBe("ok");
    expect(worker.isRunning()).toBe(true);
  });

  test("calls of all kinds at once get what is theirs", async () => {
    const { ask, service } = await start(
      {
        hook: FORWARD,
        upload: `// @rawBody\n${FORWARD}`,
        staged:
          "async (req, res, { hook }) => { res.setHeader('x-mine', '1'); await hook.forward(req, res); }",
      },
      takesOrders,
      (req, res) => {
        let body = "";
        req.on("data", (chunk: Buffer) => (body += chunk.toString()));
        req.on("end", () => res.end(`${req.url} ${body}`));
      },
    );
    const kinds = ["hook", "own", "staged", "upload"];
    const answers = await Promise.all(
      Array.from({ length: 200 }, async (_, at) => {
        const kind = kinds[at % 4]!;
        const body = kind === "upload" ? `body ${at}` : "";
        const more =
          body === ""
            ? {}
            : { method: "POST", headers: ["Content-Length", String(body.length)], body };
        const { status, body: text } = await ask(`/${kind}?${at}`, more);
        return [status, text, kind === "own" ? "own" : `/${kind}?${at} ${body}`];
      }),
    );
    for (const [status, text, expected] of answers) {
      expect([status, text]).toEqual([200, expected]);
    }
    const ordered = service.served.filter(({ isOrdered }) => isOrdered).length;
    expect(ordered).toBe(takesOrders ? 150 : 0);
  });

  test("a slow client holds the service back", async () => {
    let written = 0;
    const { ask } = await start({ hook: FORWARD }, takesOrders, async (_req, res) => {
      for (let at = 0; at < 20 && !res.destroyed; at++) {
        const isFree = res.write(big);
        written += big.length;
        if (!isFree) {
          await new Promise((resolve) => res.once("drain", resolve).once("close", resolve));
        }
      }
      res.end();
    });
    const answer = ask("/hook", {}, 15);
    await sleep(400);
    expect(written).toBeLessThan(50 * 1024 * 1024);
    expect((await Promise.race([answer, sleep(100)])) ?? "still at it").toBe("still at it");
  });

  test("a script whose client leaves goes on behind a write that nobody reads", async () => {
    const { worker, edge } = await start(
      {
        big: `async (req, res) => {
          await new Promise((resolve) => res.write(Buffer.alloc(5e6), resolve));
          console.log("written or not");
        }`,
      },
      takesOrders,
    );
    const socket = await leaveUnread(edge.port, "/big");
    socket.resetAndDestroy();
    await worker.untilLogged(({ msg }) => msg === "written or not", 3000);
  });

  test("a worker that is killed takes its calls with it, each as far as it is", async () => {
    const { worker, ask, edge } = await start({ hook: FORWARD }, takesOrders, (req, res) => {
      if (req.url === "/hook?answered") {
        pieces(40, 50)(req, res);
      }
    });
    const answered = ask("/hook?answered");
    const waiting = ask("/hook?waiting");
    await sleep(300);
    process.kill(worker.pid, "SIGKILL");
    expect(await answered).toMatchObject({ status: 200, isCut: true });
    const other = await waiting;
    expect([other.status, other.body]).toEqual([500, expect.stringContaining("HOOK_CRASHED")]);
    await eventually(() => edge.outcomes.length === 2);
    expect(edge.outcomes.map(({ outcome }) => outcome)).toEqual(["crashed", "crashed"]);
  });
});

/** Asks and does not read. */
async function leaveUnread(port: number, path: string): Promise<Socket> {
  const socket = connect(port, "127.0.0.1").pause();
  socket.on("error", () => {});
  socket.write(`GET ${path} HTTP/1.1\r\nHost: a.example\r\n\r\n`);
  await sleep(300);
  return socket;
}

test("an order is decided when its turn is over, however much others write in it", async () => {
  const { worker, service } = await start(
    {
      hook: `async (req, res, { hook }) => {
        const sent = hook.forward(req, res);
        for (let at = 0; at < 100; at++) { await null; }
        res.setHeader("X-Late", "1");
        await sent;
      }`,
      large: "(req, res) => void res.end('x'.repeat(200_000))",
    },
    true,
  );
  const client = createFrameClient(systemClock);
  onTestFinished(() => client.close());
  const envelope = {
    kind: "hook",
    auditId: "550e8400-e29b-41d4-a716-446655440000",
    method: "GET",
    path: "/",
    service: "files",
    upstreamHost: "127.0.0.1",
    upstreamPort: service.port,
    subdomain: null,
    execId: null,
    timeoutMs: 5000,
    clientAddress: "192.0.2.7",
  } as const;
  const send = (scriptPath: string, takesOrders: boolean) =>
    sendCall(client, worker.socketPath, {
      endpoint: {
        origin: { kind: "unix", path: worker.socketPath },
        secret: WORKER_SECRET,
        generation: 1,
      },
      envelope: { ...envelope, scriptPath },
      takesOrders,
    });
  await Promise.all([send("/hook.js", false).over, send("/large.js", false).over]); // both are loaded
  // In one write, and so in one read and one turn of the worker.
  const call = send("/hook.js", true);
  const other = send("/large.js", true);
  await Promise.all([eventually(() => call.orders.length > 0), other.over]);
  expect(other.body().length).toBe(200_000);
  expect(call.events).toEqual(["forward"]);
  expect(call.orders[0]!.order.staged).toEqual(["X-Late", "1"]);
});

test("an order of a worker cannot frame the request: it stays one, with the edge's own framing", async () => {
  for (const fields of [
    ["Content-Length", "40"],
    ["Transfer-Encoding", "chunked"],
    ["Connection", "X-Kept", "X-Kept", "1"],
    ["Content-Length", "0", "Content-Length", "40"],
  ]) {
    const upstream = await recordingUpstream();
    const server = await startFrameServer((call) => {
      call.say(
        FRAME.order,
        encodeOrder({
          target: "/there",
          fields: ["Host", "a.example", ...fields],
          staged: [],
          waitedMs: null,
        }),
      );
    });
    const edge = await startSmallEdge(
      {
        endpoint: () => ({
          origin: { kind: "unix", path: server.path },
          secret: FRAME_SECRET,
          generation: 1,
        }),
        reportSuspect() {},
        isGone: () => false,
        takeEnded: () => undefined,
      },
      { upstreamPort: upstream.port, request: (dispatch) => ({ ...dispatch, takesOrders: true }) },
    );
    await Promise.race([askOnce(edge.port, {}), sleep(300)]);
    expect(upstream.bytes.join("").toLowerCase()).not.toMatch(
      /content-length|transfer-encoding|\r\nconnection/,
    );
  }
});
