import { generateKeyPairSync, sign } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ask, type Ask } from "../support/ask.ts";
import { CONTAINER, openTestEdge, PROJECT, type TestEdge } from "../support/edge.ts";
import { HOOKS } from "../support/document-edge.ts";
import { startUpstream, type TestUpstream } from "../support/start-upstream.ts";

/*
 * The hook routes as the document lists them, what they refuse, and what the document says cannot be done with hooks.
 */

let edge: TestEdge & { close(): Promise<void> };
let upstream: TestUpstream;
const keys = generateKeyPairSync("ed25519");

beforeAll(async () => {
  upstream = await startUpstream();
  edge = await openTestEdge({
    upstream: upstream.port,
    config: {
      limits: { requestBudgetMs: 6000 },
      trustedProxies: ["127.0.0.1/32"],
      identity: {
        keys: [
          {
            kid: "v1",
            publicKeyHex: keys.publicKey
              .export({ format: "der", type: "spki" })
              .subarray(-32)
              .toString("hex"),
          },
        ],
      },
    },
  });
}, 30_000);
afterAll(async () => {
  await edge.close();
  await upstream.stop();
});

const RULE = { match: { path: "/x" }, script: { path: "/a" } };
const send = (more: Partial<Ask> = {}) =>
  ask(edge.port, { host: edge.host("terminal-1"), ...more });
const version = async () => (await edge.api("GET", HOOKS)).etag ?? "";
const idsOf = async (service: string) => {
  const { body } = await edge.api("GET", `${HOOKS}/${service}`);
  const hooks = body.data?.["hooks"] as unknown as { id: string }[];
  return hooks.map((hook) => hook.id);
};

test("eight routes, and a version for everything that changes", async () => {
  const service = `${HOOKS}/notes`;
  const create = await edge.api("POST", service, RULE, "file:v0");
  expect([create.status, create.etag]).toEqual([201, "file:v1"]);
  const [first = ""] = await idsOf("notes");
  expect(first).toMatch(/^[0-9a-z]{26}$/);
  const inserted = await edge.api("POST", service, { ...RULE, position: 0 }, "file:v1");
  expect([inserted.status, inserted.etag]).toEqual([201, "file:v2"]);
  const [second = ""] = await idsOf("notes");
  expect(await idsOf("notes")).toEqual([second, first]);

  const writes: readonly (readonly [string, string, unknown])[] = [
    ["POST", service, RULE],
    ["PUT", `${service}/${first}`, RULE],
    ["PATCH", `${service}/${first}/position`, { position: 0 }],
    ["DELETE", `${service}/${first}`, undefined],
    ["DELETE", service, undefined],
  ];
  for (const [method, path, body] of writes) {
    const missing = await edge.api(method, path, body);
    expect([missing.status, missing.body["code"]], `${method} ${path}`).toEqual([
      428,
      "PRECONDITION_REQUIRED",
    ]);
    for (const stale of ["file:v1", "file:v3", "*", "2", "file:v02", 'W/"file:v2"']) {
      const refused = await edge.api(method, path, body, stale);
      expect(refused.status, `${method} ${stale}`).toBe(412);
    }
  }
  expect(await idsOf("notes")).toEqual([second, first]);

  const one = await edge.api("GET", `${service}/${first}`);
  expect(one.body.data).toMatchObject({ hook: { id: first }, etag: "file:v2" });
  const all = await edge.api("GET", HOOKS);
  expect(Object.keys(all.body.data?.["hooks"] ?? {})).toEqual(["notes"]);
  const replaced = await edge.api(
    "PUT",
    `${service}/${first}`,
    { ...RULE, timeout: 700 },
    '"file:v2"',
  );
  expect(replaced.body.data).toMatchObject({ hook: { id: first, position: 1, timeout: 700 } });
  const moved = await edge.api("PATCH", `${service}/${first}/position`, { position: 0 }, "file:v3");
  expect([moved.status, await idsOf("notes")]).toEqual([200, [first, second]]);
  const removed = await edge.api("DELETE", `${service}/${first}`, undefined, "file:v4");
  expect([removed.status, await idsOf("notes")]).toEqual([200, [second]]);
  expect((await edge.api("GET", `${service}/${first}`)).status).toBe(404);
  const cleared = await edge.api("DELETE", service, undefined, "file:v5");
  expect(cleared.body.data).toMatchObject({ removed: 1, etag: "file:v6" });
});

test("eight hooks of a service and thirty-two of a container, and no more", async () => {
  let etag = await version();
  for (const service of ["run", "curl", "watch", "cron"]) {
    for (let count = 0; count < 8; count++) {
      const made = await edge.api("POST", `${HOOKS}/${service}`, RULE, etag);
      expect(made.status).toBe(201);
      etag = made.etag ?? "";
    }
    expect((await edge.api("POST", `${HOOKS}/${service}`, RULE, etag)).status).toBe(422);
  }
  expect((await edge.api("POST", `${HOOKS}/pipe`, RULE, etag)).status).toBe(422);
  for (const service of ["run", "curl", "watch", "cron"]) {
    etag = (await edge.api("DELETE", `${HOOKS}/${service}`, undefined, etag)).etag ?? "";
  }
});

