import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "vitest";
import type {
  HookVerdict,
  JsonObject,
  RulesVerdict,
  ToolCall,
} from "../../exec-host/agent/seams.ts";
import { codeOf, detailsOf, startGateway, textOf } from "../support/agent-gateway.ts";
import { openStream } from "../support/agent-stream.ts";

const touch = { params: { cmd: "touch made" }, allow_mutations: true };

describe("lifecycle hooks in the gate", () => {
  const withHook = (verdict: HookVerdict | ((call: ToolCall) => HookVerdict)) => {
    const calls: ToolCall[] = [];
    const after: [string, boolean][] = [];
    return {
      calls,
      after,
      hooks: {
        beforeTool: (call: ToolCall) => {
          calls.push(call);
          return Promise.resolve(typeof verdict === "function" ? verdict(call) : verdict);
        },
        afterTool: (call: ToolCall, result: { isError: boolean }) => {
          after.push([call.tool, result.isError]);
          return Promise.resolve({ context: ["seen afterwards"] });
        },
      },
    };
  };

  test("a denial stops the call with its reason, and nothing is raised afterwards", async ({
    expect,
  }) => {
    const hook = withHook({ kind: "deny", reason: "not on Fridays" });
    const gateway = await startGateway(hook);
    const denied = await gateway.run("bash", touch);
    expect([
      denied.status,
      denied.json["is_error"],
      denied.json["error_code"],
      textOf(denied),
    ]).toEqual([200, true, "hook_denied", "not on Fridays"]);
    expect(hook.after).toEqual([]);
    await expect(readFile(join(gateway.project, "made"))).rejects.toThrow();
  });

  test("every entry point raises them, once per call", async ({ expect }) => {
    const hook = withHook({ kind: "deny", reason: "no" });
    const gateway = await startGateway(hook);
    const headers = { "x-hoody-cwd": gateway.project };
    const body = { params: { path: "x" } };
    await gateway.run("read_file", body);
    await gateway.call("POST", "/api/v1/agent/tools/read_file/runAsync", { body, headers });
    await (
      await openStream(gateway.port, "POST", "/api/v1/agent/tools/read_file/stream", body, headers)
    ).ended;
    const id = await gateway.createSession();
    await gateway.runIn(id, "read_file", body);
    await gateway.server.startTurn(
      id,
      async (turn) => void (await turn.callTool("read_file", { path: "x" })),
    ).done;
    for (let i = 0; i < 100 && hook.calls.length < 5; i++) {
      await gateway.call("GET", "/api/v1/agent/tools");
    }
    expect(hook.calls.map((call) => call.entry).toSorted((a, b) => (a < b ? -1 : 1))).toEqual([
      "async",
      "run",
      "session",
      "stream",
      "turn",
    ]);
    const open = withHook({ kind: "allow", context: [] });
    const other = await startGateway(open);
    await other.run("tool_orchestrator", {
      params: { calls: [{ tool: "read_file", params: { path: "x" } }] },
      allow_mutations: true,
    });
    expect(open.calls.map((call) => [call.entry, call.tool])).toEqual([
      ["run", "tool_orchestrator"],
      ["orchestrator", "read_file"],
    ]);
  });

  test("ask parks, the token passes it, a headless session is denied", async ({ expect }) => {
    const gateway = await startGateway(withHook({ kind: "ask", reason: "sure?", context: [] }));
    const parked = await gateway.run("bash", { params: { cmd: "ls" } });
    expect(detailsOf(parked)).toMatchObject({ gate_cause: "hook", reason: "sure?" });
    const again = await gateway.run("bash", {
      params: { cmd: "ls" },
      confirm: true,
      confirm_token: detailsOf(parked)["confirm_token"],
    });
    expect(again.status).toBe(200);
    const id = await gateway.createSession({ headless: true });
    expect((await gateway.runIn(id, "bash", { params: { cmd: "ls" } })).json).toMatchObject({
      is_error: true,
      error_code: "hook_denied",
    });
  });

  test("a rewrite is checked again: schema, deny list, scope, shapes; a bad one denies", async ({
    expect,
  }) => {
    const rewrites: readonly (readonly [JsonObject, number, unknown])[] = [
      [{ cmd: "echo rewritten" }, 200, undefined],
      [{ cmd: 1 }, 200, "hook_rewrite_invalid"],
      [{ cmd: "cat ~/.ssh/id" }, 200, "credential"],
      [{ cmd: "echo forbidden" }, 200, "deny_list"],
      [{ cmd: "git push -f" }, 409, undefined],
    ];
    for (const [updatedInput, status, code] of rewrites) {
      const hook = withHook({ kind: "allow", updatedInput, context: ["told before"] });
      const gateway = await startGateway({ ...hook, settings: { denyList: ["*forbidden*"] } });
      const answer = await gateway.run("bash", { params: { cmd: "ls" }, allow_mutations: true });
      expect([answer.status, answer.json["error_code"]], JSON.stringify(updatedInput)).toEqual([
        status,
        code,
      ]);
      expect(hook.calls).toHaveLength(1);
      if (code === undefined && status === 200) {
        expect(answer.json["content"]).toEqual([
          { type: "text", text: "rewritten\n" },
          { type: "text", text: "told before" },
          { type: "text", text: "seen afterwards" },
        ]);
      }
    }
  });

  test("a rewrite to something that changes is refused where only reading was asked for", async ({
    expect,
  }) => {
    const gateway = await startGateway(
      withHook({ kind: "allow", updatedInput: { cmd: "touch made" }, context: [] }),
    );
    expect(codeOf(await gateway.run("bash", { params: { cmd: "ls" } }))).toBe(
      "tool_mutation_refused",
    );
  });

  test("a token for one effect does not cover another that a hook makes of the same call", async ({
    expect,
  }) => {
    let round = 0;
    const gateway = await startGateway(
      withHook(() => ({
        kind: "allow",
        updatedInput: { cmd: `git push -f origin r${(round += 1)}` },
        context: [],
      })),
    );
    const body = { params: { cmd: "git push -f" } };
    const parked = await gateway.run("bash", { ...body, allow_mutations: true });
    const again = await gateway.run("bash", {
      ...body,
      confirm: true,
      confirm_token: detailsOf(parked)["confirm_token"],
    });
    expect(again.status).toBe(409);
  });

  test("PostToolUse follows a failed tool too", async ({ expect }) => {
    const hook = withHook({ kind: "allow", context: [] });
    const gateway = await startGateway(hook);
    await gateway.run("bash", { params: { cmd: "exit 3" }, allow_mutations: true });
    expect(hook.after).toEqual([["bash", true]]);
  });
});

