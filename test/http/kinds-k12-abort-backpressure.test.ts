import { createHash } from "node:crypto";
import { once } from "node:events";
import type net from "node:net";
import { expect, test } from "vitest";
import { head, readAnswers, until } from "../support/faults.ts";
import { startFaultEdge } from "../support/fault-routes.ts";
import { type RawClient, rawClient } from "../support/raw-client.ts";

/** K12: leaving is felt at the service at once, slowness too, and nothing piles up in between. */

/** A second by the rule, and patience for a busy machine. */
const NOTICED_MS = 3000;
const SILENT = () => null;
const STREAM = `${head("HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked")}8\r\ndata: 1\n\r\n`;
const LEAVE: Record<string, (client: RawClient) => void> = {
  close: (client) => client.socket.destroy(),
  reset: (client) => client.socket.resetAndDestroy(),
};
const WAYS = ["plain", "alias", "agent", "forward", "pipe", "return"];

test("a client that leaves while the service is silent, or streams, is noticed there on every route", async () => {
  const faults = await startFaultEdge((request) => (request.method === "PUT" ? STREAM : null));
  const cases = faults.routes
    .filter(({ name }) => WAYS.includes(name))
    .flatMap((route) =>
      Object.entries(LEAVE).flatMap(([how, leave]) =>
        ["GET", "POST", "PUT"].map((method) => ({ route, how, leave, method })),
      ),
    );
  await Promise.all(
    cases.map(async ({ route, how, leave, method }) => {
      const service = route.name === "agent" ? faults.agent : faults.upstream;
      const mark = `X-Case: ${route.name} ${how}`;
      const client = await rawClient(faults.edge.port);
      client.send(
        head(
          `${method} ${route.path} HTTP/1.1`,
          `Host: ${route.host}`,
          mark,
          ...(method === "GET" ? [] : ["Content-Length: 4"]),
        ) + (method === "GET" ? "" : "body"),
      );
      const found = () =>
        service.requests.find(
          (request) => request.method === method && request.lines.includes(mark),
        );
      await service.waitUntil(() => found() !== undefined, 15_000);
      if (method === "PUT") {
        await client.waitFor("data: 1", 10_000);
      }
      leave(client);
      await service
        .waitUntil(() => service.closed.has(found()?.connection ?? -1), NOTICED_MS)
        .catch((cause: unknown) => {
          throw new Error(`${mark} ${method}`, { cause });
        });
    }),
  );
}, 60_000);

test("a client that leaves in mid-upload is noticed at the service on every route that streams it", async () => {
  const faults = await startFaultEdge(SILENT);
  const { edge, upstream } = faults;
  edge.script(
    "raw.js",
    "// @rawBody\nmodule.exports = (req, res, { hook }) => hook.forward(req, res);",
  );
  edge.script(
    "rawfetch.js",
    "// @rawBody\nmodule.exports = (req, res, { hook }) => hook.fetchUpstream(req);",
  );
  for (const name of ["raw", "rawfetch"]) {
    await edge.hook("terminal", {
      match: { path: `/${name}` },
      script: { path: `/${name}` },
      timeout: 20_000,
    });
  }
  for (const path of ["/plain", "/raw", "/rawfetch"]) {
    for (const framing of ["Content-Length: 1000000", "Transfer-Encoding: chunked"]) {
      for (const [how, leave] of Object.entries(LEAVE)) {
        const index = upstream.sockets.length;
        const client = await rawClient(edge.port);
        client.send(
          head(`POST ${path} HTTP/1.1`, `Host: ${edge.host("terminal-1")}`, framing) +
            (framing.startsWith("T") ? "5\r\nhello\r\n" : "hello"),
        );
        await until(
          `${path} begins`,
          () => (upstream.bytes[index] ?? "").includes("hello"),
          10_000,
        );
        leave(client);
        await upstream
          .waitUntil(() => upstream.closed.has(index), NOTICED_MS)
          .catch((cause: unknown) => {
            throw new Error(`${path} ${framing} ${how}`, { cause });
          });
        expect(upstream.requests).toEqual([]);
      }
    }
  }
}, 60_000);

test("a client that leaves a buffered upload starts nothing at the service", async () => {
  const faults = await startFaultEdge();
  const { edge, upstream } = faults;
  const client = await rawClient(edge.port);
  client.send(
    head("POST /pass HTTP/1.1", `Host: ${edge.host("terminal-1")}`, "Content-Length: 100") + "half",
  );
  await new Promise((wait) => setTimeout(wait, 300));
  client.socket.destroy();
  await edge.accessLine((line) => line["outcome"] === "client_gone", 8000);
  expect(upstream.bytes).toEqual([]);
});

