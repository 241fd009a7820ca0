import { z } from "zod";
import type { Clock } from "../../policy/kernel/clock.ts";
import { builtinTool, CATALOGUE } from "../tools/catalogue.ts";
import type { Tool } from "../tools/tool.ts";
import type { Cap } from "./caps.ts";
import { describeTool } from "./effective-set.ts";
import { AgentError, agentStatus } from "./errors.ts";
import { checkParams } from "./gate.ts";
import type { Posture } from "./gate.ts";
import type { Jobs } from "./jobs.ts";
import { toPage } from "./paging.ts";
import { errorAnswer, jsonAnswer } from "./router.ts";
import type { Router, RouteRequest } from "./router.ts";
import { scrub, toEnvelope } from "./runs.ts";
import type { RunOutcome, ToolRuns } from "./runs.ts";
import type { JsonObject, ToolCall } from "./seams.ts";
import type { LiveSession, Sessions } from "./sessions.ts";
import { eventStreamAnswer } from "./sse.ts";

/** Body of the run routes; other top-level keys are ignored (decision 63). */
const runBody = z.object({
  params: z.record(z.string(), z.unknown()).optional(),
  confirm: z.boolean().optional(),
  confirm_token: z.string().max(200).optional(),
  allow_mutations: z.boolean().optional(),
});

type RunBody = z.infer<typeof runBody>;

interface ToolRouteDeps {
  readonly clock: Clock;
  readonly sessions: Sessions;
  readonly runs: ToolRuns;
  readonly jobs: Jobs;
  /** Event streams per client. */
  readonly streams: Cap;
}

const PAGING = { page: "1-based page.", limit: "Items per page; 0 or absent: all." };
const CONFIRM = { confirm: "Alias of the body field.", confirm_token: "Alias of the body field." };

/** T1 to T9. `/tools/read-only` stands before `/tools/{name}`. */
export function registerToolRoutes(router: Router, deps: ToolRouteDeps): void {
  registerCatalogue(router);
  registerSessionTools(router, deps);
  registerSessionless(router, deps);
}

function registerCatalogue(router: Router): void {
  const lists = [
    { path: "/tools", operationId: "listTools", summary: "Built-in tools", tools: CATALOGUE },
    {
      path: "/tools/read-only",
      operationId: "listReadOnlyTools",
      summary: "Built-in tools that only read",
      tools: CATALOGUE.filter((tool) => tool.readOnly),
    },
  ];
  for (const { tools, ...spec } of lists) {
    router.add(
      {
        ...spec,
        method: "get",
        row: "R3",
        query: PAGING,
        errors: ["bad_request", "realm_scope_unsupported"],
      },
      (request) => jsonAnswer(toPage(tools.map(describeTool), request.query)),
    );
  }
  router.add(
    {
      method: "get",
      path: "/tools/{name}",
      operationId: "getTool",
      summary: "One built-in tool",
      row: "R3",
      errors: ["realm_scope_unsupported", "tool_not_found"],
    },
    (request) => {
      const tool = builtinTool(request.params["name"] ?? "");
      if (tool === undefined) {
        throw new AgentError("tool_not_found");
      }
      const entry = describeTool(tool);
      return jsonAnswer({ ...entry, tool: entry });
    },
  );
}

