import { once } from "node:events";
import net from "node:net";
import { expect, test } from "vitest";
import { startTestEdge } from "../support/edge.ts";
import { handshake, head, readAnswers, until } from "../support/faults.ts";
import { startFaultEdge } from "../support/fault-routes.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

/** K14: a dead pooled connection costs nothing that is not safe to repeat, and every limit ends by itself. */

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const OK = `${head("HTTP/1.1 200 OK", "Content-Length: 2")}ok`;

/** Answers the first request of each connection, and drops the connection when the second one arrives. */
function onePerConnection(end: (socket: net.Socket) => void) {
  const seen = new Map<net.Socket, number>();
  return (_request: unknown, socket: net.Socket): string | null => {
    const count = (seen.get(socket) ?? 0) + 1;
    seen.set(socket, count);
    if (count === 1) {
      return OK;
    }
    end(socket);
    return null;
  };
}

const REPEATED: readonly (readonly [method: string, body: string, times: number])[] = [
  ["GET", "", 2],
  ["HEAD", "", 2],
  ["OPTIONS", "", 2],
  ["DELETE", "", 2],
  ["PROPFIND", "", 2],
  ["POST", "", 1],
  ["PATCH", "", 1],
  ["LOCK", "", 1],
  ["PUT", "body", 1],
  ["POST", "body", 1],
  ["DELETE", "body", 1],
];

test("a request on a pooled connection that dies is repeated once where that is safe, and never otherwise", async () => {
  for (const end of [
    (s: net.Socket) => void s.end(),
    (s: net.Socket) => void s.resetAndDestroy(),
  ]) {
    const upstream = await recordingUpstream(onePerConnection(end));
    const edge = await startTestEdge({ upstream: upstream.port });
    const host = `Host: ${edge.host("terminal-1")}`;
    for (const [method, body, times] of REPEATED) {
      await rawExchange(edge.port, head("GET /first HTTP/1.1", host, "Connection: close"));
      const mark = `/x-${method}-${body}`;
      const text = await rawExchange(
        edge.port,
        head(
          `${method} ${mark} HTTP/1.1`,
          host,
          "Connection: close",
          ...(body === "" ? [] : [`Content-Length: ${body.length}`]),
        ) + body,
      );
      const arrived = upstream.requests.filter(({ target }) =>
        target.startsWith(`${mark}?`),
      ).length;
      const status = readAnswers(text, method === "HEAD")[0]?.status;
      expect([method, body, arrived, status]).toEqual([
        method,
        body,
        times,
        times === 2 ? 200 : 502,
      ]);
      for (const socket of upstream.sockets) {
        socket.destroy(); // the next case begins with a fresh connection
      }
      await new Promise((wait) => setTimeout(wait, 20));
    }
  }
}, 40_000);

test("nothing is repeated on a fresh connection, after a response byte, or more than once", async () => {
  let mode = "fresh";
  const upstream = await recordingUpstream((_request, socket) => {
    if (mode === "ok") {
      return OK;
    }
    if (mode === "byte") {
      socket.write("H", () => socket.resetAndDestroy());
    } else if (mode === "interim") {
      socket.write(head("HTTP/1.1 102 Processing"), () => socket.resetAndDestroy());
    } else {
      socket.resetAndDestroy();
    }
    return null;
  });
  const edge = await startTestEdge({ upstream: upstream.port });
  const get = async (path: string) => {
    const text = await rawExchange(
      edge.port,
      head(`GET ${path} HTTP/1.1`, `Host: ${edge.host("terminal-1")}`, "Connection: close"),
    );
    const arrived = upstream.requests.filter(({ target }) => target.startsWith(`${path}?`)).length;
    return [readAnswers(text).findLast(({ status }) => status >= 200)?.status, arrived];
  };
  expect(await get("/fresh")).toEqual([502, 1]);
  for (const [next, arrived] of [
    ["byte", 1],
    ["interim", 1],
    ["again", 2],
  ] as const) {
    mode = "ok";
    expect((await get(`/warm-${next}`))[0]).toBe(200);
    mode = next;
    expect([next, await get(`/${next}`)]).toEqual([next, [502, arrived]]);
  }
});

