import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { test, vi } from "vitest";
import { ask } from "../support/ask.ts";
import { CONTAINER, OTHER, type TestEdge, startTestEdge } from "../support/edge.ts";
import { rawClient } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

const JSON_OK =
  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\n{}";
const catchAll = (path: string, timeout = 2000) => ({ match: {}, script: { path }, timeout });

async function auditOf(edge: TestEdge): Promise<Record<string, unknown>[]> {
  const answer = await edge.api("GET", `/api/v1/containers/${CONTAINER}/proxy/audit?limit=50`);
  return answer.body.data?.["records"] as unknown as Record<string, unknown>[];
}

test("a matching request goes through the script to the service, everything else straight to it", async ({
  expect,
}) => {
  const upstream = await recordingUpstream(() => JSON_OK);
  const edge = await startTestEdge({ upstream: upstream.port });
  edge.script(
    "login-audit.js",
    `module.exports = async (req, res, metadata) => {
      if (!metadata.hook) { res.writeHead(200); res.end("regular"); return; }
      console.log(JSON.stringify({ id: metadata.hook.auditId, keys: Object.keys(metadata.hook), from: req.socket.remoteAddress }));
      await metadata.hook.forward(req, res);
    };`,
  );
  await edge.hook("terminal", {
    match: { method: ["POST"], path: "/api/login*" },
    script: { path: "/login-audit" },
    timeout: 2000,
  });
  const host = edge.host("terminal-2");
  const hooked = await ask(edge.port, {
    host,
    method: "POST",
    path: "/api/login?next=%2Fx",
    body: "user=ada",
  });
  expect([hooked.status, hooked.body]).toEqual([200, "{}"]);
  expect(hooked.headers["set-cookie"]).toEqual(["a=1", "b=2"]);
  const plain = await ask(edge.port, { host, path: "/api/login" });
  expect(plain.status).toBe(200);
  expect(upstream.requests.map((r) => [r.method, r.target, r.body])).toEqual([
    ["POST", "/api/login?next=%2Fx&terminal_id=2", "user=ada"],
    ["GET", "/api/login?terminal_id=2&display=2", ""],
  ]);
  const names = upstream.requests[0]?.lines.map((line) => line.split(":")[0]?.toLowerCase());
  expect(names?.filter((name) => name?.startsWith("x-hoody"))).toEqual([]);
  const regular = await ask(edge.port, { host: edge.host("exec-1"), path: "/login-audit" });
  expect(regular.body).toBe("regular");
  const line = await edge.accessLine((entry) => entry["outcome"] === "forwarded");
  const [record] = await vi.waitFor(
    async () => {
      const records = await auditOf(edge); // written in the background, after the answer
      expect(records).not.toHaveLength(0);
      return records;
    },
    { timeout: 10_000 },
  );
  expect(record).toMatchObject({
    audit_id: line["auditId"],
    outcome: "forwarded",
    status: 200,
    path: "/api/login",
    service: "terminal",
  });
});

interface Case {
  readonly name: string;
  readonly script: string | null;
  readonly status: number;
  readonly code: string;
  readonly outcome: string;
  readonly timeout?: number;
}

const CASES: Case[] = [
  {
    name: "throws",
    script: "module.exports = async () => { throw new Error('no') };",
    status: 500,
    code: "HOOK_SCRIPT_ERROR",
    outcome: "script_error",
  },
  {
    name: "does not parse",
    script: "module.exports = async ( => {};",
    status: 500,
    code: "HOOK_SCRIPT_ERROR",
    outcome: "script_error",
  },
  {
    name: "is missing",
    script: null,
    status: 404,
    code: "HOOK_SCRIPT_NOT_FOUND",
    outcome: "not_found",
  },
  {
    name: "never answers",
    script: "module.exports = () => new Promise(() => {});",
    status: 504,
    code: "HOOK_TIMEOUT",
    outcome: "timed_out",
    timeout: 300,
  },
  {
    name: "exits the process",
    script: "module.exports = async () => { process.exit(0) };",
    status: 500,
    code: "HOOK_CRASHED",
    outcome: "crashed",
  },
  {
    name: "loops",
    script: "module.exports = async () => { while (true) {} };",
    status: 504,
    code: "HOOK_TIMEOUT",
    outcome: "timed_out",
    timeout: 400,
  },
];

