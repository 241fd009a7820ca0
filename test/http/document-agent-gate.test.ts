import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, test } from "vitest";
import WebSocket from "ws";
import type { Answer } from "../support/ask.ts";
import { startGateway } from "../support/agent-gateway.ts";
import { stdioServer } from "../support/agent-mcp-server.ts";
import {
  detailsOf,
  type DocumentAgent,
  type Json,
  openDocumentAgent,
  outcomeOf,
  textOf,
} from "../support/document-agent.ts";
import { startJudge, type TestJudge } from "../support/judge.ts";

/* One gate for every way of running a tool: hooks, rules, trust and MCP as the two documents have them, through the edge. */

let judge: TestJudge;
let agent: DocumentAgent;
let count = 0;

beforeAll(async () => {
  judge = await startJudge();
  agent = await openDocumentAgent({ judge: { url: judge.url, apiKey: "key", model: "m" } });
}, 60_000);
afterAll(async () => {
  await agent.close();
  await judge.stop();
});

/** A folder with settings of its own, in the agent that is asked. */
function folder(settings: Json, where: DocumentAgent = agent): string {
  count += 1;
  const cwd = join(where.home, `gate-${count}`);
  mkdirSync(join(cwd, ".hoody"), { recursive: true });
  writeFileSync(join(cwd, ".hoody/settings.json"), JSON.stringify({ version: 1, ...settings }));
  return cwd;
}

async function acknowledged(cwd: string, body: Json = {}, where: DocumentAgent = agent) {
  const session = await where.session({ cwd, ...body });
  const { trust } = (await where.call("GET", `/hooks?session_id=${session}`)).json as {
    trust: Json;
  };
  await where.call("POST", "/hooks/trust/ack", {
    body: { session_id: session, hash: trust["hash"], high_risk: true },
  });
  return session;
}

async function jobEnd(started: Answer): Promise<Json> {
  for (;;) {
    const { json } = await agent.call("GET", `/jobs/${String(started.json["job_id"])}/result`);
    if (!["pending", "running"].includes(String(json["status"]))) {
      return json;
    }
    await new Promise((wait) => setTimeout(wait, 20));
  }
}

/** One call of `bash` through every documented way; each answers with how the gate decided. */
const ENTRIES: readonly (readonly [
  name: string,
  send: (cwd: string, session: string, cmd: string) => Promise<unknown>,
])[] = [
  [
    "run",
    async (cwd, _session, cmd) =>
      verdictOf(
        (
          await agent.run(
            "bash",
            { params: { cmd }, allow_mutations: true },
            { "x-hoody-cwd": cwd },
          )
        ).json,
      ),
  ],
  [
    "runAsync",
    async (cwd, _session, cmd) => {
      const started = await agent.call("POST", "/tools/bash/runAsync", {
        body: { params: { cmd }, allow_mutations: true },
        headers: { "x-hoody-cwd": cwd },
      });
      return verdictOf((await jobEnd(started))["result"] as Json);
    },
  ],
  [
    "stream",
    async (cwd, _session, cmd) => {
      const { body } = await agent.call("POST", "/tools/bash/stream", {
        body: { params: { cmd }, allow_mutations: true },
        headers: { "x-hoody-cwd": cwd },
      });
      const [, event = "", data = "{}"] =
        /^event: (result|needs_confirmation|error)\ndata: (.*)$/m.exec(body) ?? [];
      return event === "needs_confirmation" ? "asked" : verdictOf(JSON.parse(data) as Json);
    },
  ],
  [
    "session",
    async (_cwd, session, cmd) =>
      verdictOf((await agent.runIn(session, "bash", { params: { cmd } })).json),
  ],
  [
    "orchestrator",
    async (_cwd, session, cmd) => {
      const { json } = await agent.runIn(session, "tool_orchestrator", {
        params: { calls: [{ tool: "bash", params: { cmd } }] },
      });
      // the report has one entry per inner call, each with its own end
      const [inner] = JSON.parse(textOf({ json } as Answer)) as Json[];
      return verdictOf(inner ?? {});
    },
  ],
];