function registerSessionTools(router: Router, deps: ToolRouteDeps): void {
  const lists = [
    {
      path: "/sessions/{id}/tools",
      operationId: "listSessionTools",
      summary: "Tools a live session offers",
      prefix: "",
    },
    {
      path: "/sessions/{id}/tools/mcp",
      operationId: "listSessionMCPTools",
      summary: "MCP tools a live session offers",
      prefix: "mcp__",
    },
  ];
  for (const { prefix, ...spec } of lists) {
    router.add(
      {
        ...spec,
        method: "get",
        row: "R4",
        query: PAGING,
        errors: ["bad_request", "not_found", "service_unavailable"],
      },
      async (request) => {
        const live = requireSession(deps.sessions, request);
        const offered = await deps.runs.offered(live.session, live);
        const tools = [...offered.values()]
          .filter((tool) => tool.name.startsWith(prefix))
          .map(describeTool);
        return jsonAnswer(toPage(tools, request.query));
      },
    );
  }
  router.add(
    {
      method: "post",
      path: "/sessions/{id}/tools/{name}/run",
      operationId: "runSessionTool",
      summary: "Run a tool in a live session",
      row: "R4",
      query: CONFIRM,
      body: runBody,
      errors: [
        "bad_request",
        "not_found",
        "tool_not_found",
        "tool_needs_confirmation",
        "turn_in_flight",
        "gate_parked",
      ],
    },
    async (request) => {
      const live = requireSession(deps.sessions, request);
      const call = toCall(request, "session");
      const tool = (await deps.runs.offered(live.session, live)).get(call.tool);
      if (tool === undefined) {
        throw new AgentError("tool_not_found");
      }
      requireParams(tool, call.params);
      const gate = live.gates.pending();
      if (gate !== null) {
        throw new AgentError("gate_parked", undefined, { pending_gate: gate });
      }
      const lease = live.slot.claim(null);
      if (lease === null) {
        throw new AgentError("turn_in_flight");
      }
      try {
        const outcome = await deps.runs.run({
          ...call,
          session: live.session,
          live,
          signal: AbortSignal.any([lease.signal, request.signal]),
        });
        return toAnswer(outcome);
      } finally {
        lease.release();
        live.touch();
      }
    },
  );
}

function registerSessionless(router: Router, deps: ToolRouteDeps): void {
  /**
   * Prepares a run in an ephemeral session that ends with the call. What is wrong with the request itself shows here,
   * before a job or a stream begins (decision 63); an unknown tool shows in the run.
   */
  const prepare = async (
    request: RouteRequest<RunBody>,
    entry: ToolCall["entry"],
  ): Promise<(signal: AbortSignal) => Promise<RunOutcome>> => {
    const { scope } = request;
    const call = toCall(request, entry);
    const tool = builtinTool(call.tool);
    if (tool !== undefined) {
      requireParams(tool, call.params);
    }
    const optedIn = call.posture.allowMutations || call.posture.confirm;
    const { session, end } = await deps.sessions.ephemeral({
      realm: null,
      container: null,
      cwd: scope.cwd,
      configDir: scope.configDir,
      toolMode: scope.toolMode ?? (optedIn ? "full" : "read_only"),
      dirScope: scope.dirScope ?? "home",
      headless: false,
      agent: null,
      model: null,
      reportsOutcome: true,
    });
    return async (signal) => {
      try {
        return await deps.runs.run({ ...call, session, live: null, signal });
      } finally {
        end();
      }
    };
  };

  router.add(
    {
      method: "post",
      path: "/tools/{name}/run",
      operationId: "runTool",
      summary: "Run a tool without a session",
      row: "R5",
      query: CONFIRM,
      body: runBody,
      errors: ["bad_request", "tool_mutation_refused", "tool_not_found", "tool_needs_confirmation"],
    },
    async (request) => toAnswer(await (await prepare(request, "run"))(request.signal)),
  );

  router.add(
    {
      method: "post",
      path: "/tools/{name}/runAsync",
      operationId: "runToolAsync",
      summary: "Run a tool without a session, in the background",
      row: "R5",
      query: CONFIRM,
      body: runBody,
      status: 202,
      errors: ["bad_request", "service_unavailable"],
    },
    async (request) => {
      const runOnce = await prepare(request, "async");
      const job = deps.jobs.submit(async (signal) => {
        const outcome = await settle(runOnce(signal));
        switch (outcome.kind) {
          case "result":
            return { kind: "succeeded", result: toEnvelope(outcome) };
          case "needs_confirmation":
            return { kind: "succeeded", result: { needs_confirmation: true, ...outcome.details } };
          case "refused":
            return { kind: "failed", error: `${outcome.error.code}: ${outcome.error.message}` };
        }
      }, request.bodyBytes);
      return jsonAnswer({ job_id: job.id }, 202);
    },
  );

  router.add(
    {
      method: "post",
      path: "/tools/{name}/stream",
      operationId: "streamTool",
      summary: "Run a tool without a session, answered as an event stream",
      row: "R5",
      query: CONFIRM,
      body: runBody,
      produces: "text/event-stream",
      errors: ["bad_request", "service_unavailable"],
    },
    async (request) => {
      const runOnce = await prepare(request, "stream");
      const giveBack = deps.streams.take(request.client);
      if (giveBack === null) {
        return errorAnswer(new AgentError("service_unavailable", "Too many streams are open."));
      }
      const abort = new AbortController();
      const tool = request.params["name"] ?? "";
      const now = (): string => new Date(deps.clock.now()).toISOString();
      return eventStreamAnswer(
        deps.clock,
        (writer) => {
          writer.send({ event: "start", data: { tool, started_at: now() } });
          void settle(runOnce(abort.signal)).then((outcome) => {
            writer.send(toFrame(outcome));
            writer.send({ event: "end", data: { tool, finished_at: now() } });
            writer.end();
          });
        },
        () => {
          giveBack();
          abort.abort();
        },
      );
    },
  );
}

