import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { createFrameClient } from "../../dispatcher/frame-client.ts";
import { UpstreamFailure } from "../../policy/kernel/http1/types.ts";
import { FRAME } from "../../dispatcher/frames.ts";
import { decodeOrderFailure, decodeOrderHead, encodeOrder } from "../../dispatcher/order.ts";
import { systemClock, type Clock } from "../../policy/kernel/clock.ts";
import { fakeClock } from "../support/auth-clock.ts";
import { eventually, tempDir } from "../support/exec-pool.ts";
import { pieceBody, sendCall, startFrameServer, type ServerCall } from "../support/frame-server.ts";

const OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const ORDER = { target: "/there", fields: ["Host", "b"], staged: ["X-S", "1"], waitedMs: 1.5 };

async function start(clock: Clock = systemClock) {
  const server = await startFrameServer((call) => {
    if (call.head.target === "/settle") {
      call.say(FRAME.answer, OK);
    }
  });
  const client = createFrameClient(clock);
  onTestFinished(() => client.close());
  const { path } = server;
  return {
    server,
    client,
    path,
    send: (...rest: [Parameters<typeof sendCall>[2]?, Parameters<typeof sendCall>[3]?]) =>
      sendCall(client, path, ...rest),
    /** The calls of tests, as the server has them. */
    arrived: (at = 0): Promise<ServerCall> =>
      eventually(() => server.calls.filter(({ head }) => head.target !== "/settle")[at]),
    /** A call right behind shows that everything before it was dealt with. */
    async settle() {
      await sleep(20);
      await sendCall(client, path, { target: "/settle" }).over;
    },
  };
}

describe("a connection", () => {
  test("that is refused is told as such, and another is tried for the next call", async () => {
    const client = createFrameClient(systemClock);
    const folder = await tempDir();
    const calls = [0, 1].map(() => sendCall(client, `${folder}/nobody.sock`));
    await Promise.all(calls.map(({ over }) => over));
    expect(calls.map(({ events }) => events)).toEqual([["fail connect"], ["fail connect"]]);
    const again = sendCall(client, `${folder}/nobody.sock`);
    await again.over;
    expect(again.events).toEqual(["fail connect"]);
    client.close();
  });

  test("that breaks fails its calls, and the next call of a listener has another", async () => {
    const { server, send, arrived, settle } = await start();
    const call = send();
    (await arrived()).line.socket.destroy();
    await call.over;
    expect(call.events).toEqual(["fail reset"]);
    await settle();
    expect(server.lines).toHaveLength(2);
    const inListener = send();
    const next = inListener.over.then(() => send());
    (await arrived(1)).line.socket.destroy();
    const last = await next;
    (await arrived(2)).say(FRAME.answer, OK);
    await last.over;
    expect(last.events).toEqual(["head 200", "data", "end"]);
  });

  test("closes at once when it is idle, else with its last call", async () => {
    const idle = await start();
    await idle.settle();
    idle.client.close();
    await eventually(() => idle.server.lines[0]?.isClosed());

    const busy = await start();
    const calls = [busy.send(), busy.send()];
    const [first, second] = [await busy.arrived(0), await busy.arrived(1)];
    busy.client.close();
    first.say(FRAME.answer, OK);
    await calls[0]!.over;
    await sleep(30);
    expect(busy.server.lines[0]?.isClosed()).toBe(false);
    second.say(FRAME.answer, OK);
    await calls[1]!.over;
    expect(calls.map(({ events }) => events.at(-1))).toEqual(["end", "end"]);
    await eventually(() => busy.server.lines[0]?.isClosed());
    const late = busy.send();
    (await busy.arrived(2)).say(FRAME.answer, OK);
    await late.over;
    expect(late.events.at(-1)).toBe("end");
    await eventually(() => busy.server.lines[1]?.isClosed());
  });

  test("whose worker does not read is given up at 16 MiB, and the next is unharmed", async () => {
    const { server, send, settle } = await start();
    await settle();
    server.lines[0]!.socket.pause();
    const fields = ["X-Large", "v".repeat(60_000)];
    const calls: ReturnType<typeof send>[] = [];
    while (calls.length < 400 && calls[0]?.events.length !== 1) {
      calls.push(send({ fields }));
      // One turn each: frames reach the socket at the end of the turn.
      await sleep(0);
    }
    await Promise.all(calls.map(({ over }) => over));
    expect(new Set(calls.map(({ events }) => events.join()))).toEqual(new Set(["fail reset"]));
    expect(calls.length * 60_000).toBeGreaterThan(16 * 1024 * 1024);
    expect(calls.length).toBeLessThan(400);
    await settle();
    expect(server.lines).toHaveLength(2);
  });
});