function verdictOf(json: Json): string {
  if (
    json["needs_confirmation"] === true ||
    json["code"] === "tool_needs_confirmation" ||
    json["error_code"] === "tool_needs_confirmation"
  ) {
    return "asked";
  }
  return json["is_error"] === true
    ? "denied"
    : json["is_error"] === false
      ? "ran"
      : JSON.stringify(json);
}

const LIMIT = { id: "no-made", text: "No files named made.", kind: "limit", tools: ["Bash"] };
const ASK = { ...LIMIT, id: "ask-made", kind: "check_in" };

describe.for(ENTRIES)("through %s", ([, send]) => {
  test("a limit denies, a check-in asks, and what the judge lets pass runs", async ({ expect }) => {
    const cwd = folder({ rules: [LIMIT, ASK] });
    const session = await agent.session({ cwd });
    const asked = judge.calls.length;
    judge.script({ kind: "answer", yes: { "no-made": 0.9, "ask-made": 0.9 } });
    expect(await send(cwd, session, "touch made")).toBe("denied");
    judge.script({ kind: "answer", yes: { "ask-made": 0.9 } });
    expect(await send(cwd, session, "touch made")).toBe("asked");
    expect(existsSync(join(cwd, "made"))).toBe(false);
    judge.script({ kind: "answer" });
    expect(await send(cwd, session, "touch made")).toBe("ran");
    expect(existsSync(join(cwd, "made"))).toBe(true);
    // once per call, about both rules
    expect(judge.calls.slice(asked).map(({ ids }) => ids.toSorted())).toEqual(
      Array.from({ length: 3 }, () => ["ask-made", "no-made"]),
    );
  });

  test("an answer that does not come lets nothing through", async ({ expect }) => {
    const cwd = folder({ rules: [ASK], rules_timeout_ms: 300 });
    const session = await agent.session({ cwd });
    judge.script({ kind: "silent" });
    expect(await send(cwd, session, "touch late")).toBe("asked");
    judge.script({ kind: "content", content: "certainly" });
    expect(await send(cwd, session, "touch late")).toBe("asked");
    expect(existsSync(join(cwd, "late"))).toBe(false);
  });

  test("a hook blocks with its reason once it is trusted", async ({ expect }) => {
    const command = "grep -q blocked && { echo 'not that' >&2; exit 2; } || exit 0";
    const cwd = folder({
      hooks: { PreToolUse: [{ matcher: "Bash", hooks: [{ type: "command", command }] }] },
    });
    const session = await acknowledged(cwd);
    expect(await send(cwd, session, "touch blocked")).toBe("denied");
    expect(await send(cwd, session, "touch open")).toBe("ran");
    expect([existsSync(join(cwd, "blocked")), existsSync(join(cwd, "open"))]).toEqual([
      false,
      true,
    ]);
  });
});

