import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { CONTAINER, policyApi, PROJECT } from "../support/policy-api.ts";

const BASE = `/api/v1/containers/${CONTAINER}/proxy`;
const PERMISSIONS = `${BASE}/permissions`;
const PROJECT_PERMISSIONS = `/api/v1/projects/${PROJECT}/proxy/permissions`;
const IP = { type: "ip", range: "10.0.0.0/8" };
const DOCUMENT = { groups: { staff: IP }, permissions: { staff: { terminal: true } } };

type Call = ReturnType<typeof policyApi>["call"];

/** Makes one write after another, each with the current version; all must succeed. */
async function write(call: Call, ...steps: readonly (readonly [string, string, unknown?])[]) {
  let answer;
  for (const [method, path, body] of steps) {
    const settings = path.startsWith("/api/v1/projects") ? PROJECT_PERMISSIONS : `${BASE}/settings`;
    const etag = (await call("GET", settings)).body.data.etag as string;
    answer = await call(method, path, { ifMatch: etag, ...(body === undefined ? {} : { body }) });
    expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300);
  }
  return answer?.body.data;
}

describe("document", () => {
  test("without a document everything is open, at version 0", async () => {
    const { call } = policyApi();
    const answer = await call("GET", PERMISSIONS);
    expect(answer).toMatchObject({
      status: 200,
      body: {
        data: {
          project: PROJECT,
          container: CONTAINER,
          groups: {},
          permissions: {},
          default: "allow",
          enable_proxy: true,
          hooks: {},
          file_version: 0,
          etag: "file:v0",
        },
      },
    });
    expect(answer.headers.get("etag")).toBe("file:v0");
  });

  test.for(["PUT", "PATCH"])(
    "%s replaces; an omitted default is deny, an omitted enable_proxy is true",
    async (method) => {
      const { call, dataDir } = policyApi();
      const answer = await call(method, PERMISSIONS, {
        ifMatch: "file:v0",
        body: {
          ...DOCUMENT,
          file_version: 99,
          etag: "x",
          schema_version: 2,
          hooks: {},
          project: PROJECT,
          container: CONTAINER,
        },
      });
      expect(answer.body.data).toMatchObject({
        ...DOCUMENT,
        default: "deny",
        enable_proxy: true,
        file_version: 1,
      });
      const stored = JSON.parse(
        readFileSync(join(dataDir, "policy/containers", `${CONTAINER}.json`), "utf8"),
      );
      expect(stored).toMatchObject({
        project: PROJECT,
        container: CONTAINER,
        default: "deny",
        file_version: 1,
      });
      const again = await call(method, PERMISSIONS, {
        ifMatch: "file:v1",
        body: { groups: {}, permissions: {}, default: "allow" },
      });
      expect(again.body.data).toMatchObject({
        groups: {},
        permissions: {},
        default: "allow",
        file_version: 2,
      });
    },
  );

  test("PUT hashes passwords and makes short names canonical", async () => {
    const { call } = policyApi();
    const body = {
      groups: { web: [{ type: "password", username: "u", password: "p", salt: "s" }, IP] },
      permissions: { web: { t: [1, 2] } },
    };
    const data = (await call("PUT", PERMISSIONS, { ifMatch: "file:v0", body })).body.data;
    expect(data.groups.web[0].password).toMatch(/^[0-9a-f]{64}$/);
    expect(data.permissions).toEqual({ web: { terminal: [1, 2] } });
  });

  test.for([
    [{ permissions: {} }, 400, "/groups"],
    [{ groups: {}, permissions: {}, default: "open" }, 400, "/default"],
    [{ groups: {}, permissions: {}, more: 1 }, 400, "/more"],
    [{ groups: { "a b": IP }, permissions: {} }, 400, "/groups/a b"],
    [{ groups: { a: '{"type":"ip"}' }, permissions: {} }, 400, "/groups/a"],
    [
      { groups: { a: { type: "ip", range: "300.0.0.0/8" } }, permissions: {} },
      400,
      "/groups/a/range",
    ],
    [{ groups: {}, permissions: { a: { terminal: true } } }, 400, "/permissions/a"],
    [{ groups: { a: IP }, permissions: { a: { web: true } } }, 400, "/permissions/a/web"],
    [{ groups: { a: IP }, permissions: { a: { "*": true } } }, 400, "/permissions/a/*"],
    [{ groups: { a: IP }, permissions: { a: { files: 3 } } }, 400, "/permissions/a/files"],
    [{ groups: {}, permissions: {}, project: "0".repeat(24) }, 400, "/project"],
    [{ groups: {}, permissions: {}, container: PROJECT }, 400, "/container"],
    [{ groups: {}, permissions: {}, hooks: { terminal: [] } }, 422, "/hooks"],
    [{ groups: {}, permissions: {}, hooks: [] }, 422, "/hooks"],
  ] as const)("PUT refuses %j with %i at %s", async ([body, status, path]) => {
    const { call } = policyApi();
    const answer = await call("PUT", PERMISSIONS, { ifMatch: "file:v0", body });
    expect(answer.status).toBe(status);
    expect(answer.body.data[0].path).toBe(path);
    expect((await call("GET", PERMISSIONS)).body.data.file_version).toBe(0);
  });

  test.for(["__proto__", "constructor", "prototype"])(
    "the name %s is refused everywhere",
    async (name) => {
      const { call } = policyApi();
      for (const raw of [
        `{"groups":{"${name}":{}},"permissions":{}}`,
        `{"groups":{},"permissions":{"${name}":{}}}`,
      ]) {
        expect((await call("PUT", PERMISSIONS, { ifMatch: "file:v0", raw })).status).toBe(400);
      }
      const body = { range: "10.0.0.0/8" };
      expect(
        (await call("PUT", `${PERMISSIONS}/groups/${name}/ip`, { ifMatch: "file:v0", body }))
          .status,
      ).toBe(400);
      expect(
        (await call("DELETE", `${PERMISSIONS}/permissions/a/${name}`, { ifMatch: "file:v0" }))
          .status,
      ).toBe(400);
      expect((await call("GET", `${BASE}/services/${name}`)).status).toBe(400);
    },
  );

  test("DELETE resets settings, groups and permissions, keeps hooks and goes on counting", async () => {
    const { call } = policyApi();
    expect((await call("DELETE", PERMISSIONS, { ifMatch: "file:v0" })).status).toBe(404);
    await write(
      call,
      ["PUT", PERMISSIONS, { ...DOCUMENT, enable_proxy: false }],
      ["POST", `${BASE}/hooks/terminal`, { match: {}, script: { path: "/a" } }],
    );
    const data = await write(call, ["DELETE", PERMISSIONS]);
    expect(data).toMatchObject({
      groups: {},
      permissions: {},
      default: "allow",
      enable_proxy: true,
      file_version: 3,
    });
    expect(data.hooks.terminal).toHaveLength(1);
  });

  test("a group that a hook names cannot go, by no way", async () => {
    const { call } = policyApi();
    await write(
      call,
      ["PUT", PERMISSIONS, DOCUMENT],
      [
        "POST",
        `${BASE}/hooks/terminal`,
        { match: {}, script: { path: "/a" }, applies_to: { groups: ["staff"] } },
      ],
    );
    const id = (await call("GET", `${BASE}/hooks/terminal`)).body.data.hooks[0].id as string;
    for (const [method, path, body] of [
      ["DELETE", PERMISSIONS, undefined],
      ["DELETE", `${PERMISSIONS}/groups/staff`, undefined],
      ["PUT", PERMISSIONS, { groups: {}, permissions: {} }],
    ] as const) {
      const answer = await call(method, path, { ifMatch: "file:v2", body });
      expect(answer.status, `${method} ${path}`).toBe(422);
      expect(answer.body.message).toContain(id);
    }
    expect((await call("GET", PERMISSIONS)).body.data.groups).toEqual({ staff: IP });
  });
});

