import { z } from "zod";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { Cap } from "./caps.ts";
import { AgentError } from "./errors.ts";
import type { SessionEvent } from "./events.ts";
import type { McpHub } from "./mcp.ts";
import { toPage } from "./paging.ts";
import { errorAnswer, jsonAnswer } from "./router.ts";
import type { Router } from "./router.ts";
import { checkAbsolute, servedRealm } from "./scope.ts";
import type { DirScope, JsonObject, ToolMode } from "./seams.ts";
import { describeStart } from "./sessions.ts";
import type { LiveSession, Sessions } from "./sessions.ts";
import { eventStreamAnswer } from "./sse.ts";
import { requireSession } from "./tool-routes.ts";

const createBody = z.object({
  realm: z.string().optional(),
  container: z.string().max(128).optional(),
  cwd: z.string().optional(),
  config_dir: z.string().optional(),
  model: z.string().max(200).optional(),
  agent: z.string().min(1).max(128).optional(),
  tool_mode: z.string().optional(),
  dir_scope: z.string().optional(),
  attach: z.string().optional(),
  fork: z.string().optional(),
  fork_turn_idx: z.number().int().optional(),
  backend: z.enum(["", "acp"]).optional(),
  delegated_agent: z.string().max(128).optional(),
  headless: z.boolean().optional(),
  report_outcome: z.boolean().optional(),
});

type CreateBody = z.infer<typeof createBody>;

const whichGate = { gate_id: z.string().optional(), generation: z.number().int().optional() };
// an omitted `approved` is refused: a confirmation without a word must not approve (decision 18)
const confirmBody = z.object({
  ...whichGate,
  approved: z.boolean(),
  persist_dirs: z.array(z.string()).optional(),
});
const answerBody = z.object({
  ...whichGate,
  answer: z.string().optional(),
  text: z.string().optional(),
  answers: z.array(z.string()).optional(),
});
const cancelBody = z.object({ turn_id: z.string().optional() });

interface SessionRouteDeps {
  readonly clock: Clock;
  readonly sessions: Sessions;
  readonly mcp: McpHub;
  /** Event streams per client, shared with the tool streams. */
  readonly streams: Cap;
}

/** S1 to S9 and the decision log of a session. */
export function registerSessionRoutes(
  router: Router,
  deps: SessionRouteDeps,
  realms: readonly string[],
): void {
  const { sessions } = deps;
  router.add(
    {
      method: "post",
      path: "/sessions",
      operationId: "createSession",
      summary: "Start, fork or attach to a session",
      row: "own",
      body: createBody,
      errors: ["bad_request", "not_found", "unknown_model"],
    },
    async (request) => {
      const { body, scope } = request;
      if (body.attach !== undefined) {
        if (body.model !== undefined || body.agent !== undefined) {
          throw new AgentError("bad_request", "A running session keeps its model and agent.", {
            field: body.model === undefined ? "agent" : "model",
          });
        }
        const live = sessions.require(body.attach);
        return jsonAnswer({ session_id: live.session.id, started: describeStart(live.session) });
      }
      const source = body.fork === undefined ? null : sessions.require(body.fork);
      if (source !== null && body.agent !== undefined) {
        throw new AgentError("bad_request", "A fork keeps its agent.", { field: "agent" });
      }
      const from = source?.session;
      const { live, replayed } = await sessions.create(
        {
          realm:
            body.realm === undefined
              ? (scope.realm ?? from?.realm ?? null)
              : servedRealm(body.realm, realms),
          container: body.container ?? scope.container ?? from?.container ?? null,
          cwd: absolute(body.cwd, "cwd") ?? scope.cwd ?? from?.cwd ?? null,
          configDir:
            absolute(body.config_dir, "config_dir") ?? scope.configDir ?? from?.configDir ?? null,
          toolMode: toToolMode(body.tool_mode) ?? from?.toolMode ?? "full",
          dirScope: toDirScope(body.dir_scope) ?? from?.dirScope ?? "home",
          headless: body.headless ?? from?.headless ?? false,
          agent: body.agent ?? from?.agent ?? null,
          model: body.model ?? from?.model ?? null,
          reportsOutcome: body.report_outcome ?? source?.reportsOutcome ?? false,
        },
        request.header("idempotency-key")?.slice(0, 200),
      );
      // servers come up while the caller reads the answer
      deps.mcp.refresh(live.session).catch(() => {}); // T4 and T9 ask again and report
      return jsonAnswer({
        session_id: live.session.id,
        started: describeStart(live.session),
        ...(replayed ? { replayed } : {}),
      });
    },
  );
  router.add(
    {
      method: "get",
      path: "/sessions",
      operationId: "listSessions",
      summary: "Live sessions",
      row: "own",
      query: { page: "", limit: "" },
      errors: ["bad_request"],
    },
    (request) => {
      const { cwd, realm } = request.scope;
      const items = sessions
        .all()
        .filter(
          ({ session }) =>
            (cwd === null || session.cwd === cwd) && (realm === null || session.realm === realm),
        )
        .map(summary);
      return jsonAnswer(toPage(items, request.query));
    },
  );
  router.add(
    {
      method: "get",
      path: "/sessions/{id}",
      operationId: "getSession",
      summary: "One session with its open gate",
      row: "own",
      errors: ["not_found"],
    },
    (request) => {
      const live = requireSession(sessions, request);
      const gate = live.gates.pending();
      return jsonAnswer({
        session: { ...summary(live), live: true, started: describeStart(live.session) },
        attached: live.stream.readers() > 0,
        started: describeStart(live.session),
        warnings: deps.mcp.warnings(live.session),
        ...(gate === null ? {} : { pending_gate: gate }),
      });
    },
  );
  router.add(
    {
      method: "get",
      path: "/sessions/{id}/decisions",
      operationId: "listSessionDecisions",
      summary: "Why calls of the session were allowed or not, oldest first",
      row: "own",
      query: { page: "", limit: "" },
      errors: ["bad_request", "not_found"],
    },
    (request) =>
      jsonAnswer(toPage(requireSession(sessions, request).decisions.list(), request.query)),
  );
  registerEnds(router, deps);
  registerGates(router, deps);
  registerStream(router, deps);
}