test("what a match and a script may be", async () => {
  const scripts = {
    good: [
      { path: "/" },
      { path: "/A.b_c-d/E" },
      { path: `/${"a".repeat(256)}` },
      { path: "/a", subdomain: "a".repeat(63) },
      { path: "/a", execId: "0".repeat(64) },
      { path: "/.x/...y" },
    ],
    bad: [
      { path: "" },
      { path: "a" },
      { path: `/${"a".repeat(257)}` },
      { path: "/a/../b" },
      { path: "/./a" },
      { path: "/a//b" },
      { path: "/a\u0000" },
      { path: "/a*" },
      { path: "/a%41" },
      { path: "/a b" },
      { path: "/a:b" },
      { path: "/\u00e9" },
      { path: "/a", subdomain: "a".repeat(64) },
      { path: "/a", subdomain: "" },
      { path: "/a", subdomain: "my-app" },
      { path: "/a", execId: "0".repeat(65) },
      { path: "/a", execId: "A" },
      {},
    ],
  };
  const matches = {
    good: [
      {},
      { method: "*" },
      { method: "post" },
      { method: ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] },
      { path: "*" },
      { path: "/a/*/b*" },
      { headers: {} },
      { headers: { "X-A": "" } },
    ],
    bad: [
      { method: ["*"] },
      { method: ["*", "OPTIONS"] },
      { method: [] },
      { method: ["GET", "GET"] },
      { method: ["GET", "get"] },
      { method: "CONNECT" },
      { method: ["TRACE"] },
      { headers: { "x a": "1" } },
      { headers: { "": "1" } },
      { headers: { "X-A": "1", "x-a": "2" } },
      { headers: { "x-a": ["1"] } },
    ],
  };
  const status = async (rule: object) => {
    const etag = await version();
    const made = await edge.api("POST", `${HOOKS}/sqlite`, rule, etag);
    if (made.status === 201) {
      await edge.api("DELETE", `${HOOKS}/sqlite`, undefined, made.etag ?? "");
    }
    return made.status;
  };
  for (const script of scripts.good) {
    expect(await status({ match: {}, script }), JSON.stringify(script)).toBe(201);
  }
  for (const script of scripts.bad) {
    expect(await status({ match: {}, script }), JSON.stringify(script)).toBe(422);
  }
  for (const match of matches.good) {
    expect(await status({ ...RULE, match }), JSON.stringify(match)).toBe(201);
  }
  for (const match of matches.bad) {
    expect(await status({ ...RULE, match }), JSON.stringify(match)).toBe(422);
  }
});

