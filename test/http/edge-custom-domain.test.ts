import dgram from "node:dgram";
import { once } from "node:events";
import { test } from "vitest";
import { decodeConfig } from "../../proxy/config.ts";
import { type Answer, ask } from "../support/ask.ts";
import { type DnsRecord, type DnsServer, startDnsServer } from "../support/dns-server.ts";
import { CONTAINER, type TestEdge, startTestEdge } from "../support/edge.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

/** Hosts outside our own names (edge-proxy.md 1.1 row 7, 4.4), with a name server that says what the test wants. */

const OURS = "local.containers.localhost";
const toDoor = { cname: `door.${OURS}` };

async function alias(edge: TestEdge, name: string, more: object = {}): Promise<string> {
  const made = await edge.api("POST", "/api/v1/proxy/aliases", {
    container_id: CONTAINER,
    alias: name,
    program: "terminal",
    index: 3,
    ...more,
  });
  if (made.status !== 201) {
    throw new Error(`alias not stored: ${made.status} ${String(made.body.message)}`);
  }
  const stored = made.body.data as unknown as { id: string };
  return stored.id;
}

/** An edge with a service behind it, an alias `door` to its terminal, and custom domains looked up at `dns`. */
async function withDomains(
  dns: Pick<DnsServer, "address">,
  more: object = {},
  config: Record<string, unknown> = {},
) {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: { customDomains: { resolvers: [dns.address], ...more }, ...config },
  });
  return { upstream, edge, door: await alias(edge, "door") };
}

const outcome = ({ status, json }: Answer) => [status, json["code"]];
const hostsOf = (lines: readonly string[]) =>
  lines.filter((line) => /^host:/i.test(line)).map((line) => line.slice(line.indexOf(":") + 2));
const NOT_OURS = [404, "UNKNOWN_HOST"];

test("a custom domain is served as its alias is, after one look-up", async ({ expect }) => {
  const dns = await startDnsServer({
    "shop.example": { cname: `DOOR.Local.Containers.Localhost` },
  });
  const { edge, upstream } = await withDomains(dns);
  for (const host of ["shop.example", "Shop.Example:8080", "shop.example."]) {
    const answer = await ask(edge.port, { host, path: "/a%2Fb?terminal_id=9" });
    expect([answer.status, answer.body]).toEqual([200, "ok"]);
  }
  expect(upstream.requests[0]?.target).toBe("/a%2Fb?terminal_id=3&display=3");
  // Decision 23: a built-in service gets its canonical name, with the client's port.
  const hosts = upstream.requests.map(({ lines }) => hostsOf(lines));
  expect(hosts).toEqual([
    [edge.host("terminal-3")],
    [`${edge.host("terminal-3")}:8080`],
    [edge.host("terminal-3")],
  ]);
  expect(dns.queries.map((name) => name.toLowerCase())).toEqual(["shop.example"]);
  expect(await edge.accessLine((line) => line["path"] === "/a%2Fb")).toMatchObject({
    status: 200,
    service: "terminal",
    instance: 3,
  });
});

test("requests that come together wait for one look-up", async ({ expect }) => {
  const dns = await startDnsServer({ "shop.example": toDoor });
  const { edge } = await withDomains(dns);
  const asked = Array.from({ length: 20 }, () => ask(edge.port, { host: "shop.example" }));
  const answers = await Promise.all(asked);
  expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
  expect(dns.queries).toHaveLength(1);
});

test("a port without a service gets the Host that the visitor typed", async ({ expect }) => {
  const dns = await startDnsServer({ "app.example": { cname: `app.${OURS}` } });
  const { edge } = await withDomains(dns);
  const app = await recordingUpstream();
  await alias(edge, "app", { program: "http", port: app.port, index: undefined });
  const answer = await ask(edge.port, { host: "App.example:81" });
  expect(answer.status).toBe(200);
  expect(hostsOf(app.requests[0]?.lines ?? [])).toEqual(["App.example:81"]);
});