/** @throws AgentError `bad_request` for parameters that do not fit the tool's schema. */
function requireParams(tool: Tool, params: JsonObject): void {
  const problem = checkParams(tool, scrub(params));
  if (problem !== null) {
    throw new AgentError("bad_request", problem.message, { field: problem.field });
  }
}

/** Answers in band: what is thrown becomes a refusal, so that a job or a stream always has an end. */
async function settle(running: Promise<RunOutcome>): Promise<RunOutcome> {
  try {
    return await running;
  } catch (error) {
    return {
      kind: "refused",
      error: error instanceof AgentError ? error : new AgentError("internal_error"),
    };
  }
}

/** The live session of the path; a container header must name the one it is bound to. */
export function requireSession(
  sessions: Sessions,
  request: Pick<RouteRequest<unknown>, "params" | "scope">,
): LiveSession {
  const live = sessions.require(request.params["id"] ?? "");
  const { container, realm } = request.scope;
  if (container !== null && container !== live.session.container) {
    throw new AgentError("realm_scope_unsupported", undefined, { header: "X-Hoody-Container" });
  }
  if (realm !== null && realm !== live.session.realm) {
    throw new AgentError("not_found", "The session is not live.");
  }
  return live;
}

/** What body and query say about a call; where both say something the body wins. */
function toCall(request: RouteRequest<RunBody>, entry: ToolCall["entry"]) {
  const { body, query } = request;
  const posture: Posture = {
    requestedMode: request.scope.toolMode,
    allowMutations: body.allow_mutations ?? false,
    confirm: body.confirm ?? ["true", "1"].includes(query.get("confirm") ?? ""),
    confirmToken: body.confirm_token ?? query.get("confirm_token"),
  };
  const params: JsonObject = body.params ?? {};
  return { tool: request.params["name"] ?? "", params, entry, posture };
}

function toAnswer(outcome: RunOutcome): Response {
  switch (outcome.kind) {
    case "result":
      return jsonAnswer(toEnvelope(outcome));
    case "needs_confirmation":
      return jsonAnswer(toRefusalBody(outcome.details), agentStatus("tool_needs_confirmation"));
    case "refused":
      throw outcome.error;
  }
}

function toRefusalBody(details: JsonObject): JsonObject {
  const error = new AgentError("tool_needs_confirmation");
  return { code: error.code, message: error.message, details };
}

function toFrame(outcome: RunOutcome) {
  switch (outcome.kind) {
    case "result":
      return { event: "result", data: toEnvelope(outcome) };
    case "needs_confirmation":
      return { event: "needs_confirmation", data: outcome.details };
    case "refused":
      return {
        event: "error",
        data: {
          code: outcome.error.code,
          message: outcome.error.message,
          ...(outcome.error.details === undefined ? {} : { details: outcome.error.details }),
        },
      };
  }
}
