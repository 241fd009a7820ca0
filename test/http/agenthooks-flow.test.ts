import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { createGuards } from "../../exec-host/agent/hooks/guards.ts";
import type { JsonObject } from "../../exec-host/agent/seams.ts";
import { codeOf, detailsOf, startGateway, textOf } from "../support/agent-gateway.ts";
import type { TestGateway } from "../support/agent-gateway.ts";
import { oneHook, put } from "../support/agenthooks-gateway.ts";
import { startJudge } from "../support/judge.ts";
import type { JudgeScript } from "../support/judge.ts";

const LIMIT = { id: "no-touch", text: "Never touch files.", kind: "limit" };
const CHECK_IN = { id: "ask-touch", text: "Ask before files are touched.", kind: "check_in" };
const TOUCH = { params: { cmd: "touch made" } };

function userFile(gateway: TestGateway): string {
  return join(gateway.home, ".hoody/settings.json");
}

async function judgedGateway(
  rules: readonly JsonObject[],
  script: JudgeScript,
  settings: JsonObject = {},
) {
  const judge = await startJudge(script);
  onTestFinished(() => judge.stop());
  const gateway = await startGateway({
    createGuards,
    options: { judge: { url: judge.url, apiKey: "k", model: "m" } },
  });
  await put(userFile(gateway), { version: 1, rules, rules_timeout_ms: 1000, ...settings });
  return { gateway, judge };
}

function made(gateway: TestGateway): Promise<boolean> {
  return stat(join(gateway.project, "made")).then(
    () => true,
    () => false,
  );
}

/** Waits for an asynchronous job and returns what J2 says. */
async function finishJob(gateway: TestGateway, jobId: unknown): Promise<JsonObject> {
  let result: JsonObject = {};
  await expect
    .poll(
      async () => {
        result = (await gateway.call("GET", `/api/v1/agent/jobs/${String(jobId)}/result`)).json;
        return result["status"];
      },
      { timeout: 15_000 },
    )
    .toMatch(/succeeded|failed/);
  return result;
}

test("a hook's deny holds for every entry point", async () => {
  const gateway = await startGateway({ createGuards });
  await put(userFile(gateway), oneHook("PreToolUse", "grep -q made && exit 2 || exit 0", "Bash"));
  const optedIn = { ...TOUCH, allow_mutations: true };
  const run = await gateway.run("bash", optedIn);
  expect(run).toMatchObject({ status: 200, json: { is_error: true } });
  const headers = { "x-hoody-cwd": gateway.project };
  const started = await gateway.call("POST", "/api/v1/agent/tools/bash/runAsync", {
    body: optedIn,
    headers,
  });
  expect(await finishJob(gateway, started.json["job_id"])).toMatchObject({
    result: { is_error: true },
  });
  const streamed = await gateway.call("POST", "/api/v1/agent/tools/bash/stream", {
    body: optedIn,
    headers,
  });
  expect(streamed.text).toContain('"is_error":true');
  const session = await gateway.createSession();
  expect((await gateway.runIn(session, "bash", TOUCH)).json["is_error"]).toBe(true);
  const inner = await gateway.runIn(session, "tool_orchestrator", {
    params: { calls: [{ tool: "bash", params: TOUCH.params }] },
  });
  expect(inner.status).toBe(200);
  expect(await made(gateway)).toBe(false);
});

test("a checked rule holds for every entry point, and a token never passes a limit", async () => {
  const { gateway, judge } = await judgedGateway([LIMIT], {
    kind: "answer",
    yes: { "no-touch": 0.9 },
  });
  const optedIn = { ...TOUCH, allow_mutations: true };
  const headers = { "x-hoody-cwd": gateway.project };
  expect(await gateway.run("bash", optedIn)).toMatchObject({
    status: 200,
    json: { is_error: true },
  });
  const started = await gateway.call("POST", "/api/v1/agent/tools/bash/runAsync", {
    body: optedIn,
    headers,
  });
  expect(await finishJob(gateway, started.json["job_id"])).toMatchObject({
    result: { is_error: true },
  });
  const streamed = await gateway.call("POST", "/api/v1/agent/tools/bash/stream", {
    body: optedIn,
    headers,
  });
  expect(streamed.text).toContain('"is_error":true');
  const session = await gateway.createSession();
  const denied = await gateway.runIn(session, "bash", TOUCH);
  expect(textOf(denied)).toContain("no-touch");
  await gateway.runIn(session, "tool_orchestrator", {
    params: { calls: [{ tool: "bash", params: TOUCH.params }] },
  });
  expect(await made(gateway)).toBe(false);
  expect(judge.calls.length).toBeGreaterThanOrEqual(5);
});