test("a pinned alias stays pinned, and its landing path holds", async ({ expect }) => {
  const dns = await startDnsServer({ "pinned.example": { cname: `pinned.${OURS}` } });
  const { edge, upstream } = await withDomains(dns);
  await alias(edge, "pinned", { target_path: "/only?k=1", allow_path_override: false });
  expect((await ask(edge.port, { host: "pinned.example", path: "/?k=2" })).status).toBe(200);
  expect(upstream.requests[0]?.target).toBe("/only?k=1&terminal_id=3&display=3");
  const other = await ask(edge.port, { host: "pinned.example", path: "/other" });
  expect(outcome(other)).toEqual([404, "ALIAS_PATH_PINNED"]);
});

test("three CNAME records are followed and no fourth", async ({ expect }) => {
  const dns = await startDnsServer({
    "four.example": { cname: "three.example" },
    "three.example": { cname: "two.example" },
    "two.example": { cname: "one.example" },
    "one.example": toDoor,
    "round.example": { cname: "round.example" },
  });
  const { edge } = await withDomains(dns);
  expect((await ask(edge.port, { host: "three.example" })).status).toBe(200);
  expect(dns.queries).toHaveLength(3);
  expect(outcome(await ask(edge.port, { host: "four.example" }))).toEqual(NOT_OURS);
  expect(dns.queries).toHaveLength(6);
  expect(outcome(await ask(edge.port, { host: "round.example" }))).toEqual(NOT_OURS);
  expect(dns.queries).toHaveLength(7);
});

test.for<[string, DnsRecord]>([
  ["no such name", "no-such-name"],
  ["no CNAME", "no-data"],
  ["a name server that fails", "server-failure"],
  ["a CNAME to a stranger", { cname: "elsewhere.example" }],
  ["a CNAME to an address", { cname: "127.0.0.1" }],
  ["a CNAME to an unknown alias", { cname: `nobody.${OURS}` }],
  ["a CNAME to a host that is no alias", { cname: edgeHost("terminal-1") }],
  ["a CNAME to the suffix itself", { cname: OURS }],
  ["a CNAME to another node", { cname: "door.other.containers.localhost" }],
  ["a CNAME with a port in it", { cname: `door.${OURS}:80` }],
])("%s is 404", async ([, record], { expect }) => {
  const dns = await startDnsServer({ "shop.example": record });
  const { edge, upstream } = await withDomains(dns);
  expect(outcome(await ask(edge.port, { host: "shop.example" }))).toEqual(NOT_OURS);
  expect(upstream.requests).toEqual([]);
  const before = dns.queries.length;
  expect(outcome(await ask(edge.port, { host: "shop.example" }))).toEqual(NOT_OURS);
  expect(dns.queries).toHaveLength(before);
});

function edgeHost(tail: string): string {
  return `67e89abc123def456789abcd-${CONTAINER}-${tail}.${OURS}`;
}

test("a disabled and an expired alias end their domains at once", async ({ expect }) => {
  const dns = await startDnsServer({
    "shop.example": toDoor,
    "brief.example": { cname: `brief.${OURS}` },
  });
  const { edge, door } = await withDomains(dns);
  await alias(edge, "brief", { expires_at: new Date(Date.now() + 1500).toISOString() });
  expect((await ask(edge.port, { host: "shop.example" })).status).toBe(200);
  await edge.api("PATCH", `/api/v1/proxy/aliases/${door}/state`, { enabled: false });
  expect(outcome(await ask(edge.port, { host: "shop.example" }))).toEqual(NOT_OURS);
  await new Promise((wait) => setTimeout(wait, 1600));
  expect(outcome(await ask(edge.port, { host: "brief.example" }))).toEqual(NOT_OURS);
});

