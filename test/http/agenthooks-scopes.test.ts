import { mkdir, rm, symlink } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { JsonObject } from "../../exec-host/agent/seams.ts";
import { oneHook, put, startHooksGateway } from "../support/agenthooks-gateway.ts";

const REALM = "a".repeat(24);
const OTHER = "b".repeat(24);
const LIMIT = { id: "no-prod", text: "Never touch production.", kind: "limit" };

const BODIES: readonly (readonly [method: string, path: string])[] = [
  ["POST", "/hooks/reload"],
  ["POST", "/hooks/begin-write"],
  ["POST", "/hooks/rules"],
  ["PUT", "/hooks"],
  ["DELETE", "/hooks"],
  ["POST", "/hooks/toggle"],
  ["POST", "/hooks/disable-all"],
  ["POST", "/hooks/test"],
  ["POST", "/hooks/trust/ack"],
];

test.for(BODIES)("%s %s takes no realm and no container", async ([method, path], { expect }) => {
  const gateway = await startHooksGateway({ realms: [REALM] });
  for (const [headers, query] of [
    [{ "X-Hoody-Realm": "global" }, ""],
    [{ "X-Hoody-Realm": REALM }, ""],
    [{}, `?realm=${REALM}`],
    [{}, "?realm="],
    [{ "X-Hoody-Container": "67e89abc123def456789abcd" }, ""],
  ] as const) {
    const answer = await gateway.call(method, path + query, {}, headers as Record<string, string>);
    expect(answer).toMatchObject({ status: 400, body: { code: "realm_scope_unsupported" } });
  }
});

test("GET /hooks finds a session in its own realm only", async () => {
  const gateway = await startHooksGateway({ realms: [REALM] });
  const session = await gateway.open({ realm: REALM });
  const list = async (headers: Record<string, string>, id: string = session.id) =>
    gateway.call("GET", `/hooks?session_id=${id}`, undefined, headers);
  expect((await list({})).status).toBe(200);
  expect((await list({ "X-Hoody-Realm": REALM })).status).toBe(200);
  expect(await list({ "X-Hoody-Realm": "global" })).toMatchObject({
    status: 404,
    body: { code: "not_found" },
  });
  expect((await list({ "X-Hoody-Realm": OTHER })).status).toBe(404);
  expect(await list({ "X-Hoody-Realm": "Global" })).toMatchObject({
    status: 400,
    body: { code: "invalid_realm" },
  });
  expect((await list({}, "__proto__")).status).toBe(404);
  expect((await list({ "X-Hoody-Container": "x" })).body).toMatchObject({
    code: "realm_scope_unsupported",
  });
  expect((await gateway.call("GET", "/hooks")).body).toMatchObject({
    code: "bad_request",
    details: { field: "session_id" },
  });
});

test("a relative path in a scope header is refused", async () => {
  const gateway = await startHooksGateway();
  for (const name of ["X-Hoody-Cwd", "X-Hoody-Config-Dir"]) {
    const answer = await gateway.call("GET", "/hooks/rules", undefined, { [name]: "project" });
    expect(answer).toMatchObject({ status: 400, body: { code: "bad_request" } });
  }
});

test("every realm has a profile of its own", async () => {
  const gateway = await startHooksGateway({ realms: [REALM] });
  await put(gateway.userFile, { version: 1, rules: [LIMIT] });
  await put(join(gateway.home, ".hoody/realms", REALM, "settings.json"), {
    version: 1,
    rules: [{ ...LIMIT, id: "realm-rule" }],
  });
  const ids = async (headers: Record<string, string>) => {
    const { body } = await gateway.call("GET", "/hooks/rules", undefined, headers);
    return (body["rules"] as { live: { id: string }[] }).live.map(({ id }) => id);
  };
  expect(await ids({})).toEqual(["no-prod"]);
  expect(await ids({ "X-Hoody-Realm": REALM })).toEqual(["realm-rule"]);
});

