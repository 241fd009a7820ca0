import { readFileSync } from "node:fs";
import { access } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { describe, test } from "vitest";
import { WebSocket } from "ws";
import { edgeAuthField } from "../../exec-host/agent/edge-auth.ts";
import type { JsonObject, Session } from "../../exec-host/agent/seams.ts";
import type { GateAnswer } from "../../exec-host/agent/session-gates.ts";
import { codeOf, detailsOf, SECRET, startGateway, textOf } from "../support/agent-gateway.ts";
import type { TestGateway } from "../support/agent-gateway.ts";
import { openStream } from "../support/agent-stream.ts";

const P = "/api/v1/agent";

/** A run in a session that writes a file once it is under way. */
async function startLongRun(gateway: TestGateway, id: string, name = "started", seconds = 60) {
  const answer = gateway.runIn(id, "bash", {
    params: { cmd: `sleep ${seconds} & echo $! > ${name}; wait` },
  });
  answer.catch(() => {});
  await until(() => access(join(gateway.project, name)));
  let pid = 0;
  while (pid === 0) {
    pid = Number(readFileSync(join(gateway.project, name), "utf8"));
    await wait(2);
  }
  return { answer, pid };
}

async function until(check: () => Promise<unknown>): Promise<void> {
  for (let i = 0; i < 1000; i++) {
    try {
      await check();
      return;
    } catch {
      await wait(10);
    }
  }
  throw new Error("waited in vain");
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !readFileSync(`/proc/${pid}/stat`, "latin1").includes(") Z ");
  } catch {
    return false;
  }
}

describe("session life", () => {
  test("create freezes what it says, list and get show it, close ends it for good", async ({
    expect,
  }) => {
    const ended: string[] = [];
    const gateway = await startGateway({
      hooks: {
        sessionEnd: (session: Session, reason: string) =>
          Promise.resolve(void ended.push(`${session.id} ${reason} ${session.signal.aborted}`)),
      },
    });
    const created = await gateway.call("POST", `${P}/sessions`, {
      body: { cwd: gateway.project, tool_mode: "standard", agent: "reviewer", headless: true },
    });
    const id = String(created.json["session_id"]);
    expect(created.json["started"]).toEqual({
      realm: "global",
      container: null,
      cwd: gateway.project,
      config_dir: null,
      tool_mode: "full",
      dir_scope: "home",
      headless: true,
      agent: "reviewer",
    });
    expect((await gateway.call("GET", `${P}/sessions/${id}`)).json).toMatchObject({
      session: { id, live: true, agent: "reviewer" },
      attached: false,
    });
    expect((await gateway.call("GET", `${P}/sessions`)).json).toMatchObject({
      items: [{ id }],
      meta: { total: 1 },
    });
    expect(
      (await gateway.call("GET", `${P}/sessions`, { headers: { "x-hoody-cwd": gateway.home } }))
        .json,
    ).toMatchObject({ items: [] });
    expect((await gateway.call("POST", `${P}/sessions/${id}/close`)).json).toEqual({
      status: "ok",
    });
    expect(ended).toEqual([`${id} closed false`]);
    for (const [method, path] of [
      ["POST", "/close"],
      ["GET", ""],
      ["DELETE", ""],
      ["GET", "/tools"],
      ["GET", "/stream"],
      ["POST", "/cancel"],
    ] as const) {
      expect((await gateway.call(method, `${P}/sessions/${id}${path}`)).status, path).toBe(404);
    }
    expect((await gateway.call("GET", `${P}/sessions`)).json).toMatchObject({ items: [] });
  });

  test("the body wins over the headers; attach, fork and idempotency keys", async ({ expect }) => {
    const gateway = await startGateway();
    const created = await gateway.call("POST", `${P}/sessions`, {
      body: { cwd: gateway.project },
      headers: { "x-hoody-cwd": gateway.home, "idempotency-key": "k1" },
    });
    const id = String(created.json["session_id"]);
    expect(created.json["started"]).toMatchObject({ cwd: gateway.project });
    const again = await gateway.call("POST", `${P}/sessions`, {
      body: { cwd: gateway.project },
      headers: { "idempotency-key": "k1" },
    });
    expect(again.json).toMatchObject({ session_id: id, replayed: true });
    expect(
      (await gateway.call("POST", `${P}/sessions`, { body: { attach: id } })).json["session_id"],
    ).toBe(id);
    expect(
      codeOf(await gateway.call("POST", `${P}/sessions`, { body: { attach: id, model: "m" } })),
    ).toBe("bad_request");
    expect(codeOf(await gateway.call("POST", `${P}/sessions`, { body: { attach: "nope" } }))).toBe(
      "not_found",
    );
    const fork = await gateway.call("POST", `${P}/sessions`, { body: { fork: id } });
    expect(fork.json["session_id"]).not.toBe(id);
    expect(fork.json["started"]).toMatchObject({ cwd: gateway.project });
    expect(
      codeOf(await gateway.call("POST", `${P}/sessions`, { body: { fork: id, agent: "a" } })),
    ).toBe("bad_request");
    expect((await gateway.call("DELETE", `${P}/sessions/${id}?hard=true`)).json).toEqual({
      status: "ok",
      closed: true,
      hard: true,
    });
  });

  test("an idle session is ended, one with a reader is not", async ({ expect }) => {
    const gateway = await startGateway({ options: { idleMs: 150 } });
    const quiet = await gateway.createSession();
    const watched = await gateway.createSession();
    await openStream(gateway.port, "GET", `${P}/sessions/${watched}/stream`);
    await until(async () => {
      const list = await gateway.call("GET", `${P}/sessions`);
      const ids = (list.json["items"] as { id: string }[]).map((item) => item.id);
      expect(ids).toEqual([watched]);
    });
    expect((await gateway.call("GET", `${P}/sessions/${quiet}`)).status).toBe(404);
  });
});