function registerEnds(router: Router, { sessions }: SessionRouteDeps): void {
  router.add(
    {
      method: "post",
      path: "/sessions/{id}/close",
      operationId: "closeSession",
      summary: "End a session",
      row: "own",
      errors: ["not_found"],
    },
    async (request) => {
      const live = requireSession(sessions, request);
      await closeOrFail(sessions, live, "closed");
      return jsonAnswer({ status: "ok" });
    },
  );
  router.add(
    {
      method: "delete",
      path: "/sessions/{id}",
      operationId: "deleteSession",
      summary: "End a session and forget it",
      row: "own",
      query: { hard: "true: erase the record too." },
      errors: ["not_found"],
    },
    async (request) => {
      const live = requireSession(sessions, request);
      await closeOrFail(sessions, live, "deleted");
      return jsonAnswer({
        status: "ok",
        closed: true,
        hard: ["true", "1"].includes(request.query.get("hard") ?? ""),
      });
    },
  );
  router.add(
    {
      method: "post",
      path: "/sessions/{id}/cancel",
      operationId: "cancelSession",
      summary: "Stop the turn or the direct run",
      row: "own",
      query: { turn_id: "Only this turn." },
      body: cancelBody,
      errors: ["not_found"],
    },
    (request) => {
      const live = requireSession(sessions, request);
      const turnId = request.body.turn_id ?? request.query.get("turn_id") ?? undefined;
      const matched = live.slot.cancel(turnId);
      return jsonAnswer({
        status: "ok",
        ...(turnId === undefined ? {} : { turn_id: turnId, matched }),
      });
    },
  );
}

async function closeOrFail(sessions: Sessions, live: LiveSession, reason: string): Promise<void> {
  if (!(await sessions.close(live.session.id, reason))) {
    throw new AgentError("not_found", "The session is not live.");
  }
}

function registerGates(router: Router, { sessions }: SessionRouteDeps): void {
  const errors = [
    "bad_request",
    "not_found",
    "no_pending_gate",
    "stale_gate",
    "gate_already_answered",
    "gate_type_mismatch",
  ] as const;
  router.add(
    {
      method: "post",
      path: "/sessions/{id}/confirm",
      operationId: "confirmGate",
      summary: "Answer a confirm gate",
      row: "own",
      body: confirmBody,
      errors,
    },
    (request) => {
      const live = requireSession(sessions, request);
      const resolved = live.gates.answer(toGateRef(request.body), {
        kind: "confirm",
        approved: request.body.approved,
      });
      return jsonAnswer({ status: "ok", resolved });
    },
  );
  router.add(
    {
      method: "post",
      path: "/sessions/{id}/answer",
      operationId: "answerQuestion",
      summary: "Answer a question gate",
      row: "own",
      body: answerBody,
      errors,
    },
    (request) => {
      const live = requireSession(sessions, request);
      const text = request.body.answer ?? request.body.text ?? request.body.answers?.join("\n");
      if (text === undefined) {
        throw new AgentError("bad_request", "An answer is missing.", { field: "answer" });
      }
      return jsonAnswer({
        status: "ok",
        resolved: live.gates.answer(toGateRef(request.body), { kind: "answer", text }),
      });
    },
  );
}

