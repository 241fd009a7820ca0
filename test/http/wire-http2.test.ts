import http2, {
  type ClientHttp2Session,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from "node:http2";
import { describe, expect, onTestFinished, test } from "vitest";
import { block, frame, GET, PREFACE, readFrames } from "../support/http2-frames.ts";
import { rawClient, type RawClient } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";
import { eventually, startWireEdge } from "../support/wire-edge.ts";

function connect(port: number): ClientHttp2Session {
  const session = http2.connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
  session.on("error", () => {});
  onTestFinished(() => session.destroy());
  return session;
}

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly interims: number[];
  readonly trailers: IncomingHttpHeaders;
  readonly body: string;
  readonly reset: number;
}

function ask(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  body?: string | null,
  trailers?: OutgoingHttpHeaders,
): Promise<Answer> {
  return new Promise((resolve) => {
    const stream = session.request(headers, {
      endStream: body === undefined,
      waitForTrailers: trailers !== undefined,
    });
    let answer: { headers: IncomingHttpHeaders; trailers: IncomingHttpHeaders } = {
      headers: {},
      trailers: {},
    };
    const interims: number[] = [];
    let text = "";
    stream.on("headers", (interim) => void interims.push(Number(interim[":status"])));
    stream.on("response", (received) => (answer = { ...answer, headers: received }));
    stream.on("trailers", (received) => (answer = { ...answer, trailers: received }));
    stream.on("wantTrailers", () => stream.sendTrailers(trailers ?? {}));
    stream.on("data", (chunk: Buffer) => (text += chunk.toString("latin1")));
    stream.on("error", () => {});
    stream.on("close", () =>
      resolve({
        ...answer,
        status: Number(answer.headers[":status"] ?? 0),
        interims,
        body: text,
        reset: stream.rstCode ?? 0,
      }),
    );
    if (body !== undefined && body !== null) {
      stream.end(body);
    }
  });
}

describe("HTTP/2 requests", () => {
  test("become exchanges and reach the upstream as HTTP/1.1, Host from :authority and cookies joined", async () => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port, { secure: true });
    const session = connect(edge.port);
    const answer = await ask(
      session,
      {
        ":method": "POST",
        ":path": "/a/../b%zz?x=\\@",
        ":authority": "a.example",
        cookie: ["a=1", "b=2"],
        "x-real-ip": "6.6.6.6",
        te: "trailers",
        "x-h": "\xe4",
      },
      "hello",
    );
    expect(answer).toMatchObject({ status: 200, body: "ok", reset: 0 });
    expect(upstream.requests[0]).toMatchObject({
      method: "POST",
      target: "/a/../b%zz?x=\\@",
      body: "hello",
    });
    expect(upstream.requests[0]?.lines).toEqual([
      "host: a.example",
      "x-h: \xe4",
      "cookie: a=1; b=2",
      "X-Real-IP: 127.0.0.1",
      "X-Forwarded-For: 127.0.0.1",
      "X-Forwarded-Proto: https",
      "Transfer-Encoding: chunked",
    ]);
    expect(edge.exchanges[0]?.head.version).toBe("2");
    expect(edge.exchanges[0]?.peer).toMatchObject({ address: "127.0.0.1", encrypted: true });
  });

  test("keep a declared length, have no body when the stream ends with its head, pass trailers on", async () => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port, { secure: true });
    const session = connect(edge.port);
    await ask(session, { ":method": "PUT", "content-length": 3 }, "abc");
    await ask(session, { ":method": "DELETE" });
    await ask(session, { ":method": "POST" }, "x", { "x-t": "1", "x-real-ip": "6" });
    const framing = upstream.requests.map((request) =>
      request.lines.filter((line) => /^(content-length|transfer-encoding)/i.test(line)),
    );
    expect(framing).toEqual([["Content-Length: 3"], [], ["Transfer-Encoding: chunked"]]);
    expect(upstream.requests[2]?.trailers).toEqual(["x-t: 1"]);
    expect(upstream.sockets).toHaveLength(1);
  });

  test.for<[string, OutgoingHttpHeaders, number]>([
    [
      "a Host that disagrees with :authority",
      { ":authority": "a.example", host: "b.example" },
      400,
    ],
    ["another expectation", { expect: "magic" }, 417],
    ["a long target", { ":path": `/${"a".repeat(17_000)}` }, 414],
    ["a long head", { "x-long": "a".repeat(33_000) }, 431],
    [
      "too many lines",
      Object.fromEntries(Array.from({ length: 210 }, (_, index) => [`x-${index}`, "y"])),
      431,
    ],
    ["a target that is a URL", { ":path": "http://a.example/" }, 400],
    ["an asterisk for GET", { ":path": "*" }, 400],
  ])("are refused for %s", async ([, headers, status]) => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port, { secure: true });
    const answer = await ask(connect(edge.port), {
      ":path": "/",
      ":authority": "a.example",
      ...headers,
    });
    // nghttp2 itself resets what is no valid :path
    expect(answer.status === status || (answer.status === 0 && answer.reset !== 0)).toBe(true);
    expect(upstream.sockets).toEqual([]);
  });

  test("a Host that agrees is taken once", async () => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port, { secure: true });
    const answer = await ask(connect(edge.port), {
      ":path": "/",
      ":authority": "A.example:443",
      host: "a.example",
    });
    expect(answer.status).toBe(200);
    expect(upstream.requests[0]?.lines.filter((line) => /^host:/i.test(line))).toEqual([
      "host: A.example:443",
    ]);
  });

  test("get one 100 when they wait for it", async () => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port, { secure: true });
    const session = connect(edge.port);
    const stream = session.request({
      ":method": "PUT",
      expect: "100-continue",
      "content-length": 3,
    });
    await new Promise((resolve) => stream.once("continue", resolve));
    stream.end("abc");
    await upstream.waitForRequests(1);
    expect(upstream.requests[0]?.lines.some((line) => /^expect/i.test(line))).toBe(false);
  });

  test("whose body is not as long as declared never become a complete message", async () => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port, { secure: true });
    for (const length of [2, 9]) {
      const answer = await ask(
        connect(edge.port),
        { ":method": "PUT", "content-length": length },
        "abc",
      );
      expect(answer.status).toBe(0);
    }
    expect(upstream.requests).toEqual([]);
  });
});

