import http2, { type ClientHttp2Session, type OutgoingHttpHeaders } from "node:http2";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { CONTAINER } from "../support/edge.ts";
import { head, namesOf, SWITCH, until } from "../support/faults.ts";
import { type FaultEdge, startFaultEdge } from "../support/fault-routes.ts";
import { rawClient } from "../support/raw-client.ts";
import type { Responder } from "../support/recording-upstream.ts";

/** K02 to K14 once more over HTTP/2: another wire, the same gates. */

const TLS = join(import.meta.dirname, "../cases/tls");

async function secureEdge(
  respond?: Responder,
  limits: Record<string, number> = {},
): Promise<FaultEdge & { port: number; connect: () => Promise<ClientHttp2Session> }> {
  const faults = await startFaultEdge(respond, {
    config: {
      listen: { http: "127.0.0.1:0", https: "127.0.0.1:0" },
      tls: [{ cert: join(TLS, "one.cert.pem"), key: join(TLS, "one.key.pem"), hosts: ["*"] }],
      limits,
    },
  });
  const port = faults.edge.edge.addresses.https?.port ?? 0;
  const connect = async (): Promise<ClientHttp2Session> => {
    const session = http2.connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
    session.on("error", () => {});
    onTestFinished(() => session.destroy());
    await new Promise<void>((resolve) => session.once("remoteSettings", () => resolve()));
    return session;
  };
  return { ...faults, port, connect };
}

interface Answer {
  readonly status: number;
  readonly interims: number[];
  readonly headers: Record<string, unknown>;
  readonly body: string;
  readonly reset: number;
}

function ask(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  body?: string,
  trailers?: OutgoingHttpHeaders,
): Promise<Answer> {
  return new Promise((resolve) => {
    const stream = session.request(headers, {
      endStream: body === undefined,
      waitForTrailers: trailers !== undefined,
    });
    let final: Record<string, unknown> = {};
    let text = "";
    const interims: number[] = [];
    stream.on("headers", (interim) => interims.push(Number(interim[":status"])));
    stream.on("continue", () => {});
    stream.on("response", (received) => (final = received));
    stream.on("wantTrailers", () => stream.sendTrailers(trailers ?? {}));
    stream.on("data", (chunk: Buffer) => (text += chunk.toString("latin1")));
    stream.on("error", () => {});
    stream.on("close", () =>
      resolve({
        status: Number(final[":status"] ?? 0),
        interims,
        headers: final,
        body: text,
        reset: stream.rstCode ?? 0,
      }),
    );
    if (body !== undefined) {
      stream.end(Buffer.from(body, "latin1"));
    }
  });
}

test("one valid authority, in any equal spelling, and nothing beside it", async () => {
  const { edge, upstream, connect } = await secureEdge();
  const session = await connect();
  const host = edge.host("terminal-1");
  const other = edge.host("files-1");
  const ways: readonly (readonly [string, OutgoingHttpHeaders, number])[] = [
    ["plain", { ":authority": host }, 200],
    ["capitals, dot and port", { ":authority": `${host.toUpperCase()}.:443` }, 200],
    ["an agreeing Host", { ":authority": host, host: host.toUpperCase() }, 200],
    ["another Host", { ":authority": host, host: other }, 400],
    ["an empty one", { ":authority": "" }, 400],
    ["user information", { ":authority": `u@${host}` }, 400],
    ["a path", { ":authority": `${host}/x` }, 400],
    ["a list", { ":authority": `${host},${host}` }, 404],
    ["a bad port", { ":authority": `${host}:x` }, 400],
    ["unknown", { ":authority": "nobody.example" }, 404],
    ["a plain-port authority", { ":authority": host, ":scheme": "http" }, 200],
  ];
  for (const [name, headers, status] of ways) {
    const answer = await ask(session, { ":path": "/x", ...headers });
    // What the HTTP/2 library itself refuses has no status: the stream is reset.
    const refused = answer.status === 0 && answer.reset !== 0 ? 400 : answer.status;
    expect([name, refused]).toEqual([name, status]);
  }
  const hosts = upstream.requests.map(({ lines }) =>
    lines.filter((line) => /^host:/i.test(line)).map((line) => line.slice(6)),
  );
  expect(hosts).toEqual([[host], [`${host.toUpperCase()}.:443`], [host], [host]]);
});

