import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { JsonObject } from "../../exec-host/agent/seams.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { oneHook, put, startHooksGateway } from "../support/agenthooks-gateway.ts";
import type { HooksGateway, TestSession } from "../support/agenthooks-gateway.ts";

async function send(gateway: HooksGateway, session: TestSession, fields: object) {
  return gateway.call("POST", "/hooks/test", { session_id: session.id, ...fields });
}

test("an inline command runs now and is described in full", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const { status, body } = await send(gateway, session, {
    event: "PreToolUse",
    match_value: "Bash",
    command: "echo out; echo err > /dev/stderr; exit 3",
  });
  expect(status).toBe(200);
  expect(body).toEqual({
    ok: true,
    event: "PreToolUse",
    match_value: "Bash",
    command: "echo out; echo err > /dev/stderr; exit 3",
    exit_code: 3,
    stdout: "out\n",
    stderr: "err\n",
    duration_ms: expect.any(Number) as unknown,
    fired: true,
    outcome: "failed",
  });
});

test("the payload is merged into the input, but cannot replace the stamped members", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const { body } = await send(gateway, session, {
    event: "PostToolUse",
    command: "cat",
    payload: {
      tool_name: "bash",
      session_id: "forged",
      cwd: "/forged",
      hook_event_name: "Stop",
      hook_test: false,
      permission_mode: "plan",
    },
  });
  expect(JSON.parse(String(body["stdout"]))).toEqual({
    transcript_path: "",
    permission_mode: "plan",
    tool_name: "bash",
    session_id: session.id,
    cwd: gateway.project,
    hook_event_name: "PostToolUse",
    hook_test: true,
  });
});

test("a timeout ends an inline run; one that is not a positive whole number is ignored", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const slow = await send(gateway, session, { event: "Stop", command: "sleep 30", timeout: 1 });
  expect(slow.body).toMatchObject({
    ok: true,
    exit_code: null,
    timed_out: true,
    outcome: "timed_out",
  });
  for (const timeout of [0, -1, 0.5, "1", null]) {
    const answer = await send(gateway, session, { event: "Stop", command: "true", timeout });
    expect(answer.body).toMatchObject({ exit_code: 0 });
  }
});

test("no test run takes longer than a minute, whatever the hook's timeout says", async () => {
  // a clock that lets a minute pass in 1.2 seconds
  const clock = {
    ...systemClock,
    after: (ms: number, task: () => void) => systemClock.after(ms / 50, task),
  };
  const gateway = await startHooksGateway({ clock });
  await put(gateway.userFile, oneHook("PreToolUse", "sleep 30"));
  const session = await gateway.open();
  const [inline, saved] = await Promise.all([
    send(gateway, session, { event: "Stop", command: "sleep 31", timeout: 3600 }),
    send(gateway, session, { event: "PreToolUse", match_value: "bash" }),
  ]);
  for (const { body } of [inline, saved]) {
    expect(body).toMatchObject({ timed_out: true });
    expect(Number(body["duration_ms"])).toBeGreaterThanOrEqual(1100);
    expect(Number(body["duration_ms"])).toBeLessThan(8000);
  }
});

test("without a command the saved hooks that fit are fired, also while trust holds them", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.projectFile, {
    version: 1,
    hooks: {
      PreToolUse: [
        {
          matcher: "Bash",
          hooks: [
            { type: "command", command: "echo one" },
            { type: "command", command: "exit 2" },
          ],
        },
        { matcher: "Write", hooks: [{ type: "command", command: "touch wrong" }] },
      ],
    },
  });
  const session = await gateway.open();
  const { body } = await send(gateway, session, { event: "PreToolUse", match_value: "bash" });
  expect(body).toMatchObject({
    ok: true,
    fired: true,
    command: "echo one",
    exit_code: 0,
    stdout: "one\n",
  });
  expect((body["results"] as JsonObject[]).map((run) => run["outcome"])).toEqual([
    "ran",
    "blocked",
  ]);
  const none = await send(gateway, session, { event: "PreToolUse", match_value: "Grep" });
  expect(none.body).toMatchObject({ ok: true, fired: false, exit_code: null, results: [] });
  await expect(stat(join(gateway.project, "wrong"))).rejects.toThrow("ENOENT");
});

test("a shipped hook is only tried out: nothing runs", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const dry = await send(gateway, session, { shipped_id: "bash-usage-error", event: "Nonsense" });
  expect(dry.body).toEqual({
    ok: true,
    shipped_id: "bash-usage-error",
    would_dispatch: true,
    fired: false,
    command: "grep --no-such-option",
    exit_code: 2,
  });
  const touched = { shipped_id: "bash-usage-error", command: "touch dry-run", exit_code: 1 };
  expect((await send(gateway, session, touched)).body).toMatchObject({
    would_dispatch: false,
    command: "touch dry-run",
    exit_code: 1,
  });
  await expect(readFile(join(gateway.project, "dry-run"))).rejects.toThrow("ENOENT");
  expect((await send(gateway, session, { shipped_id: "none" })).status).toBe(404);
});

test.for([
  {},
  { event: "Nope" },
  { event: "Stop", command: "" },
  { event: "Stop", command: "a\0" },
  { event: "Stop", payload: [] },
])("%j is refused", async (fields, { expect }) => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  expect((await send(gateway, session, fields)).status).toBe(400);
});

test("a caller that goes away ends the test run", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const abort = new AbortController();
  const request = fetch(`${gateway.origin}/api/v1/agent/hooks/test`, {
    method: "POST",
    signal: abort.signal,
    body: JSON.stringify({
      session_id: session.id,
      event: "Stop",
      command: "touch begun; sleep 20",
    }),
  });
  await expect
    .poll(() =>
      stat(join(gateway.project, "begun")).then(
        () => true,
        () => false,
      ),
    )
    .toBe(true);
  abort.abort();
  await expect(request).rejects.toThrow();
  await expect
    .poll(() => session.events.at(-1)?.data["outcome"], { timeout: 10_000 })
    .toBe("failed");
});
