import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { createMemoryStore } from "../../policy/store/memory-store.ts";
import { StoreError } from "../../policy/store/store.ts";
import { CONTAINER, OTHER_CONTAINER, policyApi, PROJECT } from "../support/policy-api.ts";

const HOOKS = `/api/v1/containers/${CONTAINER}/proxy/hooks`;
const TERMINAL = `${HOOKS}/terminal`;
const RULE = {
  match: { method: ["post"], path: "/api/login*" },
  script: { path: "/login-audit" },
  timeout: 500,
};
const UNKNOWN_ID = "0".repeat(26);

/** A service with `count` hooks; ids in order. */
async function withHooks(count: number, service = "terminal", api = policyApi()) {
  const ids: string[] = [];
  for (let i = 0; i < count; i++) {
    const list = await api.call("GET", HOOKS);
    const answer = await api.call("POST", `${HOOKS}/${service}`, {
      ifMatch: list.body.data.etag,
      body: { ...RULE, script: { path: `/s${i}` } },
    });
    expect(answer.status).toBe(201);
    ids.push(answer.body.data.hook.id);
  }
  return { ...api, ids, etag: (await api.call("GET", HOOKS)).body.data.etag as string };
}

function storeText(dataDir: string, text: string): string {
  const path = join(dataDir, "policy/containers", `${CONTAINER}.json`);
  mkdirSync(join(dataDir, "policy/containers"), { recursive: true });
  writeFileSync(path, text);
  return path;
}

