import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { CONTAINER, OTHER_CONTAINER, policyApi, PROJECT } from "../support/policy-api.ts";

const ALIASES = "/api/v1/proxy/aliases";
const APP = { container_id: CONTAINER, alias: "my-app", program: "terminal" };

test("an alias is created, read, listed, changed, switched and deleted", async () => {
  const { call, aliases } = policyApi();
  const created = await call("POST", ALIASES, {
    body: { ...APP, index: 2, target_path: "start?x=1" },
  });
  expect(created).toMatchObject({
    status: 201,
    body: {
      statusCode: 201,
      data: {
        project_id: PROJECT,
        container_id: CONTAINER,
        alias: "my-app",
        program: "terminal",
        index: 2,
        target_path: "/start?x=1",
        allow_path_override: true,
        enabled: true,
        expires_at: null,
        server_name: "local",
        url: "https://my-app.local.example",
      },
    },
  });
  const { id } = created.body.data;
  expect(aliases.lookup("my-app")).toMatchObject({
    id,
    project: PROJECT,
    container: CONTAINER,
    index: 2,
  });
  expect((await call("GET", `${ALIASES}/${id}`)).body.data).toEqual(created.body.data);
  const changed = await call("PATCH", `${ALIASES}/${id}`, {
    body: { alias: "other", index: null, allow_path_override: false },
  });
  expect(changed.body.data).toMatchObject({
    alias: "other",
    index: 1,
    target_path: "/start?x=1",
    allow_path_override: false,
  });
  expect(aliases.lookup("my-app")).toBeNull();
  expect(
    (await call("PATCH", `${ALIASES}/${id}/state`, { body: { enabled: false } })).body.data.enabled,
  ).toBe(false);
  expect(aliases.lookup("other")).toMatchObject({ enabled: false });
  expect((await call("GET", `${ALIASES}?enabled=true`)).body.data).toEqual({
    aliases: [],
    count: 0,
  });
  expect(
    (
      await call(
        "GET",
        `${ALIASES}?enabled=false&container_id=${CONTAINER}&project_id=${PROJECT}&expired=false`,
      )
    ).body.data.count,
  ).toBe(1);
  expect((await call("GET", `${ALIASES}?container_id=${OTHER_CONTAINER}`)).body.data.count).toBe(0);
  expect((await call("DELETE", `${ALIASES}/${id}`)).body.data).toEqual({ id });
  expect((await call("DELETE", `${ALIASES}/${id}`)).status).toBe(404);
  expect(aliases.lookup("other")).toBeNull();
});

test.for([undefined, null, false] as const)(
  "without a name (%j) it gets a random one",
  async (alias) => {
    const { call } = policyApi();
    const answer = await call("POST", ALIASES, { body: { ...APP, alias } });
    expect(answer.body.data.alias).toMatch(/^[0-9a-f]{48}$/);
  },
);

test.for([
  [{ ...APP, alias: "ab" }, 400, "BAD_REQUEST"],
  [{ ...APP, alias: "-ab" }, 400, "BAD_REQUEST"],
  [{ ...APP, alias: "Abc" }, 400, "BAD_REQUEST"],
  [{ ...APP, alias: "proxy" }, 400, "BAD_REQUEST"],
  [{ ...APP, alias: "proxy-x" }, 400, "BAD_REQUEST"],
  [{ ...APP, alias: "constructor" }, 400, "BAD_REQUEST"],
  [{ ...APP, alias: `${PROJECT}-${CONTAINER}` }, 400, "BAD_REQUEST"],
  [{ ...APP, alias: true }, 400, "BAD_REQUEST"],
  [{ ...APP, program: "web" }, 400, "BAD_REQUEST"],
  [{ ...APP, program: "ssh" }, 400, "BAD_REQUEST"],
  [{ ...APP, program: "http-0" }, 400, "BAD_REQUEST"],
  [{ ...APP, program: "http" }, 400, "PORT_REQUIRED"],
  [{ ...APP, program: "http", port: 0 }, 400, "BAD_REQUEST"],
  [{ ...APP, program: "browser", index: 10_000 }, 400, "BAD_REQUEST"],
  [{ ...APP, index: 0 }, 400, "BAD_REQUEST"],
  [{ ...APP, target_path: "/a b" }, 400, "BAD_REQUEST"],
  [{ ...APP, expires_at: "2001-01-01T00:00:00Z" }, 400, "BAD_REQUEST"],
  [{ ...APP, expires_at: "tomorrow" }, 400, "BAD_REQUEST"],
  [{ ...APP, more: 1 }, 400, "BAD_REQUEST"],
  [{ ...APP, container_id: "x" }, 400, "BAD_REQUEST"],
  [{ ...APP, container_id: PROJECT }, 404, "NOT_FOUND"],
  [{ program: "terminal" }, 400, "BAD_REQUEST"],
] as const)("POST %j is %i %s", async ([body, status, code]) => {
  const { call } = policyApi();
  expect(await call("POST", ALIASES, { body })).toMatchObject({ status, body: { code } });
  expect((await call("GET", ALIASES)).body.data.count).toBe(0);
});

test.for([
  { program: "http", port: 8080 },
  { program: "http", index: 3 },
  { program: "https-8443" },
  { program: "exec", index: 7 },
  { program: "notification" },
] as const)("POST accepts %j", async (fields) => {
  const { call } = policyApi();
  expect((await call("POST", ALIASES, { body: { ...APP, ...fields } })).status).toBe(201);
});

test("names are unique, also among twenty writers at once", async () => {
  const { call } = policyApi();
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => call("POST", ALIASES, { body: APP })),
  );
  expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
  expect(answers.filter(({ body }) => body.code === "ALIAS_IN_USE")).toHaveLength(19);
  const other = await call("POST", ALIASES, { body: { ...APP, alias: "second" } });
  const clash = await call("PATCH", `${ALIASES}/${other.body.data.id}`, {
    body: { alias: "my-app" },
  });
  expect(clash).toMatchObject({ status: 409, body: { error: "Conflict" } });
});

test("a list edited by hand is live soon; a broken entry serves nothing and is kept", async () => {
  const { call, aliases, dataDir } = policyApi();
  const { body } = await call("POST", ALIASES, { body: APP });
  const path = join(dataDir, "policy/aliases.json");
  const record = aliases.lookup("my-app");
  writeFileSync(
    path,
    JSON.stringify({
      file_version: 5,
      aliases: [{ ...record, alias: "by-hand" }, { alias: "half" }],
    }),
  );
  await expect.poll(() => aliases.lookup("by-hand"), { timeout: 5_000 }).not.toBeNull();
  expect(aliases.lookup("half")).toBeNull();
  await call("PATCH", `${ALIASES}/${body.data.id}`, { body: { alias: "renamed" } });
  expect(JSON.parse((await import("node:fs")).readFileSync(path, "utf8"))).toMatchObject({
    file_version: 6,
    aliases: [{ alias: "renamed" }, { alias: "half" }],
  });
  writeFileSync(path, "{");
  await expect.poll(() => aliases.problem(), { timeout: 5_000 }).toContain("not valid JSON");
  expect(aliases.lookup("renamed")).toBeNull();
  expect((await call("POST", ALIASES, { body: APP })).status).toBe(503);
});