test("a scoped realm's directory at the home leaves out the global profile, with a warning and no revision", async () => {
  const gateway = await startHooksGateway({ realms: [REALM] });
  await put(gateway.userFile, { version: 1, rules: [LIMIT], ...oneHook("PreToolUse", "exit 2") });
  const { status, body } = await gateway.call("GET", "/hooks/rules", undefined, {
    "X-Hoody-Realm": REALM,
    "X-Hoody-Cwd": gateway.home,
  });
  expect(status).toBe(200);
  expect(body["rules"]).toMatchObject({
    live: [],
    scopes: [{ scope: "user" }],
    rules_complete: false,
  });
  const session = await gateway.open({ realm: REALM, cwd: gateway.home });
  const { body: hooks } = await gateway.call("GET", `/hooks?session_id=${session.id}`);
  const own = (hooks["live"] as JsonObject[]).filter((hook) => hook["shipped_id"] === undefined);
  expect(own).toEqual([]);
  expect(hooks["warnings"]).not.toEqual([]);
  const write = await gateway.call("POST", "/hooks/begin-write", {
    session_id: session.id,
    op: "upsert",
    scope: "project",
  });
  expect(write.status).toBe(404);
});

test("a project folder linked into another realm's profile is left out; a profile linked there is not found", async () => {
  const gateway = await startHooksGateway({ realms: [REALM, OTHER] });
  const profiles = join(gateway.home, ".hoody/realms");
  await put(join(profiles, OTHER, "settings.json"), { version: 1, rules: [LIMIT] });
  await symlink(join(profiles, OTHER), join(gateway.project, ".hoody"));
  for (const realm of ["global", REALM]) {
    const { status, body } = await gateway.call("GET", "/hooks/rules", undefined, {
      "X-Hoody-Realm": realm,
      "X-Hoody-Cwd": gateway.project,
    });
    expect(status).toBe(200);
    expect(body["rules"]).toMatchObject({
      live: [],
      scopes: [{ scope: "user" }],
      rules_complete: false,
    });
  }
  const override = await gateway.call("GET", "/hooks/rules", undefined, {
    "X-Hoody-Config-Dir": join(profiles, OTHER),
  });
  expect(override).toMatchObject({ status: 404, body: { code: "not_found" } });
  await symlink(join(profiles, OTHER), join(profiles, REALM));
  const profile = await gateway.call("GET", "/hooks/rules", undefined, { "X-Hoody-Realm": REALM });
  expect(profile.status).toBe(404);
  await expect(gateway.open({ realm: REALM })).rejects.toMatchObject({ code: "not_found" });
});

test("a project's settings folder may be a link to an ordinary folder; a linked file is left out", async () => {
  const gateway = await startHooksGateway();
  const shared = join(gateway.folder, "shared");
  await put(join(shared, "settings.json"), { version: 1, rules: [LIMIT] });
  await symlink(shared, join(gateway.project, ".hoody"));
  const read = async () => {
    const { body } = await gateway.call("GET", "/hooks/rules", undefined, {
      "X-Hoody-Cwd": gateway.project,
    });
    return body["rules"] as JsonObject;
  };
  expect((await read())["live"]).toHaveLength(1);
  await symlink(join(shared, "settings.json"), join(shared, "settings.local.json"));
  const linked = await read();
  expect(linked["live"]).toHaveLength(1);
  expect(linked).toMatchObject({
    scopes: [{ scope: "user" }, { scope: "project" }],
    rules_complete: false,
  });
});

test("a project folder that is the realm's own profile in disguise adds no layers", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, oneHook("Stop", "exit 0"));
  await symlink(join(gateway.home, ".hoody"), join(gateway.project, ".hoody"));
  const session = await gateway.open();
  const { body } = await gateway.call("GET", `/hooks?session_id=${session.id}`);
  expect(body["files"]).toEqual({ user: gateway.userFile });
  expect(body["trust"]).toMatchObject({ needs_ack: false });
});

