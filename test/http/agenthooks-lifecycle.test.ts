import { chmod, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { JsonObject } from "../../exec-host/agent/seams.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import {
  oneHook,
  outcomes,
  put,
  startHooksGateway,
  toolCall,
} from "../support/agenthooks-gateway.ts";
import type { HooksGateway } from "../support/agenthooks-gateway.ts";

const NEVER = new AbortController().signal;

function hooksOf(event: string, commands: readonly JsonObject[], matcher = "Bash"): JsonObject {
  return {
    version: 1,
    hooks: {
      [event]: [{ matcher, hooks: commands.map((hook) => ({ type: "command", ...hook })) }],
    },
  };
}

/** Loads user hooks (which need no acknowledgement) and asks them about a shell call. */
async function ask(gateway: HooksGateway, commands: readonly JsonObject[], tool = "bash") {
  await put(gateway.userFile, hooksOf("PreToolUse", commands));
  const session = await gateway.open();
  session.events.length = 0;
  const verdict = await gateway.guards.hooks.beforeTool(
    toolCall(session, tool, { cmd: "ls" }),
    NEVER,
  );
  return { session, verdict };
}

function json(output: unknown): JsonObject {
  return { command: `echo '${JSON.stringify(output)}'` };
}

function decision(permissionDecision: string, more: object = {}): JsonObject {
  return json({ hookSpecificOutput: { hookEventName: "PreToolUse", permissionDecision, ...more } });
}

test("exit code 2 denies with what the hook wrote to its standard error", async () => {
  const gateway = await startHooksGateway();
  const { verdict, session } = await ask(gateway, [
    { command: 'echo "{\\"decision\\":\\"approve\\"}"; echo "not today" > /dev/stderr; exit 2' },
  ]);
  expect(verdict).toEqual({ kind: "deny", reason: "not today" });
  expect(outcomes(session)).toEqual(["blocked"]);
  expect(gateway.hookRuns.at(-1)).toBe("PreToolUse blocked");
});

test("deny beats ask beats allow, whatever the order", async () => {
  const gateway = await startHooksGateway();
  const allow = decision("allow");
  const asking = decision("ask", { permissionDecisionReason: "sure?" });
  const deny = decision("deny", { permissionDecisionReason: "no" });
  expect((await ask(gateway, [allow])).verdict).toEqual({ kind: "allow", context: [] });
  expect((await ask(gateway, [asking, allow])).verdict).toMatchObject({
    kind: "ask",
    reason: "sure?",
  });
  expect((await ask(gateway, [allow, asking, deny, { command: "sleep 0.2" }])).verdict).toEqual({
    kind: "deny",
    reason: "no",
  });
});

test("a hook that fails, is not launched or runs out of time is never taken for an answer", async () => {
  const gateway = await startHooksGateway();
  const script = await put(join(gateway.project, "check.sh"), "#!/bin/sh\nexit 2\n");
  await chmod(script, 0o644);
  const { verdict, session } = await ask(gateway, [
    { command: "exit 1" },
    { command: "./check.sh" },
    { command: "./missing.sh" },
    { command: "sleep 60", timeout: 1 },
    { command: "kill -9 $$" },
    { command: "true" },
  ]);
  expect(verdict).toEqual({ kind: "allow", context: [] });
  expect(outcomes(session).map(String).toSorted()).toEqual([
    "failed",
    "failed",
    "not_launched",
    "not_launched",
    "ran",
    "timed_out",
  ]);
  expect(gateway.hookRuns.filter((run) => run.endsWith("not_launched"))).toHaveLength(2);
});

test("a deny stands beside hooks that flood, hang, ignore signals and leave children behind", async () => {
  const gateway = await startHooksGateway();
  const { verdict } = await ask(gateway, [
    { command: "yes | head -c 20000000" },
    { command: "trap '' TERM; sleep 30", timeout: 1 },
    { command: "sleep 45.1234 & echo ok" },
    { command: "sleep 0.3; echo stop >&2; exit 2" },
  ]);
  expect(verdict).toEqual({ kind: "deny", reason: "stop" });
});