test("an idle limit that equals the interval between requests costs no GET and doubles no POST", async () => {
  const idleMs = 40;
  const upstream = await recordingUpstream((_request, socket) => {
    setTimeout(() => socket.destroy(), idleMs);
    return OK;
  });
  const edge = await startTestEdge({ upstream: upstream.port });
  const client = await rawClient(edge.port);
  const host = `Host: ${edge.host("terminal-1")}`;
  for (let at = 0; at < 36; at++) {
    const before = client.received().length;
    const body = at % 2 === 0 ? "" : "b";
    client.send(
      head(
        `${body === "" ? "GET" : "POST"} /n${at} HTTP/1.1`,
        host,
        `Content-Length: ${body.length}`,
      ) + body,
    );
    await until(
      "an answer",
      () => /\r\n\r\n[^]*(?:ok|\})$/.test(client.received().slice(before)),
      6000,
    );
    const status = Number(client.received().slice(before + 9, before + 12));
    if (body === "") {
      expect([at, status]).toEqual([at, 200]);
    }
    const arrived = upstream.requests.filter(({ target }) => target.startsWith(`/n${at}?`)).length;
    expect(arrived).toBeLessThanOrEqual(body === "" ? 2 : 1);
    await new Promise((wait) => setTimeout(wait, idleMs - 3 + (at % 5)));
  }
}, 40_000);

test("a hook's script is never run twice, and its forward() repeats by the same rule", async () => {
  const faults = await startFaultEdge(onePerConnection((socket) => void socket.resetAndDestroy()));
  const { edge, upstream } = faults;
  edge.script(
    "count.js",
    "let n = 0; module.exports = async (req, res, { hook }) => { res.setHeader('X-N', ++n); await hook.forward(req, res); };",
  );
  await edge.hook("terminal", {
    match: { path: "/count*" },
    script: { path: "/count" },
    timeout: 15_000,
  });
  const ask = (method: string, path: string) =>
    rawExchange(
      edge.port,
      head(
        `${method} ${path} HTTP/1.1`,
        `Host: ${edge.host("terminal-1")}`,
        "Connection: close",
        ...(method === "POST" ? ["Content-Length: 0"] : []),
      ),
      10_000,
    );
  expect(readAnswers(await ask("GET", "/count1"))[0]?.status).toBe(200);
  const again = readAnswers(await ask("GET", "/count2"))[0];
  expect([again?.status, again?.lines.filter((line) => /^x-n:/i.test(line)).join()]).toEqual([
    200,
    expect.stringMatching(/^x-n: 2$/i),
  ]);
  const post = readAnswers(await ask("POST", "/count3"))[0];
  expect([
    post?.status,
    upstream.requests.filter(({ target }) => target.startsWith("/count3")).length,
  ]).toEqual([502, 1]);
}, 30_000);

