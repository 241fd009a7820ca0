import { agentRequest, iterate, pageOf, send } from "./agent-transport.ts";
import type {
  AgentScope,
  List,
  Page,
  RunBody,
  RunScope,
  Tool,
  ToolFrame,
  ToolResult,
} from "./agent-types.ts";
import { ConnectionError } from "./errors.ts";
import type { Transport } from "./transport.ts";

/**
 * Tools: `client.agent.tools`. The short names and the long ones are the same methods; both generations of
 * the interface are in use. A run that has to be confirmed rejects with code `tool_needs_confirmation`, its
 * token in `error.details.confirm_token`.
 */
export interface AgentToolsApi {
  listTools(options?: Page): Promise<List<Tool>>;
  listToolsIterator(options?: Page): AsyncGenerator<Tool, void, undefined>;
  listReadOnlyTools(options?: Page): Promise<List<Tool>>;
  listReadOnlyToolsIterator(options?: Page): AsyncGenerator<Tool, void, undefined>;
  getTool(name: string, options?: AgentScope): Promise<Tool>;
  /** The tools of a live session. */
  listSessionTools(sessionId: string, options?: Page): Promise<List<Tool>>;
  listSessionToolsIterator(
    sessionId: string,
    options?: Page,
  ): AsyncGenerator<Tool, void, undefined>;
  listSessionMCPTools(sessionId: string, options?: Page): Promise<List<Tool>>;
  listSessionMCPToolsIterator(
    sessionId: string,
    options?: Page,
  ): AsyncGenerator<Tool, void, undefined>;
  /** Runs a tool without a session and waits for its end. */
  runTool(name: string, body?: RunBody, options?: RunScope): Promise<ToolResult>;
  /** Starts a run in the background; its end is read with `jobs.getJobResult`. */
  runToolAsync(
    name: string,
    body?: RunBody,
    options?: RunScope,
  ): Promise<{ readonly job_id: string }>;
  /** Runs a tool and gives its events as they come. Nothing is sent before the first one is asked for. */
  streamTool(
    name: string,
    body?: RunBody,
    options?: RunScope,
  ): AsyncGenerator<ToolFrame, void, undefined>;
  /** Runs a tool in a live session, in its turn slot. */
  runSessionTool(
    sessionId: string,
    name: string,
    body?: RunBody,
    options?: AgentScope,
  ): Promise<ToolResult>;

  list(options?: Page): Promise<List<Tool>>;
  listReadOnly(options?: Page): Promise<List<Tool>>;
  get(name: string, options?: AgentScope): Promise<Tool>;
  run(name: string, body?: RunBody, options?: RunScope): Promise<ToolResult>;
  start(name: string, body?: RunBody, options?: RunScope): Promise<{ readonly job_id: string }>;
  stream(
    name: string,
    body?: RunBody,
    options?: RunScope,
  ): AsyncGenerator<ToolFrame, void, undefined>;
}

/** The tool methods over a transport. */
export function createAgentToolsApi(transport: Transport): AgentToolsApi {
  const list = (path: string, args: readonly string[], options?: Page): Promise<List<Tool>> =>
    send(transport, { method: "GET", path, args, ...pageOf(options) });
  const post = <T>(
    path: string,
    args: readonly string[],
    body: RunBody | undefined,
    scope: RunScope | undefined,
  ): Promise<T> => send<T>(transport, { method: "POST", path, args, body: body ?? {}, scope });

  const listTools = (options?: Page) => list("/tools", [], options);
  const listReadOnlyTools = (options?: Page) => list("/tools/read-only", [], options);
  const listSessionTools = (id: string, options?: Page) =>
    list("/sessions/{}/tools", [id], options);
  const listSessionMCPTools = (id: string, options?: Page) =>
    list("/sessions/{}/tools/mcp", [id], options);
  const getTool = (name: string, scope?: AgentScope) =>
    send<Tool>(transport, { method: "GET", path: "/tools/{}", args: [name], scope });
  const runTool = (name: string, body?: RunBody, scope?: RunScope) =>
    post<ToolResult>("/tools/{}/run", [name], body, scope);
  const runToolAsync = (name: string, body?: RunBody, scope?: RunScope) =>
    post<{ readonly job_id: string }>("/tools/{}/runAsync", [name], body, scope);
  const streamTool = (name: string, body?: RunBody, scope?: RunScope) =>
    streamRun(transport, name, body ?? {}, scope);

  return {
    listTools,
    listToolsIterator: (options) => iterate(listTools, options),
    listReadOnlyTools,
    listReadOnlyToolsIterator: (options) => iterate(listReadOnlyTools, options),
    getTool,
    listSessionTools,
    listSessionToolsIterator: (id, options) =>
      iterate((window) => listSessionTools(id, window), options),
    listSessionMCPTools,
    listSessionMCPToolsIterator: (id, options) =>
      iterate((window) => listSessionMCPTools(id, window), options),
    runTool,
    runToolAsync,
    streamTool,
    runSessionTool: (id, name, body, scope) =>
      post("/sessions/{}/tools/{}/run", [id, name], body, scope),
    list: listTools,
    listReadOnly: listReadOnlyTools,
    get: getTool,
    run: runTool,
    start: runToolAsync,
    stream: streamTool,
  };
}

async function* streamRun(
  transport: Transport,
  name: string,
  body: RunBody,
  scope: RunScope | undefined,
): AsyncGenerator<ToolFrame, void, undefined> {
  const request = agentRequest({
    method: "POST",
    path: "/tools/{}/stream",
    args: [name],
    body,
    scope,
  });
  let ended = false;
  for await (const frame of await transport.stream(request)) {
    let data: unknown;
    try {
      data = JSON.parse(frame.data);
    } catch (cause) {
      throw new ConnectionError(request, "the stream has an event that is no JSON", cause);
    }
    ended = frame.event === "end";
    yield { event: frame.event, data: data as Record<string, unknown> };
    if (ended) {
      return;
    }
  }
  // A run whose stream broke off is of unknown outcome; it must not look like one that ended.
  throw new ConnectionError(request, "the stream ended before the run did");
}
