import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { createFrameClient, type FrameClient } from "../../dispatcher/frame-client.ts";
import { ANSWER_WINDOW, FRAME } from "../../dispatcher/frames.ts";
import { encodeOrder } from "../../dispatcher/order.ts";
import { systemClock, type Clock } from "../../policy/kernel/clock.ts";
import { eventually } from "../support/exec-pool.ts";
import {
  FRAME_SECRET,
  pieceBody,
  sendCall,
  startFrameServer,
  type ServerCall,
} from "../support/frame-server.ts";

const OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const ORDER = encodeOrder({ target: "/there", fields: null, staged: [], waitedMs: null });

async function start(onCall?: (call: ServerCall) => void, clock: Clock = systemClock) {
  const server = await startFrameServer(onCall);
  const client = createFrameClient(clock);
  onTestFinished(() => client.close());
  /** The first call, as the server has it. */
  const arrived = (at = 0) => eventually(() => server.calls[at]);
  return { server, client, arrived, path: server.path };
}

/** A call right behind shows that everything before it was dealt with. */
async function settle(client: FrameClient, path: string): Promise<void> {
  await sleep(20);
  await sendCall(client, path, { target: "/settle" }).over;
}

function answerSettle(call: ServerCall): void {
  if (call.head.target === "/settle") {
    call.say(FRAME.answer, OK);
  }
}