describe("abort()", () => {
  test.for<readonly [string, (it: ServerCall) => void, readonly string[]]>([
    ["before an answer", () => {}, []],
    ["in its head", (it) => it.say(FRAME.answer, "HTTP/1.1 2"), []],
    [
      "in its body",
      (it) => it.say(FRAME.answer, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"),
      ["head 200", "data"],
    ],
  ])("%s cancels, and nothing comes after it", async ([, before, events]) => {
    const { send, arrived, settle } = await start();
    const body = pieceBody(100_000);
    const call = send({ method: "POST", body: body.source });
    const it = await arrived();
    before(it);
    await eventually(() => call.events.length === events.length);
    await settle();
    call.sent.abort();
    call.sent.abort();
    await eventually(() => it.seen(FRAME.cancel).length > 0);
    it.want(5000);
    it.say(FRAME.answer, OK);
    it.say(FRAME.cut);
    it.say(99);
    await settle();
    expect(call.events).toEqual(events);
    expect(body.done).toEqual(["cancel"]);
    expect(it.seen(FRAME.cancel)).toHaveLength(1);
    expect(it.body()).toBe("");
  });

  test.for(["head", "data"] as const)("by the listener of its own %s ends it there", async (at) => {
    const { client, path, arrived, settle } = await start();
    const events: string[] = [];
    const sent = client.send(
      {
        endpoint: { origin: { kind: "unix", path }, secret: "s", generation: 1 },
        envelope: {
          kind: "ordinary",
          subdomain: null,
          execId: null,
          clientAddress: "::1",
          manage: false,
        },
        method: "GET",
        target: "/",
        fields: [],
        body: null,
        awaitContinue: false,
        idleMs: 1000,
        orders: null,
      },
      {
        interim() {},
        head() {
          events.push("head");
          if (at === "head") {
            sent.abort();
          }
        },
        data() {
          events.push("data");
          sent.abort();
          return true;
        },
        end: () => void events.push("end"),
        tunnel: () => void events.push("tunnel"),
        fail: () => void events.push("fail"),
      },
    );
    const it = await arrived();
    it.say(
      FRAME.answer,
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n",
    );
    await settle();
    expect(events).toEqual(at === "head" ? ["head"] : ["head", "data"]);
    expect(it.seen(FRAME.cancel)).toHaveLength(1);
  });
});

describe("silence", () => {
  test("beyond the limit ends the call as a timeout, its own alone", async () => {
    const clock = fakeClock();
    const { send, arrived, settle } = await start(clock);
    const call = send({ idleMs: 5000 });
    const patient = send({ idleMs: 50_000 });
    const it = await arrived();
    clock.advance(1000);
    clock.advance(4900);
    it.say(FRAME.answer, "HTTP/1.1 103 Early\r\n\r\n");
    await eventually(() => call.events.length === 1);
    clock.advance(4900);
    expect(call.events).toEqual(["interim 103"]);
    clock.advance(2100);
    await call.over;
    expect(call.events).toEqual(["interim 103", "fail timeout"]);
    await eventually(() => it.seen(FRAME.cancel).length === 1);
    expect(patient.events).toEqual([]);
    (await arrived(1)).say(FRAME.answer, OK);
    await settle();
    expect(patient.events).toEqual(["head 200", "data", "end"]);
  });

  test("of a client, of a reader that has stopped, or during an order is no silence of the worker", async () => {
    const clock = fakeClock();
    const { send, arrived, settle } = await start(clock);
    const upload = send({
      idleMs: 2000,
      method: "POST",
      body: { length: 9, start() {}, resume() {}, cancel() {} },
    });
    const slow = send({ idleMs: 2000 }, () => false);
    const ordered = send({ idleMs: 2000, takesOrders: true });
    (await arrived(0)).want(9);
    (await arrived(1)).say(FRAME.answer, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab");
    (await arrived(2)).say(FRAME.order, encodeOrder(ORDER));
    await eventually(() => slow.events.length === 2 && ordered.events.length === 1);
    await settle();
    for (let at = 0; at < 30; at++) {
      clock.advance(1000);
    }
    expect([upload.events, slow.events, ordered.events]).toEqual([
      [],
      ["head 200", "data"],
      ["forward"],
    ]);
    slow.sent.resume();
    ordered.orders[0]!.report.failed(new UpstreamFailure("connect", "refused"));
    for (let at = 0; at < 5; at++) {
      clock.advance(1000);
    }
    expect(slow.events.at(-1)).toBe("fail timeout");
    expect(ordered.events).toEqual(["forward", "fail timeout"]);
    expect(upload.events).toEqual([]);
  });
});

describe("an order", () => {
  async function ordered(changes: Parameters<typeof sendCall>[2] = {}) {
    const setup = await start();
    const call = setup.send({ takesOrders: true, ...changes });
    const it = await setup.arrived();
    expect(it.head.takesOrders).toBe(true);
    it.say(FRAME.order, encodeOrder(ORDER));
    await eventually(() => call.orders.length === 1);
    const { order, report } = call.orders[0]!;
    expect(order).toEqual(ORDER);
    return { ...setup, call, it, report };
  }

  test.for([
    ["at once", FRAME.orderDone],
    ["bit by bit", FRAME.orderHead],
  ] as const)(
    "is reported from its head to its end, %s, and the call is over",
    async ([way, type]) => {
      const { call, it, report, settle } = await ordered();
      report.head(299, "Fine enough", 12.34);
      if (way === "bit by bit") {
        await eventually(() => it.seen(FRAME.orderHead).length === 1);
      }
      report.done();
      await eventually(() => it.seen(FRAME.orderDone).length === 1);
      expect(it.seen(type).map(({ text }) => decodeOrderHead(text))).toEqual([
        { status: 299, reason: "Fine enough", ms: 12.3 },
      ]);
      it.say(FRAME.answer, OK);
      it.say(FRAME.cut);
      await settle();
      expect(call.events).toEqual(["forward"]);
      expect(call.ordered).toEqual([]);
      expect(it.seen(FRAME.cancel)).toEqual([]);
    },
  );

  test("that fails before a head leaves the word to the worker", async () => {
    const { call, it, report, settle } = await ordered();
    report.failed(new UpstreamFailure("connect", "not accepted"));
    await eventually(() => it.seen(FRAME.orderFailed).length === 1);
    expect(decodeOrderFailure(it.seen(FRAME.orderFailed)[0]!.text)).toMatchObject({
      kind: "connect",
      message: "not accepted",
    });
    it.say(FRAME.answer, "HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n");
    await settle();
    expect(call.events).toEqual(["forward", "head 502", "end"]);
    expect(call.ordered).toEqual([]);
  });

  test("that fails behind its head, or by the client, ends the call for both sides", async () => {
    const broken = await ordered();
    broken.report.head(200, "OK", 1);
    broken.report.failed(new UpstreamFailure("reset", "broke off"));
    await eventually(() => broken.it.seen(FRAME.orderFailed).length === 1);
    broken.it.say(FRAME.cut);
    await broken.settle();
    expect(broken.call.events).toEqual(["forward"]);

    const left = await ordered({ method: "POST", body: pieceBody(9).source });
    left.report.failed(new UpstreamFailure("body", "the client left"));
    await eventually(() => left.it.seen(FRAME.cancel).length === 1);
    left.it.say(FRAME.answer, OK);
    await left.settle();
    expect(left.call.events).toEqual(["forward"]);
    expect(left.it.seen(FRAME.orderFailed)).toEqual([]);
  });

  test("is taken back by an answer that comes before its head, and is too late to be taken back behind it", async () => {
    const early = await ordered();
    early.it.say(FRAME.answer, OK);
    await early.call.over;
    expect(early.call.events).toEqual(["forward", "head 200", "data", "end"]);
    expect(early.call.ordered).toEqual(["leave"]);

    const late = await ordered();
    late.report.head(200, "OK", 1);
    late.it.say(FRAME.answer, OK);
    await late.call.over;
    expect(late.call.events).toEqual(["forward", "fail reset"]);
    expect(late.call.ordered).toEqual(["abort"]);
  });

  test.for<readonly [string, (it: ServerCall) => void]>([
    ["a cut", (it) => it.say(FRAME.cut)],
    ["the end of the connection", (it) => it.line.socket.destroy()],
  ])("is given up with %s", async ([, end]) => {
    const { call, it } = await ordered();
    end(it);
    await call.over;
    expect(call.events).toEqual(["forward", "fail reset"]);
    expect(new Set(call.ordered)).toEqual(new Set(["abort"])); // idempotent
  });

  test("is given up with its client, and goes on when the client reads on", async () => {
    const { call, it, report, settle } = await ordered();
    report.head(200, "OK", 1);
    call.sent.resume();
    expect(call.ordered).toEqual(["resume"]);
    call.sent.abort();
    await eventually(() => it.seen(FRAME.cancel).length === 1);
    await settle();
    expect(call.ordered).toEqual(["resume", "abort"]);
    expect(call.events).toEqual(["forward"]);
  });

  test("has the body: no wish of the worker starts it here, and no end of the call cancels it here", async () => {
    const body = pieceBody(50_000);
    const { it, report, settle } = await ordered({ method: "POST", body: body.source });
    it.want(65_536);
    await settle();
    expect(body.done).toEqual([]);
    report.head(200, "OK", 1);
    report.done();
    await settle();
    expect(body.done).toEqual([]);
    expect(it.body()).toBe("");
  });
});

test("places of calls that are over are used again without mixing answers up", async () => {
  const { server, send, arrived, settle } = await start();
  const gone = send();
  const first = await arrived(0);
  gone.sent.abort();
  const next = send();
  const second = await arrived(1);
  expect(second.id % 2 ** 20).toBe(first.id % 2 ** 20);
  first.say(FRAME.answer, "HTTP/1.1 418 Mine\r\nContent-Length: 0\r\n\r\n");
  first.say(FRAME.cut);
  second.say(FRAME.answer, OK);
  await next.over;
  await settle();
  expect(next.events).toEqual(["head 200", "data", "end"]);
  expect(gone.events).toEqual([]);
  expect(server.lines).toHaveLength(1);
});