describe("the turn slot", () => {
  test("of two parallel runs one is refused; cancel ends the other and frees the slot", async ({
    expect,
  }) => {
    const gateway = await startGateway();
    const id = await gateway.createSession();
    const run = await startLongRun(gateway, id);
    expect(codeOf(await gateway.runIn(id, "read_file", { params: { path: "x" } }))).toBe(
      "turn_in_flight",
    );
    expect(
      (await gateway.call("POST", `${P}/sessions/${id}/cancel`, { body: { turn_id: "turn_x" } }))
        .json,
    ).toEqual({ status: "ok", turn_id: "turn_x", matched: false });
    expect((await gateway.call("POST", `${P}/sessions/${id}/cancel`)).json).toEqual({
      status: "ok",
    });
    const cancelled = await run.answer;
    expect([cancelled.status, cancelled.json["error_code"]]).toEqual([200, "cancelled"]);
    await until(() => (alive(run.pid) ? Promise.reject(new Error("alive")) : Promise.resolve()));
    expect((await gateway.runIn(id, "bash", { params: { cmd: "echo free" } })).json["output"]).toBe(
      "free\n",
    );
    expect((await gateway.call("POST", `${P}/sessions/${id}/cancel`)).status).toBe(200);
  });

  test("close ends the run and everything it started", async ({ expect }) => {
    const gateway = await startGateway();
    const id = await gateway.createSession();
    const run = await startLongRun(gateway, id);
    expect((await gateway.call("POST", `${P}/sessions/${id}/close`)).status).toBe(200);
    expect((await run.answer).json["error_code"]).toBe("cancelled");
    await until(() => (alive(run.pid) ? Promise.reject(new Error("alive")) : Promise.resolve()));
  });

  test("a caller that leaves cancels its run", async ({ expect }) => {
    const gateway = await startGateway();
    const id = await gateway.createSession();
    const leave = new AbortController();
    const target = `${P}/sessions/${id}/tools/bash/run`;
    const answer = gateway.call("POST", target, {
      body: { params: { cmd: "echo $$ > pid; sleep 60" } },
      signal: leave.signal,
    });
    answer.catch(() => {});
    await until(() => access(join(gateway.project, "pid")));
    await wait(20);
    const pid = Number(readFileSync(join(gateway.project, "pid"), "utf8"));
    leave.abort();
    await until(() => (alive(pid) ? Promise.reject(new Error("alive")) : Promise.resolve()));
    await until(async () =>
      expect((await gateway.runIn(id, "bash", { params: { cmd: "true" } })).status).toBe(200),
    );
  });

  test("200 times: a cancel that meets the finish leaves one answer and a free slot", async ({
    expect,
  }) => {
    const gateway = await startGateway();
    const id = await gateway.createSession();
    for (let round = 0; round < 200; round++) {
      const running = gateway.runIn(id, "bash", { params: { cmd: "sleep 0.00$((RANDOM % 9))" } });
      await wait(Math.floor((round % 20) / 2));
      const [ran, cancelled] = await Promise.all([
        running,
        gateway.call("POST", `${P}/sessions/${id}/cancel`),
      ]);
      expect(cancelled.status).toBe(200);
      expect(ran.status).toBe(200);
      expect([undefined, "cancelled"]).toContain(ran.json["error_code"]);
    }
    expect((await gateway.runIn(id, "bash", { params: { cmd: "true" } })).json["is_error"]).toBe(
      false,
    );
  }, 120_000);

  test("200 times: a close during a run leaves no session, no process and no unanswered call", async ({
    expect,
  }) => {
    const gateway = await startGateway();
    for (let round = 0; round < 200; round++) {
      const id = await gateway.createSession();
      const running = gateway.runIn(id, "bash", { params: { cmd: "sleep 30" } });
      await wait(round % 8);
      const closed = await gateway.call("POST", `${P}/sessions/${id}/close`);
      expect(closed.status).toBe(200);
      const ran = await running;
      expect([200, 404, 409]).toContain(ran.status);
    }
    expect(gateway.server.status()).toMatchObject({ sessions: 0, executions: 0 });
  }, 120_000);
});