test("hooks run in parallel, and the same command once", async () => {
  const gateway = await startHooksGateway();
  const started = systemClock.monotonic();
  const { verdict, session } = await ask(gateway, [
    ...Array.from({ length: 8 }, (_, i) => ({ command: `sleep 0.7; echo ${i}` })),
    { command: "echo x >> count" },
    { command: "echo x >> count", timeout: 9 },
  ]);
  expect(verdict.kind).toBe("allow");
  expect(systemClock.monotonic() - started).toBeLessThan(4500);
  expect(await readFile(join(gateway.project, "count"), "utf8")).toBe("x\n");
  expect(outcomes(session)).toHaveLength(9);
});

test("matchers choose by name and alias; a hook that does not fit says so; a switched-off one says nothing", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, {
    version: 1,
    hooks: {
      PreToolUse: [
        { matcher: "Write|Edit", hooks: [{ type: "command", command: "exit 2" }] },
        { matcher: "bash", hooks: [{ type: "command", command: "exit 0" }] },
        { matcher: "Bash", hooks: [{ type: "command", command: "exit 2", disabled: true }] },
        { matcher: "([", hooks: [{ type: "command", command: "exit 2" }] },
        { hooks: [{ type: "prompt", command: "exit 2" }] },
        { command: "exit 2" },
      ],
    },
  });
  const session = await gateway.open();
  const verdict = await gateway.guards.hooks.beforeTool(
    toolCall(session, "bash", { cmd: "ls" }),
    NEVER,
  );
  expect(verdict).toEqual({ kind: "allow", context: [] });
  expect(outcomes(session)).toEqual(["not_matched", "not_matched", "ran"]);
  const { body } = await gateway.call("GET", `/hooks?session_id=${session.id}`);
  expect(body["warnings"]).toHaveLength(3);
});

test("the hook reads the call as JSON on its standard input and knows the project", async () => {
  const gateway = await startHooksGateway();
  const { session } = await ask(gateway, [
    { command: 'cat > input.json; echo "$HOODY_PROJECT_DIR|$CLAUDE_PROJECT_DIR|$PWD" > env.txt' },
  ]);
  expect(JSON.parse(await readFile(join(gateway.project, "input.json"), "utf8"))).toEqual({
    session_id: session.id,
    cwd: gateway.project,
    hook_event_name: "PreToolUse",
    transcript_path: "",
    permission_mode: "default",
    tool_name: "bash",
    tool_input: { cmd: "ls" },
    tool_use_id: "toolu_1",
  });
  const { project } = gateway;
  expect(await readFile(join(project, "env.txt"), "utf8")).toBe(
    `${project}|${project}|${project}\n`,
  );
});

test("updatedInput is passed on, the last one in load order; one that is no object denies", async () => {
  const gateway = await startHooksGateway();
  const rewrite = (updatedInput: unknown, wait = "") => ({
    command: `${wait} echo '${JSON.stringify({ hookSpecificOutput: { updatedInput, additionalContext: "note" } })}'`,
  });
  expect(
    (await ask(gateway, [rewrite({ cmd: "a" }, "sleep 0.4;"), rewrite({ cmd: "b" })])).verdict,
  ).toEqual({
    kind: "allow",
    updatedInput: { cmd: "b" },
    context: ["note", "note"],
  });
  for (const bad of ["text", null, ["x"]]) {
    expect((await ask(gateway, [rewrite(bad)])).verdict.kind).toBe("deny");
  }
});