test("a script hears of a client that left, and what it awaits ends", async () => {
  const faults = await startFaultEdge(({ target }) => (target === "/own" ? STREAM : null));
  const { edge, upstream } = faults;
  edge.script(
    "watch.js",
    `module.exports = async (req, res, { hook }) => {
      res.once("close", () => console.log("left:" + res.writableFinished));
      try { await hook.fetchUpstream(req); } catch (error) { console.log("kind:" + error.kind); }
    };`,
  );
  edge.script(
    "own.js",
    `module.exports = (req) => fetch("http://127.0.0.1:" + req.headers["x-port"] + "/own");`,
  );
  for (const name of ["watch", "own"]) {
    await edge.hook("terminal", {
      match: { path: `/${name}` },
      script: { path: `/${name}` },
      timeout: 20_000,
    });
    const index = upstream.requests.length;
    const client = await rawClient(edge.port);
    client.send(
      head(`GET /${name} HTTP/1.1`, `Host: ${edge.host("terminal-1")}`, `X-Port: ${upstream.port}`),
    );
    await upstream.waitForRequests(index + 1, 10_000);
    if (name === "own") {
      await client.waitFor("data: 1");
    }
    client.socket.destroy();
    await upstream.waitUntil(
      () => upstream.closed.has(upstream.requests[index]!.connection),
      NOTICED_MS,
    );
  }
  await until("the script's words", () => {
    const text = JSON.stringify(edge.log);
    return text.includes("left:false") && text.includes("kind:abort");
  });
}, 40_000);

const PIECE = Buffer.alloc(65_536, "x");
const ENOUGH = 64 * 1024 * 1024;

/** Writes until the socket stays full for a while; resolves with the bytes that it took. */
async function fill(
  socket: net.Socket,
  limit: number,
  frame?: (piece: Buffer) => Buffer,
): Promise<number> {
  let sent = 0;
  const piece = frame === undefined ? PIECE : frame(PIECE);
  while (sent < limit && !socket.destroyed) {
    sent += PIECE.length;
    if (!socket.write(piece)) {
      const drained = await Promise.race([
        once(socket, "drain").then(() => true),
        new Promise<boolean>((resolve) => setTimeout(() => resolve(false), 500)),
      ]);
      if (!drained) {
        break;
      }
    }
  }
  return sent;
}

test("a slow reader slows the service on every way of answering, and gets every byte in the end", async () => {
  const faults = await startFaultEdge((_request, socket) => {
    socket.write(head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked"));
    return null;
  });
  const { edge, upstream } = faults;
  const frame = (piece: Buffer) =>
    Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from("\r\n")]);
  for (const route of faults.routes.filter(({ name }) =>
    ["plain", "forward", "pipe", "return"].includes(name),
  )) {
    const client = await rawClient(edge.port);
    const count = upstream.requests.length + 1;
    let got = 0;
    client.socket.removeAllListeners("data");
    client.socket.pause();
    client.send(head(`GET ${route.path} HTTP/1.1`, `Host: ${route.host}`, "Connection: close"));
    await upstream.waitForRequests(count, 10_000);
    const socket = upstream.sockets[upstream.requests[count - 1]!.connection]!;
    const before = process.memoryUsage().rss;
    const sent = await fill(socket, ENOUGH, frame);
    expect([route.name, sent < ENOUGH / 2]).toEqual([route.name, true]);
    expect([route.name, process.memoryUsage().rss - before < 128 * 1024 * 1024]).toEqual([
      route.name,
      true,
    ]);
    socket.write("0\r\n\r\n");
    client.socket.on("data", (chunk: Buffer) => (got += chunk.length));
    client.socket.resume();
    await until(`${route.name} delivers`, () => got > sent, 15_000);
    client.socket.destroy();
  }
}, 60_000);