test("guarded paths keep their guard in every spelling, and odd targets are 400", async () => {
  const { edge, upstream, connect } = await secureEdge();
  edge.script("gate.js", "module.exports = (req, res) => { res.statusCode = 401; res.end(); };");
  await edge.hook("terminal", {
    match: { path: "/admin*" },
    script: { path: "/gate" },
    timeout: 15_000,
  });
  const session = await connect();
  const authority = { ":authority": edge.host("terminal-1") };
  for (const path of [
    "/admin",
    "/%61dmin",
    "//admin/x",
    "/x/../admin",
    "/x/%2e%2e/admin",
    "/x/..%2fadmin",
    "/x\\..\\admin",
    "/%2561dmin",
    "/x//../admin",
    "/admin/%2e%2e/x",
    "/x/../admin/..%2fy",
    "/admin#x",
  ]) {
    expect([path, (await ask(session, { ...authority, ":path": path })).status]).toEqual([
      path,
      401,
    ]);
  }
  for (const path of ["/\xe4", "*", "http://x/admin", "x", "/a b", "/a\tb"]) {
    const { status, reset } = await ask(session, { ...authority, ":path": path });
    expect([path, status === 400 || reset !== 0]).toEqual([path, true]);
  }
  for (const method of ["get", "GET ", "CONNECT", "G/T"]) {
    const other = await connect();
    const { status, reset } = await ask(other, {
      ...authority,
      ":path": "/admin",
      ":method": method,
    }).catch(() => ({ status: 0, reset: 1 }));
    expect([method, status === 400 || reset !== 0]).toEqual([method, true]);
  }
  expect(upstream.bytes).toEqual([]);
}, 30_000);