describe("checked rules in the gate", () => {
  const withRule = (verdict: RulesVerdict) => ({
    rules: { check: () => Promise.resolve(verdict) },
  });

  test("a limit denies and no token helps", async ({ expect }) => {
    const gateway = await startGateway(
      withRule({ kind: "deny", reason: "rule no-prod", ruleIds: ["no-prod"] }),
    );
    const denied = await gateway.run("bash", touch);
    expect([denied.status, denied.json["error_code"], textOf(denied)]).toEqual([
      200,
      "rule_denied",
      "rule no-prod",
    ]);
    expect(
      (await gateway.run("bash", { ...touch, confirm: true, confirm_token: "x" })).json[
        "error_code"
      ],
    ).toBe("rule_denied");
  });

  test("a check-in asks, its token passes it, an unchecked limit parks again whatever comes", async ({
    expect,
  }) => {
    const ask = {
      kind: "ask",
      reason: "rule ask-me",
      ruleIds: ["ask-me"],
      checked: true,
      confirmable: true,
    } as const;
    const gateway = await startGateway(withRule(ask));
    const parked = await gateway.run("bash", touch);
    expect(detailsOf(parked)).toMatchObject({ gate_cause: "rules", reason: "rule ask-me" });
    const token = detailsOf(parked)["confirm_token"];
    expect(
      (await gateway.run("bash", { params: touch.params, confirm: true, confirm_token: token }))
        .status,
    ).toBe(200);
    const headless = await gateway.createSession({ headless: true });
    expect((await gateway.runIn(headless, "bash", touch)).json).toMatchObject({
      is_error: true,
      error_code: "rule_denied",
    });

    const strict = await startGateway(withRule({ ...ask, checked: false, confirmable: false }));
    const first = await strict.run("bash", touch);
    const second = await strict.run("bash", {
      params: touch.params,
      confirm: true,
      confirm_token: detailsOf(first)["confirm_token"],
    });
    expect([second.status, detailsOf(second)["gate_cause"]]).toEqual([409, "rules"]);
  });
});

test("deny lists hold for files, commands and URLs, in every spelling of a path", async ({
  expect,
}) => {
  const gateway = await startGateway({
    settings: {
      denyList: ["secret.txt", "./build/**", "terraform *"],
      denyUrls: ["https://evil.example/*"],
    },
  });
  await writeFile(join(gateway.project, "secret.txt"), "x");
  const denied = async (tool: string, params: JsonObject) =>
    (await gateway.run(tool, { params, allow_mutations: true })).json["error_code"];
  expect(await denied("read_file", { path: "secret.txt" })).toBe("deny_list");
  expect(await denied("read_file", { path: "./x/../secret.txt" })).toBe("deny_list");
  expect(await denied("write_file", { path: "build/a/b", content: "" })).toBe("deny_list");
  expect(await denied("bash", { cmd: "cat secret.txt" })).toBe("deny_list");
  expect(await denied("bash", { cmd: "true && terraform apply" })).toBe("deny_list");
  expect(await denied("bash", { cmd: "sh -c 'true'; curl https://evil.example/x" })).toBe(
    "deny_list",
  );
  expect(await denied("bash", { cmd: "echo fine" })).toBeUndefined();
});

test("a session's stream tells what its tools did", async ({ expect }) => {
  const gateway = await startGateway();
  const id = await gateway.createSession();
  const stream = await openStream(
    gateway.port,
    "GET",
    `/api/v1/agent/sessions/${id}/stream?since=0`,
  );
  await gateway.runIn(id, "bash", { params: { cmd: "echo hi" } });
  await stream.next("event.tool_result");
  expect(stream.frames.map((frame) => frame.event)).toEqual([
    "event.session_started",
    "replay_boundary",
    "event.tool_use",
    "event.tool_result",
  ]);
});