describe("rules", () => {
  test("a token passes a check-in and never a limit", async ({ expect }) => {
    const cwd = folder({ rules: [LIMIT, ASK] });
    const session = await agent.session({ cwd });
    const call = { params: { cmd: "touch made" } };
    judge.script({ kind: "answer", yes: { "ask-made": 1 } });
    const parked = await agent.runIn(session, "bash", call);
    expect(outcomeOf(parked)).toEqual([409, "tool_needs_confirmation"]);
    expect(detailsOf(parked)).toMatchObject({ gate_cause: "rules", ...call });
    expect(detailsOf(parked)["reason"]).toContain("ask-made");
    judge.script({ kind: "answer", yes: { "no-made": 1 } });
    const confirm_token = detailsOf(parked)["confirm_token"];
    const limited = await agent.runIn(session, "bash", { ...call, confirm: true, confirm_token });
    expect(outcomeOf(limited)).toEqual([200, true]);
    expect(textOf(limited)).toContain("no-made");
    judge.script({ kind: "answer", yes: { "ask-made": 1 } });
    const again = await agent.runIn(session, "bash", call);
    const confirmed = await agent.runIn(session, "bash", {
      ...call,
      confirm: true,
      confirm_token: detailsOf(again)["confirm_token"],
    });
    expect(outcomeOf(confirmed)).toEqual([200, false]);
    const bare = await agent.runIn(session, "bash", { ...call, confirm: true });
    expect(outcomeOf(bare)).toEqual([409, "tool_needs_confirmation"]);
  });

  test("nobody is asked in a headless session", async ({ expect }) => {
    const session = await agent.session({ cwd: folder({ rules: [ASK] }), headless: true });
    judge.script({ kind: "answer", yes: { "ask-made": 1 } });
    const answer = await agent.runIn(session, "bash", { params: { cmd: "touch made" } });
    expect(outcomeOf(answer)).toEqual([200, true]);
    judge.script({ kind: "cut" });
    const unchecked = await agent.runIn(session, "bash", { params: { cmd: "touch made" } });
    expect(outcomeOf(unchecked)).toEqual([200, true]);
  });

  test(
    "which calls a rule is about goes by name, flag and agent",
    { timeout: 20_000 },
    async ({ expect }) => {
      judge.script({ kind: "answer" });
      const covered = async (rule: Json, tool: string, params: Json, body: Json = {}) => {
        const session = await agent.session({
          cwd: folder({ rules: [{ id: "r", text: "T", kind: "limit", ...rule }] }),
          ...body,
        });
        const before = judge.calls.length;
        await agent.runIn(session, tool, { params });
        return judge.calls.length > before;
      };
      const write: readonly [string, Json] = ["write_file", { path: "x", content: "y" }];
      const report: readonly [string, Json] = ["report_outcome", { claims: ["done"] }];
      const reports = { report_outcome: true };
      expect(await covered({}, ...write)).toBe(true);
      expect(await covered({}, "bash", { cmd: "ls" })).toBe(true);
      expect(await covered({}, "list_dir", {})).toBe(false);
      expect(await covered({ tools: ["list_dir"] }, "list_dir", {})).toBe(true);
      expect(await covered({ tools: ["Write"] }, ...write)).toBe(true);
      expect(await covered({ tools: ["bash"] }, ...write)).toBe(false);
      expect(await covered({}, ...report, reports)).toBe(false);
      expect(await covered({ tools: ["report_outcome"] }, ...report, reports)).toBe(true);
      expect(await covered({ agents: ["reviewer"] }, ...write)).toBe(false);
      expect(await covered({ agents: ["reviewer"] }, ...write, { agent: "reviewer" })).toBe(true);
      expect(
        await covered({ agents: ["orchestrator"] }, ...write, { tool_mode: "orchestrator" }),
      ).toBe(true);
      expect(await covered({ kind: "guidance" }, ...write)).toBe(false);
    },
  );

  test("an input too large fails closed, a written file is shown by its ends", async ({
    expect,
  }) => {
    const cwd = folder({ rules: [{ id: "r", text: "T", kind: "check_in" }] });
    const session = await agent.session({ cwd });
    judge.script({ kind: "answer" });
    const before = judge.calls.length;
    const long = await agent.runIn(session, "bash", {
      params: { cmd: `true ${"x".repeat(70_000)}` },
    });
    expect(outcomeOf(long)).toEqual([409, "tool_needs_confirmation"]);
    expect(judge.calls.length).toBe(before);
    const content = `HEAD${"a".repeat(8188)}${"b".repeat(200_000)}${"c".repeat(8188)}TAIL`;
    const written = await agent.runIn(session, "write_file", {
      params: { path: "big.txt", content },
    });
    expect(outcomeOf(written)).toEqual([200, false]);
    const prompt = judge.calls.at(-1)?.prompt ?? "";
    expect(prompt).toContain("big.txt");
    expect(prompt).toContain(String(content.length));
    expect(prompt).toContain(`HEAD${"a".repeat(8188)}`);
    expect(prompt).toContain(`${"c".repeat(8188)}TAIL`);
    expect(prompt).not.toContain("b".repeat(100));
  });
});

