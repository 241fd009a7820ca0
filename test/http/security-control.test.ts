import { connect } from "node:net";
import { expect, test } from "vitest";
import { ask } from "../support/ask.ts";
import { CONTAINER, startTestEdge, TOKEN } from "../support/edge.ts";

/** Bytes to the control listener as they are; what came back. */
function raw(control: string, text: string): Promise<string> {
  const { hostname, port } = new URL(control);
  return new Promise((resolve, reject) => {
    let answer = "";
    const socket = connect(Number(port), hostname, () => socket.write(text));
    socket.setEncoding("latin1").on("data", (data: string) => (answer += data));
    socket.on("error", reject);
    socket.on("close", () => resolve(answer));
  });
}

function get(path: string, ...lines: string[]): string {
  return [`GET ${path} HTTP/1.1`, "Host: x", "Connection: close", ...lines, "", ""].join("\r\n");
}

test("the control API takes its token and nothing that looks like it", async () => {
  const { control } = await startTestEdge();
  const path = "/api/v1/containers";
  const auth = (value: string): string => `Authorization: ${value}`;
  for (const value of [`Bearer ${TOKEN}`, `bearer ${TOKEN}`, `BEARER  ${TOKEN}`]) {
    expect(await raw(control, get(path, auth(value))), value).toMatch(/^HTTP\/1.1 200 /);
  }
  for (const lines of [
    [],
    [auth("")],
    [auth("Bearer")],
    [auth("Bearer ")],
    [auth(TOKEN)],
    [auth(`Basic ${TOKEN}`)],
    [auth(`Bearer ${TOKEN}x`)],
    [auth(`Bearer ${TOKEN.slice(0, -1)}`)],
    [auth(`Bearer ${TOKEN.toUpperCase()}`)],
    [auth(`Bearer ${TOKEN}, Bearer x`)],
    [auth(`Bearer x, Bearer ${TOKEN}`)],
    [auth("Bearer x"), auth(`Bearer ${TOKEN}`)],
    [`Cookie: token=${TOKEN}`],
    [`X-Forwarded-Authorization: Bearer ${TOKEN}`],
  ]) {
    const answer = await raw(control, get(path, ...lines));
    expect(answer, lines.join("\n")).toMatch(/^HTTP\/1.1 401 /);
    expect(answer, lines.join("\n")).toMatch(/www-authenticate: Bearer/i);
  }
  for (const spelling of [
    "/api/v1/%63ontainers",
    "/%61pi/v1/containers",
    "/api/v1/./containers",
    "/api/v1/x/../containers",
    "//api/v1/containers",
    "/api//v1/containers",
    "/API/v1/containers",
    "/api/v1/containers/",
    "/api/v1;x/containers",
    `/api/v1/containers?token=${TOKEN}`,
    `/api/v1/containers/${CONTAINER}/proxy/audit/stream`,
    "/healthz/../api/v1/containers",
    "/openapi.json/../api/v1/containers",
    "http://other/api/v1/containers",
  ]) {
    expect(await raw(control, get(spelling)), spelling).toMatch(/^HTTP\/1.1 (401|404|400) /);
  }
});

test("a browser's preflight opens nothing and names no credentials", async () => {
  const { control } = await startTestEdge();
  const path = `${control}/api/v1/containers`;
  const headers = { origin: "http://elsewhere.example", "access-control-request-method": "DELETE" };
  const preflight = await fetch(path, { method: "OPTIONS", headers });
  expect(preflight.status).toBe(204);
  expect(preflight.headers.get("access-control-allow-origin")).toBe("*");
  expect(preflight.headers.get("access-control-allow-credentials")).toBeNull();
  expect((await fetch(path, { headers })).status).toBe(401);
  for (const open of ["/readyz", "/metrics", "/healthz"]) {
    const answer = await fetch(control + open, { headers });
    expect(answer.headers.get("access-control-allow-origin"), open).toBeNull();
  }
});

test("an alias takes no name that a container or another alias has", async () => {
  const edge = await startTestEdge({ otherUpstream: 9 });
  const create = (alias: unknown) =>
    edge.api("POST", "/api/v1/proxy/aliases", { container_id: CONTAINER, program: "files", alias });
  expect((await create("mine")).status).toBe(201);
  expect((await create("mine")).status).toBe(409);
  for (const alias of [
    edge.host("terminal-1").split(".")[0],
    edge.host("", CONTAINER).split(".")[0],
    "MINE",
    "mine.",
    "a.b",
    "m\u00edne",
    "..",
    "__proto__",
    "constructor",
    "",
    7,
    "x".repeat(300),
  ]) {
    const { status } = await create(alias);
    expect([400, 409], JSON.stringify(alias)).toContain(status);
  }
});

test("script management reaches nothing outside the deployment it is asked for", async () => {
  const edge = await startTestEdge({ container: { exec: { kind: "embedded", manage: "open" } } });
  edge.script("real.js", "module.exports = () => 1;");
  const host = edge.host("exec-1");
  const base = "/api/v1/exec/scripts";
  for (const path of [
    "../../../../control-token",
    "..%2f..%2fcontrol-token",
    "%252e%252e/%252e%252e/x",
    "/etc/passwd",
    "default/1/../../../data/x",
    "a/./b.js",
    "a//b.js",
    "a\\..\\b.js",
    "a\u0000.js",
    "a\n.js",
    ".hidden.js",
    "a/.git/x.js",
    "node_modules/x.js",
    "%6eode_modules/x.js",
    "_hoody/x.js",
    "x".repeat(600),
    `${"y".repeat(256)}.js`,
    "file:///etc/passwd",
  ]) {
    const read = await ask(edge.port, {
      host,
      path: `${base}/read?path=${encodeURIComponent(path)}`,
    });
    expect([400, 403, 404], `read ${path}`).toContain(read.status);
    const write = await ask(edge.port, {
      method: "POST",
      host,
      path: `${base}/write`,
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ path, content: "x", validate: false }),
    });
    // A scheme is a folder's name as any other.
    const expected = path.startsWith("file:") ? [400] : [400, 403];
    expect(expected, `write ${path} ${write.body}`).toContain(write.status);
  }
  for (const [name, value] of [
    ["subdomain", ".."],
    ["subdomain", "a/b"],
    ["execId", "../2"],
    ["execId", "%2e%2e"],
    ["subdomain", "__proto__"],
  ] as const) {
    const answer = await ask(edge.port, {
      host,
      path: `${base}/list?${name}=${encodeURIComponent(value)}`,
    });
    expect([400, 403], `${name}=${value}`).toContain(answer.status);
  }
  const logs = await ask(edge.port, {
    host,
    path: `/api/v1/exec/logs/stream?file=${encodeURIComponent("../scripts/default/1/real.js")}`,
  });
  expect(logs.status).toBe(400);
});

test("script management takes the control token by the same reading", async () => {
  const edge = await startTestEdge();
  const health = async (authorization: string): Promise<number> =>
    (
      await ask(edge.port, {
        host: edge.host("exec-1"),
        path: "/api/v1/exec/health",
        headers: { authorization },
      })
    ).status;
  for (const value of [`Bearer ${TOKEN}`, `bearer  ${TOKEN}`]) {
    expect(await health(value), value).toBe(200);
  }
  for (const value of ["Bearer", "Bearer ", TOKEN, `Bearer ${TOKEN}x`, `Bearer ${TOKEN}, x`]) {
    expect(await health(value), value).toBe(403);
  }
});