test("a hook that names a group which is gone already does not stop other writes", async () => {
  const { call, dataDir } = policyApi();
  const rule = {
    id: "0".repeat(26),
    match: {},
    script: { path: "/a" },
    applies_to: { groups: ["gone"] },
  };
  writeFileSync(
    join(dataDir, "policy/containers", `${CONTAINER}.json`),
    JSON.stringify({ file_version: 1, groups: { staff: IP }, hooks: { terminal: [rule] } }),
  );
  expect((await call("PUT", PERMISSIONS, { ifMatch: "file:v1", body: DOCUMENT })).status).toBe(200);
  expect((await call("DELETE", `${PERMISSIONS}/groups/staff`, { ifMatch: "file:v2" })).status).toBe(
    200,
  );
});

describe("single writes", () => {
  test("groups of each type are added, replaced and removed with their cells", async () => {
    const { call } = policyApi();
    const data = await write(
      call,
      ["PUT", `${PERMISSIONS}/groups/office/ip`, { range: "203.0.113.0/24" }],
      ["PATCH", `${PERMISSIONS}/groups/web/password`, { username: "u", password: "p", salt: "s" }],
      ["PUT", `${PERMISSIONS}/groups/ci/token`, { header: "X-Api-Key", value: "abc" }],
      [
        "PUT",
        `${PERMISSIONS}/groups/app/jwt`,
        { algorithm: "HS256", secret: "k", sources: ["header:Authorization"] },
      ],
      ["PUT", `${PERMISSIONS}/groups/office/ip`, { range: "203.0.113.128/25" }],
      ["PUT", `${PERMISSIONS}/permissions/office`, { program: "tty", access: "1-5" }],
      ["PATCH", `${PERMISSIONS}/permissions/office`, { program: "http", access: [80, 443] }],
      ["PUT", `${PERMISSIONS}/permissions/ci`, { program: "files", access: true }],
    );
    expect(data.groups.office).toEqual({ type: "ip", range: "203.0.113.128/25" });
    expect(data.permissions).toEqual({
      office: { terminal: "1-5", http: [80, 443] },
      ci: { files: true },
    });
    expect(data.default).toBe("allow");
    expect((await call("GET", `${BASE}/groups`)).body.data.groups).toEqual([
      { name: "office", auth_rule_count: 1 },
      { name: "web", auth_rule_count: 1 },
      { name: "ci", auth_rule_count: 1 },
      { name: "app", auth_rule_count: 1 },
    ]);
    const less = await write(
      call,
      ["DELETE", `${PERMISSIONS}/permissions/office/t`],
      ["DELETE", `${PERMISSIONS}/permissions/office`],
      ["DELETE", `${PERMISSIONS}/groups/ci`],
    );
    expect(less.permissions).toEqual({});
    expect(Object.keys(less.groups)).toEqual(["office", "web", "app"]);
  });

  test.for([
    ["PUT", "/groups/a/ip", { range: "x" }, 400],
    ["PUT", "/groups/a/ip", { range: "10.0.0.0/8", type: "ip" }, 400],
    ["PUT", "/groups/a/token", { header: "a", cookie: "b", value: "c" }, 400],
    ["PUT", "/groups/a/ip", [], 400],
    ["PUT", `/groups/${"a".repeat(51)}/ip`, { range: "10.0.0.0/8" }, 400],
    ["PUT", "/groups/a/hoody-identity", {}, 404],
    ["DELETE", "/groups/a", undefined, 404],
    ["PUT", "/permissions/a", { program: "terminal", access: true }, 400],
    ["PUT", "/permissions/staff", { program: "nope", access: true }, 400],
    ["PUT", "/permissions/staff", { program: "terminal", access: { a: 1 } }, 400],
    ["PUT", "/permissions/staff", { program: "terminal" }, 400],
    ["PUT", "/permissions/staff", { program: "terminal", access: true, more: 1 }, 400],
    ["DELETE", "/permissions/nobody", undefined, 404],
    ["DELETE", "/permissions/staff/files", undefined, 404],
    ["PATCH", "/default", { default: "maybe" }, 400],
    ["PATCH", "/default", {}, 400],
    ["PATCH", "/state", { enable_proxy: "no" }, 400],
  ] as const)("%s %s %j is %i", async ([method, path, body, status]) => {
    const { call } = policyApi();
    await write(call, ["PUT", PERMISSIONS, DOCUMENT]);
    const answer = await call(method, `${PERMISSIONS}${path}`, { ifMatch: "file:v1", body });
    expect(answer.status).toBe(status);
    expect((await call("GET", PERMISSIONS)).body.data.file_version).toBe(1);
  });

  test.for([
    ["PUT", PERMISSIONS],
    ["DELETE", PERMISSIONS],
    ["PATCH", `${PERMISSIONS}/default`],
    ["PATCH", `${PERMISSIONS}/state`],
    ["PUT", `${PERMISSIONS}/groups/a/ip`],
    ["DELETE", `${PERMISSIONS}/groups/a`],
    ["PUT", `${PERMISSIONS}/permissions/a`],
    ["DELETE", `${PERMISSIONS}/permissions/a`],
    ["DELETE", `${PERMISSIONS}/permissions/a/files`],
    ["PUT", `${BASE}/settings`],
    ["PUT", PROJECT_PERMISSIONS],
    ["PUT", `${PROJECT_PERMISSIONS}/groups/a/ip`],
  ] as const)(
    "%s %s needs a current If-Match before its body is looked at",
    async ([method, path]) => {
      const { call } = policyApi();
      expect((await call(method, path, { raw: "{" })).status).toBe(428);
      const stale = await call(method, path, { raw: "{", ifMatch: "file:v7" });
      expect(stale.status).toBe(412);
      expect(stale.body.message).toContain("file:v0");
    },
  );
});