describe("a call", () => {
  test("comes behind the secret, on a connection that all calls share, and gets its answer", async () => {
    const { server, client, path } = await start((call) => {
      call.say(FRAME.answer, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
      call.say(
        FRAME.answer,
        `HTTP/1.1 299 Fine\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n${call.head.target}\r\n0\r\nX-T: 1\r\n\r\n`,
      );
    });
    const first = sendCall(client, path, { target: "/1" });
    const second = sendCall(client, path, { target: "/2" });
    await Promise.all([first.over, second.over]);
    expect(first.events).toEqual(["interim 103", "head 299", "data", "end X-T 1"]);
    expect([first, second].map((call) => call.body().toString())).toEqual(["/1", "/2"]);
    const third = sendCall(client, path, { target: "/3" });
    await third.over;
    expect(server.lines).toHaveLength(1);
    const { frames } = server.lines[0]!;
    expect(frames[0]).toEqual({ type: FRAME.hello, call: 0, text: FRAME_SECRET });
    expect(frames.slice(1).map(({ type }) => type)).toEqual([FRAME.call, FRAME.call, FRAME.call]);
    expect(new Set(server.calls.map(({ id }) => id)).size).toBe(3);
  });

  test("gets its own answer among a thousand at once, in any order and in pieces", async () => {
    const waiting: ServerCall[] = [];
    const { server, client, path } = await start((call) => {
      waiting.push(call);
      if (waiting.length === 1000) {
        const mixed = waiting.toSorted((a, b) => ((a.id * 7919) % 1009) - ((b.id * 7919) % 1009));
        const text = (call: ServerCall): string => `${call.head.target} `.repeat(50);
        for (const each of mixed) {
          const size = text(each).length;
          each.line.writer.text(
            FRAME.answer,
            each.id,
            `HTTP/1.1 200 OK\r\nContent-Length: ${size}`,
          );
        }
        for (const each of mixed.toReversed()) {
          each.line.writer.text(FRAME.answer, each.id, `\r\n\r\n${text(each)}`);
        }
      }
    });
    const calls = Array.from({ length: 1000 }, (_, at) =>
      sendCall(client, path, { target: `/${at}` }),
    );
    await Promise.all(calls.map(({ over }) => over));
    for (const [at, call] of calls.entries()) {
      expect(call.events).toEqual(["head 200", "data", "end"]);
      expect(call.body().toString()).toBe(`/${at} `.repeat(50));
    }
    expect(server.lines).toHaveLength(1);
  });

  test("that cannot be one message is refused, and the others go on", async () => {
    const { server, client, path } = await start((call) => call.say(FRAME.answer, OK));
    expect(() => sendCall(client, path, { fields: ["X", "a\nb"] })).toThrow(TypeError);
    expect(() => sendCall(client, path, { fields: ["X", "x".repeat(2e6)] })).toThrow(TypeError);
    const other = sendCall(client, path);
    await other.over;
    expect(other.events).toEqual(["head 200", "data", "end"]);
    expect(server.calls).toHaveLength(1);
  });
});

describe("an answer", () => {
  test("of 5 MiB arrives whole at a reader that stops now and then, within the window", async () => {
    const size = 5 * 1024 * 1024;
    const whole = Buffer.alloc(size, "0123456789abcdefghijklmnopqrstuvwxyz");
    let most = 0;
    const { server, client, path } = await start((call) => {
      let window = ANSWER_WINDOW;
      let at = 0;
      const head = `HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`;
      const bytes = Buffer.concat([Buffer.from(head), whole]);
      const flow = (): void => {
        const part = bytes.subarray(at, at + window);
        at += part.length;
        window -= part.length;
        for (let from = 0; from < part.length; from += 50_000) {
          call.line.writer.bytes(FRAME.answer, call.id, part.subarray(from, from + 50_000));
        }
      };
      server.onFrame = (frame) => {
        if (frame.type === FRAME.credit) {
          window += Buffer.from(frame.text, "latin1").readUInt32BE();
          most = Math.max(most, window);
          flow();
        }
      };
      flow();
    });
    let pauses = 0;
    let held = 0;
    const call = sendCall(client, path, {}, (_chunk, sent) => {
      if (++held % 5 !== 0) {
        return true;
      }
      pauses++;
      setTimeout(() => sent().resume(), 2);
      return false;
    });
    await call.over;
    expect(call.events).toEqual(["head 200", "data", "end"]);
    expect(call.body().equals(whole)).toBe(true);
    expect(pauses).toBeGreaterThan(3);
    expect(most).toBeLessThanOrEqual(ANSWER_WINDOW);
  });

  test("beyond the window, while its reader has stopped, ends the connection", async () => {
    const { server, client, arrived, path } = await start();
    const other = sendCall(client, path, { target: "/other" });
    const call = sendCall(client, path, {}, () => false);
    const it = await arrived(1);
    it.say(FRAME.answer, `HTTP/1.1 200 OK\r\nContent-Length: ${2 * ANSWER_WINDOW}\r\n\r\n`);
    it.say(FRAME.answer, "x".repeat(ANSWER_WINDOW - 100));
    await sleep(50);
    expect(call.body().length).toBeGreaterThan(0);
    expect(it.seen(FRAME.credit)).toEqual([]);
    expect([call.events, other.events]).toEqual([["head 200", "data"], []]);
    it.say(FRAME.answer, "x".repeat(200));
    await Promise.all([call.over, other.over]);
    expect(call.body().length).toBeLessThanOrEqual(ANSWER_WINDOW);
    expect(call.events).toEqual(["head 200", "data", "fail reset"]);
    expect(other.events).toEqual(["fail reset"]);
    await eventually(() => server.lines[0]?.isClosed());
  });

  const HEAD = "HTTP/1.1 200 OK\r\n";
  test.for([
    ["cut before it began", [], FRAME.cut, ["fail reset"]],
    ["cut in its head", [HEAD], FRAME.cut, ["fail reset"]],
    ["cut in its body", [`${HEAD}\r\nab`], FRAME.cut, ["head 200", "data", "fail reset"]],
    ["that ends where it is ended", [`${HEAD}\r\n`, "abc"], FRAME.end, ["head 200", "data", "end"]],
    ["ended before it began", [], FRAME.end, ["fail reset"]],
    [
      "ended too early",
      [`${HEAD}Content-Length: 3\r\n\r\nab`],
      FRAME.end,
      ["head 200", "data", "fail reset"],
    ],
    ["that is no HTTP", ["HELLO\r\n"], null, ["fail protocol"]],
    [
      "that is none any more",
      [`${HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\n`],
      null,
      ["head 200", "fail protocol"],
    ],
    [
      "with a head beyond all bounds",
      [`${HEAD}X: ${"x".repeat(140_000)}\r\n\r\n`],
      null,
      ["fail protocol"],
    ],
    [
      "that switches protocols",
      ["HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"],
      null,
      ["fail protocol"],
    ],
  ] as const)("%s is told as such, and only to its own call", async ([, answers, type, events]) => {
    const { server, client, arrived, path } = await start(answerSettle);
    const call = sendCall(client, path);
    const it = await arrived();
    answers.forEach((text) => it.say(FRAME.answer, text));
    if (type !== null) {
      it.say(type);
    }
    await call.over;
    it.say(FRAME.answer, OK); // too late
    await settle(client, path);
    expect(call.events).toEqual(events);
    expect(server.lines).toHaveLength(1);
    expect(it.seen(FRAME.cancel)).toHaveLength(events.at(-1) === "fail protocol" ? 1 : 0);
  });
});

describe("a body", () => {
  test("comes when it is wanted, so much of it, and is ended once", async () => {
    const { client, arrived, path } = await start(answerSettle);
    const body = pieceBody(500_000);
    const call = sendCall(client, path, { method: "POST", body: body.source });
    const it = await arrived();
    expect(it.head).toMatchObject({
      hasBody: true,
      fields: "Host\na.example\nContent-Length\n500000",
    });
    await settle(client, path);
    expect(body.done).toEqual([]);
    let wanted = 0;
    for (const bytes of [1, 100_000, 65_536, 200_000]) {
      wanted += bytes;
      it.want(bytes);
      await eventually(() => it.body().length >= wanted);
      await settle(client, path);
      expect(it.body().length).toBeLessThan(wanted + 16_384);
      expect(it.seen(FRAME.bodyEnd)).toEqual([]);
    }
    it.want(500_000);
    await eventually(() => it.seen(FRAME.bodyEnd).length === 1);
    expect(it.body().length).toBe(500_000);
    expect(body.done).toEqual(["start", "end"]);
    it.say(FRAME.answer, OK);
    await call.over;
    await settle(client, path);
    expect(it.seen(FRAME.cancel)).toEqual([]);
    expect(call.events).toEqual(["head 200", "data", "end"]);
  });

  test("that breaks off cancels the call", async () => {
    const { client, arrived, path } = await start(answerSettle);
    const body = pieceBody(500_000);
    const call = sendCall(client, path, { method: "POST", body: body.source });
    const it = await arrived();
    it.want(10_000);
    await eventually(() => it.body().length >= 10_000);
    body.fail(new Error("gone"));
    await call.over;
    it.want(10_000);
    it.say(FRAME.answer, OK);
    await settle(client, path);
    expect(call.events).toEqual(["fail body"]);
    expect(it.seen(FRAME.cancel)).toHaveLength(1);
    expect(it.seen(FRAME.bodyEnd)).toEqual([]);
  });

  test("is cancelled by an answer that comes before its end", async () => {
    for (const isBegun of [true, false]) {
      const { client, arrived, path } = await start(answerSettle);
      const body = pieceBody(500_000);
      const call = sendCall(client, path, { method: "POST", body: body.source });
      const it = await arrived();
      if (isBegun) {
        it.want(10_000);
        await eventually(() => it.body().length >= 10_000);
      }
      it.say(FRAME.answer, OK);
      await call.over;
      it.want(100_000);
      await settle(client, path);
      expect(call.events).toEqual(["head 200", "data", "end"]);
      expect(body.done).toEqual(isBegun ? ["start", "cancel"] : ["cancel"]);
      expect(it.seen(FRAME.cancel)).toHaveLength(1);
      expect(it.body().length).toBeLessThan(30_000);
    }
  });

  test("ends with its trailers, and fails with ones that cannot be sent", async () => {
    const { client, arrived, path } = await start();
    for (const [at, trailers, events, type] of [
      [0, ["X-T", "1"], ["head 200", "data", "end"], FRAME.bodyEnd],
      [1, ["X-T", "1\r\nX: 2"], ["fail body"], FRAME.cancel],
    ] as const) {
      const source = {
        length: null,
        start: (sink: { end(trailers: readonly string[]): void }) => sink.end(trailers),
        resume() {},
        cancel() {},
      };
      const call = sendCall(client, path, { method: "POST", body: source });
      const it = await arrived(at);
      expect(it.head.fields.split("\n").slice(2)).toEqual(["Transfer-Encoding", "chunked"]);
      it.want(1);
      await eventually(() => it.seen(type).length === 1);
      expect(it.seen(FRAME.bodyEnd).map(({ text }) => text)).toEqual(
        at === 0 ? ["X-T: 1\r\n"] : [],
      );
      it.say(FRAME.answer, OK);
      await call.over;
      expect(call.events).toEqual(events);
    }
  });
});

describe("a worker that breaks the protocol", () => {
  const raw = (call: ServerCall, length: number, type: number): void => {
    const head = Buffer.alloc(9);
    head.writeUInt32BE(length);
    head.writeUInt32BE(call.id, 4);
    head[8] = type;
    call.line.socket.write(head);
  };
  test.for<readonly [string, (call: ServerCall) => void]>([
    ["an unknown type", (call) => call.say(99)],
    ["a type of the other direction", (call) => call.say(FRAME.bodyEnd)],
    ["a wish that is no number", (call) => call.say(FRAME.want, "abc")],
    ["an order when none was taken", (call) => call.say(FRAME.order, ORDER)],
    ["a frame that is too long", (call) => raw(call, 1_048_577, FRAME.order)],
    ["noise", (call) => void call.line.socket.write(Buffer.alloc(4096, 0xfe))],
    ["the end of the connection", (call) => void call.line.socket.end()],
  ])("by %s loses its connection, and each call fails once", async ([, misbehave]) => {
    const { server, client, arrived, path } = await start(answerSettle);
    const before = sendCall(client, path, { target: "/settle" });
    await before.over;
    const call = sendCall(client, path);
    const other = sendCall(client, path);
    const begun = sendCall(client, path);
    (await arrived(3)).say(FRAME.answer, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab");
    await eventually(() => begun.events.length === 2);
    misbehave(await arrived(1));
    await Promise.all([call.over, other.over, begun.over]);
    await eventually(() => server.lines[0]?.isClosed());
    await settle(client, path); // on a new connection
    expect(server.lines).toHaveLength(2);
    expect([call.events, other.events, begun.events]).toEqual([
      ["fail reset"],
      ["fail reset"],
      ["head 200", "data", "fail reset"],
    ]);
    expect(before.events).toEqual(["head 200", "data", "end"]);
  });

  test.for<readonly [string, boolean, (call: ServerCall) => void]>([
    ["an order after an answer began", false, (call) => call.say(FRAME.answer, "HTTP/1.1 2")],
    [
      "an order after an interim answer",
      false,
      (call) => call.say(FRAME.answer, "HTTP/1.1 103 E\r\n\r\n"),
    ],
    ["an order after its body was wanted", true, (call) => call.want(1)],
    ["a second order", false, (call) => call.say(FRAME.order, ORDER)],
    ["an order that is none", false, (call) => call.say(FRAME.order, "/\n\n0\nmine")],
  ])("by %s loses its connection", async ([, hasBody, before]) => {
    const { client, arrived, path } = await start();
    const changes = {
      takesOrders: true,
      method: "PUT",
      body: hasBody ? pieceBody(9).source : null,
    };
    const call = sendCall(client, path, changes);
    const it = await arrived();
    before(it);
    it.say(FRAME.order, ORDER);
    await call.over;
    expect(call.events.at(-1)).toBe("fail reset");
    expect(call.events.filter((event) => event.startsWith("fail"))).toHaveLength(1);
    if (call.orders.length > 0) {
      expect(call.ordered).toEqual(["abort"]);
    }
  });
});