test("a head that comes too slowly is 408 by itself, byte by byte or not at all, and blocks nobody", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: { limits: { headMs: 700 } },
  });
  const H = `Host: ${edge.host("terminal-1")}`;
  const slow = await Promise.all(Array.from({ length: 120 }, () => rawClient(edge.port)));
  const startedAt = performance.now();
  const drip = setInterval(() => {
    for (const [at, client] of slow.entries()) {
      if (at % 3 === 0 && client.socket.writable) {
        client.send("a");
      }
    }
  }, 100);
  for (const [at, client] of slow.entries()) {
    client.send(at % 3 === 0 ? `GET / HTTP/1.1\r\n${H}\r\nX: ` : at % 3 === 1 ? "G" : "");
  }
  const good = await rawExchange(edge.port, head("GET /x HTTP/1.1", H, "Connection: close"));
  expect(good.slice(0, 12)).toBe("HTTP/1.1 200");
  const texts = await Promise.all(slow.map((client) => client.closed(8000)));
  clearInterval(drip);
  expect(performance.now() - startedAt).toBeLessThan(6000);
  for (const [at, text] of texts.entries()) {
    expect([at % 3, text.slice(0, 12)]).toEqual([
      at % 3,
      expect.stringMatching(at % 3 === 2 ? /^(?:HTTP\/1\.1 408)?$/ : /^HTTP\/1\.1 408$/),
    ]);
  }
  // The second head of a kept-alive connection has the same time.
  const kept = await rawClient(edge.port);
  kept.send(head("GET /x HTTP/1.1", H));
  await kept.waitFor("ok");
  kept.send("GET /y HTT");
  expect(await kept.closed(6000)).toMatch(/HTTP\/1\.1 408 [^]*"statusCode":408/);
  expect(upstream.requests.length).toBe(2);
}, 30_000);

test("an upload that takes longer than its limit is 408, and the service sees a broken one", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: { limits: { requestMs: 800 } },
  });
  const client = await rawClient(edge.port);
  client.send(head("POST /x HTTP/1.1", `Host: ${edge.host("terminal-1")}`, "Content-Length: 1000"));
  const drip = setInterval(() => client.socket.writable && client.send("x"), 60);
  const text = await client.closed(8000);
  clearInterval(drip);
  expect(text === "" || text.startsWith("HTTP/1.1 408")).toBe(true);
  await upstream.waitUntil(() => upstream.closed.has(0), 4000);
  expect(upstream.requests).toEqual([]);
});

test("idle kept-alive connections are closed, silently", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: { limits: { keepAliveMs: 1000 } },
  });
  const client = await rawClient(edge.port);
  client.send(head("GET /x HTTP/1.1", `Host: ${edge.host("terminal-1")}`));
  await client.waitFor("ok");
  const text = await client.closed(8000);
  expect(readAnswers(text)).toHaveLength(1);
});

test("a service that accepts and stays silent is 504, one that stops in its body cuts the client", async () => {
  const upstream = await recordingUpstream((request) =>
    request.target.startsWith("/half")
      ? `${head("HTTP/1.1 200 OK", "Content-Length: 10")}abc`
      : null,
  );
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: { limits: { upstreamIdleMs: 600 } },
  });
  const get = (path: string) =>
    rawExchange(
      edge.port,
      head(
        `POST ${path} HTTP/1.1`,
        `Host: ${edge.host("terminal-1")}`,
        "Content-Length: 4",
        "Connection: close",
      ) + "body",
      8000,
    );
  expect(readAnswers(await get("/silent"))[0]?.status).toBe(504);
  const half = await get("/half");
  expect([half.endsWith("abc"), readAnswers(half)[0]?.status]).toEqual([true, 200]);
  await upstream.waitUntil(() => upstream.closed.size === upstream.sockets.length, 4000);
});

test("a stream that says something now and then outlives the silence limit", async () => {
  const upstream = await recordingUpstream((_request, socket) => {
    socket.write(head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked"));
    let left = 8;
    const tick = setInterval(() => {
      socket.write(left-- > 0 ? "1\r\n.\r\n" : "0\r\n\r\n");
      if (left < 0) {
        clearInterval(tick);
      }
    }, 250);
    return null;
  });
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: { limits: { upstreamIdleMs: 1000 } },
  });
  const text = await rawExchange(
    edge.port,
    head("GET /x HTTP/1.1", `Host: ${edge.host("terminal-1")}`, "Connection: close"),
  );
  expect(readAnswers(text)[0]?.body).toBe("........");
});

