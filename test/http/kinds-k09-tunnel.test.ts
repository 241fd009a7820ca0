import net from "node:net";
import { expect, test } from "vitest";
import { startTestEdge } from "../support/edge.ts";
import { handshake, head, readAnswers, SWITCH, until } from "../support/faults.ts";
import { type RawClient, rawClient, rawExchange } from "../support/raw-client.ts";
import { type Responder, recordingUpstream } from "../support/recording-upstream.ts";

/** K09: two joined sockets end together, promptly, and nobody else notices. */

async function tunnelEdge(respond: Responder = () => SWITCH) {
  const upstream = await recordingUpstream(respond);
  const edge = await startTestEdge({ upstream: upstream.port });
  const open = async (): Promise<{ client: RawClient; service: net.Socket; index: number }> => {
    const index = upstream.sockets.length;
    const client = await rawClient(edge.port);
    client.send(handshake(edge.host("terminal-1"), "/ws"));
    await client.waitFor("101 Switching");
    return { client, service: upstream.sockets[index]!, index };
  };
  return { upstream, edge, open };
}

const PROMPT_MS = 2500;

test("either side's FIN or reset ends the other side, and other tunnels go on", async () => {
  const { upstream, open, edge } = await tunnelEdge();
  const bystander = await open();
  const ends: ((t: { client: RawClient; service: net.Socket }) => void)[] = [
    ({ client }) => client.end(),
    ({ client }) => client.socket.destroy(),
    ({ client }) => client.socket.resetAndDestroy(),
    ({ service }) => service.end(),
    ({ service }) => service.destroy(),
    ({ service }) => service.resetAndDestroy(),
    ({ client, service }) => {
      client.socket.resetAndDestroy();
      service.resetAndDestroy();
    },
  ];
  for (const [at, end] of ends.entries()) {
    const tunnel = await open();
    let clientEnded = false;
    for (const event of ["end", "close"]) {
      tunnel.client.socket.on(event, () => (clientEnded = true));
    }
    end(tunnel);
    await until(`client of ${at}`, () => clientEnded || tunnel.client.socket.destroyed, PROMPT_MS);
    await upstream.waitUntil(() => upstream.closed.has(tunnel.index), PROMPT_MS);
    bystander.client.send(`ping${at}`);
    await until("the bystander", () =>
      (upstream.bytes[bystander.index] ?? "").endsWith(`ping${at}`),
    );
  }
  bystander.client.socket.destroy();
  await upstream.waitUntil(() => upstream.closed.has(bystander.index), PROMPT_MS);
  const lines = edge.log.filter((line) => line["msg"] === "request");
  await until(
    "access lines",
    () => edge.log.filter((line) => line["outcome"] === "tunnelled").length === ends.length + 1,
  );
  expect(lines.every((line) => line["level"] !== "error")).toBe(true);
});

test("what one side said before it ended arrives before the end", async () => {
  const { open, upstream } = await tunnelEdge();
  const tunnel = await open();
  const goodbye = "x".repeat(200_000);
  tunnel.service.end(goodbye);
  const text = await tunnel.client.closed();
  expect(text.endsWith(goodbye)).toBe(true);
  const other = await open();
  other.client.socket.end(goodbye);
  await upstream.waitUntil(() => upstream.closed.has(other.index));
  expect(upstream.bytes[other.index]?.endsWith(goodbye)).toBe(true);
});

test("a refusal of the service is passed on whole, whatever its framing", async () => {
  const long = "z".repeat(300_000);
  const answers = new Map([
    ["/404", `${head("HTTP/1.1 404 Not Found", "X-Why: a", "Content-Length: 4")}none`],
    [
      "/chunked",
      `${head("HTTP/1.1 401 Unauthorized", "WWW-Authenticate: Basic", "Transfer-Encoding: chunked")}4\r\nnone\r\n0\r\n\r\n`,
    ],
    ["/200", `${head("HTTP/1.1 200 OK", "Content-Length: 4")}none`],
    ["/long", `${head("HTTP/1.1 403 Forbidden", `Content-Length: ${long.length}`)}${long}`],
    ["/204", head("HTTP/1.1 204 No Content")],
    [
      "/302",
      head("HTTP/1.1 302 Found", "Location: http://elsewhere.example/", "Content-Length: 0"),
    ],
    [
      "/426",
      head("HTTP/1.1 426 Upgrade Required", "Sec-WebSocket-Version: 8, 13", "Content-Length: 0"),
    ],
    [
      "/103",
      head("HTTP/1.1 103 Early Hints", "Link: </a>") +
        head("HTTP/1.1 400 Bad Request", "Content-Length: 0"),
    ],
  ]);
  const { edge } = await tunnelEdge(
    (request) => answers.get(request.target.split("?")[0] ?? "") ?? "",
  );
  for (const [path, sent] of answers) {
    const text = await rawExchange(edge.port, handshake(edge.host("terminal-1"), path));
    const got = readAnswers(text).at(-1);
    expect([path, got?.status]).toEqual([path, readAnswers(sent).at(-1)?.status]);
    expect(got?.body).toBe(readAnswers(sent).at(-1)?.body);
  }
});

