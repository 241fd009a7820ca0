import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { CONTAINER } from "../support/edge.ts";
import {
  all,
  eachStatus,
  handshake,
  head,
  namesOf,
  readAnswers,
  SWITCH,
  until,
} from "../support/faults.ts";
import { startFaultEdge } from "../support/fault-routes.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";

/** K08: a handshake meets every gate that a request meets, and only a handshake is one. */

const KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
const UPGRADE = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", KEY];

/** Requests that speak of an upgrade and are none (decision 3). */
function pretenders(host: string, path: string): (readonly [string, string])[] {
  const H = `Host: ${host}`;
  const without = (...names: string[]) =>
    UPGRADE.filter((line) => !names.some((name) => line.startsWith(name)));
  const get = (...lines: string[]) => head(`GET ${path} HTTP/1.1`, H, ...lines);
  return [
    ["no key", get(...without("Sec-WebSocket-Key"))],
    ["an empty key", get(...without("Sec-WebSocket-Key"), "Sec-WebSocket-Key:")],
    ["a short key", get(...without("Sec-WebSocket-Key"), "Sec-WebSocket-Key: dGhlIHNhbXBsZQ==")],
    [
      "a key that is no base64",
      get(...without("Sec-WebSocket-Key"), "Sec-WebSocket-Key: !!!!IHNhbXBsZSBub25jZQ=="),
    ],
    ["two keys", get(...UPGRADE, KEY)],
    ["no Connection", get(...without("Connection"), "Connection: keep-alive")],
    [
      "a Connection that only contains the word",
      get(...without("Connection"), "Connection: x-upgrade, upgraded"),
    ],
    ["two protocols in a line", get(...without("Upgrade"), "Upgrade: websocket, h2c")],
    ["two protocols in two lines", get(...UPGRADE, "Upgrade: h2c")],
    ["websocket twice", get(...UPGRADE, "Upgrade: websocket")],
    ["websocket with a version", get(...without("Upgrade"), "Upgrade: websocket/13")],
    [
      "h2c",
      get(
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
      ),
    ],
    ["TLS", get("Connection: Upgrade", "Upgrade: TLS/1.0")],
    ["an empty protocol", get(...without("Upgrade"), "Upgrade:")],
    ["POST", head(`POST ${path} HTTP/1.1`, H, ...UPGRADE, "Content-Length: 0")],
    [
      "POST with a body",
      head(`POST ${path} HTTP/1.1`, H, ...UPGRADE, "Content-Length: 4") + "body",
    ],
    ["GET with a body", get(...UPGRADE, "Content-Length: 4") + "body"],
    ["GET with chunks", get(...UPGRADE, "Transfer-Encoding: chunked") + "4\r\nbody\r\n0\r\n\r\n"],
    ["PUT", head(`PUT ${path} HTTP/1.1`, H, ...UPGRADE, "Content-Length: 0")],
    ["1.0", head(`GET ${path} HTTP/1.0`, H, ...UPGRADE)],
  ];
}

const CLOSING = `${head("HTTP/1.1 200 OK", "Connection: close", "Content-Length: 2")}ok`;

test("what is no handshake is an ordinary request: it arrives without the offer", async () => {
  const faults = await startFaultEdge(() => CLOSING);
  const inputs = pretenders(faults.edge.host("terminal-1"), "/plain");
  expect(await eachStatus(faults.edge.port, inputs)).toEqual(all(inputs, "200"));
  expect(faults.upstream.requests).toHaveLength(inputs.length);
  for (const request of faults.upstream.requests) {
    const names = namesOf(request.lines);
    expect(names).not.toContain("upgrade");
    expect(names).not.toContain("http2-settings");
  }
});

test("what is no handshake meets the hook of its path", async () => {
  const faults = await startFaultEdge(() => CLOSING);
  const { edge, upstream } = faults;
  edge.script(
    "gate.js",
    "module.exports = (req, res) => { res.statusCode = 401; res.end('gate'); };",
  );
  await edge.hook("terminal", {
    match: { path: "/gate*" },
    script: { path: "/gate" },
    timeout: 10_000,
  });
  const inputs = pretenders(edge.host("terminal-1"), "/gate/x");
  expect(await eachStatus(edge.port, inputs)).toEqual(all(inputs, "401"));
  expect(upstream.bytes).toEqual([]);
}, 40_000);

test("an upstream that switches unasked is a 502 for the client", async () => {
  const faults = await startFaultEdge(() => SWITCH);
  const [, , ...inputs] = pretenders(faults.edge.host("terminal-1"), "/plain");
  expect(await eachStatus(faults.edge.port, inputs)).toEqual(all(inputs, "502"));
});

test("real handshakes in every spelling become tunnels, with early bytes kept", async () => {
  const faults = await startFaultEdge(() => SWITCH);
  const { edge, upstream } = faults;
  const H = `Host: ${edge.host("terminal-2")}`;
  const spellings = [
    ["Connection: keep-alive, Upgrade", "Upgrade: WebSocket"],
    ["connection: UPGRADE", "upgrade: WEBSOCKET"],
    ["Connection: keep-alive", "Connection: ,upgrade,", "Upgrade:\twebsocket "],
    ["Connection: Upgrade", "Upgrade: websocket", "Content-Length: 0"],
    ["Connection: Upgrade", "Upgrade: websocket", "Expect: 100-continue"],
  ];
  for (const [index, lines] of spellings.entries()) {
    const client = await rawClient(edge.port);
    client.send(
      head(
        "GET /ws?terminal_id=9 HTTP/1.1",
        H,
        ...lines,
        KEY,
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: a, b",
      ) + "early!",
    );
    const text = await client.waitFor("\r\n\r\n");
    expect([lines, text.split("\r\n")[0]]).toEqual([lines, "HTTP/1.1 101 Switching Protocols"]);
    await until("early bytes", () => (upstream.bytes[index] ?? "").endsWith("early!"));
    upstream.sockets[index]?.write("down");
    await client.waitFor("down");
    expect(upstream.requests[index]?.target).toBe("/ws?terminal_id=2&display=2");
    expect(upstream.requests[index]?.lines).toContain("Sec-WebSocket-Protocol: a, b");
    client.socket.destroy();
    await upstream.waitUntil(() => upstream.closed.has(index), 3000);
  }
});