describe("settings and names", () => {
  test("settings change either switch and share the counter", async () => {
    const { call } = policyApi();
    expect((await call("GET", `${BASE}/settings`)).body.data).toEqual({
      enable_proxy: true,
      default: "allow",
      file_version: 0,
      etag: "file:v0",
    });
    expect(await write(call, ["PUT", `${BASE}/settings`, { enable_proxy: false }])).toMatchObject({
      enable_proxy: false,
      default: "allow",
      file_version: 1,
    });
    expect(await write(call, ["PATCH", `${BASE}/settings`, { default: "deny" }])).toMatchObject({
      enable_proxy: false,
      default: "deny",
      file_version: 2,
    });
    expect((await call("PUT", `${BASE}/settings`, { ifMatch: "file:v2", body: {} })).status).toBe(
      400,
    );
    expect(
      (await call("PUT", `${BASE}/settings`, { ifMatch: "file:v2", body: { x: 1 } })).status,
    ).toBe(400);
  });

  test("services are those that a cell or a hook names", async () => {
    const { call } = policyApi();
    await write(
      call,
      [
        "PUT",
        PERMISSIONS,
        { groups: { staff: IP }, permissions: { staff: { notes: true, logs: true } } },
      ],
      ["POST", `${BASE}/hooks/files`, { match: {}, script: { path: "/a" } }],
    );
    expect((await call("GET", `${BASE}/services`)).body.data.services).toEqual([
      "files",
      "logs",
      "notes",
    ]);
    expect((await call("GET", `${BASE}/services/logs`)).body.data).toMatchObject({
      service: "logs",
      is_reject_listed: true,
      permissions_raw: { staff: true },
      hooks: [],
      effective_default: "deny",
    });
    expect((await call("GET", `${BASE}/services/f`)).body.data).toMatchObject({
      service: "files",
      hooks: [{ position: 0 }],
    });
    expect((await call("GET", `${BASE}/services/nope`)).status).toBe(404);
  });
});