test("reserved fields never arrive, in head or trailers, and the edge says https", async () => {
  const faults = await secureEdge();
  const { edge, upstream, connect } = faults;
  const session = await connect();
  const forged = {
    "x-hoody-hook-auth": "a",
    x_hoody_hook_path: "a",
    "x-hoody-identity-user-id": "a",
    "x-hoody-edge-auth": "a",
    forwarded: "for=6.6.6.6",
    "x-forwarded-for": "6.6.6.6",
    x_forwarded_proto: "http",
    "x-forwarded-host": "evil",
    "x-real-ip": "6.6.6.6",
    x_real_ip: "6.6.6.6",
    te: "trailers",
    "x-hoody-cwd": "/srv",
  };
  for (const path of ["/plain", "/pass", "/piped"]) {
    const answer = await ask(
      session,
      {
        ":authority": edge.host("terminal-1"),
        ":method": "POST",
        ":path": path,
        ...forged,
        cookie: ["a=1", "b=2"],
      },
      "body",
      { ...forged, te: undefined, "x-sum": "1" },
    );
    expect([path, answer.status]).toEqual([path, 200]);
    const request = upstream.requests.at(-1);
    const reserved = request?.lines.filter((line) =>
      /^(?:x[-_]hoody[-_](?!cwd)|forwarded|x[-_]forwarded|x[-_]real|te:)/i.test(line),
    );
    expect([path, reserved]).toEqual([
      path,
      ["X-Real-IP: 127.0.0.1", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: https"],
    ]);
    expect(
      request?.lines.filter((line) => /^cookie:/i.test(line)).map((line) => line.slice(8)),
    ).toEqual(["a=1; b=2"]);
    expect([
      path,
      request?.body,
      request?.trailers.filter((line) => !line.startsWith("x-sum")),
    ]).toEqual([path, "body", []]);
    expect(namesOf(request?.lines)).toContain("x-hoody-cwd");
  }
}, 30_000);

test("credentials meet the same checks", async () => {
  const { edge, upstream, connect } = await secureEdge();
  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions`;
  const stored = await edge.api(
    "PUT",
    path,
    {
      groups: {
        g: [
          { type: "token", cookie: "__Host-k", value: "v" },
          { type: "password", username: "u", password: "p", salt: "s" },
        ],
      },
      permissions: { g: { files: true, terminal: true } },
      default: "deny",
    },
    (await edge.api("GET", path)).etag ?? "",
  );
  expect(stored.status).toBe(200);
  const session = await connect();
  const authority = { ":authority": edge.host("terminal-1") };
  const basic = `Basic ${Buffer.from("u:p").toString("base64")}`;
  const cases: readonly (readonly [string, OutgoingHttpHeaders, number])[] = [
    ["none", {}, 401],
    ["basic", { authorization: basic }, 200],
    ["cookie crumbs", { cookie: ["a=b", "__Host-k=v"] }, 200],
    ["cookie twice over crumbs", { cookie: ["__Host-k=v", "__Host-k=v"] }, 401],
    ["a handshake without", { ":method": "CONNECT", ":protocol": "websocket" }, 401],
    ["wrong expectation", { expect: "200-ok", authorization: basic }, 417],
    [
      "two expectations",
      { expect: ["200-ok", "100-continue"] as unknown as string, authorization: basic },
      417,
    ],
  ];
  for (const [name, headers, status] of cases) {
    expect([
      name,
      (await ask(session, { ":path": "/x", ...authority, ...headers })).status,
    ]).toEqual([name, status]);
  }
  expect(upstream.requests).toHaveLength(2);
});

test("who waits for a 100 and is refused reads the refusal first; who is admitted gets one 100", async () => {
  const { edge, connect } = await secureEdge();
  edge.script(
    "deny.js",
    "// @rawBody\nmodule.exports = (req, res) => { res.statusCode = 401; res.end('no'); };",
  );
  await edge.hook("terminal", {
    match: { path: "/deny" },
    script: { path: "/deny" },
    timeout: 15_000,
  });
  const session = await connect();
  const wait = (path: string, authority: string, send: boolean) =>
    new Promise<{ continued: number; status: number }>((resolve) => {
      const stream = session.request({
        ":method": "POST",
        ":path": path,
        ":authority": authority,
        expect: "100-continue",
        "content-length": "4",
      });
      let continued = 0;
      let status = 0;
      stream.on("continue", () => {
        continued++;
        if (send) {
          stream.end("body");
        }
      });
      stream.on("response", (headers) => {
        status = Number(headers[":status"]);
        stream.on("end", () => {
          resolve({ continued, status });
          stream.close();
        });
        stream.resume();
      });
      stream.on("error", () => {});
      stream.on("close", () => resolve({ continued, status }));
    });
  expect(await wait("/plain", edge.host("terminal-1"), true)).toEqual({
    continued: 1,
    status: 200,
  });
  expect(await wait("/pass", edge.host("terminal-1"), true)).toEqual({ continued: 1, status: 200 });
  expect(await wait("/x", "nobody.example", false)).toEqual({ continued: 0, status: 404 });
  expect(await wait("/x", edge.host("logs-1"), false)).toEqual({ continued: 0, status: 403 });
  expect(await wait("/deny", edge.host("terminal-1"), false)).toEqual({
    continued: 0,
    status: 401,
  });
}, 30_000);

test("an extended CONNECT meets the hooks, becomes a tunnel with one key of ours, and ends with either side", async () => {
  const { edge, upstream, connect } = await secureEdge(() => SWITCH);
  const session = await connect();
  const socket = (path: string, more: OutgoingHttpHeaders = {}) =>
    session.request(
      {
        ":method": "CONNECT",
        ":protocol": "websocket",
        ":path": path,
        ":authority": edge.host("terminal-1"),
        "sec-websocket-version": "13",
        ...more,
      },
      { endStream: false },
    );
  for (const path of ["/pass", "/x/..%2fpass", "/%70ass"]) {
    const stream = socket(path);
    stream.on("error", () => {});
    const status = await new Promise((resolve) =>
      stream.on("response", (headers) => resolve(headers[":status"])),
    );
    expect([path, status]).toEqual([path, 403]);
    stream.close();
  }
  expect(upstream.bytes).toEqual([]);
  for (const [at, end] of [() => upstream.sockets[0]?.destroy(), null].entries()) {
    const stream = socket("/ws?terminal_id=9", {
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
      "x-real-ip": "6.6.6.6",
    });
    let text = "";
    let closed = false;
    stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
    stream.on("error", () => {});
    stream.on("close", () => (closed = true));
    stream.on("end", () => (closed = true));
    const headers = await new Promise<Record<string, unknown>>((resolve) =>
      stream.on("response", resolve),
    );
    expect(headers[":status"]).toBe(200);
    expect(headers["sec-websocket-accept"]).toBeUndefined();
    stream.write("up");
    await until("bytes up", () => (upstream.bytes[at] ?? "").endsWith("up"));
    upstream.sockets[at]?.write("down");
    await until("bytes down", () => text === "down");
    const lines = upstream.requests[at]?.lines ?? [];
    expect(lines.filter((line) => /^sec-websocket-key:/i.test(line))).toHaveLength(1);
    expect(lines.filter((line) => /^(?:connection|upgrade):/i.test(line))).toEqual([
      "Connection: Upgrade",
      "Upgrade: websocket",
    ]);
    expect(upstream.requests[at]?.target).toBe("/ws?terminal_id=1&display=1");
    if (end === null) {
      stream.close();
    } else {
      end();
    }
    await until("the other end", () => closed && upstream.closed.has(at), 3000);
  }
}, 30_000);

test("a stream that is reset, or a connection that goes, is noticed at the service", async () => {
  const stream1 = `${head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked")}2\r\nhi\r\n`;
  const { edge, upstream, connect } = await secureEdge((request) =>
    request.method === "PUT" ? stream1 : null,
  );
  for (const path of ["/plain", "/pass", "/returned"]) {
    for (const method of ["GET", "PUT"]) {
      for (const leave of ["stream", "session", "socket"] as const) {
        const session = await connect();
        const count = upstream.requests.length + 1;
        const stream = session.request(
          { ":method": method, ":path": path, ":authority": edge.host("terminal-1") },
          { endStream: method === "GET" },
        );
        stream.on("error", () => {});
        let text = "";
        stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
        if (method === "PUT") {
          stream.end("body");
        }
        await upstream.waitForRequests(count, 10_000);
        if (method === "PUT") {
          await until("the stream", () => text === "hi");
        }
        const { connection } = upstream.requests[count - 1]!;
        if (leave === "stream") {
          stream.close(http2.constants.NGHTTP2_CANCEL);
        } else if (leave === "session") {
          session.destroy();
        } else {
          session.socket.destroy();
        }
        await upstream
          .waitUntil(() => upstream.closed.has(connection), 3000)
          .catch((cause: unknown) => {
            throw new Error(`${path} ${method} ${leave}`, { cause });
          });
      }
    }
  }
}, 40_000);

test("bodies and their fields fit, and what cannot be sent is 502 for its stream alone", async () => {
  const answers: Record<string, string> = {
    "204": head("HTTP/1.1 204 No Content", "Content-Length: 4"),
    "304": head("HTTP/1.1 304 Not Modified", "Content-Length: 4"),
    cookies: head(
      "HTTP/1.1 200 OK",
      "Set-Cookie: a=1, b",
      "Set-Cookie: c=2; Expires=Wed, 09 Jun 2027 10:18:14 GMT",
      "X-High: \xe4",
      "Connection: X-Gone",
      "X-Gone: 1",
      "Keep-Alive: timeout=5",
      "Upgrade: h2c",
      "Content-Length: 0",
    ),
    bad: head("HTTP/1.1 200 OK", "X: a\0b", "Content-Length: 0"),
    name: head("HTTP/1.1 200 OK", "X Y: b", "Content-Length: 0"),
    half: `${head("HTTP/1.1 200 OK", "Content-Length: 10")}abc`,
    chunks: `${head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked")}3\r\nabc\r\n`,
    interim:
      head("HTTP/1.1 103 Early Hints", "Link: </a>") + head("HTTP/1.1 200 OK", "Content-Length: 0"),
  };
  const { edge, connect } = await secureEdge((request, socket) => {
    const name = request.lines.find((line) => line.startsWith("x-case: "))?.slice(8) ?? "";
    if (name === "half" || name === "chunks") {
      setTimeout(() => socket.resetAndDestroy(), 60);
    }
    return answers[name] ?? `${head("HTTP/1.1 200 OK", "Content-Length: 2")}ok`;
  });
  const session = await connect();
  for (const path of ["/plain", "/pass"]) {
    const get = (name: string, method = "GET") =>
      ask(session, {
        ":method": method,
        ":path": path,
        ":authority": edge.host("terminal-1"),
        "x-case": name,
      });
    const noContent = await get("204");
    expect([path, noContent.status, noContent.headers["content-length"], noContent.reset]).toEqual([
      path,
      204,
      undefined,
      0,
    ]);
    const notModified = await get("304");
    expect([
      path,
      notModified.status,
      notModified.headers["content-length"],
      notModified.reset,
    ]).toEqual([path, 304, "4", 0]);
    const cookies = await get("cookies");
    expect(cookies.headers["set-cookie"]).toEqual([
      "a=1, b",
      "c=2; Expires=Wed, 09 Jun 2027 10:18:14 GMT",
    ]);
    expect([
      path,
      cookies.headers["x-gone"],
      cookies.headers["keep-alive"],
      cookies.headers["upgrade"],
      cookies.headers["connection"],
    ]).toEqual([path, undefined, undefined, undefined, undefined]);
    expect((await get("bad")).status).toBe(502);
    expect((await get("name")).status).toBe(502);
    for (const name of ["half", "chunks"]) {
      const { status, reset } = await get(name);
      expect([path, name, status === 502 || reset !== 0]).toEqual([path, name, true]);
    }
    const headed = await get("", "HEAD");
    expect([path, headed.status, headed.headers["content-length"], headed.body]).toEqual([
      path,
      200,
      "2",
      "",
    ]);
    expect([path, (await get("interim")).interims.filter((status) => status !== 103)]).toEqual([
      path,
      [],
    ]);
    expect((await get("")).body).toBe("ok");
  }
  expect(session.destroyed).toBe(false);
}, 30_000);

test("limits have the same statuses, and the plain port of TLS speaks to nobody else", async () => {
  const { edge, upstream, connect, port } = await secureEdge();
  const session = await connect();
  const authority = { ":authority": edge.host("terminal-1") };
  const many = Object.fromEntries(Array.from({ length: 250 }, (_, at) => [`x-${at}`, "y"]));
  expect((await ask(session, { ...authority, ":path": `/${"x".repeat(16_384)}` })).status).toBe(
    414,
  );
  expect((await ask(session, { ...authority, ":path": `/pass/${"x".repeat(4096)}` })).status).toBe(
    414,
  );
  expect((await ask(session, { ...authority, ":path": "/x", ...many })).status).toBe(431);
  expect(
    (await ask(session, { ...authority, ":path": "/x", "x-big": "y".repeat(33_000) })).status,
  ).toBe(431);
  expect(upstream.bytes).toEqual([]);
  const plain = await rawClient(port);
  plain.send(head("GET / HTTP/1.1", `Host: ${edge.host("terminal-1")}`));
  expect(await plain.closed()).not.toMatch(/ 200 /);
  const old = await rawClient(port, { tls: { ALPNProtocols: ["http/1.1"] } });
  old.send(head("GET /x HTTP/1.1", `Host: ${edge.host("terminal-1")}`, "Connection: close"));
  expect(await old.closed()).toMatch(/^HTTP\/1\.1 200 /);
  expect(upstream.requests.at(-1)?.lines).toContain("X-Forwarded-Proto: https");
});