test("handshakes are refused like requests: complete answers, and nothing reaches a service", async () => {
  const faults = await startFaultEdge(() => SWITCH);
  const { edge, upstream, agent } = faults;
  const base = `/api/v1/containers/${CONTAINER}/proxy`;
  const etag = (await edge.api("GET", `${base}/permissions`)).etag ?? "";
  const stored = await edge.api(
    "PUT",
    `${base}/permissions`,
    {
      groups: {
        web: { type: "password", username: "u", password: "p", salt: "s" },
        ci: { type: "token", header: "X-Key", value: "k" },
        far: { type: "ip", range: "203.0.113.0/24" },
      },
      permissions: {
        web: { files: true },
        ci: { notes: [1], terminal: [1, 2, 3] },
        far: { run: true },
      },
      default: "deny",
    },
    etag,
  );
  expect(stored.status).toBe(200);
  const refusals = [
    ["password", handshake(edge.host("files-1")), 401],
    ["token", handshake(edge.host("notes-1")), 401],
    ["token for another instance", handshake(edge.host("notes-2"), "/", "X-Key: k"), 403],
    ["address", handshake(edge.host("run-1")), 403],
    ["strict", handshake(edge.host("logs-1"), "/", "X-Key: k"), 403],
    ["unknown host", handshake("nobody.example"), 404],
    ["hooked path", handshake(edge.host("terminal-1"), "/pass/ws", "X-Key: k"), 403],
    ["hooked path, spelled", handshake(edge.host("terminal-1"), "/x/..%2f%70ass", "X-Key: k"), 403],
    [
      "hooked path through the alias",
      handshake("fault-alias.local.containers.localhost", "/pass", "X-Key: k"),
      403,
    ],
    [
      "hooked path through the port",
      handshake(edge.host(`http-${upstream.port}`), "/pass", "X-Key: k"),
      403,
    ],
    [
      "hooked path, too long",
      handshake(edge.host("terminal-1"), `/pass/${"x".repeat(5000)}`, "X-Key: k"),
      403,
    ],
    [
      "two Authorization lines",
      handshake(edge.host("terminal-1"), "/", "X-Key: k", "Authorization: a", "Authorization: b"),
      400,
    ],
    ["long target", handshake(edge.host("terminal-1"), `/${"x".repeat(17_000)}`, "X-Key: k"), 414],
  ] as const;
  for (const [name, bytes, status] of refusals) {
    const text = await rawExchange(edge.port, bytes);
    const [answer, ...more] = readAnswers(text);
    expect([name, answer?.status, more]).toEqual([name, status, []]);
    expect(JSON.parse(answer?.body ?? "")).toMatchObject({ statusCode: status });
    expect([name, namesOf(answer?.lines).filter((line) => line === "upgrade")]).toEqual([name, []]);
  }
  expect([upstream.bytes, agent.bytes]).toEqual([[], []]);
  // The same rule when it is broken: 503, also for handshakes (the store takes hand edits within a second).
  const file = join(edge.folder, "data/policy/containers", `${CONTAINER}.json`);
  const document = JSON.parse(readFileSync(file, "utf8")) as {
    hooks: { terminal: { script: object }[] };
  };
  document.hooks.terminal = document.hooks.terminal.map((rule) => ({
    ...rule,
    script: { ...rule.script, subdomain: "s".repeat(64) },
  }));
  writeFileSync(file, JSON.stringify(document));
  for (let status = 0, tries = 0; status !== 503; tries++) {
    const text = await rawExchange(
      edge.port,
      handshake(edge.host("terminal-1"), "/pass", "X-Key: k"),
    );
    status = readAnswers(text)[0]?.status ?? 0;
    expect([403, 503]).toContain(status);
    expect(tries).toBeLessThan(200);
    await new Promise((wait) => setTimeout(wait, 20));
  }
  expect(upstream.bytes).toEqual([]);
});

test("a handshake at the exec host is a request for a script, never a tunnel", async () => {
  const faults = await startFaultEdge(() => SWITCH);
  const text = await rawExchange(
    faults.edge.port,
    handshake(faults.edge.host("exec-1"), "/echo"),
    15_000,
  );
  const [answer] = readAnswers(text);
  expect(answer?.status).toBe(200);
  const { seen } = JSON.parse(answer?.body ?? "{}") as { seen: string[] };
  expect(seen).not.toContain("upgrade");
  const missing = await rawExchange(
    faults.edge.port,
    handshake(faults.edge.host("exec-1"), "/none"),
    15_000,
  );
  expect(readAnswers(missing)[0]?.status).toBe(404);
  const managed = await rawExchange(
    faults.edge.port,
    handshake(faults.edge.host("exec-1"), "/api/v1/exec/scripts"),
    15_000,
  );
  expect(readAnswers(managed)[0]?.status).toBeGreaterThanOrEqual(400);
});