test("a service that does not read slows the client's upload, plain and through a script", async () => {
  const faults = await startFaultEdge(SILENT);
  const { edge, upstream } = faults;
  edge.script(
    "raw.js",
    "// @rawBody\nmodule.exports = (req, res, { hook }) => hook.forward(req, res);",
  );
  await edge.hook("terminal", {
    match: { path: "/raw" },
    script: { path: "/raw" },
    timeout: 30_000,
  });
  for (const path of ["/plain", "/raw"]) {
    const index = upstream.sockets.length;
    const client = await rawClient(edge.port);
    client.send(
      head(
        `POST ${path} HTTP/1.1`,
        `Host: ${edge.host("terminal-1")}`,
        `Content-Length: ${ENOUGH}`,
      ),
    );
    await until(
      `${path} begins`,
      () => upstream.sockets[index] !== undefined || client.socket.destroyed,
      10_000,
    );
    client.send("x");
    await until(`${path} begins`, () => upstream.sockets.length > index, 10_000);
    upstream.sockets[index]!.pause();
    const sent = await fill(client.socket, ENOUGH);
    expect([path, sent < ENOUGH / 2]).toEqual([path, true]);
    client.socket.destroy();
    upstream.sockets[index]!.resume();
    await upstream.waitUntil(() => upstream.closed.has(index), 8000);
  }
}, 60_000);

test("a body that has to be buffered is limited by 413, one that streams is not", async () => {
  const faults = await startFaultEdge(undefined, {
    config: { limits: { maxBufferedBodyBytes: 100_000 } },
  });
  const { edge, upstream } = faults;
  edge.script(
    "raw.js",
    "// @rawBody\nmodule.exports = (req, res, { hook }) => hook.forward(req, res);",
  );
  await edge.hook("terminal", {
    match: { path: "/raw" },
    script: { path: "/raw" },
    timeout: 20_000,
  });
  const chunks = (size: number) => `${size.toString(16)}\r\n${"y".repeat(size)}\r\n0\r\n\r\n`;
  const cases = [
    ["/pass", "Content-Length: 100000", "y".repeat(100_000), 200],
    ["/pass", "Content-Length: 100001", "y".repeat(100_001), 413],
    ["/pass", "Transfer-Encoding: chunked", chunks(100_000), 200],
    ["/pass", "Transfer-Encoding: chunked", chunks(100_001), 413],
    ["/pass", "Content-Length: 900000000000", "y".repeat(200_000), 413],
    ["/echo", "Content-Length: 100001", "y".repeat(100_001), 413],
    ["/raw", "Content-Length: 300000", "y".repeat(300_000), 200],
    ["/raw", "Transfer-Encoding: chunked", chunks(300_000), 200],
    ["/plain", "Content-Length: 300000", "y".repeat(300_000), 200],
  ] as const;
  for (const [path, framing, body, status] of cases) {
    const seen = upstream.requests.length;
    const client = await rawClient(edge.port);
    client.send(head(`POST ${path} HTTP/1.1`, `Host: ${edge.host("terminal-1")}`, framing) + body);
    await client.waitFor(/^HTTP\/1\.1 [0-9]{3} /, 10_000);
    const where = [path, framing, body.length];
    expect([...where, readAnswers(client.received())[0]?.status]).toEqual([...where, status]);
    if (status === 413) {
      if (framing.endsWith("000000")) {
        // What is left of the upload must not be taken for a request.
        client.send(head("GET /plain HTTP/1.1", `Host: ${edge.host("terminal-1")}`));
        await client.closed(6000);
      }
      expect([...where, upstream.requests.length]).toEqual([...where, seen]);
    } else {
      const sum = (text: string) => createHash("sha1").update(text, "latin1").digest("hex");
      const whole = framing.startsWith("T") ? body.slice(body.indexOf("\r\n") + 2, -7) : body;
      expect([...where, sum(upstream.requests.at(-1)?.body ?? "")]).toEqual([...where, sum(whole)]);
    }
    client.socket.destroy();
  }
}, 60_000);

test("no sockets are left behind when the clients are gone", async () => {
  const faults = await startFaultEdge((request) =>
    request.target.startsWith("/hang") ? null : STREAM,
  );
  const { edge, upstream } = faults;
  const clients = await Promise.all(
    Array.from({ length: 60 }, async (_, at) => {
      const client = await rawClient(edge.port);
      const path = ["/plain", "/hang", "/pass", "/returned"][at % 4]!;
      client.send(head(`GET ${path} HTTP/1.1`, `Host: ${edge.host("terminal-1")}`));
      return client;
    }),
  );
  await upstream.waitForRequests(60, 15_000);
  for (const client of clients) {
    client.socket.destroy();
  }
  await upstream.waitUntil(() => upstream.closed.size === upstream.sockets.length, NOTICED_MS * 2);
  const metrics = async () =>
    (await (await fetch(`${edge.control}/metrics`)).text()).match(
      /^interpose_connections\{kind="http"\} ([0-9]+)$/m,
    )?.[1];
  for (let tries = 0; (await metrics()) !== "0"; tries++) {
    expect(tries).toBeLessThan(100);
    await new Promise((wait) => setTimeout(wait, 30));
  }
}, 40_000);