describe("create", () => {
  test("answers 428, then 412, then 201 with the stored form, id, position and version", async () => {
    const { call } = policyApi();
    expect(await call("POST", TERMINAL, { body: RULE })).toMatchObject({
      status: 428,
      body: { statusCode: 428, error: "Precondition Required", code: "PRECONDITION_REQUIRED" },
    });
    expect((await call("POST", TERMINAL, { body: RULE, ifMatch: " " })).status).toBe(428);
    for (const ifMatch of ["file:v1", "*", 'W/"file:v0"', "file:v00", '"file:v0', "v0"]) {
      expect((await call("POST", TERMINAL, { body: RULE, ifMatch })).status, ifMatch).toBe(412);
    }
    const created = await call("POST", TERMINAL, { body: RULE, ifMatch: ' "file:v0" ' });
    expect(created).toMatchObject({
      status: 201,
      body: {
        statusCode: 201,
        message: "Hook created successfully",
        data: {
          hook: {
            position: 0,
            match: { method: ["POST"], path: "/api/login*" },
            script: { path: "/login-audit" },
            timeout: 500,
          },
          file_version: 1,
          etag: "file:v1",
        },
      },
    });
    expect(created.body.data.hook.id).toMatch(/^[0-9a-hjkmnp-tv-z]{26}$/);
    expect(created.headers.get("etag")).toBe("file:v1");
  });

  test("inserts before a position and clamps one past the end", async () => {
    const { call, ids, etag } = await withHooks(2);
    const first = await call("POST", TERMINAL, { ifMatch: etag, body: { ...RULE, position: 1 } });
    expect(first.body.data.hook.position).toBe(1);
    const last = await call("POST", TERMINAL, {
      ifMatch: first.body.data.etag,
      body: { ...RULE, position: 99 },
    });
    expect(last.body.data.hook.position).toBe(3);
    const list = await call("GET", TERMINAL);
    expect(list.body.data.hooks.map((hook: { id: string }) => hook.id)).toEqual([
      ids[0],
      first.body.data.hook.id,
      ids[1],
      last.body.data.hook.id,
    ]);
    expect(
      (
        await call("POST", TERMINAL, {
          ifMatch: list.body.data.etag,
          body: { ...RULE, position: -1 },
        })
      ).body,
    ).toMatchObject({
      statusCode: 422,
      data: [{ path: "/position" }],
    });
  });

  test("refuses the ninth hook of a service and the thirty-third of a container", async () => {
    let api = await withHooks(8);
    expect((await api.call("POST", TERMINAL, { ifMatch: api.etag, body: RULE })).status).toBe(422);
    for (const service of ["files", "notes", "run"]) {
      api = await withHooks(8, service, api);
    }
    const answer = await api.call("POST", `${HOOKS}/curl`, { ifMatch: api.etag, body: RULE });
    expect(answer.status).toBe(422);
    expect(answer.body.message).toContain("at most 32");
  });

  test.for([
    [{ ...RULE, match: { method: ["*"] } }, "/match/method/0"],
    [{ ...RULE, match: { method: [] } }, "/match/method"],
    [{ ...RULE, match: { method: ["*", "OPTIONS"] } }, "/match/method/0"],
    [{ ...RULE, match: { method: ["GET", "get"] } }, "/match/method"],
    [{ ...RULE, match: { method: "TRACE" } }, "/match/method"],
    [{ ...RULE, match: { path: "api" } }, "/match/path"],
    [{ ...RULE, match: { path: "/a b" } }, "/match/path"],
    [{ ...RULE, match: { path: null } }, "/match/path"],
    [{ ...RULE, match: { headers: { "X-A": "1", "x-a": "2" } } }, "/match/headers/x-a"],
    [{ ...RULE, match: { headers: { "x a": "1" } } }, "/match/headers/x a"],
    [{ ...RULE, match: { headers: { "x-a": 1 } } }, "/match/headers/x-a"],
    [{ ...RULE, match: { pth: "/" } }, "/match/pth"],
    [{ script: RULE.script }, "/match"],
    [{ match: {} }, "/script"],
    [{ match: {}, script: { path: "login" } }, "/script/path"],
    [{ match: {}, script: { path: "/a/../b" } }, "/script/path"],
    [{ match: {}, script: { path: "/a/." } }, "/script/path"],
    [{ match: {}, script: { path: "/a//b" } }, "/script/path"],
    [{ match: {}, script: { path: "/a%2e" } }, "/script/path"],
    [{ match: {}, script: { path: "/a*" } }, "/script/path"],
    [{ match: {}, script: { path: "/a", subdomain: "a".repeat(64) } }, "/script/subdomain"],
    [{ match: {}, script: { path: "/a", subdomain: "A" } }, "/script/subdomain"],
    [{ match: {}, script: { path: "/a", execId: "a-b" } }, "/script/execId"],
    [{ ...RULE, timeout: 0 }, "/timeout"],
    [{ ...RULE, timeout: 30_001 }, "/timeout"],
    [{ ...RULE, timeout: 1.5 }, "/timeout"],
    [{ ...RULE, timeout: null }, "/timeout"],
    [{ ...RULE, applies_to: {} }, "/applies_to/groups"],
    [{ ...RULE, applies_to: { groups: [] } }, "/applies_to/groups"],
    [{ ...RULE, applies_to: { groups: ["nobody"] } }, "/applies_to/groups/0"],
    [{ ...RULE, applys_to: { groups: ["x"] } }, "/applys_to"],
  ] as const)("answers 422 with the pointer for %j", async ([body, path]) => {
    const { call } = policyApi();
    const answer = await call("POST", TERMINAL, { ifMatch: "file:v0", body });
    expect(answer).toMatchObject({
      status: 422,
      body: { error: "Validation Error", code: "VALIDATION_ERROR" },
    });
    expect(answer.body.data.map((issue: { path: string }) => issue.path)).toContain(path);
    expect(answer.body.message).toContain(path);
    expect((await call("GET", TERMINAL)).body.data).toMatchObject({ hooks: [], file_version: 0 });
  });

  test("reports every problem at once", async () => {
    const { call } = policyApi();
    const body = {
      match: { method: [], path: 1 },
      script: { path: "x", execId: "-" },
      timeout: 0,
      position: "a",
      more: 1,
    };
    const answer = await call("POST", TERMINAL, { ifMatch: "file:v0", body });
    expect(new Set(answer.body.data.map((issue: { path: string }) => issue.path))).toEqual(
      new Set([
        "/match/method",
        "/match/path",
        "/script/path",
        "/script/execId",
        "/timeout",
        "/position",
        "/more",
      ]),
    );
  });

  test("stores header names lower case, drops the subdomain default, collapses group names", async () => {
    const { call, dataDir } = policyApi();
    storeText(
      dataDir,
      JSON.stringify({ file_version: 4, groups: { staff: { type: "ip", range: "10.0.0.0/8" } } }),
    );
    const body = {
      id: "ignored",
      match: { method: "get", headers: { "X-Tenant": "Alice" } },
      script: { path: "/a", subdomain: "default" },
      applies_to: { groups: ["staff", "staff"] },
    };
    const answer = await call("POST", TERMINAL, { ifMatch: "file:v4", body });
    expect(answer.body.data.hook).toEqual({
      id: expect.not.stringMatching("ignored") as string,
      position: 0,
      match: { method: "GET", headers: { "x-tenant": "Alice" } },
      script: { path: "/a" },
      applies_to: { groups: ["staff"] },
    });
    expect(answer.body.data.file_version).toBe(5);
  });
});

