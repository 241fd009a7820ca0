import { describe, expect, test } from "vitest";
import type { BodySink, Exchange, FieldLines } from "../../policy/kernel/exchange.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";
import { eventually, startWireEdge } from "../support/wire-edge.ts";

const NO_UPSTREAM = 9;
const OK = { status: 200, reason: "OK", fields: [] as string[] };

function collect(exchange: Exchange): Promise<{ body: string; trailers: FieldLines }> {
  return new Promise((resolve, reject) => {
    let body = "";
    const sink: BodySink = {
      data(chunk) {
        body += chunk.toString("latin1");
        return true;
      },
      end: (trailers) => resolve({ body, trailers }),
      fail: reject,
    };
    if (exchange.body === null) {
      sink.end([]);
    } else {
      exchange.body.start(sink);
    }
  });
}

describe("createHttp1Server() reading requests", () => {
  test("hands out method, target bytes, fields in order and the body with trailers", async () => {
    const seen: { body: string; trailers: FieldLines }[] = [];
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange: (exchange) =>
        void collect(exchange).then((body) => {
          seen.push(body);
          exchange.answer(OK, Buffer.from("fine"));
        }),
    });
    const client = await rawClient(edge.port);
    client.send(
      "POST /a/../b%zz?x=\\@#y HTTP/1.1\r\nHOST: a\r\nX: \xe4\r\nx: 2\r\nTransfer-Encoding: chunked\r\n\r\n" +
        "3\r\nabc\r\n0\r\nX-T: 1\r\nX-Real-IP: 6.6.6.6\r\nAuthorization: no\r\n\r\n",
    );
    await client.waitFor("fine");
    expect(edge.exchanges[0]?.head).toEqual({
      method: "POST",
      target: "/a/../b%zz?x=\\@#y",
      version: "1.1",
      fields: ["HOST", "a", "X", "\xe4", "x", "2", "Transfer-Encoding", "chunked"],
    });
    expect(edge.exchanges[0]?.peer).toMatchObject({ address: "127.0.0.1", encrypted: false });
    expect(seen).toEqual([{ body: "abc", trailers: ["X-T", "1"] }]);
  });

  test("a message with no framing or length 0 has no body", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange: (exchange) => exchange.answer(OK, Buffer.from("x")),
    });
    await rawExchange(edge.port, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    await rawExchange(
      edge.port,
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    expect(edge.exchanges.map((exchange) => exchange.body)).toEqual([null, null]);
  });

  test.for<[string, string, number, string]>([
    [
      "a long target",
      `GET /${"a".repeat(17_000)} HTTP/1.1\r\nHost: a\r\n\r\n`,
      414,
      "TARGET_TOO_LONG",
    ],
    [
      "a target longer than everything",
      `GET /${"a".repeat(60_000)} HTTP/1.1\r\nHost: a\r\n\r\n`,
      414,
      "TARGET_TOO_LONG",
    ],
    [
      "one long field",
      `GET / HTTP/1.1\r\nHost: a\r\nX: ${"a".repeat(40_000)}\r\n\r\n`,
      431,
      "HEAD_TOO_LARGE",
    ],
    [
      "an endless field",
      `GET / HTTP/1.1\r\nHost: a\r\nX: ${"a".repeat(60_000)}`,
      431,
      "HEAD_TOO_LARGE",
    ],
    [
      "too many lines",
      `GET / HTTP/1.1\r\nHost: a\r\n${"X: y\r\n".repeat(200)}\r\n`,
      431,
      "HEAD_TOO_LARGE",
    ],
    [
      "far too many lines",
      `GET / HTTP/1.1\r\nHost: a\r\n${"X: y\r\n".repeat(3000)}\r\n`,
      431,
      "HEAD_TOO_LARGE",
    ],
    [
      "another expectation",
      "POST / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\nContent-Length: 1\r\n\r\nx",
      417,
      "EXPECTATION_FAILED",
    ],
  ])("refuses %s with its status, once, and closes", async ([, bytes, status, code]) => {
    const edge = await startWireEdge(NO_UPSTREAM);
    const answer = await rawExchange(edge.port, `${bytes}GET /next HTTP/1.1\r\nHost: a\r\n\r\n`);
    expect(answer.startsWith(`HTTP/1.1 ${status} `)).toBe(true);
    expect(answer).toContain(`"code":"${code}"`);
    expect(answer.toLowerCase()).toContain("connection: close");
    expect(answer.match(/HTTP\/1\.1 /g)).toHaveLength(1);
    expect(edge.exchanges).toEqual([]);
  });

  test("199 lines and a head just below the limit pass", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange: (exchange) => exchange.answer(OK, Buffer.from("x")),
    });
    const lines = `${"X: y\r\n".repeat(198)}Connection: close\r\n`;
    expect(await rawExchange(edge.port, `GET / HTTP/1.1\r\nHost: a\r\n${lines}\r\n`)).toMatch(
      /^HTTP\/1\.1 200/,
    );
    const long = `X: ${"a".repeat(32_600)}\r\nConnection: close\r\n`;
    expect(await rawExchange(edge.port, `GET / HTTP/1.1\r\nHost: a\r\n${long}\r\n`)).toMatch(
      /^HTTP\/1\.1 200/,
    );
  });

  test("a head that does not arrive in time is answered with 408", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, { limits: { headMs: 300 } });
    const client = await rawClient(edge.port);
    client.send("GET / HTTP/1.1\r\nHo");
    const drip = setInterval(() => client.send("s"), 50);
    try {
      const answer = await client.closed();
      expect(answer).toMatch(/^HTTP\/1\.1 408 /);
      expect(answer).toContain('"code":"REQUEST_TIMEOUT"');
    } finally {
      clearInterval(drip);
    }
  });

  test("an upload that takes longer than requestMs is answered with 408 and its exchange is gone", async () => {
    let gone = false;
    const edge = await startWireEdge(NO_UPSTREAM, {
      limits: { headMs: 200, requestMs: 400 },
      onExchange(exchange) {
        exchange.onGone(() => (gone = true));
        void collect(exchange).catch(() => {});
      },
    });
    const client = await rawClient(edge.port);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nab");
    expect(await client.closed()).toMatch(/^HTTP\/1\.1 408 /);
    expect(gone).toBe(true);
  });

  test("a connection that is not used is closed after keepAliveMs", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      limits: { keepAliveMs: 100 },
      onExchange: (exchange) => exchange.answer(OK, Buffer.from("x")),
    });
    const client = await rawClient(edge.port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    expect(await client.closed()).toMatch(/^HTTP\/1\.1 200/);
  });

  test("garbage behind a complete request is refused after that request's answer", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange: (exchange) =>
        void setTimeout(() => exchange.answer(OK, Buffer.from("first")), 100),
    });
    const answer = await rawExchange(
      edge.port,
      "GET / HTTP/1.1\r\nHost: a\r\n\r\n\x16\x03\x01 nonsense\r\n\r\n",
    );
    expect(answer.indexOf("first")).toBeGreaterThan(0);
    expect(answer.indexOf("HTTP/1.1 400")).toBeGreaterThan(answer.indexOf("first"));
  });
});