test("PostToolUse feeds reasons and context back, also after a failed run", async () => {
  const gateway = await startHooksGateway();
  await put(
    gateway.userFile,
    hooksOf("PostToolUse", [
      { command: "echo look again >&2; exit 2" },
      json({ systemMessage: "formatted" }),
      { command: "cat > response.json" },
    ]),
  );
  const session = await gateway.open();
  const { context } = await gateway.guards.hooks.afterTool(
    toolCall(session, "bash", { cmd: "false" }),
    { isError: true, text: "[exit code 1]", errorCode: "exit_code" },
    NEVER,
  );
  expect(context).toEqual(["look again", "formatted"]);
  expect(JSON.parse(await readFile(join(gateway.project, "response.json"), "utf8"))).toMatchObject({
    hook_event_name: "PostToolUse",
    tool_response: {
      is_error: true,
      content: [{ type: "text", text: "[exit code 1]" }],
      error_code: "exit_code",
    },
  });
});

test("session events and notifications are raised with their subject", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, {
    version: 1,
    hooks: {
      SessionStart: [
        { matcher: "startup", hooks: [{ type: "command", command: "echo welcome" }] },
        { matcher: "resume", hooks: [{ type: "command", command: "echo back" }] },
      ],
      SessionEnd: [{ hooks: [{ type: "command", command: "cat > end.json; exit 2" }] }],
      Notification: [
        { matcher: "permission_prompt", hooks: [{ type: "command", command: "cat > note.json" }] },
      ],
    },
  });
  const session = await gateway.open();
  expect(outcomes(session)).toEqual(["not_matched", "ran"]);
  const { hooks } = gateway.guards;
  expect(await hooks.sessionStart(session, "resume")).toEqual({ context: ["back"] });
  hooks.notify(session, "permission_prompt", "A gate is open.");
  await expect.poll(() => outcomes(session).length, { timeout: 10_000 }).toBe(5);
  expect(JSON.parse(await readFile(join(gateway.project, "note.json"), "utf8"))).toMatchObject({
    notification_type: "permission_prompt",
    message: "A gate is open.",
  });
  await hooks.sessionEnd(session, "closed");
  expect(JSON.parse(await readFile(join(gateway.project, "end.json"), "utf8"))).toMatchObject({
    hook_event_name: "SessionEnd",
    reason: "closed",
  });
  expect(outcomes(session).at(-1)).toBe("failed");
});

test("an aborted call ends its hooks", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, hooksOf("PreToolUse", [{ command: "sleep 30; touch late" }]));
  const session = await gateway.open();
  const abort = new AbortController();
  const running = gateway.guards.hooks.beforeTool(toolCall(session, "bash", {}), abort.signal);
  systemClock.after(200, () => abort.abort());
  await running;
  expect(outcomes(session)).toEqual(["failed"]);
  await expect(stat(join(gateway.project, "late"))).rejects.toThrow("ENOENT");
});

test("the kill switch of any layer stops every hook, shipped ones included", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, {
    ...hooksOf("PreToolUse", [{ command: "exit 2" }]),
    shipped_hooks: { "destructive-git": true },
  });
  await put(gateway.localFile, { version: 1, disableAllHooks: true });
  const session = await gateway.open();
  const call = toolCall(session, "bash", { cmd: "git reset --hard" });
  expect(await gateway.guards.hooks.beforeTool(call, NEVER)).toEqual({
    kind: "allow",
    context: [],
  });
});