test(
  "without a judge, and on a fleet box before the hash is acknowledged, covered calls wait",
  { timeout: 30_000 },
  async ({ expect }) => {
    const fleet = await openDocumentAgent({
      fleet: true,
      judge: { url: judge.url, apiKey: "key", model: "m" },
    });
    const bare = await openDocumentAgent();
    try {
      judge.script({ kind: "answer" });
      const write = { params: { path: "x", content: "y" } };
      const cwd = folder({}, fleet);
      const session = await fleet.session({ cwd });
      expect(outcomeOf(await fleet.runIn(session, "write_file", write))).toEqual([200, false]);
      await fleet.write("POST", "/hooks/rules", "rules_set", session, {
        rules: [{ id: "r", text: "T", kind: "check_in" }],
      });
      const held = await fleet.runIn(session, "write_file", write);
      expect(outcomeOf(held)).toEqual([409, "tool_needs_confirmation"]);
      expect(detailsOf(held)["reason"]).toContain("trust_hold");
      const applies = `/sessions/${session}/rules/applies?tool=write_file`;
      expect((await fleet.call("GET", applies)).json).toMatchObject({
        count: 1,
        fail_closed_reason: "trust_hold",
      });
      const { trust } = (await fleet.call("GET", `/hooks?session_id=${session}`)).json as {
        trust: Json;
      };
      expect(trust["needs_ack"]).toBe(true);
      await fleet.call("POST", "/hooks/trust/ack", {
        body: { session_id: session, hash: trust["hash"] },
      });
      expect(outcomeOf(await fleet.runIn(session, "write_file", write))).toEqual([200, false]);
      // advice never holds anything
      await fleet.write("POST", "/hooks/rules", "rules_set", session, {
        rules: [
          { id: "r", text: "T", kind: "check_in" },
          { id: "g", text: "Be kind.", kind: "guidance" },
        ],
      });
      expect(outcomeOf(await fleet.runIn(session, "write_file", write))).toEqual([200, false]);

      const open = await bare.session({ cwd: folder({ rules: [ASK] }, bare) });
      expect(outcomeOf(await bare.runIn(open, "bash", { params: { cmd: "ls" } }))).toEqual([
        409,
        "tool_needs_confirmation",
      ]);
      expect(outcomeOf(await bare.runIn(open, "write_file", write))).toEqual([200, false]);
      expect((await bare.call("GET", `/sessions/${open}/rules/applies`)).json).toMatchObject({
        fail_closed_reason: "jev_no_key",
      });
    } finally {
      await fleet.close();
      await bare.close();
    }
  },
);