describe("createHttp1Server() Expect: 100-continue", () => {
  const head = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";

  test("sends one 100 when the body is wanted", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        exchange.sendContinue();
        exchange.sendContinue();
        void collect(exchange).then(({ body }) => exchange.answer(OK, Buffer.from(`got ${body}`)));
      },
    });
    const client = await rawClient(edge.port);
    client.send(head);
    await client.waitFor("HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abc");
    const answer = await client.waitFor("got abc");
    expect(answer.match(/100 Continue/g)).toHaveLength(1);
  });

  test("sends none when the request is refused, and the connection ends", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange: (exchange) =>
        exchange.answer({ status: 403, reason: "", fields: [] }, Buffer.from("no")),
    });
    const client = await rawClient(edge.port);
    client.send(head);
    await client.waitFor("no");
    client.send("GET /smuggled-as-body HTTP/1.1\r\nHost: a\r\n\r\n");
    const answer = await client.closed();
    expect(answer).toMatch(/^HTTP\/1\.1 403 Forbidden\r\n/);
    expect(answer.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(edge.exchanges).toHaveLength(1);
  });

  test("asks nothing of an HTTP/1.0 client", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange: (exchange) =>
        void collect(exchange).then(({ body }) => exchange.answer(OK, Buffer.from(body))),
    });
    const answer = await rawExchange(
      edge.port,
      "PUT / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    );
    expect(answer).toMatch(/^HTTP\/1\.1 200/);
    expect(answer.endsWith("abc")).toBe(true);
  });
});

