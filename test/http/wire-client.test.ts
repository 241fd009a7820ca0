import net, { type AddressInfo } from "node:net";
import { join } from "node:path";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import tls from "node:tls";
import { describe, expect, onTestFinished, test } from "vitest";
import type {
  BodySink,
  BodySource,
  FieldLines,
  ResponseHead,
} from "../../policy/kernel/exchange.ts";
import { createHttp1Client, type Http1ClientOptions } from "../../policy/kernel/http1/client.ts";
import type {
  Http1Client,
  Origin,
  OutgoingCall,
  OutgoingRequest,
  UpstreamFailure,
} from "../../policy/kernel/http1/types.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";
import { eventually } from "../support/wire-edge.ts";

interface Answer {
  readonly status: number | null;
  readonly head: ResponseHead | null;
  readonly body: string;
  readonly trailers: FieldLines;
  readonly interims: number[];
  readonly failure: UpstreamFailure | null;
}

const LIMITS = { connectMs: 2000, idleMs: 5000, maxHeaderBytes: 32_768 };

function newClient(options?: Http1ClientOptions): Http1Client {
  const client = createHttp1Client(options);
  onTestFinished(() => client.close());
  return client;
}

function send(
  client: Http1Client,
  origin: Origin | number,
  changes: Partial<OutgoingRequest> = {},
  onCall?: (call: OutgoingCall) => void,
  onData: (chunk: Buffer) => boolean = () => true,
): Promise<Answer> {
  return new Promise((resolve) => {
    let head: ResponseHead | null = null;
    let body = "";
    const interims: number[] = [];
    const done = (trailers: FieldLines, failure: UpstreamFailure | null): void =>
      resolve({ status: head?.status ?? null, head, body, trailers, interims, failure });
    const call = client.send(
      {
        origin:
          typeof origin === "number" ? { kind: "tcp", host: "127.0.0.1", port: origin } : origin,
        method: "GET",
        target: "/",
        fields: ["Host", "a"],
        body: null,
        limits: LIMITS,
        ...changes,
      },
      {
        interim: (interim) => void interims.push(interim.status),
        head: (final) => void (head = final),
        data(chunk) {
          body += chunk.toString("latin1");
          return onData(chunk);
        },
        end: (trailers) => done(trailers, null),
        tunnel: () => done([], null),
        fail: (failure) => done([], failure),
      },
    );
    onCall?.(call);
  });
}

/** A body whose pieces the test gives; says what was asked of it. */
function handBody(
  length: number | null,
): BodySource & { sink: BodySink | null; cancelled: boolean; resumed: number } {
  return {
    length,
    sink: null,
    cancelled: false,
    resumed: 0,
    start(sink) {
      this.sink = sink;
    },
    resume() {
      this.resumed++;
    },
    cancel() {
      this.cancelled = true;
    },
  };
}

function fixedBody(parts: string[], length: number | null, trailers: FieldLines = []): BodySource {
  return {
    length,
    start(sink) {
      for (const part of parts) {
        sink.data(Buffer.from(part, "latin1"));
      }
      sink.end(trailers);
    },
    resume() {},
    cancel() {},
  };
}