describe("gates and turns", () => {
  test("a turn holds the slot, its gate is reported first, and its end is told", async ({
    expect,
  }) => {
    const gateway = await startGateway();
    const id = await gateway.createSession();
    const stream = await openStream(gateway.port, "GET", `${P}/sessions/${id}/stream`);
    let answer: GateAnswer | null = null;
    const turn = gateway.server.startTurn(id, async (running) => {
      answer = await running.park({
        type: "confirm",
        toolName: "bash",
        gateCause: "high_risk",
        risk: "destructive",
        params: { cmd: "x" },
      });
    });
    const asked = await stream.next("event.confirm_request");
    const parked = await gateway.runIn(id, "bash", { params: { cmd: "ls" } });
    expect([parked.status, codeOf(parked)]).toEqual([409, "gate_parked"]);
    const gate = detailsOf(parked)["pending_gate"] as { id: string; generation: number };
    expect(gate).toMatchObject({ type: "confirm", tool_name: "bash", generation: 1 });
    expect((asked.data["event"] as { data: JsonObject }).data["id"]).toBe(gate.id);
    expect((await gateway.call("GET", `${P}/sessions/${id}`)).json["pending_gate"]).toEqual(gate);

    const say = (path: string, body: JsonObject) =>
      gateway.call("POST", `${P}/sessions/${id}/${path}`, { body });
    expect(codeOf(await say("confirm", {}))).toBe("bad_request");
    expect(codeOf(await say("answer", { answer: "x" }))).toBe("gate_type_mismatch");
    expect(codeOf(await say("confirm", { approved: true, gate_id: "other" }))).toBe("stale_gate");
    expect(codeOf(await say("confirm", { approved: true, generation: 9 }))).toBe("stale_gate");
    const resolved = await say("confirm", { approved: true, gate_id: gate.id, generation: 1 });
    expect(resolved.json).toMatchObject({ status: "ok", resolved: { id: gate.id } });
    expect(codeOf(await say("confirm", { approved: true, gate_id: gate.id }))).toBe(
      "gate_already_answered",
    );
    expect(codeOf(await say("confirm", { approved: true }))).toBe("no_pending_gate");
    await turn.done;
    expect(answer).toEqual({ kind: "confirm", approved: true });
    await stream.next("event.agent_done");
  });

  test("a turn's tool call parks, and runs once it is approved", async ({ expect }) => {
    const gateway = await startGateway();
    const id = await gateway.createSession();
    const stream = await openStream(gateway.port, "GET", `${P}/sessions/${id}/stream`);
    const outcomes: string[] = [];
    for (const approved of [false, true]) {
      const turn = gateway.server.startTurn(id, async (running) => {
        const outcome = await running.callTool("write_file", { path: "../note", content: "x" });
        outcomes.push(outcome.kind);
      });
      await until(async () =>
        expect((await gateway.call("GET", `${P}/sessions/${id}`)).json).toHaveProperty(
          "pending_gate",
        ),
      );
      await gateway.call("POST", `${P}/sessions/${id}/confirm`, { body: { approved } });
      await turn.done;
    }
    expect(outcomes).toEqual(["needs_confirmation", "result"]);
    expect(readFileSync(join(gateway.home, "note"), "utf8")).toBe("x");
    expect(stream.frames.filter((frame) => frame.event === "event.confirm_request").length).toBe(2);
  });

  test("a question of a direct run is answered through the session", async ({ expect }) => {
    const gateway = await startGateway();
    const id = await gateway.createSession();
    const asking = gateway.runIn(id, "ask_question_to_user", {
      params: { question: "Which?", options: ["a", "b"] },
    });
    await until(async () =>
      expect((await gateway.call("GET", `${P}/sessions/${id}`)).json).toMatchObject({
        pending_gate: { type: "question", params: { question: "Which?" } },
      }),
    );
    expect(
      (await gateway.call("POST", `${P}/sessions/${id}/answer`, { body: { answer: "b" } })).status,
    ).toBe(200);
    expect(textOf(await asking)).toBe("b");
    const cancelled = gateway.runIn(id, "ask_question_to_user", { params: { question: "Again?" } });
    await until(async () =>
      expect((await gateway.call("GET", `${P}/sessions/${id}`)).json).toHaveProperty(
        "pending_gate",
      ),
    );
    await gateway.call("POST", `${P}/sessions/${id}/cancel`);
    expect((await cancelled).json["error_code"]).toBe("cancelled");
    expect((await gateway.call("GET", `${P}/sessions/${id}`)).json).not.toHaveProperty(
      "pending_gate",
    );
  });

  test("a turn refuses a second one, and a cancelled one is told as such", async ({ expect }) => {
    const gateway = await startGateway();
    const id = await gateway.createSession();
    const stream = await openStream(gateway.port, "GET", `${P}/sessions/${id}/stream`);
    const turn = gateway.server.startTurn(
      id,
      ({ signal }) => new Promise((resolve) => signal.addEventListener("abort", () => resolve())),
    );
    expect(() => gateway.server.startTurn(id, () => Promise.resolve())).toThrow("busy");
    expect(codeOf(await gateway.runIn(id, "bash", { params: { cmd: "ls" } }))).toBe(
      "turn_in_flight",
    );
    const cancel = await gateway.call("POST", `${P}/sessions/${id}/cancel`, {
      body: { turn_id: turn.turnId },
    });
    expect(cancel.json).toEqual({ status: "ok", turn_id: turn.turnId, matched: true });
    await turn.done;
    expect((await stream.next("event.agent_done")).data).toMatchObject({
      event: { data: { turn_id: turn.turnId, reason: "cancelled" } },
    });
  });
});