describe("other calls", () => {
  test("list, read, replace, move, delete and clear keep order and ids", async () => {
    const { call, ids, etag } = await withHooks(3);
    const [a, b, c] = ids as [string, string, string];
    expect((await call("GET", `${TERMINAL}/${b}`)).body.data).toMatchObject({
      hook: { id: b, position: 1 },
      etag,
    });
    const replaced = await call("PUT", `${TERMINAL}/${b}`, {
      ifMatch: etag,
      body: { id: "x", position: 7, match: {}, script: { path: "/new" } },
    });
    expect(replaced.body.data).toEqual({
      hook: { id: b, position: 1, match: {}, script: { path: "/new" } },
      file_version: 4,
      etag: "file:v4",
    });
    expect(
      (await call("PATCH", `${TERMINAL}/${b}`, { ifMatch: "file:v4", body: RULE })).status,
    ).toBe(200);
    const moved = await call("PATCH", `${TERMINAL}/${c}/position`, {
      ifMatch: "file:v5",
      body: { position: 0 },
    });
    expect(moved.body.data.hook).toMatchObject({ id: c, position: 0 });
    const list = await call("GET", HOOKS);
    expect(list.body.data.hooks.terminal.map((hook: { id: string }) => hook.id)).toEqual([c, a, b]);
    expect(Object.keys(list.body.data.hooks)).toEqual(["terminal"]);
    expect((await call("DELETE", `${TERMINAL}/${a}`, { ifMatch: "file:v6" })).body.data).toEqual({
      file_version: 7,
      etag: "file:v7",
    });
    expect((await call("DELETE", TERMINAL, { ifMatch: "file:v7" })).body.data).toMatchObject({
      removed: 2,
      file_version: 8,
    });
    expect((await call("DELETE", TERMINAL, { ifMatch: "file:v8" })).body.data).toMatchObject({
      removed: 0,
      file_version: 8,
    });
  });

  test.for([
    ["POST", TERMINAL, { body: RULE, token: null }, 401],
    ["POST", TERMINAL, { body: RULE, token: "wrong" }, 401],
    ["GET", "/api/v1/containers/xyz/proxy/hooks", {}, 400],
    ["GET", `/api/v1/containers/${PROJECT}/proxy/hooks/UPPER`, {}, 400],
    ["GET", `/api/v1/containers/${PROJECT}/proxy/hooks`, {}, 404],
    ["GET", `${HOOKS}/constructor`, {}, 400],
    ["GET", `${HOOKS}/__proto__`, {}, 400],
    ["GET", `${HOOKS}/logs`, {}, 404],
    ["POST", `${HOOKS}/cdp`, { body: RULE }, 404],
    ["GET", `${HOOKS}/t`, {}, 422],
    ["POST", `${HOOKS}/http`, { body: RULE, ifMatch: "file:v0" }, 422],
    ["POST", `${HOOKS}/nonsense`, { body: RULE }, 422],
    ["GET", `${TERMINAL}/short`, {}, 400],
    ["GET", `${TERMINAL}/${UNKNOWN_ID}`, {}, 404],
    ["DELETE", `${TERMINAL}/${UNKNOWN_ID}`, {}, 428],
    ["DELETE", `${TERMINAL}/${UNKNOWN_ID}`, { ifMatch: "file:v9" }, 412],
    ["DELETE", `${TERMINAL}/${UNKNOWN_ID}`, { ifMatch: "file:v0" }, 404],
    ["PUT", `${TERMINAL}/${UNKNOWN_ID}`, { ifMatch: "file:v9", raw: "{" }, 412],
    ["PUT", `${TERMINAL}/${UNKNOWN_ID}`, { ifMatch: "file:v0", raw: "{" }, 400],
    ["PUT", `${TERMINAL}/${UNKNOWN_ID}`, { ifMatch: "file:v0", body: {} }, 404],
    ["PATCH", `${TERMINAL}/${UNKNOWN_ID}/position`, { ifMatch: "file:v0", body: {} }, 404],
    [
      "POST",
      TERMINAL,
      { ifMatch: "file:v0", raw: '{"match":{},"match":{},"script":{"path":"/a"}}' },
      400,
    ],
    [
      "POST",
      TERMINAL,
      { ifMatch: "file:v0", raw: '{"match":{"headers":{"__proto__":"x"}},"script":{"path":"/a"}}' },
      400,
    ],
    ["POST", TERMINAL, { ifMatch: "file:v0", raw: "[".repeat(5000) + "]".repeat(5000) }, 400],
    ["POST", TERMINAL, { ifMatch: "file:v0", raw: new Uint8Array([0x22, 0xff, 0x22]) }, 400],
    ["POST", TERMINAL, { ifMatch: "file:v0" }, 400],
    [
      "POST",
      TERMINAL,
      { ifMatch: "file:v0", body: RULE, headers: { "content-type": "text/plain" } },
      400,
    ],
    ["POST", TERMINAL, { ifMatch: "file:v0", raw: "[]" }, 422],
    ["POST", TERMINAL, { ifMatch: "file:v0", raw: `"${"x".repeat(2_000_000)}"` }, 413],
  ] as const)("%s %s: case %#", async ([method, path, options, status]) => {
    const { call } = policyApi();
    const answer = await call(method, path, options);
    expect(answer.status).toBe(status);
    expect(answer.body).toMatchObject({
      statusCode: status,
      message: expect.any(String) as string,
    });
    if (status !== 401 && path.includes(CONTAINER)) {
      expect(answer.headers.get("etag")).toBe("file:v0");
    }
  });

  test("names the canonical service for a short name", async () => {
    const { call } = policyApi();
    expect((await call("GET", `${HOOKS}/t`)).body.message).toContain('"terminal"');
  });

  test("a hook id under another service is 404", async () => {
    const { call, ids } = await withHooks(1);
    expect((await call("GET", `${HOOKS}/files/${ids[0]}`)).status).toBe(404);
  });

  test("one of twenty writers with the same version wins", async () => {
    const { call } = policyApi();
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => call("POST", TERMINAL, { ifMatch: "file:v0", body: RULE })),
    );
    expect(answers.map((answer) => answer.status).toSorted((a, b) => a - b)).toEqual([
      201,
      ...Array.from({ length: 19 }, () => 412),
    ]);
    expect((await call("GET", TERMINAL)).body.data).toMatchObject({ file_version: 1, hooks: [{}] });
  });

  test("a write is live for the next request", async () => {
    const { call, cache } = policyApi();
    expect((await cache.get(PROJECT, CONTAINER)).hooks.size).toBe(0);
    await call("POST", TERMINAL, { ifMatch: "file:v0", body: RULE });
    expect((await cache.get(PROJECT, CONTAINER)).hooks.get("terminal")).toMatchObject({
      kind: "rules",
    });
    expect((await cache.get(PROJECT, OTHER_CONTAINER)).hooks.size).toBe(0);
  });
});