test("permissions and hooks of the target hold", async ({ expect }) => {
  const dns = await startDnsServer({ "shop.example": toDoor });
  const { edge, upstream } = await withDomains(dns);
  edge.script("hook.ts", `res.writeHead(418); res.end("hooked " + req.url);`);
  await edge.hook("terminal", { match: { path: "/hooked" }, script: { path: "/hook" } });
  const hooked = await ask(edge.port, { host: "shop.example", path: "/hooked" });
  expect([hooked.status, hooked.body.split("?")[0]]).toEqual([418, "hooked /hooked"]);

  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions`;
  const current = await edge.api("GET", path);
  const stored = await edge.api(
    "PUT",
    path,
    {
      default: "allow",
      groups: { web: { type: "password", username: "ada", password: "pw", salt: "s" } },
      permissions: { web: { terminal: [3] } },
    },
    current.etag ?? "file:v0",
  );
  expect(stored.status).toBe(200);
  expect((await ask(edge.port, { host: "shop.example" })).status).toBe(401);
  const headers = { Authorization: `Basic ${Buffer.from("ada:pw").toString("base64")}` };
  expect((await ask(edge.port, { host: "shop.example", headers })).status).toBe(200);
  expect(upstream.requests).toHaveLength(1);
});

test("a WebSocket handshake goes the same way", async ({ expect }) => {
  const dns = await startDnsServer({ "shop.example": toDoor });
  const { edge, upstream } = await withDomains(dns);
  const handshake = (host: string) =>
    rawExchange(
      edge.port,
      `GET /ws HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
  expect(await handshake("nobody.example")).toMatch(/^HTTP\/1\.1 404 /);
  await handshake("shop.example");
  expect(upstream.requests.map(({ target }) => target)).toEqual(["/ws?terminal_id=3&display=3"]);
});

test("bytes behind a request that waits are read as the next request", async ({ expect }) => {
  const dns = await startDnsServer({ "shop.example": toDoor });
  const { edge, upstream } = await withDomains(dns);
  const post = "POST /one HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 3\r\n\r\nabc";
  const answers = await rawExchange(
    edge.port,
    `${post}GET /two HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n`,
  );
  expect(answers.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(2);
  expect(upstream.requests.map(({ method, body }) => [method, body])).toEqual([
    ["POST", "abc"],
    ["GET", ""],
  ]);
});

test("a silent resolver costs its own requests the time-out, and others nothing", async ({
  expect,
}) => {
  const names = Array.from({ length: 12 }, (_, i) => `n${i}.example`);
  const dns = await startDnsServer(Object.fromEntries(names.map((name) => [name, "silent"])));
  const { edge } = await withDomains(dns, { timeoutMs: 1000 });
  let settled = 0;
  const waiting = names.map(async (host) => {
    const answer = await ask(edge.port, { host });
    settled += 1;
    return answer;
  });
  const own = await ask(edge.port, { host: edge.host("terminal-1") });
  expect([own.status, settled]).toEqual([200, 0]);
  const answers = await Promise.all(waiting);
  expect(answers.map(outcome)).toEqual(names.map(() => NOT_OURS));
  expect(Math.max(...answers.map(({ ms }) => ms))).toBeLessThan(4000);
  // Five in a row went unanswered: for a while nobody is asked, and nobody waits.
  const before = dns.queries.length;
  dns.zone.set("late.example", toDoor);
  expect(outcome(await ask(edge.port, { host: "late.example" }))).toEqual(NOT_OURS);
  expect(dns.queries).toHaveLength(before);
  const warnings = edge.log.filter(({ msg }) => String(msg).includes("DNS resolver"));
  expect(warnings.length).toBeGreaterThanOrEqual(1);
  expect(JSON.stringify(warnings)).not.toContain(".example");
});

test("a resolver that is not there is 404", async ({ expect }) => {
  const socket = dgram.createSocket("udp4").bind(0, "127.0.0.1");
  await once(socket, "listening");
  const address = `127.0.0.1:${socket.address().port}`;
  socket.close();
  const { edge } = await withDomains({ address });
  const answer = await ask(edge.port, { host: "shop.example" });
  expect(outcome(answer)).toEqual(NOT_OURS);
  expect(answer.ms).toBeLessThan(3000);
});

test("a client that leaves while its name is looked up is not served", async ({ expect }) => {
  const dns = await startDnsServer({ "slow.example": { ...toDoor, afterMs: 2500 } });
  const { edge, upstream } = await withDomains(dns, { timeoutMs: 5000 });
  const client = await rawClient(edge.port);
  client.send("GET /left HTTP/1.1\r\nHost: slow.example\r\n\r\n");
  await expect.poll(() => dns.queries.length, { timeout: 5000 }).toBe(1);
  client.socket.resetAndDestroy(); // a FIN alone would still get its answer
  expect(await edge.accessLine((line) => line["path"] === "/left")).toMatchObject({
    status: 499,
    outcome: "client_gone",
  });
  expect(upstream.requests).toEqual([]);
});

test("a request whose budget ends while its name is looked up is over", async ({ expect }) => {
  const dns = await startDnsServer({ "slow.example": { ...toDoor, afterMs: 700 } });
  const { edge, upstream } = await withDomains(
    dns,
    { timeoutMs: 5000 },
    { limits: { requestBudgetMs: 300 } },
  );
  // The connection stays open: a client that is still there, but whose request is over.
  const client = await rawClient(edge.port);
  client.send("GET /spent HTTP/1.1\r\nHost: slow.example\r\n\r\n");
  expect(await edge.accessLine((line) => line["path"] === "/spent")).toMatchObject({
    status: 504,
    code: "REQUEST_BUDGET_SPENT",
  });
  await expect
    .poll(async () => (await ask(edge.port, { host: "slow.example", path: "/later" })).status, {
      timeout: 10_000,
    })
    .toBe(200);
  expect(upstream.requests.map(({ target }) => target.split("?")[0])).toEqual(["/later"]);
  expect(edge.log.filter((line) => line["path"] === "/spent")).toHaveLength(1);
  expect(
    edge.log.filter((line) => Number(line["level"]) >= 50 || line["level"] === "error"),
  ).toEqual([]);
});

test("a flood of names sends no more queries than the budget has", async ({ expect }) => {
  const dns = await startDnsServer({ "shop.example": toDoor });
  const { edge } = await withDomains(dns, { maxPerSecond: 10 });
  expect((await ask(edge.port, { host: "shop.example" })).status).toBe(200);
  const startedAt = performance.now();
  const flood = Array.from({ length: 2000 }, (_, i) => `f${i}.example`);
  // On kept connections, so that the flood is one of names and not of sockets.
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, part) => {
      const names = flood.slice(part * 100, part * 100 + 100);
      return rawExchange(
        edge.port,
        names
          .map((name, i) => {
            const close = i === 99 ? "Connection: close\r\n" : "";
            return `GET / HTTP/1.1\r\nHost: ${name}\r\n${close}\r\n`;
          })
          .join(""),
        60_000,
      );
    }),
  );
  const seconds = (performance.now() - startedAt) / 1000;
  expect(answers.join("").match(/HTTP\/1\.1 404 /g)).toHaveLength(2000);
  expect(dns.queries.length).toBeLessThanOrEqual(11 + Math.ceil(seconds * 10));
  // What was known before is served on.
  expect((await ask(edge.port, { host: "shop.example" })).status).toBe(200);
});