test("every size has a limit with a status of its own, to the byte", async () => {
  const faults = await startFaultEdge();
  const { edge, upstream } = faults;
  const host = edge.host("terminal-1");
  const H = `Host: ${host}`;
  const lines = (count: number) => Array.from({ length: count }, (_, at) => `X-${at}: y`);
  /** A head of exactly `size` bytes. */
  const sized = (size: number) => {
    const bare = head("GET /x HTTP/1.1", H, "Connection: close", "X: ").length;
    return head("GET /x HTTP/1.1", H, "Connection: close", `X: ${"y".repeat(size - bare)}`);
  };
  const cases: readonly (readonly [string, string, number])[] = [
    [
      "target at its limit",
      head(`GET /${"x".repeat(16_383)} HTTP/1.1`, H, "Connection: close"),
      200,
    ],
    ["target beyond", head(`GET /${"x".repeat(16_384)} HTTP/1.1`, H, "Connection: close"), 414],
    ["query beyond", head(`GET /?${"x".repeat(20_000)} HTTP/1.1`, H, "Connection: close"), 414],
    ["endless target", `GET /${"x".repeat(80_000)}`, 414],
    ["lines at their limit", head("GET /x HTTP/1.1", H, "Connection: close", ...lines(198)), 200],
    ["one line beyond", head("GET /x HTTP/1.1", H, "Connection: close", ...lines(199)), 431],
    ["5,000 lines", head("GET /x HTTP/1.1", H, ...lines(2000)), 431],
    ["head at its limit", sized(32_768), 200],
    ["head beyond", sized(32_769), 431],
    ["endless head", `GET / HTTP/1.1\r\n${H}\r\nX: ${"y".repeat(80_000)}`, 431],
    ["endless name", `GET / HTTP/1.1\r\n${H}\r\n${"y".repeat(80_000)}`, 431],
    [
      "hooked path at its limit",
      head(`GET /pass/${"x".repeat(4090)} HTTP/1.1`, H, "Connection: close"),
      200,
    ],
    [
      "hooked path beyond",
      head(`GET /pass/${"x".repeat(4091)} HTTP/1.1`, H, "Connection: close"),
      414,
    ],
    [
      "hooked query is not the path",
      head(`GET /pass?${"x".repeat(5000)} HTTP/1.1`, H, "Connection: close"),
      200,
    ],
    ["handshake beyond the lines", handshake(host, "/x", ...lines(200)), 431],
    ["handshake beyond the target", handshake(host, `/${"x".repeat(16_384)}`), 414],
  ];
  for (const [name, bytes, status] of cases) {
    const before = upstream.requests.length;
    const [answer, ...more] = readAnswers(await rawExchange(edge.port, bytes, 10_000));
    expect([name, answer?.status, more.length]).toEqual([name, status, 0]);
    if (status !== 200) {
      expect([name, JSON.parse(answer?.body ?? "{}")]).toEqual([
        name,
        expect.objectContaining({ statusCode: status }),
      ]);
      expect([name, upstream.requests.length]).toEqual([name, before]);
    }
  }
}, 40_000);

test("a client that pipelines without reading its answers is not served into memory", async () => {
  const edge = await startTestEdge();
  const socket = net.connect({ port: edge.port, host: "127.0.0.1" });
  socket.on("error", () => {});
  await once(socket, "connect");
  socket.pause();
  const burst = Buffer.from(head("GET / HTTP/1.1", "Host: nobody.example").repeat(2000), "latin1");
  const limit = 16 * 1024 * 1024; // some 370,000 requests
  let sent = 0;
  let answered = -1;
  while (sent < limit && !socket.destroyed) {
    sent += burst.length;
    if (socket.write(burst)) {
      continue;
    }
    const drained = once(socket, "drain").then(() => true);
    let moves = true;
    while (moves && !(await Promise.race([drained, wait(1200).then(() => false)]))) {
      moves = edge.log.length > answered;
      answered = edge.log.length;
    }
    if (!moves) {
      break; // nothing is read and nothing is answered any more
    }
  }
  expect(sent).toBeLessThan(limit);
  expect(edge.log.length).toBeLessThan(150_000); // what the kernel's buffers hold, and little more
  const other = await rawExchange(
    edge.port,
    head("GET / HTTP/1.1", "Host: nobody.example", "Connection: close"),
  );
  expect(other.slice(0, 12)).toBe("HTTP/1.1 404");
  socket.destroy();
}, 40_000);

