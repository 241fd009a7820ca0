import type { CallToolResult, Client, Transport } from "@modelcontextprotocol/client";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { Log } from "../../policy/kernel/log.ts";
import { compileParams } from "../tools/schema.ts";
import { failed, MAX_RESULT_BYTES } from "../tools/tool.ts";
import type { Tool } from "../tools/tool.ts";
import { canonicalJson } from "./settings/canonical-json.ts";
import { decodeMcpServers } from "./mcp-config.ts";
import type { McpServer } from "./mcp-config.ts";
import { createStdioTransport } from "./mcp-stdio.ts";
import type { JsonObject, McpControl, Session, SettingsReader, ToolResult } from "./seams.ts";

/** A tool of an MCP server, in the catalogue's shape. */
export interface McpTool extends Tool {
  /** Every call parks. */
  readonly requireConfirmation: boolean;
}

/** MCP connections of all sessions; equal servers in equal folders are shared. */
export interface McpHub extends McpControl {
  /** The session's tools, sorted by name, once its servers have come up or failed (10 s at most). */
  tools(session: Session): Promise<readonly McpTool[]>;
  warnings(session: Session): readonly string[];
  /** Lets go of a session's servers; the last holder ends them. */
  release(session: Session): void;
  close(): Promise<void>;
}

interface Connection {
  readonly key: string;
  readonly holders: Set<Session>;
  readonly ready: Promise<void>;
  state: "starting" | "up" | "down";
  tools: readonly {
    readonly name: string;
    readonly description: string;
    readonly readOnlyHint: boolean;
    readonly inputSchema: JsonObject;
  }[];
  client: Client | null;
  transport: Transport | null;
  warning: string | null;
}

interface Attached {
  servers: readonly { readonly server: McpServer; readonly connection: Connection }[];
  readonly warnings: readonly string[];
  /** Full names that two servers share. */
  collisions: readonly string[];
}

const START_TIMEOUT_MS = 10_000;
const CALL_TIMEOUT_MS = 600_000;
const MAX_TOOLS = 256;
const TOOL_NAME = /^[A-Za-z0-9_.-]{1,128}$/;

/**
 * @param env environment of stdio servers and source of `${NAME}`.
 */