test.for([
  "localhost",
  "shop",
  "127.0.0.1",
  "[::1]",
  "1.2.3",
  "shop.1",
  "a_b.example",
  "-a.example",
  "a..example",
  "*.example",
  "a%2eb.example",
  "shop.localhost",
  "shop.invalid",
  "door.other.containers.localhost",
  "containers.localhost",
  `${"a".repeat(64)}.example`,
  `${"a.".repeat(124)}example`,
])("no query is sent for %s", async (host, { expect }) => {
  const dns = await startDnsServer();
  const { edge } = await withDomains(dns);
  expect((await ask(edge.port, { host })).status).toBeGreaterThanOrEqual(400);
  expect(dns.queries).toEqual([]);
});

test("a reload turns look-ups on, forgets what was found, and turns them off", async ({
  expect,
}) => {
  const dns = await startDnsServer({ "shop.example": toDoor });
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  await alias(edge, "door");
  const visit = async () => (await ask(edge.port, { host: "shop.example" })).status;
  const apply = async (customDomains: unknown) => {
    const decoded = decodeConfig(
      { listen: { http: "127.0.0.1:0" }, customDomains },
      { base: edge.folder, env: {} },
    );
    if (!decoded.ok) {
      throw new Error(JSON.stringify(decoded.issues));
    }
    await edge.edge.reload({ ...edge.edge.config, customDomains: decoded.config.customDomains });
  };
  // Off by default: nothing is sent.
  expect([await visit(), dns.queries.length]).toEqual([404, 0]);
  await apply({ resolvers: [dns.address] });
  expect([await visit(), dns.queries.length]).toEqual([200, 1]);
  await apply({ resolvers: [dns.address] });
  expect([await visit(), dns.queries.length]).toEqual([200, 2]);
  await apply("off");
  expect([await visit(), dns.queries.length]).toEqual([404, 2]);
});