test("a check-in parks, a token passes it, but not a limit that turns up meanwhile", async () => {
  const { gateway, judge } = await judgedGateway([LIMIT, CHECK_IN], {
    kind: "answer",
    yes: { "ask-touch": 1 },
  });
  const session = await gateway.createSession();
  const parked = await gateway.runIn(session, "bash", TOUCH);
  expect(parked.status).toBe(409);
  expect(codeOf(parked)).toBe("tool_needs_confirmation");
  expect(detailsOf(parked)).toMatchObject({
    gate_cause: "rules",
    reason: expect.stringContaining("ask-touch") as unknown,
  });
  const confirmed = { ...TOUCH, confirm: true, confirm_token: detailsOf(parked)["confirm_token"] };
  judge.script({ kind: "answer", yes: { "no-touch": 1, "ask-touch": 1 } });
  expect((await gateway.runIn(session, "bash", confirmed)).json["is_error"]).toBe(true);
  expect(await made(gateway)).toBe(false);
  judge.script({ kind: "answer", yes: { "ask-touch": 1 } });
  const again = await gateway.runIn(session, "bash", TOUCH);
  const token = detailsOf(again)["confirm_token"];
  expect(
    await gateway.runIn(session, "bash", { ...TOUCH, confirm: true, confirm_token: token }),
  ).toMatchObject({
    status: 200,
    json: { is_error: false },
  });
  expect(await made(gateway)).toBe(true);
});

test("a judge slower than its budget parks the call; no token passes an unchecked limit", async () => {
  const { gateway, judge } = await judgedGateway(
    [LIMIT],
    { kind: "silent" },
    { rules_timeout_ms: 300 },
  );
  const session = await gateway.createSession();
  const parked = await gateway.runIn(session, "bash", TOUCH);
  expect(detailsOf(parked)).toMatchObject({ gate_cause: "rules" });
  const token = detailsOf(parked)["confirm_token"];
  const again = await gateway.runIn(session, "bash", {
    ...TOUCH,
    confirm: true,
    confirm_token: token,
  });
  expect(again.status).toBe(409);
  expect(await made(gateway)).toBe(false);
  judge.script({ kind: "answer" });
  expect((await gateway.runIn(session, "bash", TOUCH)).json["is_error"]).toBe(false);
});

test("nobody can be asked in a headless session: check-ins, unchecked calls and a hook's question are denied", async () => {
  const { gateway, judge } = await judgedGateway([CHECK_IN], {
    kind: "answer",
    yes: { "ask-touch": 1 },
  });
  const session = await gateway.createSession({ headless: true });
  expect(await gateway.runIn(session, "bash", TOUCH)).toMatchObject({
    status: 200,
    json: { is_error: true },
  });
  judge.script({ kind: "cut" });
  expect(await gateway.runIn(session, "bash", TOUCH)).toMatchObject({
    status: 200,
    json: { is_error: true },
  });
  judge.script({ kind: "answer" });
  await put(
    userFile(gateway),
    oneHook(
      "PreToolUse",
      `echo '{"hookSpecificOutput":{"permissionDecision":"ask","permissionDecisionReason":"sure?"}}'`,
    ),
  );
  const asked = await gateway.createSession({ headless: true });
  expect(textOf(await gateway.runIn(asked, "bash", TOUCH))).toContain("sure?");
  expect(await made(gateway)).toBe(false);
});

test("a hook's question parks with its reason, and a token passes it", async () => {
  const gateway = await startGateway({ createGuards });
  await put(
    userFile(gateway),
    oneHook(
      "PreToolUse",
      `echo checking; echo '{"hookSpecificOutput":{"permissionDecision":"ask","permissionDecisionReason":"sure?"}}'`,
    ),
  );
  const session = await gateway.createSession();
  const parked = await gateway.runIn(session, "bash", TOUCH);
  expect(detailsOf(parked)).toMatchObject({ gate_cause: "hook", reason: "sure?" });
  const token = detailsOf(parked)["confirm_token"];
  const done = await gateway.runIn(session, "bash", {
    ...TOUCH,
    confirm: true,
    confirm_token: token,
  });
  expect(done).toMatchObject({ status: 200, json: { is_error: false } });
  expect(await made(gateway)).toBe(true);
});