describe("HTTP/2 answers", () => {
  test("pass interim answers, repeated fields, high bytes and trailers on; connection fields are gone", async () => {
    const upstream = await recordingUpstream(
      () =>
        "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 Fine\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nX-H: \xe4\r\nConnection: X-Hop\r\n" +
        "X-Hop: 1\r\nKeep-Alive: timeout=5\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
    );
    const edge = await startWireEdge(upstream.port, { secure: true });
    const answer = await ask(connect(edge.port), { ":path": "/" });
    expect(answer).toMatchObject({ status: 200, body: "abc", interims: [103] });
    expect(answer.headers).toMatchObject({ "set-cookie": ["a", "b"], "x-h": "\xe4" });
    expect(answer.trailers).toMatchObject({ "x-t": "1" });
    for (const name of [
      "connection",
      "x-hop",
      "keep-alive",
      "transfer-encoding",
      "content-length",
    ]) {
      expect(answer.headers[name]).toBeUndefined();
    }
  });

  test("with fields that HTTP/2 allows once are a 502; such interim answers and trailers are left out", async () => {
    const twice = "Content-Type: a\r\nContent-Type: b\r\nETag: 1\r\nETag: 2\r\n";
    const upstream = await recordingUpstream((request) =>
      request.target === "/final"
        ? `HTTP/1.1 200 OK\r\n${twice}Content-Length: 0\r\n\r\n`
        : `HTTP/1.1 103 Early Hints\r\n${twice}\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nETag: 1\r\nETag: 2\r\n\r\n`,
    );
    const edge = await startWireEdge(upstream.port, { secure: true });
    const session = connect(edge.port);
    expect((await ask(session, { ":path": "/final" })).status).toBe(502);
    expect(await ask(session, { ":path": "/" })).toMatchObject({
      status: 200,
      body: "x",
      reset: 0,
    });
  });

  test("have the lengths of HEAD and 304, no body for them and 204", async () => {
    const upstream = await recordingUpstream((request) =>
      request.target === "/204"
        ? "HTTP/1.1 204 No Content\r\n\r\n"
        : `HTTP/1.1 ${request.target === "/304" ? "304 Not Modified" : "200 OK"}\r\nContent-Length: 5\r\n\r\n`,
    );
    const edge = await startWireEdge(upstream.port, { secure: true });
    const session = connect(edge.port);
    expect(
      (await ask(session, { ":method": "HEAD", ":path": "/" })).headers["content-length"],
    ).toBe("5");
    expect(await ask(session, { ":path": "/304" })).toMatchObject({
      status: 304,
      body: "",
      reset: 0,
    });
    expect(await ask(session, { ":path": "/204" })).toMatchObject({
      status: 204,
      body: "",
      reset: 0,
    });
  });

  test("are reset when the upstream breaks off within the body, 502 before it", async () => {
    const upstream = await recordingUpstream((request, socket) => {
      socket.write(
        request.target === "/body" ? "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc" : "",
      );
      setTimeout(() => socket.destroy(), 50);
      return null;
    });
    const edge = await startWireEdge(upstream.port, { secure: true });
    const session = connect(edge.port);
    const cut = await ask(session, { ":path": "/body" });
    expect(cut).toMatchObject({ status: 200, body: "abc" });
    expect(cut.reset).not.toBe(0);
    expect(await ask(session, { ":path": "/" })).toMatchObject({ status: 502, reset: 0 });
  });

  test("that come before the upload ended arrive whole, and the stream ends", async () => {
    const upstream = await recordingUpstream(undefined, (_head, socket) => {
      socket.write("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
    });
    const edge = await startWireEdge(upstream.port, { secure: true });
    const answer = await ask(connect(edge.port), { ":method": "POST", ":path": "/" }, null);
    expect(answer).toMatchObject({ status: 413, body: "big", reset: 0 });
  });

  test("8 MiB arrive whole both ways, and a slow reader stops the upstream", async () => {
    const size = 8 * 1024 * 1024;
    const upstream = await recordingUpstream((request) =>
      Buffer.concat([
        Buffer.from(`HTTP/1.1 200 OK\r\nContent-Length: ${request.body.length}\r\n\r\n`),
        Buffer.from(request.body, "latin1"),
      ]),
    );
    const edge = await startWireEdge(upstream.port, { secure: true });
    const answer = await ask(
      connect(edge.port),
      { ":method": "POST", ":path": "/" },
      "x".repeat(size),
    );
    expect(answer.body.length).toBe(size);
  });
});

describe("HTTP/2 clients that leave", () => {
  test.for<[string, string | null]>([
    ["waits", null],
    ["streams", "HTTP/1.1 200 OK\r\n\r\nevent"],
  ])("end the upstream request while the edge %s", async ([, sent]) => {
    const upstream = await recordingUpstream(() => sent);
    const edge = await startWireEdge(upstream.port, { secure: true });
    const session = connect(edge.port);
    const stream = session.request({ ":path": "/" });
    stream.on("error", () => {});
    await upstream.waitForRequests(1);
    await new Promise((resolve) => setTimeout(resolve, 50));
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await upstream.waitUntil(() => upstream.closed.has(0));
    await eventually(() => edge.outcomes.length === 1);
    expect(edge.outcomes[0]).toMatchObject({ kind: "client_gone" });
    const other = session.request({ ":path": "/" });
    other.on("error", () => {});
    await upstream.waitForRequests(2);
    session.destroy();
    await upstream.waitUntil(() => upstream.closed.has(1));
  });

  test("drain() announces the end and lets running streams finish", async () => {
    const upstream = await recordingUpstream((_request, socket) => {
      setTimeout(() => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate"), 200);
      return null;
    });
    const edge = await startWireEdge(upstream.port, { secure: true });
    const session = connect(edge.port);
    const answer = ask(session, { ":path": "/" });
    await upstream.waitForRequests(1);
    const closed = new Promise((resolve) => session.once("close", resolve));
    edge.wire.drain();
    expect(await answer).toMatchObject({ status: 200, body: "late", reset: 0 });
    await closed;
  });
});

describe("HTTP/2 WebSocket by extended CONNECT", () => {
  const CONNECT = {
    ":method": "CONNECT",
    ":protocol": "websocket",
    ":path": "/ws?x",
    ":scheme": "https",
    ":authority": "a.example",
  };
  const SWITCH =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: one\r\n\r\n";

  async function ready(port: number): Promise<ClientHttp2Session> {
    const session = connect(port);
    await new Promise((resolve) => session.once("remoteSettings", resolve));
    expect(session.remoteSettings?.enableConnectProtocol).toBe(true);
    return session;
  }

  test("is a tunnel to an HTTP/1.1 upstream", async () => {
    const upstream = await recordingUpstream((_request, socket) => {
      socket.removeAllListeners("data");
      socket.on("data", (chunk) => socket.write(`<${chunk.toString()}>`));
      return `${SWITCH}early`;
    });
    const edge = await startWireEdge(upstream.port, { secure: true });
    const session = await ready(edge.port);
    const stream = session.request({
      ...CONNECT,
      "sec-websocket-version": "13",
      "sec-websocket-protocol": "one",
    });
    let text = "";
    stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
    const headers = await new Promise<IncomingHttpHeaders>((resolve) =>
      stream.once("response", resolve),
    );
    expect(headers).toMatchObject({ ":status": 200, "sec-websocket-protocol": "one" });
    expect(headers["sec-websocket-accept"]).toBeUndefined();
    stream.write("hello");
    await eventually(() => text === "early<hello>");
    expect(upstream.requests[0]).toMatchObject({ method: "GET", target: "/ws?x" });
    const lines = upstream.requests[0]?.lines ?? [];
    expect(lines).toContain("host: a.example");
    expect(lines).toContain("Upgrade: websocket");
    expect(lines.some((line) => /^sec-websocket-key: [A-Za-z0-9+/]{22}==$/.test(line))).toBe(true);
    stream.end();
    await upstream.waitUntil(() => upstream.closed.has(0));
    await eventually(() => edge.outcomes.length === 1);
    expect(edge.outcomes[0]).toMatchObject({ kind: "closed", bytesUp: 5 });
  });

  test("closes when the upstream closes, without hurting other streams", async () => {
    const upstream = await recordingUpstream((request) =>
      request.target.startsWith("/ws") ? SWITCH : "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    const edge = await startWireEdge(upstream.port, { secure: true });
    const session = await ready(edge.port);
    const stream = session.request(CONNECT);
    stream.resume().on("error", () => {});
    await new Promise((resolve) => stream.once("response", resolve));
    const closed = new Promise((resolve) => stream.once("close", resolve));
    upstream.sockets[0]?.resetAndDestroy();
    await closed;
    expect(await ask(session, { ":path": "/" })).toMatchObject({ status: 200, body: "ok" });
  });

  test("passes a refusal on", async () => {
    const upstream = await recordingUpstream(
      () => "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone",
    );
    const edge = await startWireEdge(upstream.port, { secure: true });
    const session = await ready(edge.port);
    const stream = session.request(CONNECT);
    let text = "";
    stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
    const headers = await new Promise<IncomingHttpHeaders>((resolve) =>
      stream.once("response", resolve),
    );
    expect(headers[":status"]).toBe(404);
    await new Promise((resolve) => stream.once("end", resolve));
    expect(text).toBe("none");
  });

  test.for<[string, OutgoingHttpHeaders]>([
    ["another protocol", { ...CONNECT, ":protocol": "connect-udp" }],
    ["a plain CONNECT", { ":method": "CONNECT", ":authority": "a.example:443" }],
  ])("%s is refused", async ([, headers]) => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port, { secure: true });
    const stream = (await ready(edge.port)).request(headers);
    stream.on("error", () => {});
    const answer = await new Promise<IncomingHttpHeaders>((resolve) =>
      stream.once("response", resolve),
    );
    expect(answer[":status"]).toBe(400);
    stream.destroy();
    expect(upstream.sockets).toEqual([]);
  });
});

describe("HTTP/2 frames that no client sends", () => {
  const RST = 3;
  const GOAWAY = 7;
  const END_HEADERS = 4;
  const END = 5; // END_HEADERS and END_STREAM

  async function raw(port: number): Promise<RawClient> {
    const client = await rawClient(port, { tls: { ALPNProtocols: ["h2"] } });
    client.send(PREFACE);
    return client;
  }
  const refused = (client: RawClient): boolean =>
    readFrames(client.received()).some(({ type }) => type === RST || type === GOAWAY);

  test.for<[string, readonly (readonly [string, string])[]]>([
    ["a Connection field", [...GET, ["connection", "close"]]],
    ["a Transfer-Encoding field", [...GET, ["transfer-encoding", "chunked"]]],
    ["an Upgrade field", [...GET, ["upgrade", "websocket"]]],
    ["a name in capitals", [...GET, ["X-Upper", "1"]]],
    ["two paths", [...GET, [":path", "/admin"]]],
    ["a pseudo field behind others", [["x", "1"], ...GET]],
    ["no path", GET.filter(([name]) => name !== ":path")],
    ["an empty path", GET.map(([name, value]) => [name, name === ":path" ? "" : value] as const)],
    ["an unknown pseudo field", [...GET, [":magic", "1"]]],
    [
      "a blank in the method",
      GET.map(([name, value]) => [name, name === ":method" ? "GET /x" : value] as const),
    ],
    ["a length that does not fit", [...GET, ["content-length", "5"]]],
    ["two lengths", [...GET, ["content-length", "0"], ["content-length", "0"]]],
  ])("%s is refused and nothing is sent on", async ([, lines]) => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port, { secure: true });
    const client = await raw(edge.port);
    client.send(frame("headers", END, 1, block(lines)));
    client.send(frame("headers", END, 3, block(GET)));
    await eventually(() => refused(client) || upstream.requests.length > 0);
    expect(refused(client)).toBe(true);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(upstream.requests.length).toBeLessThan(2); // the second stream is a good one
  });

  test.for<[string, readonly [string, string]]>([
    ["a name with a colon", ["x:y", "1"]],
    ["a line break in a value", ["x", "a\r\nb: c"]],
    ["NUL in a value", ["x", "a\0b"]],
  ])("a field with %s is not sent on", async ([, line]) => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port, { secure: true });
    const client = await raw(edge.port);
    client.send(frame("headers", END, 1, block([...GET, line])));
    client.send(frame("headers", END, 3, block(GET)));
    await upstream.waitForRequests(1);
    expect(upstream.bytes.join("")).not.toMatch(/x:y|b: c|\0/);
  });

  test.for<[string, (client: RawClient) => void]>([
    [
      "streams taken back at once",
      (client) => {
        for (let stream = 1; stream < 4001; stream += 2) {
          client.send(
            Buffer.concat([
              frame("headers", END, stream, block(GET)),
              frame("reset", 0, stream, Buffer.from([0, 0, 0, 8])),
            ]),
          );
        }
      },
    ],
    [
      "an endless head in continuations",
      (client) => {
        client.send(frame("headers", 1, 1, block(GET)));
        for (let i = 0; i < 3000; i++) {
          client.send(frame("continuation", 0, 1, block([[`x-${i}`, "y".repeat(100)]])));
        }
      },
    ],
    [
      "empty continuations",
      (client) => {
        client.send(frame("headers", 1, 1, block(GET)));
        for (let i = 0; i < 5000; i++) {
          client.send(frame("continuation", 0, 1));
        }
      },
    ],
    [
      "streams beyond the limit",
      (client) => {
        for (let stream = 1; stream < 2001; stream += 2) {
          client.send(
            frame("headers", END_HEADERS, stream, block([...GET.slice(1), [":method", "POST"]])),
          );
        }
      },
    ],
  ])("%s end the connection or are refused, and the next client is served", async ([, flood]) => {
    const upstream = await recordingUpstream(() => null);
    const edge = await startWireEdge(upstream.port, { secure: true });
    const client = await raw(edge.port);
    flood(client);
    await eventually(
      () => refused(client) || client.socket.destroyed || client.socket.readableEnded,
    );
    expect(upstream.requests.length).toBeLessThan(600);
    client.socket.destroy();
    const good = connect(edge.port).request({ ":path": "/good" });
    good.on("error", () => {});
    await upstream.waitUntil(() => upstream.requests.some((request) => request.target === "/good"));
  });

  test.for<[string, Buffer]>([
    ["settings", frame("settings", 0, 0)],
    ["pings", frame("ping", 0, 0, Buffer.alloc(8))],
  ])("a flood of %s from a client that does not read is bounded", async ([, bytes]) => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port, { secure: true });
    const client = await raw(edge.port);
    client.socket.pause();
    const many = Buffer.concat(Array.from({ length: 500 }, () => bytes));
    for (let i = 0; i < 200 && !client.socket.destroyed; i++) {
      client.socket.write(many);
      await new Promise((resolve) => setImmediate(resolve));
    }
    client.socket.destroy();
    expect(await ask(connect(edge.port), { ":path": "/" })).toMatchObject({ status: 200 });
  });

  test.for([8, 0])(
    "an upload that is reset with code %i never becomes a complete message",
    async (code) => {
      const upstream = await recordingUpstream();
      const edge = await startWireEdge(upstream.port, { secure: true });
      const client = await raw(edge.port);
      client.send(frame("headers", END_HEADERS, 1, block([...GET.slice(1), [":method", "POST"]])));
      client.send(frame("data", 0, 1, Buffer.from("abc")));
      await upstream.waitUntil(() => (upstream.bytes[0] ?? "").includes("abc"));
      client.send(frame("reset", 0, 1, Buffer.from([0, 0, 0, code])));
      await upstream.waitUntil(() => upstream.closed.has(0));
      expect(upstream.requests).toEqual([]);
      await eventually(() => edge.outcomes.length === 1);
      expect(edge.outcomes[0]).toMatchObject({ kind: "client_gone" });
    },
  );

  test("a connection without a request is closed after headMs", async () => {
    const edge = await startWireEdge(9, { secure: true, limits: { headMs: 300 } });
    const client = await raw(edge.port);
    await client.closed();
  });
});