test("a service that is not there, resets, closes, babbles or answers halfway: one 502, or a visible cut", async () => {
  const { edge } = await tunnelEdge((request, socket) => {
    switch (request.target.split("?", 1).join()) {
      case "/reset":
        socket.resetAndDestroy();
        return null;
      case "/close":
        socket.end();
        return null;
      case "/babble":
        return "SSH-2.0-OpenSSH_9.6\r\n\r\n";
      case "/http10":
        return SWITCH.replace("HTTP/1.1", "HTTP/1.0");
      case "/other":
        return SWITCH.replace("Upgrade: websocket", "Upgrade: h2c");
      case "/none":
        return head("HTTP/1.1 101 Switching Protocols");
      case "/field":
        return SWITCH.replace("Sec-", "Bad Name: x\r\nSec-");
      default:
        return null;
    }
  });
  for (const path of ["/reset", "/close", "/babble", "/http10", "/other", "/none", "/field"]) {
    const text = await rawExchange(edge.port, handshake(edge.host("terminal-1"), path));
    const [answer, ...more] = readAnswers(text);
    expect([path, answer?.status, more.length]).toEqual([path, 502, 0]);
    expect(answer?.body).not.toMatch(/127\.0\.0\.1|ECONN/);
  }
  const dead = await startTestEdge({ upstream: 1 });
  const text = await rawExchange(dead.port, handshake(dead.host("terminal-1")));
  expect(readAnswers(text)[0]?.status).toBe(502);
});

test("a refusal that breaks off is never finished neatly", async () => {
  const { edge } = await tunnelEdge((request, socket) => {
    const chunked = request.target.startsWith("/chunked");
    socket.write(
      chunked
        ? `${head("HTTP/1.1 403 Forbidden", "Transfer-Encoding: chunked")}4\r\nhalf\r\n`
        : `${head("HTTP/1.1 403 Forbidden", "Content-Length: 100")}half`,
    );
    setTimeout(() => socket.resetAndDestroy(), 100);
    return null;
  });
  for (const path of ["/chunked", "/length"]) {
    const socket = net.connect({ port: edge.port, host: "127.0.0.1" });
    let text = "";
    let failed = false;
    socket.on("data", (chunk: Buffer) => (text += chunk.toString("latin1")));
    socket.on("error", () => (failed = true));
    socket.write(handshake(edge.host("terminal-1"), path));
    await new Promise((resolve) => socket.on("close", resolve));
    const complete =
      /content-length: 4\r\n/i.test(text) || (/chunked/i.test(text) && text.endsWith("0\r\n\r\n"));
    const delimited = /content-length|chunked/i.test(text);
    // Without a length or chunks the end of the connection is the end of the body: only a reset tells it is not.
    expect([path, complete, delimited || failed]).toEqual([path, false, true]);
  }
});

test("a handshake has a deadline, and a client that leaves during it ends it", async () => {
  const upstream = await recordingUpstream(() => null);
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: { limits: { upstreamIdleMs: 700 } },
  });
  const text = await rawExchange(edge.port, handshake(edge.host("terminal-1")));
  expect(readAnswers(text)[0]?.status).toBe(504);
  await upstream.waitUntil(() => upstream.closed.has(0), PROMPT_MS);
  for (const leave of [(c: RawClient) => c.end(), (c: RawClient) => c.socket.resetAndDestroy()]) {
    const index = upstream.sockets.length;
    const client = await rawClient(edge.port);
    client.send(handshake(edge.host("terminal-1")));
    await upstream.waitForRequests(index + 1);
    leave(client);
    await upstream.waitUntil(() => upstream.closed.has(index), 600);
  }
});

test("quiet tunnels outlive every limit for requests", async () => {
  const upstream = await recordingUpstream(() => SWITCH);
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: {
      limits: {
        upstreamIdleMs: 300,
        requestBudgetMs: 300,
        headMs: 300,
        requestMs: 300,
        keepAliveMs: 300,
      },
    },
  });
  const client = await rawClient(edge.port);
  client.send(handshake(edge.host("terminal-1")));
  await client.waitFor("101");
  await new Promise((wait) => setTimeout(wait, 1500));
  client.send("still here");
  await until("the bytes", () => (upstream.bytes[0] ?? "").endsWith("still here"));
  upstream.sockets[0]?.write("and here");
  await client.waitFor("and here");
});

test("a slow reader slows the other side of a tunnel", async () => {
  const { open } = await tunnelEdge();
  const { client, service } = await open();
  client.socket.pause();
  const piece = Buffer.alloc(65_536, 120);
  let sent = 0;
  let full = false;
  while (!full && sent < 256 * 1024 * 1024) {
    full =
      !service.write(piece) &&
      (await new Promise<boolean>((resolve) => {
        const timer = setTimeout(() => resolve(true), 400);
        service.once("drain", () => {
          clearTimeout(timer);
          resolve(false);
        });
      }));
    sent += piece.length;
  }
  expect(full).toBe(true);
  expect(sent).toBeLessThan(64 * 1024 * 1024);
  let got = 0;
  client.socket.on("data", (chunk: Buffer) => (got += chunk.length));
  client.socket.resume();
  await until("the held bytes", () => got >= sent, 8000);
});