/** Gate id and generation as far as the caller names them. */
export function toGateRef(body: {
  readonly gate_id?: string | undefined;
  readonly generation?: number | undefined;
}) {
  return {
    ...(body.gate_id === undefined ? {} : { gateId: body.gate_id }),
    ...(body.generation === undefined ? {} : { generation: body.generation }),
  };
}

function registerStream(router: Router, deps: SessionRouteDeps): void {
  router.add(
    {
      method: "get",
      path: "/sessions/{id}/stream",
      operationId: "streamSession",
      summary: "Events of a session; resume with Last-Event-ID or ?since=. Also as a WebSocket.",
      row: "own",
      query: { since: "Last sequence number seen." },
      produces: "text/event-stream",
      errors: ["bad_request", "not_found", "service_unavailable"],
    },
    (request) => {
      const live = requireSession(deps.sessions, request);
      const since = readSince(request.header("last-event-id") ?? request.query.get("since"));
      const giveBack = deps.streams.take(request.client);
      if (giveBack === null) {
        return errorAnswer(new AgentError("service_unavailable", "Too many streams are open."));
      }
      let leave = (): void => {};
      return eventStreamAnswer(
        deps.clock,
        (writer) => {
          leave = followStream(live, since, {
            send: (name, data, seq) =>
              writer.send({ event: name, data, ...(seq === undefined ? {} : { id: seq }) }),
            end: () => writer.end(),
          });
        },
        () => {
          leave();
          giveBack();
        },
        "retry: 5000\n\n",
      );
    },
  );
}

/** The far end of a session stream, event stream or WebSocket. */
export interface StreamSink {
  /** False when the reader is too far behind. */
  send(name: string, data: JsonObject, seq?: number): boolean;
  end(): void;
}

/** Sends a session's events to a sink, what was missed first; returns the way to stop. */
export function followStream(
  live: LiveSession,
  since: number | null,
  sink: StreamSink,
): () => void {
  const push = (event: SessionEvent): boolean =>
    sink.send(
      event.type,
      { seq: event.seq, event: { type: event.type, data: event.data } },
      event.seq,
    );
  const control = (name: string, data: JsonObject): void =>
    void sink.send(name, { type: name, ...data });
  const reader = {
    push,
    end(reason: "closed" | "lagged") {
      if (reason === "lagged") {
        const { minSeq, maxSeq } = live.stream.bounds();
        control("lagged", { code: "lagged", min_seq: minSeq, max_seq: maxSeq });
      }
      control("end", { reason });
      sink.end();
    },
  };
  const { missed, gap } = live.stream.attach(reader, since);
  const { minSeq, maxSeq } = live.stream.bounds();
  if (gap) {
    control("lagged", { code: "replay_gap", min_seq: minSeq, max_seq: maxSeq });
  }
  for (const event of missed) {
    push(event);
  }
  if (since !== null) {
    control("replay_boundary", { max_seq: maxSeq });
  }
  return () => live.stream.detach(reader);
}

/**
 * A sequence number to resume behind; null when none is given.
 *
 * @throws AgentError `bad_request`.
 */
export function readSince(text: string | null): number | null {
  if (text === null || text === "") {
    return null;
  }
  if (!/^\d{1,15}$/.test(text)) {
    throw new AgentError("bad_request", "since must be a sequence number.", { field: "since" });
  }
  return Number(text);
}

function summary(live: LiveSession): JsonObject {
  const { session } = live;
  return {
    id: session.id,
    cwd: session.cwd,
    model: session.model,
    agent: session.agent,
    started_at: new Date(session.startedAt).toISOString(),
    last_request_at: new Date(live.lastUsedAt()).toISOString(),
    attached: live.stream.readers() > 0,
    tool_mode: session.toolMode,
    dir_scope: session.dirScope,
    realm: session.realm,
    ...(session.container === null ? {} : { container_id: session.container }),
  };
}

function absolute(path: CreateBody["cwd"], field: string): string | null {
  return path === undefined || path === "" ? null : checkAbsolute(path, field);
}

function toToolMode(value: string | undefined): ToolMode | null {
  switch (value) {
    case undefined:
    case "":
      return null;
    case "read_only":
    case "full":
    case "orchestrator":
      return value;
    case "standard":
      return "full";
    default:
      throw new AgentError("invalid_tool_mode", undefined, { field: "tool_mode" });
  }
}

function toDirScope(value: string | undefined): DirScope | null {
  if (value === undefined || value === "") {
    return null;
  }
  if (value === "home" || value === "full") {
    return value;
  }
  throw new AgentError("invalid_dir_scope", undefined, { field: "dir_scope" });
}
