import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { InterposeClient } from "../../client/client.ts";
import { startTestEdge, TOKEN } from "../support/edge.ts";

const TOUCH = { params: { cmd: "touch made" } };

test("a hook goes from a guarded write through its acknowledgement to denying a call, over edge and typed client", async () => {
  const edge = await startTestEdge({ container: { agent: { kind: "embedded" } } });
  const project = join(edge.folder, "project");
  await mkdir(project);
  const client = new InterposeClient({
    baseURL: `http://${edge.host("agent-1")}:${edge.port}`,
    token: TOKEN,
  });
  const { hooks, sessions } = client.agent;
  const { session_id } = await sessions.create({ cwd: project });
  const command = "grep -q made && { echo 'not this file' >&2; exit 2; } || exit 0";
  const hook = { event: "PreToolUse", matcher: "Bash", command } as const;
  const intent = (op: "upsert" | "delete" | "toggle" | "set_disabled" | "rules_set") =>
    hooks.createWriteIntent({ session_id, op, scope: "project" });

  const upsert = await intent("upsert");
  expect(upsert).toMatchObject({ op: "upsert", scope: "project", session_id });
  const written = {
    session_id,
    nonce: upsert.nonce,
    scope: "project",
    ...hook,
    timeout: 60,
  } as const;
  expect(await hooks.upsert({ ...written, name: "Guard", description: "Guards a file." })).toEqual({
    ok: true,
    ...hook,
    scope: "project",
    created: true,
  });
  const shown = await hooks.list({ session_id });
  expect(shown).toMatchObject({ session: session_id, stale: [], trust: { needs_ack: true } });
  expect(shown.live[0]).toMatchObject({ ...hook, name: "Guard", timeout: 60, disabled: false });

  // held: the call passes without it
  expect(await sessions.runTool(session_id, "bash", TOUCH)).toMatchObject({ is_error: false });
  await hooks.trust({ session_id, hash: shown.trust.hash });
  expect(await sessions.runTool(session_id, "bash", TOUCH)).toMatchObject({
    is_error: true,
    content: [{ text: "not this file" }],
  });

  await hooks.disable({
    session_id,
    nonce: (await intent("toggle")).nonce,
    scope: "project",
    ...hook,
  });
  expect((await hooks.list({ session_id })).live[0]).toMatchObject({ disabled: true });
  await hooks.enable({
    session_id,
    nonce: (await intent("toggle")).nonce,
    scope: "project",
    ...hook,
  });
  expect(
    await hooks.run({
      session_id,
      event: "PreToolUse",
      match_value: "Bash",
      payload: { x: "made" },
    }),
  ).toMatchObject({
    exit_code: 2,
    fired: true,
  });
  expect(await hooks.test({ session_id, shipped_id: "destructive-git" })).toMatchObject({
    would_dispatch: true,
  });

  await hooks.disableAll({
    session_id,
    nonce: (await intent("set_disabled")).nonce,
    scope: "project",
  });
  expect(await sessions.runTool(session_id, "bash", TOUCH)).toMatchObject({ is_error: false });
  await hooks.enableAll({
    session_id,
    nonce: (await intent("set_disabled")).nonce,
    scope: "project",
  });
  expect(await sessions.runTool(session_id, "bash", TOUCH)).toMatchObject({ is_error: true });
  expect(
    await hooks.delete({
      session_id,
      nonce: (await intent("delete")).nonce,
      scope: "project",
      ...hook,
    }),
  ).toMatchObject({ removed: 1 });

  const rules = await hooks.setRules({
    session_id,
    nonce: (await intent("rules_set")).nonce,
    scope: "project",
    rules: [
      { id: "limit-no-rm-rf", text: "Never remove the workspace.", kind: "limit", tools: ["bash"] },
    ],
    timeout_ms: 1500,
  });
  expect(rules).toMatchObject({
    ok: true,
    rules: { live: [{ applies_as: "checked" }], timeout_ms: 1500 },
  });
  const block = await hooks.getRules({ cwd: project });
  expect(block.rules.scopes.find(({ scope }) => scope === "project")?.revision).toBe(
    rules.revision,
  );
  expect(await sessions.listApplicableRules(session_id, { tool: "bash" })).toMatchObject({
    count: 1,
    active: true,
  });
  const before = await client.agent.changes.get({ cwd: project });
  expect(before.tokens["rules"]).toBeDefined();
  expect(await hooks.reload({ session_id })).toMatchObject({ reloaded: true, session: session_id });
}, 60_000);
