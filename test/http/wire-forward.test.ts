import net, { type AddressInfo } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { rawClient, rawExchange } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";
import { eventually, startWireEdge } from "../support/wire-edge.ts";

const GET = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const MEGABYTE = 1024 * 1024;

describe("forward() answers", () => {
  test("passes status, reason, repeated and high-byte fields, redirects and codings as they are", async () => {
    const upstream = await recordingUpstream(
      () =>
        "HTTP/1.1 302 Over \xe4 There\r\nLocation: http://elsewhere/\r\nSet-Cookie: a=1; Expires=Wed, 01 Jan\r\n" +
        "set-cookie: b\r\nX-High: \xe4\xff\r\nContent-Encoding: gzip\r\nDate: then\r\nX-Hoody-Hook-Audit: kept\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x00",
    );
    const edge = await startWireEdge(upstream.port);
    const answer = await rawExchange(edge.port, GET);
    expect(answer).toBe(
      "HTTP/1.1 302 Over \xe4 There\r\nLocation: http://elsewhere/\r\nSet-Cookie: a=1; Expires=Wed, 01 Jan\r\n" +
        "set-cookie: b\r\nX-High: \xe4\xff\r\nContent-Encoding: gzip\r\nDate: then\r\nX-Hoody-Hook-Audit: kept\r\nContent-Length: 3\r\n" +
        "Connection: close\r\n\r\n\x1f\x8b\x00",
    );
  });

  test("removes hop-by-hop fields of the upstream and those its Connection names", async () => {
    const upstream = await recordingUpstream(
      () =>
        "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=9\r\nX-Hop: 1\r\nUpgrade: h2c\r\n" +
        "Proxy-Authenticate: Basic\r\nTE: x\r\nTrailer: x\r\nX-Kept: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    );
    const edge = await startWireEdge(upstream.port);
    const answer = await rawExchange(edge.port, GET);
    const lines = answer
      .split("\r\n\r\n", 1)[0]!
      .split("\r\n")
      .slice(1)
      .filter((line) => !line.startsWith("Date: "));
    expect(lines.sort()).toEqual(["Connection: close", "Transfer-Encoding: chunked", "X-Kept: 1"]);
  });

  test("passes interim answers and trailers on, swept", async () => {
    const upstream = await recordingUpstream(
      () =>
        "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <b>\r\n\r\n" +
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-T: 1\r\nSet-Cookie: no\r\nContent-Length: 9\r\n\r\n",
    );
    const edge = await startWireEdge(upstream.port);
    const answer = await rawExchange(edge.port, GET);
    expect(answer).toMatch(
      /^HTTP\/1\.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP\/1\.1 103 Early Hints\r\nLink: <b>\r\n\r\nHTTP\/1\.1 200 OK\r\n/,
    );
    expect(answer.endsWith("1\r\nx\r\n0\r\nX-T: 1\r\n\r\n")).toBe(true);
  });

  test("passes request trailers on, swept", async () => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port);
    await rawExchange(
      edge.port,
      "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-T: 1\r\nx_forwarded_for: 6\r\nHost: b\r\n\r\n",
    );
    expect(upstream.requests[0]).toMatchObject({ body: "x", trailers: ["X-T: 1"] });
  });

  test("keeps the length of HEAD and 304 answers, has none for 204, waits for no body", async () => {
    const upstream = await recordingUpstream((request) => {
      switch (request.target) {
        case "/head":
          return "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        case "/304":
          return "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n";
        default:
          return "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n";
      }
    });
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.send(
      "HEAD /head HTTP/1.1\r\nHost: a\r\n\r\nGET /304 HTTP/1.1\r\nHost: a\r\n\r\nGET /204 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    const answer = await client.waitFor(/204 No Content[^]*\r\n\r\n$/);
    const [head = "", notModified = "", none = ""] = answer.split("\r\n\r\n");
    expect(head).toContain("Content-Length: 5");
    expect(notModified).toContain("Content-Length: 5");
    expect(none).not.toContain("Content-Length");
    expect(answer).not.toContain("Transfer-Encoding");
    expect(upstream.sockets).toHaveLength(1);
  });

  test("gives an HTTP/1.0 client the body without chunks and ends the connection", async () => {
    const upstream = await recordingUpstream((_request, socket) => {
      socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
      setTimeout(() => socket.write("3\r\ndef\r\n0\r\nX-T: 1\r\n\r\n"), 30);
      return null;
    });
    const edge = await startWireEdge(upstream.port);
    const answer = await rawExchange(edge.port, "GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    expect(answer.endsWith("\r\n\r\nabcdef")).toBe(true);
    expect(answer.toLowerCase()).not.toContain("transfer-encoding");
  });

  test("passes a body on that only the end of the upstream's connection ends", async () => {
    const upstream = await recordingUpstream((_request, socket) => {
      socket.end("HTTP/1.1 200 OK\r\n\r\nall of it");
      return null;
    });
    const edge = await startWireEdge(upstream.port);
    const answer = await rawExchange(edge.port, GET);
    expect(
      answer.endsWith("9\r\nall of it\r\n0\r\n\r\n") || answer.endsWith("\r\n\r\nall of it"),
    ).toBe(true);
  });

  test("sends each event on as it comes", async () => {
    let socket: net.Socket | null = null;
    const upstream = await recordingUpstream((_request, sender) => {
      socket = sender;
      return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    });
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    await client.waitFor("text/event-stream");
    for (const event of ["one", "two", "three"]) {
      socket!.write(`data: ${event}\n\n`);
      await client.waitFor(`data: ${event}\n\n`);
    }
  });
});

describe("forward() failures", () => {
  test.for<[string, string, RegExp]>([
    ["a reset before the head", "", /^HTTP\/1\.1 502 /],
    ["half a head", "HTTP/1.1 200 OK\r\nX: y", /^HTTP\/1\.1 502 /],
    [
      "an answer that is not valid",
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      /^HTTP\/1\.1 502 /,
    ],
    ["no HTTP at all", "220 smtp ready\r\n", /^HTTP\/1\.1 502 /],
    [
      "a switch nobody asked for",
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
      /^HTTP\/1\.1 502 /,
    ],
  ])("answers once with 502 for %s", async ([, bytes, expected]) => {
    const upstream = await recordingUpstream((_request, socket) => {
      socket.write(bytes, "latin1", () => socket.destroy());
      return null;
    });
    const edge = await startWireEdge(upstream.port);
    const answer = await rawExchange(edge.port, GET);
    expect(answer).toMatch(expected);
    expect(answer.match(/HTTP\/1\.1 /g)).toHaveLength(1);
    expect(edge.outcomes[0]).toMatchObject({ kind: "failed", headSent: false });
  });

  test.for<[string, string]>([
    ["of known length", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"],
    ["in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"],
    [
      "with a broken chunk",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nxyz\r\n",
    ],
  ])("cuts the client when a body %s breaks off", async ([, bytes]) => {
    const upstream = await recordingUpstream((_request, socket) => {
      socket.write(bytes);
      setTimeout(() => socket.resetAndDestroy(), 50);
      return null;
    });
    const edge = await startWireEdge(upstream.port);
    const answer = await rawExchange(edge.port, GET);
    expect(answer).not.toMatch(/\r\n0\r\n/);
    expect(answer.match(/HTTP\/1\.1 /g)?.length ?? 0).toBeLessThan(2);
    await eventually(() => edge.outcomes.length === 1);
    expect(edge.outcomes[0]).toMatchObject({ kind: "failed", headSent: true, status: 200 });
  });

  test("answers 504 when the upstream stays silent, and hangs up on it", async () => {
    const upstream = await recordingUpstream(() => null);
    const edge = await startWireEdge(upstream.port, { upstream: { idleMs: 200 } });
    expect(await rawExchange(edge.port, GET)).toMatch(/^HTTP\/1\.1 504 /);
    await upstream.waitUntil(() => upstream.closed.has(0));
  });

  test("delivers a 413 that comes while the client still sends", async () => {
    const upstream = await recordingUpstream(undefined, (_head, socket) => {
      socket.write("HTTP/1.1 413 Content Too Large\r\nContent-Length: 7\r\n\r\ntoo big");
      setTimeout(() => socket.destroy(), 50);
    });
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.send(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${64 * MEGABYTE}\r\n\r\n`);
    const piece = Buffer.alloc(65_536, 97);
    for (
      let i = 0;
      i < 256 && !client.received().includes("too big") && !client.socket.destroyed;
      i++
    ) {
      client.send(piece);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    expect(await client.closed()).toMatch(/^HTTP\/1\.1 413 [^]*too big$/);
  });

  test("an upstream's second answer to one request never reaches the next client", async () => {
    let first = true;
    const upstream = await recordingUpstream((request) => {
      const body = `for ${request.target}`;
      const answer = `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
      if (first) {
        first = false;
        return `${answer}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison`;
      }
      return answer;
    });
    const edge = await startWireEdge(upstream.port);
    const one = await rawClient(edge.port);
    one.send("GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
    await one.waitFor("for /one");
    const two = await rawClient(edge.port);
    two.send("GET /two HTTP/1.1\r\nHost: a\r\n\r\n");
    expect(await two.waitFor("for /two")).not.toContain("poison");
    expect(one.received()).not.toContain("poison");
    expect(upstream.sockets).toHaveLength(2);
  });
});

describe("forward() clients that leave", () => {
  const streaming = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevent\r\n";
  test.for<[string, string, string | null]>([
    ["waits", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", null],
    ["streams", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", streaming],
    ["uploads", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc", null],
  ])(
    "gives the upstream request up when the client leaves while it %s",
    async ([, bytes, sent]) => {
      const upstream = await recordingUpstream(
        () => null,
        (_head, socket) => sent !== null && void socket.write(sent),
      );
      const edge = await startWireEdge(upstream.port);
      const client = await rawClient(edge.port);
      client.send(bytes);
      await upstream.waitUntil(() => (upstream.bytes[0] ?? "").includes("\r\n\r\n"));
      if (sent !== null) {
        await client.waitFor("event");
      }
      const left = performance.now();
      client.socket.destroy();
      await upstream.waitUntil(() => upstream.closed.has(0));
      expect(performance.now() - left).toBeLessThan(2500); // under a second where nothing else keeps the machine busy
      await eventually(() => edge.outcomes.length === 1);
      expect(edge.outcomes[0]).toMatchObject({ kind: "client_gone" });
      expect(upstream.requests.length).toBeLessThan(2);
    },
  );

  test("a client that closed its sending side with its request gets the upstream's late answer", async () => {
    const upstream = await recordingUpstream((_request, socket) => {
      setTimeout(() => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate"), 300);
      return null;
    });
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.socket.end(GET);
    expect(await client.closed()).toMatch(/HTTP\/1\.1 200 OK\r\n[^]*late$/);
  });
});

/** An upstream that counts what it reads and sends as much as it is asked for. */
async function bulkUpstream(): Promise<{
  port: number;
  received: () => number;
  sent: () => number;
}> {
  let received = 0;
  let sent = 0;
  const sockets: net.Socket[] = [];
  const server = net.createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    let head = "";
    let left = -1;
    const finish = (): void => void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    socket.on("data", (chunk) => {
      if (left < 0) {
        head += chunk.toString("latin1");
        const end = head.indexOf("\r\n\r\n");
        if (end < 0) {
          return;
        }
        const download = /^GET \/(\d+)/.exec(head);
        if (download !== null) {
          left = 0;
          const total = Number(download[1]);
          socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${total}\r\n\r\n`);
          const piece = Buffer.alloc(65_536, 97);
          const more = (): void => {
            while (sent < total) {
              const part = piece.subarray(0, Math.min(piece.length, total - sent));
              sent += part.length;
              if (!socket.write(part)) {
                return;
              }
            }
          };
          socket.on("drain", more);
          more();
          return;
        }
        left = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
        received += head.length - end - 4;
        left -= head.length - end - 4;
      } else {
        received += chunk.length;
        left -= chunk.length;
      }
      if (left === 0) {
        finish();
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    sockets.forEach((socket) => socket.destroy());
    server.close();
  });
  return {
    port: (server.address() as AddressInfo).port,
    received: () => received,
    sent: () => sent,
  };
}

describe("forward() large bodies", () => {
  test("64 MiB arrive whole in either direction", async () => {
    const size = 64 * MEGABYTE;
    const upstream = await bulkUpstream();
    const edge = await startWireEdge(upstream.port);
    const down = await new Promise<number>((resolve) => {
      let count = 0;
      const socket = net.connect(edge.port, "127.0.0.1", () =>
        socket.write(`GET /${size} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`),
      );
      socket.on("data", (chunk) => (count += chunk.length));
      socket.on("close", () => resolve(count));
    });
    expect(down).toBeGreaterThanOrEqual(size);
    expect(down).toBeLessThan(size + 1000);
    const sink = await bulkUpstream();
    const other = await startWireEdge(sink.port);
    const client = await rawClient(other.port);
    client.send(`PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`);
    const piece = Buffer.alloc(MEGABYTE, 98);
    for (let i = 0; i < 64; i++) {
      if (!client.socket.write(piece)) {
        await new Promise((resolve) => client.socket.once("drain", resolve));
      }
    }
    await client.waitFor("ok");
    expect(sink.received()).toBe(size);
  });

  test("a client that does not read stops the upstream after a bounded amount", async () => {
    const upstream = await bulkUpstream();
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.socket.pause();
    client.send(`GET /${256 * MEGABYTE} HTTP/1.1\r\nHost: a\r\n\r\n`);
    await eventually(() => upstream.sent() > 0);
    let before = -1;
    await eventually(() => {
      const still = upstream.sent() === before;
      before = upstream.sent();
      return still;
    }, 15_000);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(upstream.sent()).toBeLessThan(32 * MEGABYTE); // socket buffers of both hops, and little of ours
  });

  test("an upstream that does not read stops the client after a bounded amount", async () => {
    const sockets: net.Socket[] = [];
    const server = net.createServer((socket) => {
      sockets.push(socket);
      socket.pause();
      socket.on("error", () => {});
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => {
      sockets.forEach((socket) => socket.destroy());
      server.close();
    });
    const edge = await startWireEdge((server.address() as AddressInfo).port);
    const client = await rawClient(edge.port);
    client.send(`PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: ${256 * MEGABYTE}\r\n\r\n`);
    const piece = Buffer.alloc(65_536, 97);
    let sent = 0;
    let stuck = false;
    while (!stuck && sent < 256 * MEGABYTE) {
      sent += piece.length;
      if (!client.socket.write(piece)) {
        stuck = await new Promise<boolean>((resolve) => {
          const timer = setTimeout(() => resolve(true), 700);
          client.socket.once("drain", () => {
            clearTimeout(timer);
            resolve(false);
          });
        });
      }
    }
    expect(stuck).toBe(true);
    expect(sent).toBeLessThan(64 * MEGABYTE);
  });
});