test("shipped hooks are off until switched on, ask before and explain after", async () => {
  const gateway = await startHooksGateway();
  const reset = { cmd: "git reset --hard" };
  const { hooks } = gateway.guards;
  const plain = await gateway.open();
  expect((await hooks.beforeTool(toolCall(plain, "bash", reset), NEVER)).kind).toBe("allow");
  await put(gateway.userFile, {
    version: 1,
    shipped_hooks: {
      "destructive-git": true,
      "bash-usage-error": true,
      "secret-in-file": true,
      "no-such": true,
    },
  });
  const session = await gateway.open();
  expect(await hooks.beforeTool(toolCall(session, "bash", reset), NEVER)).toMatchObject({
    kind: "ask",
  });
  expect(
    (await hooks.beforeTool(toolCall(session, "bash", { cmd: "git status" }), NEVER)).kind,
  ).toBe("allow");
  const secret = { path: "x", content: "AKIAIOSFODNN7EXAMPLE" };
  expect((await hooks.beforeTool(toolCall(session, "write_file", secret), NEVER)).kind).toBe("ask");
  const failed = (code: number) =>
    hooks.afterTool(
      toolCall(session, "bash", { cmd: "grep --nope" }),
      { isError: true, text: `usage\n[exit code ${code}]`, errorCode: "exit_code" },
      NEVER,
    );
  expect((await failed(2)).context).toHaveLength(1);
  expect((await failed(1)).context).toHaveLength(0);
  expect(session.events.map(({ data }) => data["shipped_id"])).toEqual([
    "destructive-git",
    "secret-in-file",
    "bash-usage-error",
  ]);
});

test("a rewrite is what shipped hooks look at", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, {
    ...hooksOf("PreToolUse", [
      json({ hookSpecificOutput: { updatedInput: { cmd: "git clean -fd" } } }),
    ]),
    shipped_hooks: { "destructive-git": true },
  });
  const session = await gateway.open();
  expect(
    await gateway.guards.hooks.beforeTool(toolCall(session, "bash", { cmd: "ls" }), NEVER),
  ).toMatchObject({
    kind: "ask",
    updatedInput: { cmd: "git clean -fd" },
  });
});

test("a run without a session sees the files as they are now, and its hooks are held like any other's", async () => {
  const gateway = await startHooksGateway();
  const { hooks } = gateway.guards;
  const call = () => toolCall(gateway.makeSession({ kind: "ephemeral" }), "bash", { cmd: "ls" });
  expect((await hooks.beforeTool(call(), NEVER)).kind).toBe("allow");
  await put(gateway.userFile, hooksOf("PreToolUse", [{ command: "exit 2" }]));
  expect((await hooks.beforeTool(call(), NEVER)).kind).toBe("deny");
  await put(gateway.userFile, { version: 1 });
  await put(gateway.projectFile, hooksOf("PreToolUse", [{ command: "touch ran; exit 2" }]));
  expect((await hooks.beforeTool(call(), NEVER)).kind).toBe("allow");
  await expect(stat(join(gateway.project, "ran"))).rejects.toThrow("ENOENT");
});

test("tools are given the deny lists of every layer, also of a file with a wrong version", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, {
    version: 1,
    deny_list: ["a"],
    deny_urls: ["u"],
    mcp_servers: [{ name: "mine" }],
  });
  await put(gateway.projectFile, {
    version: 9,
    deny_list: ["b"],
    disabled_tools: ["bash"],
    mcp_servers: [{ name: "x" }],
  });
  await put(gateway.localFile, { version: 1, mcp_servers: [{ name: "theirs" }] });
  const session = await gateway.open();
  expect(await gateway.guards.settings.toolSettings(session)).toMatchObject({
    denyList: ["a", "b"],
    denyUrls: ["u"],
    disabledTools: ["bash"],
    mcpServers: [
      { layer: "user", held: false, value: { name: "mine" } },
      { layer: "local", held: true, value: { name: "theirs" } },
    ],
  });
  await gateway.ack(session);
  expect(await gateway.guards.settings.toolSettings(session)).toMatchObject({
    mcpServers: [{ held: false }, { held: false }],
  });
  expect(gateway.refreshed).toContain(session);
});

test("two hooks of different layers with one command: the trusted one runs", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.userFile, oneHook("PreToolUse", "exit 2"));
  await put(gateway.projectFile, oneHook("PreToolUse", "exit 2"));
  const session = await gateway.open();
  const verdict = await gateway.guards.hooks.beforeTool(toolCall(session, "bash", {}), NEVER);
  expect(verdict.kind).toBe("deny");
});
