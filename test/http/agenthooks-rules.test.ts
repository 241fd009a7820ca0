import { readFile, stat, writeFile } from "node:fs/promises";
import { expect, test } from "vitest";
import type { JsonObject } from "../../exec-host/agent/seams.ts";
import refused from "../cases/agenthooks-rules.json" with { type: "json" };
import { put, readJson, startHooksGateway } from "../support/agenthooks-gateway.ts";
import type { HooksGateway, TestSession } from "../support/agenthooks-gateway.ts";

const LIMIT = { id: "no-prod", text: "Never touch production.", kind: "limit" };

async function setRules(
  gateway: HooksGateway,
  session: TestSession,
  fields: object,
  scope = "project",
) {
  return gateway.call("POST", "/hooks/rules", {
    session_id: session.id,
    nonce: await gateway.nonce(session, "rules_set", scope),
    ...fields,
  });
}

async function getRules(gateway: HooksGateway, headers: Record<string, string> = {}) {
  const answer = await gateway.call("GET", "/hooks/rules", undefined, headers);
  return { ...answer, rules: answer.body["rules"] as JsonObject };
}

function revisionIn(block: unknown, scope: string): string | undefined {
  const { scopes } = block as { scopes: { scope: string; revision: string }[] };
  return scopes.find((entry) => entry.scope === scope)?.revision;
}

test("POST /hooks/rules replaces a scope's rules and answers with what the session now has", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const rule = { ...LIMIT, tools: ["Bash"], agents: ["general"], applies_as: "prompt" };
  const { status, body } = await setRules(gateway, session, {
    scope: "project",
    rules: [rule],
    timeout_ms: 1500,
  });
  expect(status).toBe(200);
  expect(body).toEqual({
    ok: true,
    scope: "project",
    revision: expect.stringMatching(/^r1:[0-9a-f]{64}$/) as unknown,
    rules: {
      live: [
        {
          ...LIMIT,
          applies_as: "checked",
          tools: ["Bash"],
          agents: ["general"],
          source: gateway.projectFile,
        },
      ],
      timeout_ms: 1500,
    },
  });
  expect(await readJson(gateway.projectFile)).toEqual({
    version: 1,
    rules: [{ ...LIMIT, tools: ["Bash"], agents: ["general"] }],
    rules_timeout_ms: 1500,
  });
  const after = await getRules(gateway, { "X-Hoody-Cwd": gateway.project });
  expect(revisionIn(after.rules, "project")).toBe(body["revision"]);
  await setRules(gateway, session, { rules: [], timeout_ms: 0 });
  expect(await readJson(gateway.projectFile)).toEqual({ version: 1 });
});

test.for(refused)("POST /hooks/rules refuses $name, all or nothing", async (row, { expect }) => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const answer = await setRules(gateway, session, { rules: [row.rule, LIMIT] });
  expect(answer).toMatchObject({
    status: 400,
    body: { code: row.code ?? "bad_request", details: { field: row.field } },
  });
  await expect(stat(gateway.projectFile)).rejects.toThrow("ENOENT");
});

test("POST /hooks/rules counts checked and prompt rules apart, 32 of each", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const many = (count: number, kind: string) =>
    Array.from({ length: count }, (_, i) => ({ id: `${kind}-${i}`, text: "T", kind }));
  const full = [...many(32, "limit"), ...many(20, "guidance"), ...many(12, "playbook")];
  expect((await setRules(gateway, session, { rules: full })).status).toBe(200);
  const before = await readFile(gateway.projectFile, "utf8");
  expect(
    (await setRules(gateway, session, { rules: [...full, ...many(1, "check_in")] })).status,
  ).toBe(400);
  expect((await setRules(gateway, session, { rules: many(33, "playbook") })).status).toBe(400);
  expect((await setRules(gateway, session, { rules: [LIMIT, LIMIT] })).status).toBe(400);
  const long = { ...LIMIT, text: "x".repeat(501) };
  expect((await setRules(gateway, session, { rules: [long] })).status).toBe(400);
  const tools = { ...LIMIT, tools: Array.from({ length: 33 }, (_, i) => `t${i}`) };
  expect((await setRules(gateway, session, { rules: [tools] })).status).toBe(400);
  const agents = { ...LIMIT, agents: Array.from({ length: 17 }, (_, i) => `a${i}`) };
  expect((await setRules(gateway, session, { rules: [agents] })).status).toBe(400);
  expect(await readFile(gateway.projectFile, "utf8")).toBe(before);
  expect(
    (await setRules(gateway, session, { rules: [{ ...LIMIT, text: "🙂".repeat(500) }] })).status,
  ).toBe(200);
});