describe("projects", () => {
  test("a project's document has a version of its own and no hooks", async () => {
    const { call } = policyApi();
    await write(call, ["PUT", PERMISSIONS, DOCUMENT]);
    const data = await write(call, ["PUT", PROJECT_PERMISSIONS, { ...DOCUMENT, default: "allow" }]);
    expect(data).toMatchObject({ project: PROJECT, file_version: 1, default: "allow" });
    expect(data).not.toHaveProperty("hooks");
    const hooks = await call("PUT", PROJECT_PERMISSIONS, {
      ifMatch: "file:v1",
      body: { ...DOCUMENT, hooks: {} },
    });
    expect(hooks.status).toBe(422);
    const other = await call("PUT", PROJECT_PERMISSIONS, {
      ifMatch: "file:v1",
      body: { ...DOCUMENT, container: CONTAINER },
    });
    expect(other.status).toBe(400);
    expect((await call("GET", `/api/v1/projects/${CONTAINER}/proxy/permissions`)).status).toBe(404);
    expect((await call("GET", "/api/v1/projects/x/proxy/permissions")).status).toBe(400);
  });

  test("its switches count where the container does not say", async () => {
    const { call } = policyApi();
    await write(call, ["PATCH", `${PROJECT_PERMISSIONS}/default`, { default: "deny" }]);
    expect((await call("GET", `${BASE}/settings`)).body.data).toMatchObject({
      default: "deny",
      file_version: 0,
    });
    // A hook creates the container's document; that must not open what the project closed.
    await write(call, ["POST", `${BASE}/hooks/files`, { match: {}, script: { path: "/a" } }]);
    expect((await call("GET", `${BASE}/services/files`)).body.data.effective_default).toBe("deny");
  });

  test("cells of a container may name groups of its project", async () => {
    const { call } = policyApi();
    await write(
      call,
      ["PUT", `${PROJECT_PERMISSIONS}/groups/staff/ip`, { range: "10.0.0.0/8" }],
      ["PUT", PERMISSIONS, { groups: {}, permissions: { staff: { terminal: true } } }],
      ["PUT", `${PERMISSIONS}/permissions/staff`, { program: "files", access: true }],
    );
    const rule = { match: {}, script: { path: "/a" }, applies_to: { groups: ["staff"] } };
    // Hooks name groups of the container itself only.
    expect(
      (await call("POST", `${BASE}/hooks/files`, { ifMatch: "file:v2", body: rule })).status,
    ).toBe(422);
  });
});

test("a document whose tables are no objects is repaired by replacing it", async () => {
  const { call, dataDir } = policyApi();
  writeFileSync(
    join(dataDir, "policy/containers", `${CONTAINER}.json`),
    '{"file_version":3,"groups":[]}',
  );
  const body = { range: "10.0.0.0/8" };
  expect(
    (await call("PUT", `${PERMISSIONS}/groups/a/ip`, { ifMatch: "file:v3", body })).status,
  ).toBe(503);
  expect((await call("PUT", PERMISSIONS, { ifMatch: "file:v3", body: DOCUMENT })).status).toBe(200);
});