describe("createHttp1Server() answering", () => {
  test("frames streamed answers by length or chunks, with trailers", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        const sized = exchange.head.target === "/sized";
        const sink = exchange.startAnswer(OK, sized ? 6 : null);
        sink.data(Buffer.from("abc"));
        setTimeout(() => {
          sink.data(Buffer.from("def"));
          sink.end(sized ? [] : ["X-T", "1"]);
        }, 30);
      },
    });
    const client = await rawClient(edge.port);
    client.send("GET /sized HTTP/1.1\r\nHost: a\r\n\r\n");
    expect(await client.waitFor("abcdef")).toMatch(/Content-Length: 6\r\n/);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    const answer = await client.waitFor("X-T: 1\r\n\r\n");
    expect(answer).toMatch(
      /Transfer-Encoding: chunked\r\n(?:[^\r]+\r\n)*\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\nX-T: 1\r\n\r\n$/,
    );
  });

  test("never sends chunks to an HTTP/1.0 client", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        const sink = exchange.startAnswer(OK, null);
        setTimeout(() => {
          sink.data(Buffer.from("abc"));
          sink.end([]);
        }, 30);
      },
    });
    const answer = await rawExchange(
      edge.port,
      "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    );
    expect(answer.toLowerCase()).not.toContain("transfer-encoding");
    expect(answer.endsWith("\r\n\r\nabc")).toBe(true);
  });

  test.for<[string, number, string]>([
    ["HEAD", 200, "content-length: 42"],
    ["GET", 304, "content-length: 42"],
    ["GET", 204, ""],
  ])("%s with %i has no body and the right length line", async ([method, status, line]) => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        const sink = exchange.startAnswer({ status, reason: "", fields: [] }, null, "42");
        sink.data(Buffer.from("never"));
        sink.end([]);
      },
    });
    const client = await rawClient(edge.port);
    client.send(`${method} / HTTP/1.1\r\nHost: a\r\n\r\n`);
    const first = (await client.waitFor("\r\n\r\n")).toLowerCase();
    expect(first.includes("content-length")).toBe(line !== "");
    expect(first).toContain(line);
    expect(first).not.toContain("transfer-encoding");
    client.send(`${method} / HTTP/1.1\r\nHost: a\r\n\r\n`);
    expect(await client.waitFor(/(HTTP\/1\.1 [^]*?\r\n\r\n){2}$/)).not.toContain("never");
  });

  test("keeps repeated fields apart and high bytes as they are; adds Date only when there is none", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        const dated = exchange.head.target === "/dated" ? ["Date", "yesterday"] : [];
        const fields = [
          "Set-Cookie",
          "a=1; Expires=Wed, 01 Jan",
          "Set-Cookie",
          "b",
          "X",
          "\xe4\xff",
          ...dated,
        ];
        exchange.answer({ status: 299, reason: "Odd \xe4", fields }, Buffer.from("x"));
      },
    });
    const plain = await rawExchange(
      edge.port,
      "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    expect(plain).toContain("HTTP/1.1 299 Odd \xe4\r\n");
    expect(plain).toContain(
      "Set-Cookie: a=1; Expires=Wed, 01 Jan\r\nSet-Cookie: b\r\nX: \xe4\xff\r\n",
    );
    expect(plain.match(/\r\nDate: /g)).toHaveLength(1);
    const dated = await rawExchange(
      edge.port,
      "GET /dated HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    expect(dated.match(/\r\nDate: /g)).toHaveLength(1);
    expect(dated).toContain("Date: yesterday\r\n");
  });

  test("an answer head that cannot be sent throws and leaves the exchange unanswered", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        expect(() =>
          exchange.startAnswer({ status: 200, reason: "", fields: ["X", "a\r\nb"] }, 1),
        ).toThrow();
        expect(exchange.answered).toBe(false);
        exchange.answer({ status: 502, reason: "", fields: [] }, Buffer.from("bad"));
      },
    });
    expect(
      await rawExchange(edge.port, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
    ).toMatch(/^HTTP\/1\.1 502/);
  });

  test("a body that breaks off is cut, never ended neatly", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        const sink = exchange.startAnswer(OK, null);
        sink.data(Buffer.from("half"));
        setTimeout(() => sink.fail(new Error("upstream")), 30);
      },
    });
    const answer = await rawExchange(edge.port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    expect(answer).toContain("half");
    expect(answer).not.toContain("\r\n0\r\n");
  });

  test("a body that is longer or shorter than declared is cut", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        const sink = exchange.startAnswer(OK, 4);
        if (exchange.head.target === "/long") {
          sink.data(Buffer.from("abcdeHTTP/1.1 200 OK"));
        }
        sink.end([]);
      },
    });
    expect(await rawExchange(edge.port, "GET /long HTTP/1.1\r\nHost: a\r\n\r\n")).not.toContain(
      "abcde",
    );
    expect(await rawExchange(edge.port, "GET /short HTTP/1.1\r\nHost: a\r\n\r\n")).toBe("");
  });

  test("an answer before a large upload is read arrives whole and ends the connection", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange: (exchange) =>
        exchange.answer({ status: 413, reason: "", fields: [] }, Buffer.from("too large")),
    });
    const client = await rawClient(edge.port);
    const size = 4 * 1024 * 1024;
    client.send(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`);
    for (let sent = 0; sent < size && !client.socket.destroyed; sent += 65_536) {
      client.send(Buffer.alloc(65_536, 97));
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await client.closed()).toMatch(/^HTTP\/1\.1 413 [^]*too large$/);
    expect(client.received().toLowerCase()).toContain("connection: close");
  });

  test("an answer before a small upload is read keeps the connection usable", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange: (exchange) =>
        exchange.answer({ status: 401, reason: "", fields: [] }, Buffer.from(exchange.head.target)),
    });
    const client = await rawClient(edge.port);
    client.send(
      "POST /one HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\nGET /hidden HTTP/1.1\r\n",
    );
    await client.waitFor("/one");
    client.send("Host: a\r\n\r\n.......");
    client.send("GET /two HTTP/1.1\r\nHost: a\r\n\r\n");
    await client.waitFor("/two");
    expect(edge.exchanges.map((exchange) => exchange.head.target)).toEqual(["/one", "/two"]);
  });

  test("a body that was not wanted in time cannot take bytes of the next request", async () => {
    const bodies: string[] = [];
    const late: string[] = [];
    let first: Exchange | null = null;
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        if (first === null) {
          first = exchange;
          exchange.answer(OK, Buffer.from("first"));
          return;
        }
        first.body?.start({
          data: (chunk) => late.push(chunk.toString()) > 0,
          end: () => void late.push("end"),
          fail: () => void late.push("failed"),
        });
        first.body?.resume();
        setTimeout(() => {
          void collect(exchange).then(({ body }) => {
            bodies.push(body);
            exchange.answer(OK, Buffer.from("second"));
          });
        }, 50);
      },
    });
    const client = await rawClient(edge.port);
    client.send("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    await client.waitFor("first");
    client.send("POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\ndef");
    await client.waitFor("second");
    expect(bodies).toEqual(["def"]);
    expect(late).toEqual(["failed"]);
  });

  test("interim answers go out before the final one, not to HTTP/1.0", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        exchange.sendInterim({ status: 103, reason: "Early Hints", fields: ["Link", "<a>"] });
        exchange.sendInterim({ status: 101, reason: "No", fields: [] });
        exchange.answer(OK, Buffer.from("x"));
        exchange.sendInterim({ status: 103, reason: "Late", fields: [] });
      },
    });
    const request = "Host: a\r\nConnection: close\r\n\r\n";
    expect(await rawExchange(edge.port, `GET / HTTP/1.1\r\n${request}`)).toMatch(
      /^HTTP\/1\.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP\/1\.1 200 OK\r\n[^]*\r\n\r\nx$/,
    );
    expect(await rawExchange(edge.port, `GET / HTTP/1.0\r\n${request}`)).toMatch(
      /^HTTP\/1\.1 200 OK\r\n[^]*\r\n\r\nx$/,
    );
  });

  test("a slow reader makes the sink full, and it drains when the reader goes on", async () => {
    let full = 0;
    let drained = 0;
    const size = 24 * 1024 * 1024;
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        const sink = exchange.startAnswer(OK, size);
        const piece = Buffer.alloc(65_536, 97);
        let sent = 0;
        const fill = (): void => {
          while (sent < size) {
            sent += piece.length;
            if (!sink.data(piece)) {
              full++;
              return;
            }
          }
          sink.end([]);
        };
        sink.onDrain(() => {
          drained++;
          fill();
        });
        fill();
      },
    });
    const client = await rawClient(edge.port);
    client.socket.pause();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    await eventually(() => full > 0);
    await new Promise((resolve) => setTimeout(resolve, 200));
    const before = drained;
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(drained).toBe(before);
    client.socket.resume();
    expect((await client.closed()).length).toBeGreaterThan(size);
  });
});

describe("createHttp1Server() clients that leave", () => {
  test("a client that closed its side after a complete request still gets its answer", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange: (exchange) =>
        void setTimeout(() => exchange.answer(OK, Buffer.from("late answer")), 150),
    });
    const client = await rawClient(edge.port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.end();
    const answer = await client.closed();
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(answer.endsWith("late answer")).toBe(true);
  });

  test("it gets it too when it takes long, behind an interim answer", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange: (exchange) =>
        void setTimeout(() => exchange.answer(OK, Buffer.from("very late")), 1200),
    });
    const client = await rawClient(edge.port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.end();
    expect(await client.closed()).toMatch(
      /^(HTTP\/1\.1 1\d\d [^\r]*\r\n\r\n)?HTTP\/1\.1 200 OK\r\n[^]*very late$/,
    );
  });

  test("it gets a streamed answer with quiet times too", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange(exchange) {
        const sink = exchange.startAnswer(OK, null);
        sink.data(Buffer.from("one"));
        setTimeout(() => sink.data(Buffer.from("two")), 900);
        setTimeout(() => sink.end([]), 1000);
      },
    });
    const client = await rawClient(edge.port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.end();
    expect(await client.closed()).toMatch(/\r\n\r\n3\r\none\r\n0*3\r\ntwo\r\n0+\r\n\r\n$/);
  });

  test.for<[string, (exchange: Exchange) => void]>([
    ["waits", () => {}],
    ["streams", (exchange) => void exchange.startAnswer(OK, null).data(Buffer.from("event"))],
    [
      "streams a known length",
      (exchange) => void exchange.startAnswer(OK, 100).data(Buffer.from("part")),
    ],
    ["uploads", (exchange) => exchange.body?.start({ data: () => true, end() {}, fail() {} })],
  ])(
    "onGone() is called within about a second when the client leaves while the edge %s",
    async ([phase, act]) => {
      let gone = 0;
      const edge = await startWireEdge(NO_UPSTREAM, {
        onExchange(exchange) {
          exchange.onGone(() => (gone = performance.now()));
          act(exchange);
        },
      });
      const client = await rawClient(edge.port);
      client.send(
        phase === "uploads"
          ? "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc"
          : "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
      );
      await eventually(() => edge.exchanges.length === 1);
      await new Promise((resolve) => setTimeout(resolve, 50));
      const left = performance.now();
      client.socket.destroy();
      await eventually(() => gone > 0);
      expect(gone - left).toBeLessThan(2500); // about half a second where nothing else keeps the machine busy
      let late = false;
      edge.exchanges[0]?.onGone(() => (late = true));
      expect(late).toBe(true);
    },
  );

  test("drain() lets running answers finish, ends their connections and closes idle ones", async () => {
    const edge = await startWireEdge(NO_UPSTREAM, {
      onExchange: (exchange) =>
        exchange.head.target === "/slow"
          ? void setTimeout(() => exchange.answer(OK, Buffer.from("slow")), 200)
          : exchange.answer(OK, Buffer.from("fast")),
    });
    const idle = await rawClient(edge.port);
    idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    await idle.waitFor("fast");
    const busy = await rawClient(edge.port);
    busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    await eventually(() => edge.exchanges.length === 2);
    edge.wire.drain();
    await idle.closed();
    const answer = await busy.closed();
    expect(answer.endsWith("slow")).toBe(true);
    expect(answer.toLowerCase()).toContain("connection: close");
    await expect(rawClient(edge.port)).rejects.toThrow();
  });
});