test.for(CASES)(
  "a script that $name refuses its own request and no other container notices",
  async (entry, { expect }) => {
    const upstream = await recordingUpstream(() => JSON_OK);
    const edge = await startTestEdge({ upstream: upstream.port, otherUpstream: upstream.port });
    const good = "module.exports = (req, res, metadata) => metadata.hook.forward(req, res);";
    edge.script("good.js", good, OTHER);
    edge.script("good.js", good);
    await edge.hook("terminal", catchAll("/good", 5000), OTHER);
    await edge.hook("terminal", {
      match: { path: "/good*" },
      script: { path: "/good" },
      timeout: 5000,
    });
    if (entry.script !== null) {
      edge.script("bad.js", entry.script);
    }
    await edge.hook("terminal", catchAll("/bad", entry.timeout ?? 5000));
    const host = edge.host("terminal-1");
    await ask(edge.port, { host, path: "/good/warm" });
    await ask(edge.port, { host: edge.host("terminal-1", OTHER), path: "/" });
    const before = upstream.requests.length;

    const [bad, other] = await Promise.all([
      ask(edge.port, { host, path: "/x" }),
      ask(edge.port, { host: edge.host("terminal-1", OTHER), path: "/fine" }),
    ]);
    expect([bad.status, bad.json["code"]]).toEqual([entry.status, entry.code]);
    expect(bad.json).toMatchObject({
      statusCode: entry.status,
      auditId: expect.stringMatching(/^[0-9a-f-]{36}$/),
    });
    expect(bad.headers["cache-control"]).toBe("no-store");
    expect(other.status).toBe(200);
    expect(upstream.requests.length).toBe(before + 1); // the other container's; nothing fell open
    if (entry.timeout !== undefined) {
      expect(bad.ms).toBeGreaterThanOrEqual(entry.timeout - 20);
      expect(bad.ms).toBeLessThan(entry.timeout + 1500);
    }
    await edge.accessLine((line) => line["path"] === "/x" && line["outcome"] === entry.outcome);
    // The same container serves again: its worker lives, or was replaced.
    const again = await ask(edge.port, { host, path: "/good/again" });
    expect(again.status).toBe(200);
  },
);

test("a deadline after the head cuts the answer and sends no 504", async ({ expect }) => {
  const edge = await startTestEdge();
  edge.script(
    "slow.js",
    `module.exports = async (req, res) => {
    res.writeHead(200, { "content-type": "text/plain" }); res.write("begun");
    await new Promise((wait) => setTimeout(wait, 3000)); res.end("never");
  };`,
  );
  await edge.hook("terminal", catchAll("/slow", 500));
  const answer = await ask(edge.port, { host: edge.host("terminal-1") });
  expect([answer.status, answer.body, answer.cut]).toEqual([200, "begun", true]);
  await edge.accessLine((line) => line["outcome"] === "truncated");
});

test("a client that leaves a hooked stream ends the request at the service", async ({ expect }) => {
  const upstream = await recordingUpstream((_request, socket) => {
    socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
    return null;
  });
  const edge = await startTestEdge({ upstream: upstream.port });
  edge.script(
    "pass.js",
    "module.exports = (req, res, metadata) => metadata.hook.forward(req, res);",
  );
  await edge.hook("terminal", catchAll("/pass", 30_000));
  const client = await rawClient(edge.port);
  client.send(`GET /events HTTP/1.1\r\nHost: ${edge.host("terminal-1")}\r\n\r\n`);
  await client.waitFor("hi");
  client.socket.destroy();
  await upstream.waitUntil(() => upstream.closed.size === 1, 4000);
  await edge.accessLine((line) => line["outcome"] === "client_gone");
  expect(upstream.closed.size).toBe(1);
});

test("a changed script and a changed rule count for the very next request", async ({ expect }) => {
  const edge = await startTestEdge();
  const say = (word: string) => `module.exports = (req, res) => res.end(${JSON.stringify(word)});`;
  edge.script("say.js", say("one"));
  const id = await edge.hook("terminal", catchAll("/say"));
  const host = edge.host("terminal-1");
  expect((await ask(edge.port, { host })).body).toBe("one");
  edge.script("say.js", say("two, longer"));
  expect((await ask(edge.port, { host })).body).toBe("two, longer");
  const path = `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`;
  await edge.api("DELETE", `${path}/${id}`, undefined, "file:v1");
  expect((await ask(edge.port, { host })).status).toBe(502); // straight to a service that is not there
});