test("GET /hooks lists hooks with their files, and drift for every file that changed since", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, oneHook("Stop", "exit 0"));
  await put(gateway.localFile, oneHook("PreToolUse", "exit 0", "Bash"));
  const session = await gateway.open();
  const list = async () => (await gateway.call("GET", `/hooks?session_id=${session.id}`)).body;
  const first = await list();
  expect(first).toMatchObject({
    session: session.id,
    stale: [],
    files: { user: gateway.userFile, project: gateway.projectFile, local: gateway.localFile },
    trust: {
      hash: expect.stringMatching(/^[0-9a-f]{32}$/) as unknown,
      needs_ack: true,
      high_risk: false,
    },
    rules: { live: [], session: [], stale: false, active: false, timeout_ms: 3000 },
    warnings: [],
  });
  expect((first["live"] as JsonObject[]).slice(0, 2)).toEqual([
    {
      event: "Stop",
      matcher: "*",
      command: "exit 0",
      name: "",
      description: "",
      timeout: 0,
      disabled: false,
      scope: "user",
      source: gateway.userFile,
    },
    {
      event: "PreToolUse",
      matcher: "Bash",
      command: "exit 0",
      name: "",
      description: "",
      timeout: 0,
      disabled: false,
      scope: "local",
      source: gateway.localFile,
    },
  ]);
  expect((first["live"] as JsonObject[]).slice(2).map((hook) => hook["shipped_id"])).toEqual([
    "bash-usage-error",
    "secret-in-file",
    "destructive-git",
  ]);
  await put(gateway.userFile, { version: 1, rules: [LIMIT] });
  await put(gateway.projectFile, { version: 1 });
  await put(gateway.localFile, "{");
  const drifted = await list();
  expect(drifted["stale"]).toEqual([
    { scope: "user", path: gateway.userFile, reason: "changed" },
    { scope: "project", path: gateway.projectFile, reason: "created" },
    { scope: "local", path: gateway.localFile, reason: "changed" },
  ]);
  expect(drifted["rules"]).toMatchObject({
    live: [{ id: "no-prod" }],
    session: [],
    stale: true,
    active: false,
  });
  expect((drifted["trust"] as JsonObject)["hash"]).toBe((first["trust"] as JsonObject)["hash"]);
  await rm(gateway.localFile);
  await mkdir(gateway.localFile);
  expect((await list())["stale"]).toContainEqual({
    scope: "local",
    path: gateway.localFile,
    reason: "unreadable",
  });
  await rm(gateway.localFile, { recursive: true });
  expect((await list())["stale"]).toContainEqual({
    scope: "local",
    path: gateway.localFile,
    reason: "removed",
  });
});

test("POST /hooks/reload reloads one session with a summary, or all without", async () => {
  const gateway = await startHooksGateway({ realms: [REALM] });
  const one = await gateway.open();
  const two = await gateway.open({ realm: REALM });
  await put(gateway.projectFile, { version: 1, rules: [LIMIT] });
  const single = await gateway.call("POST", "/hooks/reload", { session_id: one.id, _secret: 1 });
  expect(single).toMatchObject({
    status: 200,
    body: {
      reloaded: true,
      sessions: 1,
      stale: [],
      session: one.id,
      rules: { session: [{ id: "no-prod" }] },
    },
  });
  const stale = await gateway.call("GET", `/hooks?session_id=${two.id}`);
  expect(stale.body["stale"]).toHaveLength(1);
  const all = await gateway.call("POST", "/hooks/reload");
  expect(all.body).toEqual({ reloaded: true, sessions: 2 });
  expect((await gateway.call("GET", `/hooks?session_id=${two.id}`)).body["stale"]).toEqual([]);
  expect((await gateway.call("POST", "/hooks/reload", { session_id: "none" })).status).toBe(404);
  expect(gateway.refreshed).toContain(two);
});

test("answers are JSON and are not to be stored", async () => {
  const gateway = await startHooksGateway();
  const response = await fetch(`${gateway.origin}/api/v1/agent/hooks/rules`);
  expect(response.headers.get("cache-control")).toBe("no-store");
  expect(response.headers.get("content-type")).toContain("application/json");
  await response.arrayBuffer();
});