export function createMcpHub(
  deps: { readonly clock: Clock; readonly log: Log; readonly settings: () => SettingsReader },
  env: Readonly<Record<string, string>>,
): McpHub {
  const { clock, log } = deps;
  const connections = new Map<string, Connection>();
  const attached = new Map<Session, Attached>();
  const attaching = new Map<Session, Promise<void>>();

  function connect(server: McpServer, session: Session): Connection {
    const key = canonicalJson([
      server.name,
      server.transport,
      server.transport.kind === "stdio" ? session.cwd : null,
    ]);
    const known = connections.get(key);
    if (known !== undefined && known.state !== "down") {
      known.holders.add(session);
      return known;
    }
    const connection: Connection = {
      key,
      holders: new Set([session]),
      ready: Promise.resolve().then(() => start(connection, server, session)),
      state: "starting",
      tools: [],
      client: null,
      transport: null,
      warning: null,
    };
    connections.set(key, connection);
    return connection;
  }

  async function start(connection: Connection, server: McpServer, session: Session): Promise<void> {
    try {
      const {
        Client: ClientClass,
        SSEClientTransport,
        StreamableHTTPClientTransport,
      } = await import("@modelcontextprotocol/client");
      const { transport: way } = server;
      const transport: Transport =
        way.kind === "stdio"
          ? createStdioTransport({ ...way, env: { ...env, ...way.env }, cwd: session.cwd }, clock)
          : way.kind === "sse"
            ? new SSEClientTransport(new URL(way.url), { requestInit: { headers: way.headers } })
            : new StreamableHTTPClientTransport(new URL(way.url), {
                requestInit: { headers: way.headers },
              });
      const client = new ClientClass({ name: "interpose", version: "1" }, { capabilities: {} });
      connection.client = client;
      connection.transport = transport;
      client.onclose = () => drop(connection, "the server ended");
      await client.connect(transport, { timeout: START_TIMEOUT_MS });
      const { tools } = await client.listTools(undefined, { timeout: START_TIMEOUT_MS });
      connection.tools = tools.slice(0, MAX_TOOLS).map((tool) => ({
        name: tool.name,
        description: tool.description ?? "",
        readOnlyHint: tool.annotations?.readOnlyHint === true,
        inputSchema: tool.inputSchema as JsonObject,
      }));
      if (connection.state === "starting") {
        connection.state = "up";
      }
    } catch (error) {
      log.warn({ server: server.name, err: error }, "MCP server failed to start");
      drop(connection, "the server did not start");
    }
    if (connection.holders.size === 0) {
      await end(connection);
    }
  }

  function drop(connection: Connection, why: string): void {
    connection.warning ??= why;
    if (connection.state !== "down") {
      connection.state = "down";
      connection.tools = [];
      void end(connection);
    }
  }

  async function end(connection: Connection): Promise<void> {
    connection.state = "down";
    if (connections.get(connection.key) === connection) {
      connections.delete(connection.key);
    }
    try {
      await connection.client?.close();
      await connection.transport?.close();
    } catch (error) {
      log.debug({ err: error }, "MCP server close failed");
    }
  }

  async function attach(session: Session): Promise<void> {
    const settings = await deps.settings().toolSettings(session);
    const { servers, warnings } = decodeMcpServers(settings.mcpServers, env);
    if (session.signal.aborted) {
      return;
    }
    const before = attached.get(session)?.servers.map((entry) => entry.connection) ?? [];
    const now = servers.map((server) => ({ server, connection: connect(server, session) }));
    attached.set(session, { servers: now, warnings, collisions: [] });
    const kept = new Set(now.map((entry) => entry.connection));
    letGo(
      session,
      before.filter((connection) => !kept.has(connection)),
    );
  }

  function letGo(session: Session, held: readonly Connection[]): void {
    for (const connection of held) {
      connection.holders.delete(session);
      if (connection.holders.size === 0 && connection.state !== "starting") {
        void end(connection);
      }
    }
  }

  /** One attach at a time per session; callers share it. */
  function refresh(session: Session): Promise<void> {
    const last = attaching.get(session) ?? Promise.resolve();
    const next = last.catch(() => {}).then(() => attach(session));
    attaching.set(session, next);
    return next;
  }

  return {
    refresh,
    async tools(session) {
      if (session.kind === "ephemeral") {
        return [];
      }
      try {
        await (attaching.get(session) ?? refresh(session));
      } catch (error) {
        // without its servers a session still has its own tools; the next call tries again
        log.warn({ err: error }, "MCP servers of a session not attached");
        attaching.delete(session);
      }
      const state = attached.get(session);
      const servers = state?.servers ?? [];
      const waiting = Promise.all(servers.map((entry) => entry.connection.ready));
      await Promise.race([
        waiting,
        new Promise<void>((resolve) => clock.after(START_TIMEOUT_MS, resolve)),
      ]);
      const byName = new Map<string, McpTool[]>();
      for (const { server, connection } of servers) {
        for (const tool of toTools(server, connection)) {
          byName.set(tool.name, [...(byName.get(tool.name) ?? []), tool]);
        }
      }
      if (state !== undefined) {
        state.collisions = [...byName].flatMap(([name, tools]) => (tools.length > 1 ? [name] : []));
      }
      // two tools of one full name could be taken for each other: neither is offered
      return [...byName.values()]
        .flatMap((tools) => (tools.length === 1 ? tools : []))
        .toSorted((a, b) => (a.name < b.name ? -1 : 1));
    },
    warnings(session) {
      const state = attached.get(session);
      const down = state?.servers.flatMap(({ server, connection }) =>
        connection.warning === null ? [] : [`MCP server "${server.name}": ${connection.warning}`],
      );
      const clashes = state?.collisions.map(
        (name) => `two MCP servers offer ${name}: neither is used`,
      );
      return [...(state?.warnings ?? []), ...(down ?? []), ...(clashes ?? [])];
    },
    release(session) {
      const held = attached.get(session)?.servers.map((entry) => entry.connection) ?? [];
      attached.delete(session);
      attaching.delete(session);
      letGo(session, held);
    },
    async close() {
      await Promise.all([...connections.values()].map(end));
    },
  };
}

function toTools(server: McpServer, connection: Connection): McpTool[] {
  return connection.tools.flatMap((tool) => {
    if (
      !TOOL_NAME.test(tool.name) ||
      server.allowedTools?.has(tool.name) === false ||
      !isUsable(tool.inputSchema)
    ) {
      return [];
    }
    return [
      {
        name: `mcp__${server.name}__${tool.name}`,
        description: tool.description.slice(0, 4000),
        readOnly: server.readOnly ?? tool.readOnlyHint,
        requireConfirmation: server.requireConfirmation,
        inputSchema: tool.inputSchema,
        async run(params, context) {
          const { client } = connection;
          if (connection.state !== "up" || client === null) {
            return failed("mcp_unavailable", "The MCP server is gone.");
          }
          try {
            const result = await client.callTool(
              { name: tool.name, arguments: params },
              { signal: context.signal, timeout: CALL_TIMEOUT_MS },
            );
            return toResult(result);
          } catch (error) {
            if (context.signal.aborted) {
              return failed("cancelled", "[cancelled]");
            }
            return failed(
              "mcp_error",
              error instanceof Error ? error.message.slice(0, 2000) : "The MCP server failed.",
            );
          }
        },
      },
    ];
  });
}

function isUsable(schema: JsonObject): boolean {
  try {
    compileParams(schema);
    return true;
  } catch {
    return false;
  }
}

function toResult(result: CallToolResult): ToolResult {
  const text = result.content
    .map((part) => (part.type === "text" ? part.text : `[${part.type}]`))
    .join("\n");
  const cut = text.length > MAX_RESULT_BYTES ? `${text.slice(0, MAX_RESULT_BYTES)}\n[cut]` : text;
  return result.isError === true
    ? { isError: true, text: cut, errorCode: "mcp_tool_error" }
    : { isError: false, text: cut };
}