describe("stored data that cannot be read", () => {
  const broken = '{"a" :  1.0,\n  "b":[ 1e3 ]}';
  const document = `{"file_version": 7, "note": { "kept" :true }, "hooks": {"files": ${broken}, "terminal": []}}`;

  test("one service answers 503 with the reason, other writes keep its bytes, clearing repairs it", async () => {
    const { call, dataDir } = policyApi();
    const path = storeText(dataDir, document);
    const read = await call("GET", `${HOOKS}/files`);
    expect(read).toMatchObject({ status: 503, body: { code: "SERVICE_UNAVAILABLE" } });
    expect(read.body.message).toContain("must be an array");
    expect((await call("POST", `${HOOKS}/files`, { ifMatch: "file:v7", body: RULE })).status).toBe(
      503,
    );
    expect((await call("POST", TERMINAL, { ifMatch: "file:v7", body: RULE })).status).toBe(201);
    expect(readFileSync(path, "utf8")).toContain(broken);
    expect(readFileSync(path, "utf8")).toContain('{ "kept" :true }');
    expect((await call("DELETE", `${HOOKS}/files`, { ifMatch: "file:v8" })).status).toBe(200);
    expect((await call("GET", `${HOOKS}/files`)).body.data).toMatchObject({
      hooks: [],
      file_version: 9,
    });
  });

  test("a whole document that is no JSON answers 503 and is not written over", async () => {
    const { call, dataDir } = policyApi();
    const path = storeText(dataDir, "{ oops");
    expect((await call("GET", HOOKS)).status).toBe(503);
    expect((await call("DELETE", TERMINAL, { ifMatch: "file:v0" })).status).toBe(503);
    expect(readFileSync(path, "utf8")).toBe("{ oops");
  });

  test("a broken rule is shown as stored and can be replaced or removed", async () => {
    const { call, dataDir } = policyApi();
    const id = "0123456789abcdefghjkmnpqrs";
    const rule = { id, match: {}, script: { path: "/a", subdomain: "x".repeat(70) } };
    storeText(dataDir, JSON.stringify({ file_version: 1, hooks: { terminal: [rule] } }));
    expect((await call("GET", TERMINAL)).body.data.hooks).toEqual([{ position: 0, ...rule }]);
    expect(
      (await call("PUT", `${TERMINAL}/${id}`, { ifMatch: "file:v1", body: RULE })).status,
    ).toBe(200);
  });
});