test("POST /hooks/rules needs rules or grants, and a timeout in range", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  for (const fields of [
    {},
    { timeout_ms: 500 },
    { rules: [], timeout_ms: 99 },
    { rules: [], timeout_ms: 120_001 },
    { rules: [], timeout_ms: 100.5 },
    { rules: null },
    { rules: {} },
    { rules: [], expected_revision: 1 },
  ]) {
    expect((await setRules(gateway, session, fields)).status).toBe(400);
  }
  expect((await setRules(gateway, session, { rules: [], expected_revision: null })).status).toBe(
    200,
  );
});

test("a stale expected_revision is a conflict that spends the nonce and names the current one", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.projectFile, { version: 1, rules: [LIMIT], other: true });
  const session = await gateway.open();
  const read = revisionIn(
    (await getRules(gateway, { "X-Hoody-Cwd": gateway.project })).rules,
    "project",
  );
  await put(gateway.projectFile, { version: 1, rules: [LIMIT], rules_timeout_ms: 800 });
  const nonce = await gateway.nonce(session, "rules_set", "project");
  const body = { session_id: session.id, nonce, rules: [], expected_revision: read };
  const conflict = await gateway.call("POST", "/hooks/rules", body);
  expect(conflict).toMatchObject({ status: 409, body: { code: "revision_conflict" } });
  const current = (conflict.body["details"] as JsonObject)["current_revision"];
  expect(current).not.toBe(read);
  expect(await gateway.call("POST", "/hooks/rules", body)).toMatchObject({
    status: 400,
    body: { details: { reason: "used" } },
  });
  expect((await readJson(gateway.projectFile))["rules"]).toEqual([LIMIT]);
  const won = await setRules(gateway, session, { rules: [], expected_revision: current });
  expect(won.status).toBe(200);
});

test("a revision does not move with hooks, and is another one in every realm", async () => {
  const realm = "a".repeat(24);
  const gateway = await startHooksGateway({ realms: [realm] });
  await put(gateway.projectFile, { version: 1, rules: [LIMIT] });
  const headers = { "X-Hoody-Cwd": gateway.project };
  const first = revisionIn((await getRules(gateway, headers)).rules, "project");
  await put(gateway.projectFile, { version: 1, rules: [LIMIT], hooks: {}, theme: "dark" });
  expect(revisionIn((await getRules(gateway, headers)).rules, "project")).toBe(first);
  const other = await getRules(gateway, { ...headers, "X-Hoody-Realm": realm });
  expect(revisionIn(other.rules, "project")).toBeDefined();
  expect(revisionIn(other.rules, "project")).not.toBe(first);
  const session = await gateway.open({ realm });
  const conflict = await setRules(gateway, session, { rules: [], expected_revision: first });
  expect(conflict.status).toBe(409);
});

test("exec_trust is written in the user scope only, with or without rules", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, { version: 1, rules: [LIMIT] });
  const session = await gateway.open();
  const grant = { container_id: "67e89abc123def456789abcd", realm: "_global" };
  const send = (exec_trust: unknown, scope = "user") =>
    setRules(gateway, session, { exec_trust }, scope);
  expect(await send([grant], "project")).toMatchObject({
    status: 400,
    body: { details: { field: "exec_trust" } },
  });
  for (const bad of [
    [{ ...grant, container_id: "workspace" }],
    [{ ...grant, realm: "global" }],
    [{ ...grant, name: "x".repeat(129) }],
    [{ ...grant, granted_at: "yesterday" }],
    [{ ...grant, source: "me" }],
    [grant, { ...grant, name: "again" }],
    Array.from({ length: 65 }, (_, i) => ({ ...grant, container_id: String(i).padStart(24, "0") })),
    [null],
  ]) {
    expect((await send(bad)).status).toBe(400);
  }
  const before = revisionIn((await getRules(gateway)).rules, "user");
  const written = await send([
    grant,
    { ...grant, realm: "b".repeat(24), name: "runner", source: "card" },
  ]);
  expect(written.status).toBe(200);
  expect(written.body["revision"]).not.toBe(before);
  const { rules } = await getRules(gateway);
  expect(rules["live"]).toHaveLength(1);
  expect(rules["exec_trust"]).toEqual([
    { ...grant, granted_at: expect.stringMatching(/Z$/) as unknown, source: "rules_panel" },
    {
      ...grant,
      realm: "b".repeat(24),
      name: "runner",
      granted_at: expect.any(String) as unknown,
      source: "card",
    },
  ]);
  await send([]);
  expect(await readJson(gateway.userFile)).toEqual({ version: 1, rules: [LIMIT] });
});