test("projects have no hooks, and other writes carry none", async () => {
  const project = `/api/v1/projects/${PROJECT}/proxy`;
  const document = { project: PROJECT, groups: {}, permissions: {} };
  for (const hooks of [{ terminal: [RULE] }, {}]) {
    const answer = await edge.api(
      "PUT",
      `${project}/permissions`,
      { ...document, hooks },
      "file:v0",
    );
    expect(answer.status).toBe(422);
  }
  const route = await edge.api("POST", `${project}/hooks/terminal`, RULE, "file:v0");
  expect(route.status).toBe(422);
  expect(route.body.message).toMatch(/container/);
  const made = await edge.api("POST", `${HOOKS}/notes`, RULE, await version());
  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions`;
  const bulk = { groups: {}, permissions: {}, default: "allow" };
  const refused = await edge.api(
    "PUT",
    path,
    { ...bulk, hooks: { notes: [RULE] } },
    made.etag ?? "",
  );
  expect(refused.status).toBe(422);
  const empty = await edge.api("PUT", path, { ...bulk, hooks: {} }, made.etag ?? "");
  expect(empty.status).toBe(200);
  expect(await idsOf("notes")).toHaveLength(1);
  // They are stored in that document all the same.
  const read = await edge.api("GET", path);
  expect(read.body.data).toMatchObject({ hooks: { notes: [RULE] }, etag: read.etag });
  // A filter names groups of the container's own document.
  const shared = `${project}/permissions/groups/shared/ip`;
  expect((await edge.api("PUT", shared, { range: "10.0.0.0/8" }, "file:v0")).status).toBe(200);
  const filtered = { ...RULE, applies_to: { groups: ["shared"] } };
  const unknown = await edge.api("POST", `${HOOKS}/notes`, filtered, await version());
  expect(unknown.status).toBe(422);
  expect((await edge.api("DELETE", `${project}/permissions`, undefined, "file:v1")).status).toBe(
    200,
  );
  await edge.api("DELETE", `${HOOKS}/notes`, undefined, await version());
});

test("the client's address reaches the script, whatever proxy the request came through", async () => {
  edge.script(
    "address.js",
    "module.exports = (req, res, metadata) => [req.socket.remoteAddress, req.headers['x-real-ip'], req.headers['x-forwarded-for'], metadata.clientIp];",
  );
  const id = await edge.hook("terminal", {
    match: {},
    script: { path: "/address" },
    timeout: 15_000,
  });
  const headers = { "x-forwarded-for": "198.51.100.1, 203.0.113.9" };
  const seen = ["203.0.113.9", "203.0.113.9", "203.0.113.9", "203.0.113.9"];
  expect((await send({ headers })).json).toEqual(seen);
  expect((await send({ host: edge.host("exec-1"), path: "/address", headers })).json).toEqual(seen);
  await edge.api("DELETE", `${HOOKS}/terminal/${id}`, undefined, await version());
});

test("a hook that asks the public address again ends after a few rounds, however it asks", async () => {
  edge.script("lib/ask.js", "exports.ask = (url, options) => fetch(url, options);");
  const id = await edge.hook("terminal", { match: {}, script: { path: "/loop" }, timeout: 1500 });
  const host = edge.host("terminal-1");
  const url = `'http://127.0.0.1:${edge.port}' + req.url`;
  const options = `{ headers: { host: '${host}' } }`;
  for (const again of [
    `await metadata.hook.forward(req, res, { host: '127.0.0.1', port: ${edge.port} });`,
    `return await metadata.hook.fetchUpstream(req, { host: '127.0.0.1', port: ${edge.port}, headers: { 'x-hoody-hook-depth': '0' } });`,
    `return await fetch(${url}, ${options});`,
    `return await require('./lib/ask.js').ask(${url}, ${options});`,
    `await new Promise((done, fail) => require('http').get(${url}, ${options}, (up) => { res.statusCode = up.statusCode; up.pipe(res); up.on('end', done); }).on('error', fail));`,
  ]) {
    edge.script(
      "loop.js",
      `module.exports = async (req, res, metadata, shared) => { shared.count = (shared.count ?? 0) + 1; ${again} };`,
    );
    edge.script(
      "count.js",
      "module.exports = (req, res, metadata, shared) => { const { count } = shared; shared.count = 0; return { count }; };",
    );
    const answer = await send({ path: "/again" });
    expect(answer.status, again).toBe(508);
    const counted = await send({ host: edge.host("exec-1"), path: "/count" });
    expect(counted.json["count"], again).toBe(8);
  }
  await edge.api("DELETE", `${HOOKS}/terminal/${id}`, undefined, await version());
  const after = await send();
  expect(after.status).toBe(200);
  expect(
    Object.keys(upstream.received.at(-1)?.headers ?? {}).filter((name) => /depth/.test(name)),
  ).toEqual([]);
}, 40_000);

test("the native identity group needs a permission entry and no code", async () => {
  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions`;
  const document = {
    default: "deny",
    groups: { members: { type: "hoody-identity", audience: "app.example", expose_type: true } },
    permissions: { members: { terminal: true } },
  };
  const stored = await edge.api("PUT", path, document, await version());
  expect(stored.status).toBe(200);
  const now = Math.floor(Date.now() / 1000);
  const payload = Buffer.from(
    JSON.stringify({
      claim_type: "identity",
      iss: "hoody-api",
      sub: "65f0c0ffee65f0c0ffee65f0",
      username: "ada",
      type: "user",
      aud: "app.example",
      kid: "v1",
      iat: now,
      exp: now + 600,
    }),
  ).toString("base64url");
  const claim = `v1.${payload}.${sign(null, Buffer.from(payload), keys.privateKey).toString("hex")}`;
  const headers = { "X-Hoody-Identity-Claim": claim, "x-hoody-identity-username": "root" };
  expect((await send()).status).toBe(401);
  expect((await send({ headers })).status).toBe(200);
  const seen = upstream.received.at(-1)?.headers ?? {};
  const names = Object.keys(seen).filter((name) => name.startsWith("x-hoody-identity-"));
  expect(names.toSorted()).toEqual([
    "x-hoody-identity-type",
    "x-hoody-identity-user-id",
    "x-hoody-identity-username",
  ]);
  expect(seen["x-hoody-identity-username"]).toBe("ada");
  await edge.api("DELETE", path, undefined, await version());
});

test("every dispatch is tried to be recorded, with what the script was told", async () => {
  edge.script(
    "told.js",
    "module.exports = (req, res, metadata) => ({ id: metadata.hook.auditId });",
  );
  const id = await edge.hook("terminal", { match: {}, script: { path: "/told" }, timeout: 15_000 });
  const ids: unknown[] = [];
  for (let count = 0; count < 3; count++) {
    ids.push((await send({ path: `/n${count}` })).json["id"]);
  }
  await expect
    .poll(
      async () => {
        const { body } = await edge.api(
          "GET",
          `/api/v1/containers/${CONTAINER}/proxy/audit?limit=3`,
        );
        const records = body.data?.["records"] as unknown as Record<string, unknown>[];
        return records.map((record) => [record["audit_id"], record["hook_id"], record["outcome"]]);
      },
      { timeout: 10_000 },
    )
    .toEqual(ids.toReversed().map((one) => [one, id, "answered"]));
});