test("a store that takes no writes answers 503 in words; reads go on", async () => {
  const store = createMemoryStore();
  const full = () => Promise.reject(new StoreError("no space is left for policy documents"));
  const { call } = policyApi({ store: { ...store, update: full } });
  const refused = await call("POST", TERMINAL, { ifMatch: "file:v0", body: RULE });
  expect(refused).toMatchObject({ status: 503, body: { code: "SERVICE_UNAVAILABLE" } });
  expect(refused.body.message).toContain("no space is left");
  expect((await call("GET", TERMINAL)).status).toBe(200);
});

test("a data folder that is gone answers 503 and turns readiness red", async () => {
  const { call, dataDir, cache } = policyApi();
  rmSync(join(dataDir, "policy"), { recursive: true });
  expect((await call("GET", TERMINAL)).body.message).toContain("the data folder is gone");
  expect((await cache.get(PROJECT, CONTAINER)).unavailable).toBe("the data folder is gone");
  const ready = await call("GET", "/readyz", { token: null });
  expect(ready).toMatchObject({ status: 503, body: { parts: { "policy store": { ok: false } } } });
});

test("readiness, which is open to everyone, shows no contents", async () => {
  const { call, dataDir } = policyApi();
  storeText(
    dataDir,
    JSON.stringify({ groups: ["secret-1"], hooks: { terminal: { key: "secret-2" } } }),
  );
  const ready = await call("GET", "/readyz", { token: null });
  expect(ready.status).toBe(503);
  expect(JSON.stringify(ready.body)).not.toContain("secret");
});

test("open paths need no token", async () => {
  const { call } = policyApi({
    readiness: () => ({ edge: { ok: false, reason: "draining" } }),
  });
  expect((await call("GET", "/healthz", { token: null })).status).toBe(200);
  expect(await call("GET", "/readyz", { token: null })).toMatchObject({
    status: 503,
    body: { parts: { edge: { ok: false, reason: "draining" } } },
  });
  expect((await call("GET", "/metrics", { token: null })).body).toContain(
    "interpose_policy_cache_total",
  );
  expect((await call("GET", "/openapi.json", { token: null })).body.paths).toHaveProperty(
    "/api/v1/containers/{id}/proxy/hooks/{service}/{hookId}/position",
  );
  expect((await call("GET", "/api/v1/meta/limits", { token: null })).body.data.limits).toHaveLength(
    1,
  );
  expect(
    (await call("GET", "/api/v1/meta/public-key", { token: null })).body.data.active_kid,
  ).toBeNull();
});

test("browsers of any origin may call", async () => {
  const { call } = policyApi();
  const preflight = await call("OPTIONS", TERMINAL, {
    token: null,
    headers: { origin: "https://a.example", "access-control-request-method": "PUT" },
  });
  expect(preflight.status).toBe(204);
  expect(preflight.headers.get("access-control-allow-headers")).toBe(
    "Authorization,Content-Type,If-Match,X-Hoody-Client-ID,X-Hoody-Client-Name",
  );
  const refused = await call("GET", HOOKS, {
    token: null,
    headers: { origin: "https://a.example" },
  });
  expect(refused.status).toBe(401);
  expect(refused.headers.get("access-control-allow-origin")).toBe("*");
  expect(refused.headers.get("access-control-expose-headers")).toBe("ETag,Retry-After");
});

test("containers are listed as the public client reads them", async () => {
  const { call } = policyApi();
  const one = { id: CONTAINER, project_id: PROJECT, server_name: "local", status: "running" };
  expect((await call("GET", `/api/v1/containers/${CONTAINER}`)).body.data).toEqual(one);
  const list = await call("GET", "/api/v1/containers");
  expect(list.body.data.count).toBe(2);
  expect(list.body.data.containers[0]).toEqual(one);
});