test("handshakes on a hooked path are refused 403, over-long paths 414", async ({ expect }) => {
  const edge = await startTestEdge();
  await edge.hook("terminal", { match: { path: "/hooked*" }, script: { path: "/x" } });
  const client = await rawClient(edge.port);
  client.send(
    `GET /hooked/ws HTTP/1.1\r\nHost: ${edge.host("terminal-1")}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
  );
  const refused = await client.waitFor("HOOK_WEBSOCKET_UNSUPPORTED");
  expect(refused).toMatch(/^HTTP\/1\.1 403 Forbidden\r\n/);
  const long = await ask(edge.port, {
    host: edge.host("terminal-1"),
    path: `/hooked/${"a".repeat(4096)}`,
  });
  expect([long.status, long.json["code"]]).toEqual([414, "HOOK_PATH_TOO_LONG"]);
});

test("a broken stored rule refuses exactly the requests it fits, broken hook data the whole service", async ({
  expect,
}) => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  await edge.hook("terminal", { match: { path: "/guarded*" }, script: { path: "/x" } });
  const file = join(edge.folder, "data/policy/containers", `${CONTAINER}.json`);
  const stored = JSON.parse(readFileSync(file, "utf8")) as { hooks: Record<string, unknown> };
  const [rule] = stored.hooks["terminal"] as { script: { subdomain?: string } }[];
  writeFileSync(
    file,
    JSON.stringify({
      ...stored,
      hooks: { terminal: [{ ...rule, script: { ...rule?.script, subdomain: "s".repeat(64) } }] },
    }),
  );
  await new Promise((wait) => setTimeout(wait, 300));
  const host = edge.host("terminal-1");
  const fits = await ask(edge.port, { host, path: "/guarded/x" });
  expect([fits.status, fits.json["code"]]).toEqual([503, "HOOK_UNAVAILABLE"]);
  expect((await ask(edge.port, { host, path: "/open" })).status).toBe(200);
  const ready = await fetch(`${edge.control}/readyz`);
  expect(ready.status).toBe(503);
  writeFileSync(file, JSON.stringify({ ...stored, hooks: { terminal: "nonsense" } }));
  await new Promise((wait) => setTimeout(wait, 300));
  expect((await ask(edge.port, { host, path: "/open" })).json["code"]).toBe("HOOK_UNAVAILABLE");
  writeFileSync(file, "{ not json");
  await new Promise((wait) => setTimeout(wait, 300));
  expect((await ask(edge.port, { host, path: "/open" })).json["code"]).toBe("POLICY_UNAVAILABLE");
});

test("a container without an exec host refuses what a rule would dispatch", async ({ expect }) => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({
    upstream: upstream.port,
    container: { exec: { kind: "none" } },
  });
  await edge.hook("terminal", catchAll("/x"));
  const answer = await ask(edge.port, { host: edge.host("terminal-1") });
  expect([answer.status, answer.json["error"]]).toEqual([503, "hook target unavailable"]);
  expect(upstream.requests).toHaveLength(0);
});

test("a scripts folder that vanishes is a missing script", async ({ expect }) => {
  const edge = await startTestEdge();
  edge.script("here.js", "module.exports = (req, res) => res.end('here');");
  await edge.hook("terminal", catchAll("/here"));
  const host = edge.host("terminal-1");
  expect((await ask(edge.port, { host })).body).toBe("here");
  rmSync(join(edge.folder, "data/containers", CONTAINER, "scripts/default"), { recursive: true });
  expect((await ask(edge.port, { host })).status).toBe(404);
});

// The published samples are not kept here; where the documents lie beside the checkout they run as they are.
const SEEDS = resolve(import.meta.dirname, "../../../shared/seeds");
const seed = existsSync(SEEDS)
  ? readdirSync(SEEDS).find((name) => name.startsWith("proxy-hooks"))
  : undefined;
const text = seed === undefined ? "" : readFileSync(join(SEEDS, seed), "utf8");
const samples = [
  ...text.matchAll(/^(?:\/\/ .+\n)?module\.exports = async function[\s\S]*?^};$/gm),
].map((match) => match[0]);

test.for(
  samples
    .filter((source) => source.includes("hook.forward(req, res);"))
    .map((source, index) => [index, source] as const),
)("published forwarding sample %i runs unmodified", async ([, source], { expect }) => {
  const upstream = await recordingUpstream(() => JSON_OK);
  const edge = await startTestEdge({ upstream: upstream.port });
  edge.script("sample.js", source);
  await edge.hook("terminal", catchAll("/sample"));
  const answer = await ask(edge.port, {
    host: edge.host("terminal-1"),
    method: "POST",
    path: "/api/login",
    body: "u=1",
  });
  expect([answer.status, answer.body, upstream.requests[0]?.body]).toEqual([200, "{}", "u=1"]);
  const regular = await ask(edge.port, { host: edge.host("exec-1"), path: "/sample" });
  expect([200, 404]).toContain(regular.status);
});

test("an ordinary script that outlives the request's budget is answered 504", async ({
  expect,
}) => {
  const edge = await startTestEdge({ config: { limits: { requestBudgetMs: 900 } } });
  edge.script("never.js", "module.exports = () => new Promise(() => {});");
  const answer = await ask(edge.port, { host: edge.host("exec-1"), path: "/never" });
  expect([answer.status, answer.json["code"]]).toEqual([504, "REQUEST_BUDGET_SPENT"]);
});