describe("the session stream", () => {
  test("resumes behind a sequence number and says when it cannot", async ({ expect }) => {
    const gateway = await startGateway();
    const id = await gateway.createSession();
    const live = gateway.server.sessions.require(id);
    for (let i = 0; i < 1100; i++) {
      live.stream.emit("event.note", { i });
    }
    const late = await openStream(gateway.port, "GET", `${P}/sessions/${id}/stream?since=5`);
    await late.next("replay_boundary");
    expect(late.frames[0]).toMatchObject({ event: "lagged", data: { code: "replay_gap" } });
    expect(late.frames.filter((frame) => frame.event === "event.note").length).toBe(1024);
    const last = Number(late.frames.findLast((frame) => frame.id !== null)?.id);
    late.close();
    live.stream.emit("event.note", { i: "new" });
    const resumed = await openStream(gateway.port, "GET", `${P}/sessions/${id}/stream`, undefined, {
      "last-event-id": String(last),
    });
    await resumed.next("replay_boundary");
    expect(resumed.frames.map((frame) => frame.event)).toEqual(["event.note", "replay_boundary"]);
    expect(resumed.frames[0]).toMatchObject({
      id: String(last + 1),
      data: { seq: last + 1, event: { type: "event.note", data: { i: "new" } } },
    });
    expect(resumed.headers["content-type"]).toBe("text/event-stream");
    await gateway.call("POST", `${P}/sessions/${id}/close`);
    await resumed.ended;
    expect(resumed.frames.at(-1)).toMatchObject({ event: "end", data: { reason: "closed" } });
    expect(
      (await gateway.call("GET", `${P}/sessions/${await gateway.createSession()}/stream?since=x`))
        .status,
    ).toBe(400);
  });

  test("a WebSocket carries the same events and takes answers", async ({ expect }) => {
    const gateway = await startGateway();
    const id = await gateway.createSession();
    const target = `${P}/sessions/${id}/stream?since=0`;
    const refused = new WebSocket(`ws://127.0.0.1:${gateway.port}${target}`);
    expect(
      await new Promise((resolve) =>
        refused.once("unexpected-response", (_request, response) => resolve(response.statusCode)),
      ),
    ).toBe(403);
    const socket = new WebSocket(`ws://127.0.0.1:${gateway.port}${target}`, {
      headers: { "x-hoody-edge-auth": edgeAuthField(SECRET, "GET", target, Date.now()) },
    });
    const messages: JsonObject[] = [];
    socket.on("message", (data: Buffer) =>
      messages.push(JSON.parse(data.toString("utf8")) as JsonObject),
    );
    await new Promise((resolve) => socket.once("open", resolve));
    const turn = gateway.server.startTurn(
      id,
      async (running) => void (await running.park({ type: "question" })),
    );
    await until(() =>
      Promise.resolve(
        expect(messages).toContainEqual(
          expect.objectContaining({
            event: expect.objectContaining({ type: "event.user_question" }),
          }),
        ),
      ),
    );
    socket.send("nonsense");
    socket.send(JSON.stringify({ type: "answer", answer: "yes" }));
    await turn.done;
    await until(() =>
      Promise.resolve(expect(messages).toContainEqual(expect.objectContaining({ type: "ok" }))),
    );
    expect(messages).toContainEqual({
      type: "error",
      code: "bad_request",
      message: "The frame is not JSON.",
    });
    const gone = new Promise((resolve) => socket.once("close", resolve));
    await gateway.call("POST", `${P}/sessions/${id}/close`);
    await gone;
    expect(messages.at(-1)).toMatchObject({ type: "end", reason: "closed" });
  });
});

test("change tokens move with sessions and gates", async ({ expect }) => {
  const gateway = await startGateway();
  const tokens = async (realm?: string) =>
    (
      await gateway.call(
        "GET",
        `${P}/changes`,
        realm === undefined ? {} : { headers: { "x-hoody-cwd": realm } },
      )
    ).json["tokens"] as JsonObject;
  const before = await tokens();
  expect((await tokens())["sessions"]).toBe(before["sessions"]);
  const id = await gateway.createSession();
  const after = await tokens(gateway.project);
  expect(after["sessions"]).not.toBe(before["sessions"]);
  const live = gateway.server.sessions.require(id);
  void live.gates.park({ type: "question" }, live.session.signal);
  expect((await tokens(gateway.home))["gates"]).not.toBe(after["gates"]);
});
