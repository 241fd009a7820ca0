import { agentRequest, pageOf, send } from "./agent-transport.ts";
import type {
  AgentScope,
  GateAnswer,
  GateConfirm,
  GateDecision,
  List,
  Page,
  RunBody,
  SessionCreate,
  SessionDetail,
  SessionEvent,
  SessionStarted,
  SessionSummary,
  StatusAnswer,
  Tool,
  ToolResult,
} from "./agent-types.ts";
import { ConnectionError } from "./errors.ts";
import type { Transport } from "./transport.ts";

/** Sessions, their gates and events: `client.agent.sessions`. */
export interface AgentSessionsApi {
  /** `idempotencyKey` makes a repeated call answer with the first one's session. */
  create(
    body?: SessionCreate,
    options?: AgentScope & { readonly idempotencyKey?: string },
  ): Promise<SessionStarted>;
  list(options?: Page & { readonly includeSystem?: boolean }): Promise<List<SessionSummary>>;
  get(sessionId: string, options?: AgentScope): Promise<SessionDetail>;
  close(sessionId: string, options?: AgentScope): Promise<StatusAnswer>;
  /** Closes the session; with `hard` its record goes too. */
  delete(
    sessionId: string,
    options?: AgentScope & { readonly hard?: boolean },
  ): Promise<StatusAnswer>;
  /** Stops the turn or the direct run in progress; the session stays. */
  cancel(
    sessionId: string,
    body?: { readonly turn_id?: string },
    options?: AgentScope,
  ): Promise<StatusAnswer>;
  /** Answers a parked confirmation. */
  confirm(sessionId: string, body: GateConfirm, options?: AgentScope): Promise<StatusAnswer>;
  /** Answers a parked question. */
  answer(sessionId: string, body: GateAnswer, options?: AgentScope): Promise<StatusAnswer>;
  /** Events of a session, live; `since` resumes behind a sequence number. */
  stream(
    sessionId: string,
    options?: AgentScope & { readonly since?: number | string },
  ): AsyncGenerator<SessionEvent, void, undefined>;
  listApplicableRules(
    sessionId: string,
    query?: AgentScope & { readonly tool?: string; readonly agent?: string },
  ): Promise<Readonly<Record<string, unknown>>>;
  /** What the gate decided about this session's calls, with reasons. */
  listDecisions(sessionId: string, options?: Page): Promise<List<GateDecision>>;
  listTools(sessionId: string, options?: Page): Promise<List<Tool>>;
  listMcpTools(sessionId: string, options?: Page): Promise<List<Tool>>;
  runTool(
    sessionId: string,
    name: string,
    body?: RunBody,
    options?: AgentScope,
  ): Promise<ToolResult>;
}

/** The session methods over a transport. */
export function createAgentSessionsApi(transport: Transport): AgentSessionsApi {
  const one = "/sessions/{}";
  const post = <T>(path: string, id: string, body: unknown, scope: AgentScope | undefined) =>
    send<T>(transport, { method: "POST", path: one + path, args: [id], body, scope });
  return {
    create: (body = {}, { idempotencyKey, ...scope } = {}) =>
      send(transport, {
        method: "POST",
        path: "/sessions",
        body,
        scope,
        headers: { "idempotency-key": idempotencyKey },
      }),
    list: ({ includeSystem, ...page } = {}) => {
      const { query, scope } = pageOf(page);
      return send(transport, {
        method: "GET",
        path: "/sessions",
        query: { ...query, include_system: includeSystem },
        scope,
      });
    },
    get: (id, scope) => send(transport, { method: "GET", path: one, args: [id], scope }),
    close: (id, scope) => post("/close", id, undefined, scope),
    delete: (id, { hard, ...scope } = {}) =>
      send(transport, { method: "DELETE", path: one, args: [id], query: { hard }, scope }),
    cancel: (id, body, scope) => post("/cancel", id, body, scope),
    confirm: (id, body, scope) => post("/confirm", id, body, scope),
    answer: (id, body, scope) => post("/answer", id, body, scope),
    stream: (id, options) => streamSession(transport, id, options),
    listApplicableRules: (id, { tool, agent, ...scope } = {}) =>
      send(transport, {
        method: "GET",
        path: "/sessions/{}/rules/applies",
        args: [id],
        query: { tool, agent },
        scope,
      }),
    listDecisions: (id, options) =>
      send(transport, { method: "GET", path: `${one}/decisions`, args: [id], ...pageOf(options) }),
    listTools: (id, options) =>
      send(transport, { method: "GET", path: `${one}/tools`, args: [id], ...pageOf(options) }),
    listMcpTools: (id, options) =>
      send(transport, { method: "GET", path: `${one}/tools/mcp`, args: [id], ...pageOf(options) }),
    runTool: (id, name, body = {}, scope) =>
      send(transport, {
        method: "POST",
        path: `${one}/tools/{}/run`,
        args: [id, name],
        body,
        scope,
      }),
  };
}

async function* streamSession(
  transport: Transport,
  id: string,
  options: AgentScope & { readonly since?: number | string } = {},
): AsyncGenerator<SessionEvent, void, undefined> {
  const { since, ...scope } = options;
  const request = agentRequest({
    method: "GET",
    path: "/sessions/{}/stream",
    args: [id],
    query: { since },
    scope,
  });
  for await (const frame of await transport.stream(request)) {
    let data: unknown;
    try {
      data = JSON.parse(frame.data);
    } catch (cause) {
      throw new ConnectionError(request, "the stream has an event that is no JSON", cause);
    }
    yield { id: frame.id, event: frame.event, data };
  }
}