describe("hooks", () => {
  const hooked = (event: string, command: string, matcher = "*") =>
    folder({ hooks: { [event]: [{ matcher, hooks: [{ type: "command", command }] }] } });
  const say = (output: Json) => `printf %s '${JSON.stringify(output)}'`;

  test("an answer in JSON asks, rewrites, adds, whatever stands before it", async ({ expect }) => {
    const specific = (more: Json) =>
      say({ hookSpecificOutput: { hookEventName: "PreToolUse", ...more } });
    const ask = await acknowledged(
      hooked(
        "PreToolUse",
        `echo text first; ${specific({ permissionDecision: "ask", permissionDecisionReason: "sure?" })}`,
      ),
    );
    const parked = await agent.runIn(ask, "bash", { params: { cmd: "true" } });
    expect(outcomeOf(parked)).toEqual([409, "tool_needs_confirmation"]);
    expect(detailsOf(parked)).toMatchObject({ gate_cause: "hook", reason: "sure?" });
    const { confirm_token } = detailsOf(parked);
    const confirmed = await agent.runIn(ask, "bash", {
      params: { cmd: "true" },
      confirm: true,
      confirm_token,
    });
    expect(outcomeOf(confirmed)).toEqual([200, false]);
    const rewrite = await acknowledged(
      hooked(
        "PreToolUse",
        specific({ updatedInput: { cmd: "echo rewritten" }, additionalContext: "noted" }),
      ),
    );
    const changed = await agent.runIn(rewrite, "bash", { params: { cmd: "echo asked" } });
    expect(changed.json["content"]).toMatchObject([{ text: "rewritten\n" }, { text: "noted" }]);
    const danger = await acknowledged(
      hooked("PreToolUse", specific({ updatedInput: { cmd: "git push --force" } })),
    );
    const pushed = await agent.runIn(danger, "bash", { params: { cmd: "true" } });
    expect(outcomeOf(pushed)).toEqual([409, "tool_needs_confirmation"]);
    const allow = await acknowledged(
      hooked("PreToolUse", specific({ permissionDecision: "allow" })),
    );
    const still = await agent.runIn(allow, "bash", { params: { cmd: "git push --force" } });
    expect(outcomeOf(still)).toEqual([409, "tool_needs_confirmation"]);
    const block = await acknowledged(
      hooked("PreToolUse", say({ decision: "block", reason: "never" })),
    );
    expect(textOf(await agent.runIn(block, "bash", { params: { cmd: "true" } }))).toBe("never");
  });

  test.for([
    ["exits 1", "exit 1"],
    ["is not there", "./missing.sh"],
    ["runs out of time", "sleep 30"],
    ["says nonsense", "echo '{'"],
  ] as const)(
    "a hook that %s is no answer, and the call goes on",
    async ([, command], { expect }) => {
      const cwd = folder({
        hooks: { PreToolUse: [{ hooks: [{ type: "command", command, timeout: 1 }] }] },
      });
      const session = await acknowledged(cwd);
      expect(outcomeOf(await agent.runIn(session, "bash", { params: { cmd: "true" } }))).toEqual([
        200,
        false,
      ]);
    },
  );

  test("after the run it is told the result, and its reason is fed back", async ({ expect }) => {
    const session = await acknowledged(
      hooked("PostToolUse", "grep -o '\"tool_response\":.*' >&2; exit 2", "bash"),
    );
    const answer = await agent.runIn(session, "bash", { params: { cmd: "echo out" } });
    expect(answer.json["is_error"]).toBe(false);
    expect((answer.json["content"] as Json[])[1]?.["text"]).toContain("out");
  });

  test("a session's start and end are raised, and the stream says what came of each hook", async ({
    expect,
  }) => {
    const cwd = folder({
      hooks: {
        SessionStart: [{ hooks: [{ type: "command", command: "echo welcome" }] }],
        SessionEnd: [{ hooks: [{ type: "command", command: "touch ended" }] }],
        PreToolUse: [{ matcher: "Write", hooks: [{ type: "command", command: "true" }] }],
      },
    });
    await acknowledged(cwd);
    const session = await agent.session({ cwd });
    await agent.runIn(session, "list_dir", { params: {} });
    const socket = new WebSocket(
      `ws://127.0.0.1:${agent.edge.port}/api/v1/agent/sessions/${session}/stream?since=0`,
      { headers: { host: agent.host } },
    );
    const events: Json[] = [];
    socket.on("message", (data: Buffer) => events.push(JSON.parse(data.toString("utf8")) as Json));
    await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
    const running = agent.runIn(session, "bash", { params: { cmd: "sleep 60" } });
    const types = () =>
      events.map((one) => (one["event"] as Json | undefined)?.["type"] ?? one["type"]);
    // The second one is bash's own: it has the turn, and no question of ours can take it first.
    const uses = () => types().filter((type) => type === "event.tool_use").length;
    await expect.poll(uses, { timeout: 10_000 }).toBe(2);
    await expect
      .poll(async () => outcomeOf(await agent.runIn(session, "list_dir", { params: {} })))
      .toEqual([409, "turn_in_flight"]);
    // a cancel frame stops the run like the route does
    socket.send(JSON.stringify({ type: "cancel" }));
    expect((await running).json).toMatchObject({ is_error: true, error_code: "cancelled" });
    const gone = new Promise((resolve) => socket.once("close", resolve));
    await agent.call("POST", `/sessions/${session}/close`);
    await gone;
    expect(existsSync(join(cwd, "ended"))).toBe(true);
    expect(types()).toEqual(
      expect.arrayContaining(["event.session_started", "event.hook", "event.tool_result", "end"]),
    );
    const hooks = events
      .map((one) => one["event"] as { type: string; data: Json } | undefined)
      .filter((one) => one?.type === "event.hook")
      .map((one) => [one?.data["event"], one?.data["outcome"]]);
    expect(hooks).toEqual([
      ["SessionStart", "ran"],
      ["PreToolUse", "not_matched"],
      ["PreToolUse", "not_matched"],
      ["SessionEnd", "ran"],
    ]);
  });
});