test("a slow reader gets the whole of its last answer, whatever the connection does next", async () => {
  const size = 24 * 1024 * 1024;
  const upstream = await recordingUpstream((_request, socket) => {
    socket.write(head("HTTP/1.1 200 OK", `Content-Length: ${size}`));
    socket.write(Buffer.alloc(size, "x"));
    return null;
  });
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: { limits: { headMs: 1000 } },
  });
  const get = head("GET /x HTTP/1.1", `Host: ${edge.host("terminal-1")}`);
  const last = get.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
  const results = await Promise.all(
    [last, `${get}GET /y HTTP`, `${get}%%%\r\n\r\n`].map(async (bytes) => {
      const socket = net.connect({ port: edge.port, host: "127.0.0.1" });
      socket.on("error", () => {});
      let got = 0;
      let rested = false;
      let tail = "";
      socket.on("data", (chunk: Buffer) => {
        got += chunk.length;
        tail = (tail + chunk.toString("latin1")).slice(-400);
        if (got > size - 6 * 1024 * 1024 && !rested) {
          rested = true;
          socket.pause(); // the rest lies in buffers, on both sides and between
          setTimeout(() => socket.resume(), 3500);
        }
      });
      socket.write(bytes);
      await once(socket, "close");
      return [got >= size, /x{50}|"statusCode":40[08]/.test(tail)];
    }),
  );
  expect(results).toEqual(results.map(() => [true, true]));
}, 40_000);

test("a client that leaves behind pipelined requests ends the one that runs", async () => {
  const upstream = await recordingUpstream(() => null);
  const edge = await startTestEdge({ upstream: upstream.port });
  const H = `Host: ${edge.host("terminal-1")}`;
  for (const leave of ["destroy", "resetAndDestroy"] as const) {
    const index = upstream.requests.length;
    const client = await rawClient(edge.port);
    client.send(head("GET /a HTTP/1.1", H) + head("GET /b HTTP/1.1", H));
    await upstream.waitForRequests(index + 1);
    client.socket[leave]();
    await upstream.waitUntil(() => upstream.closed.has(upstream.requests[index]!.connection), 3000);
    expect(upstream.requests.slice(index).map(({ target }) => target.slice(0, 2))).toEqual(["/a"]);
  }
});

test("more connections than allowed are turned away, and room is given again", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: { limits: { maxConnections: 4 } },
  });
  const H = `Host: ${edge.host("terminal-1")}`;
  const held = await Promise.all(Array.from({ length: 4 }, () => rawClient(edge.port)));
  for (const client of held) {
    client.send(head("GET /x HTTP/1.1", H));
    await client.waitFor("ok");
  }
  const extra = await rawClient(edge.port);
  extra.send(head("GET /x HTTP/1.1", H));
  const text = await extra.closed(4000);
  expect(text).toMatch(/^HTTP\/1\.1 503 [^]*Retry-After: 1\r\n[^]*"code":"OVERLOADED"/);
  expect(upstream.requests).toHaveLength(4);
  held[0]!.socket.destroy();
  for (let tries = 0; ; tries++) {
    const client = await rawClient(edge.port);
    client.send(head("GET /x HTTP/1.1", H));
    if (
      await client.waitFor("ok", 1000).then(
        () => true,
        () => false,
      )
    ) {
      break;
    }
    expect(tries).toBeLessThan(20);
    await new Promise((wait) => setTimeout(wait, 50));
  }
});