test("GET /hooks/rules merges the layers in load order and names every problem", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, {
    version: 1,
    rules: [{ ...LIMIT, id: "user-rule" }],
    rules_timeout_ms: 700,
  });
  await put(gateway.projectFile, {
    version: 1,
    rules: [{ id: "advice", text: "Be kind.", kind: "guidance" }],
    rules_timeout_ms: 5,
    hooks: {
      Sometimes: [],
      PreToolUse: [{ matcher: "([", hooks: [{ type: "command", command: "x" }] }],
    },
  });
  await put(gateway.localFile, {
    version: 1,
    rules: [{ ...LIMIT, id: "BAD" }, LIMIT],
    rules_timeout_ms: 900,
  });
  const { status, rules } = await getRules(gateway, { "X-Hoody-Cwd": gateway.project });
  expect(status).toBe(200);
  const live = rules["live"] as { id: string; applies_as: string; source: string }[];
  expect(live.map(({ id, applies_as, source }) => [id, applies_as, source])).toEqual([
    ["user-rule", "checked", gateway.userFile],
    ["advice", "prompt", gateway.projectFile],
    ["no-prod", "checked", gateway.localFile],
  ]);
  expect(rules).toMatchObject({
    timeout_ms: 900,
    scopes: [{ scope: "user" }, { scope: "project" }, { scope: "local" }],
    rules_complete: false,
  });
  expect(rules["warnings"]).toHaveLength(4);
  expect(rules["rule_warnings"]).toHaveLength(1);
  expect(String(rules["rule_warnings"])).toContain(gateway.localFile);
});

test.for([
  ["a missing version", '{"rules":[]}'],
  ["a wrong version", '{"version":"1","rules":[]}'],
  ["broken JSON", '{"version":1,'],
  ["another type", "[]"],
  ["bytes that are not UTF-8", "\xff\xfe"],
  ["deep nesting", '{"version":1,"x":' + "[".repeat(5000) + "]".repeat(5000) + "}"],
] as const)("a project file with %s is left out and said to be", async ([, text], { expect }) => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, { version: 1, rules: [LIMIT] });
  await put(gateway.projectFile, "");
  await writeFile(gateway.projectFile, Buffer.from(text, "latin1"));
  const { status, rules } = await getRules(gateway, { "X-Hoody-Cwd": gateway.project });
  expect(status).toBe(200);
  expect(rules["live"]).toHaveLength(1);
  expect(rules["rules_complete"]).toBe(false);
  expect(rules["rule_warnings"]).toHaveLength(1);
});

test("rules past the first 32 of a group are dropped with a warning, in load order", async () => {
  const gateway = await startHooksGateway();
  const many = (prefix: string, kind: string) =>
    Array.from({ length: 20 }, (_, i) => ({ id: `${prefix}-${i}`, text: "T", kind }));
  await put(gateway.userFile, { version: 1, rules: many("u", "limit") });
  await put(gateway.projectFile, {
    version: 1,
    rules: [...many("g", "guidance"), ...many("p", "check_in")],
  });
  const { rules } = await getRules(gateway, { "X-Hoody-Cwd": gateway.project });
  const ids = (rules["live"] as { id: string }[]).map(({ id }) => id);
  expect(ids.filter((id) => id.startsWith("u"))).toHaveLength(20);
  expect(ids.filter((id) => id.startsWith("g"))).toHaveLength(20);
  expect(ids.filter((id) => id.startsWith("p"))).toEqual(
    Array.from({ length: 12 }, (_, i) => `p-${i}`),
  );
  expect(rules["rule_warnings"]).toHaveLength(8);
});

test("GET /hooks/rules reads the user scope alone without a directory, and no user scope under a config dir", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, {
    version: 1,
    exec_trust: [{ container_id: "1".repeat(24), realm: "_global" }],
  });
  await put(gateway.projectFile, { version: 1, rules: [LIMIT] });
  const user = await getRules(gateway);
  expect(user.rules).toMatchObject({
    live: [],
    scopes: [{ scope: "user" }],
    exec_trust: [{ realm: "_global" }],
  });
  const override = `${gateway.folder}/override`;
  await put(`${override}/settings.json`, {
    version: 1,
    rules: [{ ...LIMIT, id: "over" }],
    exec_trust: [{ container_id: "2".repeat(24), realm: "_global" }],
  });
  const over = await getRules(gateway, {
    "X-Hoody-Config-Dir": override,
    "X-Hoody-Cwd": gateway.project,
  });
  expect(over.rules).toMatchObject({
    live: [{ id: "over", source: `${override}/settings.json` }],
    scopes: [{ scope: "project" }, { scope: "local" }],
    exec_trust: [{ container_id: "2".repeat(24) }],
  });
  const atHome = await getRules(gateway, { "X-Hoody-Cwd": gateway.home });
  expect(atHome.rules["scopes"]).toEqual([expect.objectContaining({ scope: "user" })]);
});