/** An upstream that gives each connection to the test. */
async function bareUpstream(
  onConnection: (socket: net.Socket, index: number) => void,
): Promise<number> {
  let index = 0;
  const sockets: net.Socket[] = [];
  const server = net.createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    onConnection(socket, index++);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    sockets.forEach((socket) => socket.destroy());
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

const OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

describe("createHttp1Client() sending", () => {
  test("writes head and small body in one piece, with the length the source has", async () => {
    const upstream = await recordingUpstream();
    const answer = await send(newClient(), upstream.port, {
      method: "REPORT",
      target: "/x?y",
      body: fixedBody(["abc"], 3),
    });
    expect(answer).toMatchObject({ status: 200, body: "ok", failure: null });
    expect(upstream.bytes[0]).toBe(
      "REPORT /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    );
  });

  test("sends chunks when the length is unknown, with trailers", async () => {
    const upstream = await recordingUpstream();
    await send(newClient(), upstream.port, {
      method: "DELETE",
      body: fixedBody(["abc", "", "de"], null, ["X-T", "1"]),
    });
    expect(upstream.bytes[0]).toBe(
      "DELETE / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n",
    );
  });

  test("does not wait for the first piece of a slow body before it sends the head", async () => {
    const upstream = await recordingUpstream();
    const body = handBody(null);
    const answer = send(newClient(), upstream.port, { method: "POST", body });
    await upstream.waitUntil(() => (upstream.bytes[0] ?? "").endsWith("\r\n\r\n"));
    body.sink?.data(Buffer.from("x"));
    body.sink?.end([]);
    expect(await answer).toMatchObject({ status: 200 });
  });

  test("keeps the case of methods and sends high bytes as they are", async () => {
    const upstream = await recordingUpstream();
    await send(newClient(), upstream.port, {
      method: "checkAuth",
      target: "/\xc3\xa4",
      fields: ["Host", "a", "X", "\xff"],
    });
    expect(upstream.bytes[0]).toBe("checkAuth /\xc3\xa4 HTTP/1.1\r\nHost: a\r\nX: \xff\r\n\r\n");
  });

  test.for<[string, Partial<OutgoingRequest>]>([
    ["a blank in the target", { target: "/a b" }],
    ["a line break in the target", { target: "/a\r\nX: y" }],
    ["a line break in a value", { fields: ["X", "a\r\nY: z"] }],
    ["a bare LF in a value", { fields: ["X", "a\nb"] }],
    ["NUL in a value", { fields: ["X", "a\0b"] }],
    ["a character that is no byte", { fields: ["X", "\u20ac"] }],
    ["a colon in a name", { fields: ["X:", "a"] }],
    ["an empty name", { fields: ["", "a"] }],
    ["a method that is no token", { method: "GET /" }],
    ["an empty target", { target: "" }],
  ])("throws for %s and sends nothing", async ([, changes]) => {
    const upstream = await recordingUpstream();
    const client = newClient();
    expect(() =>
      client.send(
        {
          origin: { kind: "tcp", host: "127.0.0.1", port: upstream.port },
          method: "GET",
          target: "/",
          fields: [],
          body: null,
          limits: LIMITS,
          ...changes,
        },
        { interim() {}, head() {}, data: () => true, end() {}, tunnel() {}, fail() {} },
      ),
    ).toThrow(TypeError);
    expect(upstream.sockets).toHaveLength(0);
  });

  test("speaks TLS to origins that ask for it, verified only when told to", async () => {
    const pem = new URL("../cases/tls/", import.meta.url).pathname;
    const server = tls.createServer(
      { cert: readFileSync(`${pem}one.cert.pem`), key: readFileSync(`${pem}one.key.pem`) },
      (socket) => socket.on("data", () => socket.write(OK)).on("error", () => {}),
    );
    server.on("tlsClientError", () => {});
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const origin = {
      kind: "tls",
      host: "127.0.0.1",
      port: (server.address() as AddressInfo).port,
    } as const;
    const client = newClient();
    expect(await send(client, origin)).toMatchObject({ status: 200, body: "ok" });
    expect(await send(client, origin)).toMatchObject({ status: 200, body: "ok" });
    const strict = newClient({ tls: { rejectUnauthorized: true } });
    expect((await send(strict, origin)).failure?.kind).toBe("connect");
    const plain = await recordingUpstream();
    const limits = { ...LIMITS, connectMs: 300 };
    expect((await send(client, { ...origin, port: plain.port }, { limits })).failure?.kind).toBe(
      "connect",
    );
  });

  test("reaches unix sockets", async () => {
    const folder = mkdtempSync(join(tmpdir(), "wire-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const path = join(folder, "s");
    const server = net.createServer((socket) =>
      socket.on("data", () => socket.write(OK)).on("error", () => {}),
    );
    await new Promise<void>((resolve) => server.listen(path, resolve));
    onTestFinished(() => void server.close());
    const client = newClient();
    expect(await send(client, { kind: "unix", path })).toMatchObject({ status: 200, body: "ok" });
  });

  test("stops asking a source for more while the upstream does not read, and goes on afterwards", async () => {
    let upstreamSocket: net.Socket | null = null;
    let got = 0;
    const port = await bareUpstream((socket) => {
      upstreamSocket = socket;
      socket.pause();
      socket.on("data", (chunk) => {
        got += chunk.length;
        if (chunk.includes("END")) {
          socket.write(OK);
        }
      });
      socket.pause();
    });
    const body = handBody(null);
    const answer = send(newClient(), port, { method: "POST", body });
    await eventually(() => body.sink !== null);
    const piece = Buffer.alloc(65_536, 97);
    let sent = 0;
    while (body.sink!.data(piece)) {
      sent += piece.length;
      expect(sent).toBeLessThan(64 * 1024 * 1024);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(body.resumed).toBe(0);
    upstreamSocket!.resume();
    await eventually(() => body.resumed > 0);
    body.sink!.data(Buffer.from("END"));
    body.sink!.end([]);
    expect(await answer).toMatchObject({ status: 200 });
    expect(got).toBeGreaterThan(sent);
  });
});

describe("createHttp1Client() reading", () => {
  test("hands out interim answers, head, body and trailers", async () => {
    const upstream = await recordingUpstream(
      () =>
        "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 201 Made\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n" +
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
    );
    const answer = await send(newClient(), upstream.port);
    expect(answer).toMatchObject({
      status: 201,
      body: "abc",
      trailers: ["X", "y"],
      interims: [103],
    });
    expect(answer.head).toMatchObject({
      reason: "Made",
      fields: ["Set-Cookie", "a", "Set-Cookie", "b", "Transfer-Encoding", "chunked"],
    });
  });

  test("calls an answer that is not valid HTTP a protocol failure and drops the connection", async () => {
    const upstream = await recordingUpstream(
      () => "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    );
    const answer = await send(newClient(), upstream.port);
    expect(answer.failure?.kind).toBe("protocol");
    await upstream.waitUntil(() => upstream.closed.has(0));
  });

  test("tells a refused connection from a broken one", async () => {
    const port = await bareUpstream((socket) => socket.destroy());
    expect((await send(newClient(), port)).failure?.kind).toBe("reset");
    const server = net.createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port: unused } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    expect((await send(newClient(), unused)).failure?.kind).toBe("connect");
  });

  test("fails when the upstream breaks off within the body", async () => {
    const port = await bareUpstream((socket) =>
      socket.on("data", () =>
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", () =>
          socket.resetAndDestroy(),
        ),
      ),
    );
    const answer = await send(newClient(), port);
    expect(answer).toMatchObject({ status: 200, failure: { kind: "reset" } });
  });

  test("gives up on an upstream that stays silent, before the head and within the body", async () => {
    const silent = await bareUpstream((socket) => socket.resume());
    const halting = await bareUpstream((socket) =>
      socket.on("data", () => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")),
    );
    const limits = { ...LIMITS, idleMs: 200 };
    expect((await send(newClient(), silent, { limits })).failure?.kind).toBe("timeout");
    expect((await send(newClient(), halting, { limits })).failure?.kind).toBe("timeout");
  });

  test("does not count the time in which its own body is slow", async () => {
    const upstream = await recordingUpstream();
    const body = handBody(1);
    const answer = send(newClient(), upstream.port, {
      method: "POST",
      body,
      limits: { ...LIMITS, idleMs: 200 },
    });
    await new Promise((resolve) => setTimeout(resolve, 600));
    body.sink?.data(Buffer.from("x"));
    body.sink?.end([]);
    expect(await answer).toMatchObject({ status: 200, failure: null });
  });

  test("does not count the time in which its reader holds back, and reads on when told", async () => {
    const size = 8 * 1024 * 1024;
    const port = await bareUpstream((socket) =>
      socket.on("data", () => {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
        socket.write(Buffer.alloc(size, 97));
      }),
    );
    let call: OutgoingCall | null = null;
    let held = 0;
    let seen = 0;
    const answer = await send(
      newClient(),
      port,
      { limits: { ...LIMITS, idleMs: 200 } },
      (started) => (call = started),
      (chunk) => {
        seen += chunk.length;
        if (held < 3) {
          held++;
          const before = seen;
          setTimeout(() => {
            expect(seen).toBe(before); // nothing while held back
            call?.resume();
          }, 400);
          return false;
        }
        return true;
      },
    );
    expect(answer.failure).toBeNull();
    expect(answer.body.length).toBe(size);
  });

  test("abort ends the connection and says nothing more", async () => {
    const upstream = await recordingUpstream(() => null);
    let heard = false;
    const client = newClient();
    const call = client.send(
      {
        origin: { kind: "tcp", host: "127.0.0.1", port: upstream.port },
        method: "GET",
        target: "/",
        fields: [],
        body: null,
        limits: LIMITS,
      },
      {
        interim() {},
        head: () => (heard = true),
        data: () => (heard = true),
        end: () => (heard = true),
        tunnel() {},
        fail: () => (heard = true),
      },
    );
    await upstream.waitForRequests(1);
    call.abort();
    call.abort();
    await upstream.waitUntil(() => upstream.closed.has(0));
    expect(heard).toBe(false);
  });

  test("delivers an answer that comes before the upload ended, stops the upload and drops the connection", async () => {
    let socket: net.Socket | null = null;
    const upstream = await recordingUpstream(undefined, (_head, sender) => {
      socket = sender;
      sender.write("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
    });
    const body = handBody(1_000_000);
    const answer = await send(newClient(), upstream.port, { method: "POST", body });
    expect(answer).toMatchObject({ status: 413, body: "big", failure: null });
    expect(body.cancelled).toBe(true);
    expect(socket).not.toBeNull();
    await upstream.waitUntil(() => upstream.closed.has(0));
  });

  test("delivers an early answer although the upstream hangs up at once, with the upload unread", async () => {
    const port = await bareUpstream((socket) =>
      socket.once("data", () => {
        socket.write("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
        socket.destroy(); // a reset, because bytes were not read
      }),
    );
    const client = newClient();
    const piece = Buffer.alloc(65_536, 97);
    for (let round = 0; round < 20; round++) {
      const body = handBody(64 * 1024 * 1024);
      const answer = send(client, port, { method: "POST", body });
      await eventually(() => body.sink !== null);
      while (!body.cancelled) {
        body.sink!.data(piece);
        await new Promise((resolve) => setImmediate(resolve));
      }
      expect(await answer).toMatchObject({ status: 413, body: "big", failure: null });
    }
  });

  test("goes on uploading behind an early 200", async () => {
    const port = await bareUpstream((socket) => {
      let head = false;
      socket.on("data", (chunk) => {
        if (!head) {
          head = true;
          socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        } else {
          socket.write(`${chunk.length.toString(16)}\r\n`);
          socket.write(chunk);
          socket.write("\r\n");
        }
        if (chunk.includes("last")) {
          socket.write("0\r\n\r\n");
        }
      });
    });
    const body = handBody(8);
    const answer = send(newClient(), port, { method: "POST", body });
    await eventually(() => body.sink !== null);
    await new Promise((resolve) => setTimeout(resolve, 50));
    body.sink!.data(Buffer.from("echo"));
    await new Promise((resolve) => setTimeout(resolve, 50));
    body.sink!.data(Buffer.from("last"));
    body.sink!.end([]);
    expect(await answer).toMatchObject({ body: "echolast", failure: null });
  });

  test("a source that breaks off takes the connection with it", async () => {
    const upstream = await recordingUpstream();
    const body = handBody(10);
    const answer = send(newClient(), upstream.port, { method: "POST", body });
    await upstream.waitUntil(() => upstream.bytes.length === 1 && upstream.bytes[0] !== "");
    body.sink?.data(Buffer.from("abc"));
    body.sink?.fail(new Error("gone"));
    expect((await answer).failure?.kind).toBe("body");
    await upstream.waitUntil(() => upstream.closed.has(0));
    expect(upstream.requests).toHaveLength(0);
  });
});

describe("createHttp1Client() connections", () => {
  test("uses a connection again after a complete exchange, the last used first", async () => {
    const upstream = await recordingUpstream();
    const client = newClient();
    await Promise.all([send(client, upstream.port), send(client, upstream.port)]);
    expect(upstream.sockets).toHaveLength(2);
    for (let i = 0; i < 5; i++) {
      await send(client, upstream.port);
    }
    expect(upstream.sockets).toHaveLength(2);
    expect(new Set(upstream.requests.slice(2).map((request) => request.connection)).size).toBe(1);
  });

  test.for<[string, string]>([
    ["Connection: close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"],
    ["HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"],
    ["bytes behind the answer", `${OK}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison`],
    [
      "Keep-Alive: timeout=0",
      "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\nContent-Length: 2\r\n\r\nok",
    ],
  ])("does not use a connection again after %s", async ([, bytes]) => {
    const upstream = await recordingUpstream(() => bytes);
    const client = newClient();
    for (let i = 1; i <= 3; i++) {
      expect(await send(client, upstream.port)).toMatchObject({ body: "ok" });
      expect(upstream.sockets).toHaveLength(i);
    }
  });

  test("drops a connection on which bytes come without a request", async () => {
    const upstream = await recordingUpstream();
    const client = newClient();
    await send(client, upstream.port);
    upstream.sockets[0]?.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison");
    await upstream.waitUntil(() => upstream.closed.has(0));
    expect(await send(client, upstream.port)).toMatchObject({ body: "ok" });
    expect(upstream.sockets).toHaveLength(2);
  });

  test("drops idle connections after their time, sooner when the upstream says so", async () => {
    const announced = await recordingUpstream(
      () => `HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 0\r\n\r\n`,
    );
    const plain = await recordingUpstream();
    const client = newClient({ idleMs: 300 });
    await send(client, announced.port);
    await announced.waitUntil(() => announced.closed.has(0));
    await send(client, plain.port);
    await plain.waitUntil(() => plain.closed.has(0));
  });

  test("keeps no more idle connections than it may", async () => {
    const upstream = await recordingUpstream();
    const client = newClient({ maxIdlePerOrigin: 2 });
    await Promise.all(Array.from({ length: 5 }, () => send(client, upstream.port)));
    await upstream.waitUntil(() => upstream.closed.size >= 3);
    expect(upstream.closed.size).toBe(3);
  });

  test("close() ends idle connections", async () => {
    const upstream = await recordingUpstream();
    const client = newClient();
    await send(client, upstream.port);
    client.close();
    await upstream.waitUntil(() => upstream.closed.has(0));
  });

  /** Answers the first request of each connection, and hangs up when the second one arrives. */
  async function fickleUpstream(): Promise<{ port: number; heads: string[] }> {
    const heads: string[] = [];
    const port = await bareUpstream((socket) => {
      let count = 0;
      socket.on("data", (chunk) => {
        heads.push(chunk.toString("latin1").split("\r\n", 1)[0] ?? "");
        if (++count === 1) {
          socket.write(OK);
        } else {
          socket.resetAndDestroy();
        }
      });
    });
    return { port, heads };
  }

  test("sends a request again, once, when a reused connection dies without a byte", async () => {
    const { port, heads } = await fickleUpstream();
    const client = newClient();
    await send(client, port);
    expect(await send(client, port, { target: "/again" })).toMatchObject({
      status: 200,
      body: "ok",
    });
    expect(heads).toEqual(["GET / HTTP/1.1", "GET /again HTTP/1.1", "GET /again HTTP/1.1"]);
  });

  test.for(["POST", "PATCH", "LOCK"])("never sends a %s twice", async (method) => {
    const { port, heads } = await fickleUpstream();
    const client = newClient();
    await send(client, port);
    expect((await send(client, port, { method })).failure?.kind).toBe("reset");
    expect(heads).toHaveLength(2);
  });

  test("never sends a body twice", async () => {
    const { port, heads } = await fickleUpstream();
    const client = newClient();
    await send(client, port);
    expect(
      (await send(client, port, { method: "PUT", body: fixedBody(["abc"], 3) })).failure?.kind,
    ).toBe("reset");
    expect(heads).toHaveLength(2);
  });

  test("does not send again on a connection that was new, or after the first byte of an answer", async () => {
    let connections = 0;
    const dying = await bareUpstream((socket) => {
      connections++;
      socket.on("data", () => socket.resetAndDestroy());
    });
    expect((await send(newClient(), dying)).failure?.kind).toBe("reset");
    expect(connections).toBe(1);
    const heads: string[] = [];
    const stuttering = await bareUpstream((socket) => {
      let count = 0;
      socket.on("data", (chunk) => {
        heads.push(chunk.toString("latin1"));
        socket.write(
          ++count === 1 ? OK : "HTTP/1.1 2",
          () => count > 1 && setTimeout(() => socket.destroy(), 50),
        );
      });
    });
    const client = newClient();
    await send(client, stuttering);
    expect((await send(client, stuttering)).failure?.kind).toBe("reset");
    expect(heads).toHaveLength(2);
  });
});