test("a rewrite is checked again: by the schema, the shapes and the rules", async () => {
  const rewrite = (input: unknown) =>
    oneHook(
      "PreToolUse",
      `echo '${JSON.stringify({ hookSpecificOutput: { updatedInput: input } })}'`,
      "Bash",
    );
  const { gateway, judge } = await judgedGateway([LIMIT], { kind: "answer" });
  const runRewritten = async (input: unknown) => {
    await put(userFile(gateway), { ...rewrite(input), rules: [LIMIT] });
    return gateway.runIn(await gateway.createSession(), "bash", { params: { cmd: "true" } });
  };
  const good = await runRewritten({ cmd: "echo rewritten" });
  expect(textOf(good)).toContain("rewritten");
  expect(judge.calls.at(-1)?.prompt).toContain('{"cmd":"echo rewritten"}');
  expect(await runRewritten({ cmd: 7 })).toMatchObject({ status: 200, json: { is_error: true } });
  expect(await runRewritten({ cmd: "git push --force" })).toMatchObject({
    status: 409,
    json: { details: { gate_cause: "high_risk" } },
  });
  judge.script((call) => ({
    kind: "answer",
    yes: { "no-touch": call.prompt.includes("touch made") ? 1 : 0 },
  }));
  expect((await runRewritten({ cmd: "touch made" })).json["is_error"]).toBe(true);
  expect(await made(gateway)).toBe(false);
});

test("a session's start and end are raised, and its stream carries every outcome", async () => {
  const gateway = await startGateway({ createGuards });
  await put(userFile(gateway), {
    version: 1,
    hooks: {
      SessionStart: [{ hooks: [{ type: "command", command: "echo hello" }] }],
      SessionEnd: [{ hooks: [{ type: "command", command: "touch ended" }] }],
      PostToolUse: [
        { matcher: "Bash", hooks: [{ type: "command", command: "echo seen >&2; exit 2" }] },
      ],
    },
  });
  const session = await gateway.createSession();
  const done = await gateway.runIn(session, "bash", { params: { cmd: "echo x" } });
  expect(JSON.stringify(done.json["content"])).toContain("seen");
  const events: string[] = [];
  const abort = new AbortController();
  const stream = gateway.call("GET", `/api/v1/agent/sessions/${session}/stream?since=0`, {
    signal: abort.signal,
  });
  await gateway.call("POST", `/api/v1/agent/sessions/${session}/close`);
  events.push((await stream).text);
  expect(events.join("")).toContain('"outcome":"ran"');
  expect(events.join("")).toContain('"outcome":"blocked"');
  expect(await readFile(join(gateway.project, "ended"), "utf8")).toBe("");
});

test("no settings route works without the edge's signature", async () => {
  const gateway = await startGateway({ createGuards });
  for (const [method, path] of [
    ["GET", "/hooks?session_id=x"],
    ["POST", "/hooks/reload"],
    ["GET", "/hooks/rules"],
    ["POST", "/hooks/begin-write"],
    ["POST", "/hooks/rules"],
    ["PUT", "/hooks"],
    ["DELETE", "/hooks"],
    ["POST", "/hooks/toggle"],
    ["POST", "/hooks/disable-all"],
    ["POST", "/hooks/test"],
    ["POST", "/hooks/trust/ack"],
    ["GET", "/sessions/x/rules/applies"],
  ] as const) {
    const answer = await gateway.call(method, `/api/v1/agent${path}`, { sign: false, body: {} });
    expect(answer.status).toBe(403);
  }
});

test("the OpenAPI document of the gateway names every route of the hooks", async () => {
  const gateway = await startGateway({ createGuards });
  const { json } = await gateway.call("GET", "/api/v1/agent/openapi.json");
  const paths = Object.keys(json["paths"] as JsonObject);
  for (const path of [
    "/hooks",
    "/hooks/reload",
    "/hooks/rules",
    "/hooks/begin-write",
    "/hooks/toggle",
    "/hooks/disable-all",
    "/hooks/test",
    "/hooks/trust/ack",
    "/sessions/{id}/rules/applies",
  ]) {
    expect(paths).toContain(`/api/v1/agent${path}`);
  }
});

test("tools cannot reach settings files or the record of acknowledgements", async () => {
  const gateway = await startGateway({ createGuards });
  const session = await gateway.createSession();
  for (const path of [
    userFile(gateway),
    join(gateway.home, ".hoody/hook-trust.json"),
    ".hoody/settings.json",
  ]) {
    const answer = await gateway.runIn(session, "write_file", { params: { path, content: "{}" } });
    expect(answer).toMatchObject({ status: 200, json: { is_error: true } });
  }
  await expect(stat(join(gateway.home, ".hoody"))).rejects.toThrow("ENOENT");
});