test("under a config dir the scope user holds grants and nothing else", async () => {
  const gateway = await startHooksGateway();
  const configDir = `${gateway.folder}/override`;
  await put(`${configDir}/settings.json`, { version: 1, rules: [LIMIT] });
  const session = await gateway.open({ configDir });
  const grant = { container_id: "1".repeat(24), realm: "_global" };
  expect(
    (await setRules(gateway, session, { exec_trust: [grant], rules: [] }, "user")).status,
  ).toBe(400);
  expect((await setRules(gateway, session, { exec_trust: [grant] }, "user")).status).toBe(200);
  expect(await readJson(`${configDir}/settings.json`)).toMatchObject({
    rules: [LIMIT],
    exec_trust: [{ container_id: "1".repeat(24) }],
  });
  const other = await gateway.call("POST", "/hooks/begin-write", {
    session_id: session.id,
    op: "upsert",
    scope: "user",
  });
  expect(other.status).toBe(400);
});

test("the change token moves with every file that the rules are read from, with no session at all", async () => {
  const gateway = await startHooksGateway();
  const scope = { realm: "global", home: gateway.home, cwd: gateway.project, configDir: null };
  const first = await gateway.changesToken(scope);
  expect(await gateway.changesToken(scope)).toBe(first);
  await put(gateway.localFile, { version: 1, rules: [LIMIT] });
  const second = await gateway.changesToken(scope);
  expect(second).not.toBe(first);
  await put(gateway.userFile, { version: 1 });
  expect(await gateway.changesToken(scope)).not.toBe(second);
  expect(await gateway.changesToken({ ...scope, cwd: null })).not.toBe(second);
});

test("GET /sessions/{id}/rules/applies lists what covers a tool and an agent, and what did not fit the prompt", async () => {
  const gateway = await startHooksGateway();
  const advice = (i: number) => ({ id: `g-${i}`, text: "é".repeat(290), kind: "guidance" });
  await put(gateway.userFile, {
    version: 1,
    rules: [
      LIMIT,
      { ...LIMIT, id: "read", tools: ["Read"] },
      { ...LIMIT, id: "helper", agents: ["reviewer"] },
      { id: "play", text: "When asked, answer.", kind: "playbook" },
      ...Array.from({ length: 20 }, (_, i) => advice(i)),
    ],
  });
  const session = await gateway.open();
  const applies = async (query: string) =>
    (await gateway.call("GET", `/sessions/${session.id}/rules/applies${query}`)).body;
  const ids = (body: JsonObject) => (body["rules"] as { id: string }[]).map(({ id }) => id);
  const bash = await applies("?tool=Bash");
  expect(bash).toMatchObject({
    agent: "general",
    tool: "bash",
    read_only: false,
    active: true,
    prompt_off: false,
    prompt_budget_bytes: 8192,
    fail_closed_reason: "jev_no_key",
  });
  expect(ids(bash).filter((id) => !id.startsWith("g-"))).toEqual(["no-prod", "play"]);
  expect(bash["count"]).toBe(ids(bash).length);
  expect(Number(bash["prompt_bytes"])).toBeLessThanOrEqual(8192);
  expect(bash["prompt_over_budget"]).toEqual([
    "g-13",
    "g-14",
    "g-15",
    "g-16",
    "g-17",
    "g-18",
    "g-19",
  ]);
  const read = await applies("?tool=read_file&agent=reviewer");
  expect(ids(read)[0]).toBe("read");
  expect(read["read_only"]).toBe(true);
  expect(ids(await applies("?tool=bash&agent=reviewer")).slice(0, 2)).toEqual([
    "no-prod",
    "helper",
  ]);
  expect(ids(await applies("?tool=report_outcome"))[0]).not.toBe("no-prod");
  await put(gateway.localFile, { version: 1, prompt_blocks: { team_rules: false } });
  const fresh = await gateway.open();
  const off = await gateway.call("GET", `/sessions/${fresh.id}/rules/applies`);
  expect(off.body).toMatchObject({ prompt_off: true, prompt_bytes: 0, tool: null });
  expect((await gateway.call("GET", "/sessions/none/rules/applies")).status).toBe(404);
});