test("what fails inside is 500 without its cause, and a failed check runs nothing", async ({
  expect,
}) => {
  const gateway = await startGateway({
    hooks: { beforeTool: () => Promise.reject(new Error("a secret cause")) },
  });
  const call = { params: { cmd: "touch made" }, allow_mutations: true };
  const run = await gateway.run("bash", call);
  expect([run.status, run.json["code"]]).toEqual([500, "internal_error"]);
  expect(run.text).not.toContain("secret");
  const streamed = await gateway.call("POST", "/api/v1/agent/tools/bash/stream", { body: call });
  expect(streamed.text).toMatch(
    /^event: start\n.*\n\nevent: error\n.*internal_error.*\n\nevent: end\n/,
  );
  const session = await gateway.createSession();
  // the slot is given back
  for (let i = 0; i < 2; i++) {
    expect((await gateway.runIn(session, "bash", call)).status).toBe(500);
  }
  expect(existsSync(join(gateway.project, "made"))).toBe(false);
});

test(
  "more tools at once than there are places for are told to come back",
  { timeout: 30_000 },
  async ({ expect }) => {
    const leave = new AbortController();
    const gateway = await startGateway();
    const body = { params: { cmd: "sleep 60" }, allow_mutations: true };
    const running = Array.from({ length: 32 }, () =>
      gateway
        .call("POST", "/api/v1/agent/tools/bash/run", { body, signal: leave.signal })
        .catch(() => null),
    );
    await expect.poll(() => gateway.server.status()["executions"], { timeout: 15_000 }).toBe(32);
    const refused = await gateway.run("list_dir", { params: {} });
    expect([refused.status, refused.json["code"]]).toEqual([503, "service_unavailable"]);
    expect(Number(refused.headers["retry-after"])).toBeGreaterThanOrEqual(1);
    leave.abort();
    await Promise.all(running);
    await expect
      .poll(async () => (await gateway.run("list_dir", { params: {} })).status, { timeout: 15_000 })
      .toBe(200);
  },
);

test(
  "MCP tools are those of the session's trusted servers, and of live sessions only",
  { timeout: 30_000 },
  async ({ expect }) => {
    const cwd = folder({ mcp_servers: [stdioServer("files")] });
    const before = await agent.session({ cwd });
    const mcp = async (session: string, query = "") =>
      (await agent.call("GET", `/sessions/${session}/tools/mcp${query}`)).json;
    expect(await mcp(before)).toMatchObject({ items: [], meta: { total: 0 } });
    const session = await acknowledged(cwd);
    const names = async () => ((await mcp(session))["items"] as Json[]).map((tool) => tool["name"]);
    await expect.poll(names, { timeout: 15_000 }).toContain("mcp__files__echo");
    const all = (await agent.call("GET", `/sessions/${session}/tools`)).json["items"] as Json[];
    expect(all.filter((tool) => String(tool["name"]).startsWith("mcp__"))).toEqual(
      (await mcp(session))["items"],
    );
    const total = (await names()).length;
    expect(await mcp(session, "?page=2&limit=3")).toMatchObject({
      meta: { total, page: 2, limit: 3 },
    });
    const said = await agent.runIn(session, "mcp__files__echo", { params: { text: "hello" } });
    expect(said.json).toMatchObject({ tool: "mcp__files__echo", is_error: false });
    expect(textOf(said)).toContain("hello");
    const bare = await agent.run(
      "mcp__files__echo",
      { params: { text: "hello" } },
      { "x-hoody-cwd": cwd },
    );
    expect(outcomeOf(bare)).toEqual([404, "tool_not_found"]);
    const catalogue = (await agent.call("GET", "/tools")).json["items"] as Json[];
    expect(catalogue.some((tool) => String(tool["name"]).startsWith("mcp__"))).toBe(false);
    expect(dirname(cwd)).toBe(agent.home);
  },
);
