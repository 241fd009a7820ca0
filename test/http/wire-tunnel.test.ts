import { createServer } from "node:http";
import type net from "node:net";
import type { AddressInfo } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { rawClient, rawExchange } from "../support/raw-client.ts";
import { recordingUpstream, type Responder } from "../support/recording-upstream.ts";
import { eventually, startWireEdge } from "../support/wire-edge.ts";

const KEY = "dGhlIHNhbXBsZSBub25jZQ==";
const HANDSHAKE =
  "GET /ws?x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n" +
  `Sec-WebSocket-Key: ${KEY}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: one, two\r\n` +
  "Sec-WebSocket-Extensions: permessage-deflate\r\nX-Real-IP: 6.6.6.6\r\n\r\n";
const SWITCH =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: one\r\n\r\n";

/** Answers a handshake with 101 and `early`, then gives the bytes to `onData`. */
function switching(
  early = "",
  onData: (chunk: Buffer, socket: net.Socket) => void = () => {},
): Responder {
  return (_request, socket) => {
    socket.removeAllListeners("data");
    socket.on("data", (chunk) => onData(chunk, socket));
    return SWITCH + early;
  };
}

describe("openTunnel()", () => {
  test("passes the handshake on swept, with the WebSocket fields, and joins the streams with early bytes of either side", async () => {
    const upstream = await recordingUpstream(
      switching("early down", (chunk, socket) => void socket.write(`<${chunk.toString()}>`)),
    );
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.send(`${HANDSHAKE}early up`);
    const answer = await client.waitFor("<early up>");
    expect(answer).toBe(
      "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: one\r\n" +
        "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly down<early up>",
    );
    expect(upstream.requests[0]).toMatchObject({ method: "GET", target: "/ws?x" });
    expect(upstream.requests[0]?.lines).toEqual([
      "Host: a",
      `Sec-WebSocket-Key: ${KEY}`,
      "Sec-WebSocket-Version: 13",
      "Sec-WebSocket-Protocol: one, two",
      "Sec-WebSocket-Extensions: permessage-deflate",
      "X-Real-IP: 127.0.0.1",
      "X-Forwarded-For: 127.0.0.1",
      "X-Forwarded-Proto: http",
      "Connection: Upgrade",
      "Upgrade: websocket",
    ]);
    client.send("later");
    await client.waitFor("<later>");
  });

  test.for<[string, string]>([
    ["another protocol", HANDSHAKE.replace("Upgrade: WebSocket", "Upgrade: h2c")],
    ["a list of protocols", HANDSHAKE.replace("Upgrade: WebSocket", "Upgrade: websocket, h2c")],
    [
      "two Upgrade lines",
      HANDSHAKE.replace("Upgrade: WebSocket", "Upgrade: websocket\r\nUpgrade: websocket"),
    ],
    ["no key", HANDSHAKE.replace(/Sec-WebSocket-Key: .*\r\n/, "")],
    ["a short key", HANDSHAKE.replace(KEY, "abc")],
    ["two keys", HANDSHAKE.replace("X-Real-IP: 6.6.6.6", `Sec-WebSocket-Key: ${KEY}`)],
    ["no Connection: upgrade", HANDSHAKE.replace("keep-alive, Upgrade", "keep-alive")],
    ["POST", HANDSHAKE.replace("GET", "POST")],
    ["HTTP/1.0", HANDSHAKE.replace("HTTP/1.1", "HTTP/1.0")],
    ["a body", HANDSHAKE.replace("X-Real-IP: 6.6.6.6", "Content-Length: 2").concat("xy")],
  ])("is not used for %s: an ordinary request without Upgrade", async ([, bytes]) => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.send(bytes);
    expect(await client.waitFor("ok")).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(edge.exchanges[0]?.handshake).toBe(false);
    expect(
      upstream.requests[0]?.lines.filter((line) => /^(upgrade|connection)/i.test(line)),
    ).toEqual([]);
  });

  test("passes an upstream's refusal on, whole, and closes", async () => {
    const upstream = await recordingUpstream(
      () => "HTTP/1.1 404 Not Found\r\nX-Why: none\r\nContent-Length: 7\r\n\r\nnothing",
    );
    const edge = await startWireEdge(upstream.port);
    const answer = await rawExchange(edge.port, HANDSHAKE);
    expect(answer).toMatch(/^HTTP\/1\.1 404 Not Found\r\n/);
    expect(answer).toContain("X-Why: none\r\n");
    expect(answer.endsWith("\r\n\r\nnothing")).toBe(true);
    expect(edge.outcomes).toEqual([{ kind: "refused", status: 404 }]);
  });

  test("passes a refusal in chunks on", async () => {
    const upstream = await recordingUpstream(
      () =>
        "HTTP/1.1 426 Upgrade Required\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n",
    );
    const edge = await startWireEdge(upstream.port);
    const answer = await rawExchange(edge.port, HANDSHAKE);
    expect(answer).toMatch(/^HTTP\/1\.1 426 [^]*\r\n\r\nabcdef$/);
  });

  test.for<[string, Responder]>([
    ["resets", (_request, socket) => (socket.resetAndDestroy(), null)],
    ["switches to something else", () => SWITCH.replace("Upgrade: websocket", "Upgrade: chat")],
    ["answers nonsense", () => "what?\r\n\r\n"],
  ])("is a complete 502 when the upstream %s", async ([, responder]) => {
    const upstream = await recordingUpstream(responder);
    const edge = await startWireEdge(upstream.port);
    const answer = await rawExchange(edge.port, HANDSHAKE);
    expect(answer).toMatch(/^HTTP\/1\.1 502 [^]*\r\n\r\n\{.*\}$/);
    await eventually(() => edge.outcomes.length === 1);
    expect(edge.outcomes[0]).toMatchObject({ kind: "failed", headSent: false });
  });

  test("has a deadline for the handshake", async () => {
    const upstream = await recordingUpstream(() => null);
    const edge = await startWireEdge(upstream.port, { handshakeMs: 200 });
    expect(await rawExchange(edge.port, HANDSHAKE)).toMatch(/^HTTP\/1\.1 504 /);
    await upstream.waitUntil(() => upstream.closed.has(0));
  });

  test("gives the handshake up when the client leaves before it is answered", async () => {
    const upstream = await recordingUpstream(() => null);
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.send(HANDSHAKE);
    await upstream.waitForRequests(1);
    client.socket.destroy();
    await upstream.waitUntil(() => upstream.closed.has(0));
    expect(edge.outcomes).toEqual([{ kind: "client_gone" }]);
  });

  test.for<[string, (socket: net.Socket) => void]>([
    ["ends", (socket) => void socket.end()],
    ["is destroyed", (socket) => void socket.destroy()],
    ["is reset", (socket) => void socket.resetAndDestroy()],
  ])("closes one side promptly when the other %s", async ([, close]) => {
    const upstream = await recordingUpstream(switching());
    const edge = await startWireEdge(upstream.port);
    for (const side of ["client", "upstream"]) {
      const at = upstream.sockets.length;
      const client = await rawClient(edge.port);
      client.send(HANDSHAKE);
      await client.waitFor("\r\n\r\n");
      close(side === "client" ? client.socket : upstream.sockets[at]!);
      await client.closed(side === "client" ? 8000 : 4000).catch(() => {});
      client.socket.end();
      await upstream.waitUntil(() => upstream.closed.has(at), 5000);
    }
    await eventually(() => edge.outcomes.length === 2);
    expect(edge.outcomes.map((outcome) => outcome.kind)).toEqual(["closed", "closed"]);
  });

  test("a tunnel stays open while nobody says anything, longer than any limit of requests", async () => {
    const upstream = await recordingUpstream(
      switching("", (chunk, socket) => void socket.write(chunk)),
    );
    const edge = await startWireEdge(upstream.port, {
      limits: { headMs: 200, keepAliveMs: 200, requestMs: 200 },
      upstream: { idleMs: 200 },
    });
    const client = await rawClient(edge.port);
    client.send(HANDSHAKE);
    await client.waitFor("\r\n\r\n");
    await new Promise((resolve) => setTimeout(resolve, 3500));
    client.send("still here");
    await client.waitFor("still here");
  });

  test("what happens to one tunnel is not felt by another", async () => {
    const upstream = await recordingUpstream(
      switching("", (chunk, socket) => void socket.write(chunk)),
    );
    const edge = await startWireEdge(upstream.port);
    const one = await rawClient(edge.port);
    const two = await rawClient(edge.port);
    one.send(HANDSHAKE);
    two.send(HANDSHAKE);
    await Promise.all([one.waitFor("\r\n\r\n"), two.waitFor("\r\n\r\n")]);
    one.socket.resetAndDestroy();
    await upstream.waitUntil(() => upstream.closed.size === 1);
    two.send("still here");
    await two.waitFor("still here");
  });

  test("a side that does not read stops the other after a bounded amount", async () => {
    const upstream = await recordingUpstream(switching());
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.send(HANDSHAKE);
    await client.waitFor("\r\n\r\n");
    upstream.sockets[0]!.pause();
    const piece = Buffer.alloc(65_536, 97);
    let sent = 0;
    let stuck = false;
    while (!stuck && sent < 256 * 1024 * 1024) {
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
    expect(sent).toBeLessThan(64 * 1024 * 1024);
  });

  test("a handshake that is pipelined behind an unanswered request does not overtake it", async () => {
    const upstream = await recordingUpstream((request, socket) => {
      setTimeout(
        () =>
          socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n${request.target.slice(0, 3)}`),
        50,
      );
      return null;
    });
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.send(`GET /slow HTTP/1.1\r\nHost: a\r\n\r\n${HANDSHAKE}`);
    const answer = await client.waitFor(/\/sl[^]*\/ws/);
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(edge.exchanges.map((exchange) => exchange.handshake)).toEqual([false, true]);
  });

  test("carries real WebSocket clients and servers, compressed and with a subprotocol", async () => {
    const server = createServer();
    const sockets = new WebSocketServer({ server, perMessageDeflate: true });
    sockets.on("connection", (socket) => {
      socket.send("welcome");
      socket.on("message", (message, isBinary) => socket.send(message, { binary: isBinary }));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => {
      sockets.close();
      server.closeAllConnections();
      server.close();
    });
    const edge = await startWireEdge((server.address() as AddressInfo).port);
    const client = new WebSocket(`ws://127.0.0.1:${edge.port}/chat`, ["one"], {
      perMessageDeflate: true,
    });
    onTestFinished(() => client.terminate());
    const messages: string[] = [];
    const big = "x".repeat(2_000_000);
    const code = await new Promise<number>((resolve, reject) => {
      client.on("error", reject);
      client.on("message", (message) => {
        messages.push((message as Buffer).toString());
        if (messages.length === 1) {
          client.send(big);
        } else {
          client.close(4001, "bye");
        }
      });
      client.on("close", resolve);
    });
    expect(messages).toEqual(["welcome", big]);
    expect(code).toBe(4001);
    expect(client.protocol).toBe("one");
  });
});
