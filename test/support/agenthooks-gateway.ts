import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { getRequestListener } from "@hono/node-server";
import { onTestFinished } from "vitest";
import { createGuards } from "../../exec-host/agent/hooks/guards.ts";
import { createRouter } from "../../exec-host/agent/router.ts";
import type {
  AgentOptions,
  JsonObject,
  Session,
  SettingsScope,
  ToolCall,
} from "../../exec-host/agent/seams.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import type { Log } from "../../policy/kernel/log.ts";

/** One event a session emitted. */
export interface Emitted {
  readonly type: string;
  readonly data: JsonObject;
}

export interface TestSession extends Session {
  readonly events: Emitted[];
  close(): void;
}

/** A folder that goes with the test. */
export async function tempFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "agenthooks-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** Writes a file with the folders above it. */
export async function put(path: string, content: unknown): Promise<string> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, typeof content === "string" ? content : JSON.stringify(content, null, 2));
  return path;
}

export async function readJson(path: string): Promise<JsonObject> {
  return JSON.parse(await readFile(path, "utf8")) as JsonObject;
}

/** A settings object with one lifecycle hook. */
export function oneHook(event: string, command: string, matcher?: string): JsonObject {
  return {
    version: 1,
    hooks: {
      [event]: [
        { ...(matcher === undefined ? {} : { matcher }), hooks: [{ type: "command", command }] },
      ],
    },
  };
}

interface GatewayOptions extends Partial<Pick<AgentOptions, "fleet" | "realms" | "judge">> {
  readonly clock?: Clock;
  readonly log?: Log;
}

/**
 * The hooks' part of a gateway on a real listener: router, guards, and a session registry without tools. The home and one project
 * folder exist below `folder`.
 */
export async function startHooksGateway(options: GatewayOptions = {}) {
  const folder = await tempFolder();
  const home = join(folder, "home");
  const project = join(folder, "project");
  await mkdir(home);
  await mkdir(project);
  const log = options.log ?? silentLog();
  const clock = options.clock ?? systemClock;
  const realms = options.realms ?? [];
  const sessions = new Map<string, TestSession>();
  const closeListeners: ((session: Session) => void)[] = [];
  const hookRuns: string[] = [];
  const refreshed: Session[] = [];
  let changes: ((scope: SettingsScope) => Promise<string>) | undefined;
  const guards = createGuards(
    {
      clock,
      log,
      metrics: {
        toolRun: () => {},
        hookRun: (event, outcome) => hookRuns.push(`${event} ${outcome}`),
      },
      sessions: {
        get: (id) => sessions.get(id),
        list: () => [...sessions.values()],
        onStart: () => {},
        onClose: (listener) => closeListeners.push(listener),
      },
      tools: {
        isReadOnly: (tool) => TOOLS.get(tool),
        names: () => [...TOOLS.keys()],
      },
      mcp: {
        refresh: (session) => {
          refreshed.push(session);
          return Promise.resolve();
        },
      },
      changes: {
        provide: (_topic, token) => {
          changes = token;
        },
      },
    },
    {
      containerId: "890abcdef12345678901cdef",
      home,
      dataDir: join(folder, "data"),
      fleet: options.fleet ?? false,
      realms,
      judge: options.judge ?? null,
      env: { PATH: process.env["PATH"] ?? "", HOME: home },
    },
  );
  const { app, router } = createRouter({ log }, realms);
  app.use(async (c, next) => {
    const method = c.req.method;
    c.set("bodyBytes", method === "GET" ? undefined : Buffer.from(await c.req.arrayBuffer()));
    c.set("client", "127.0.0.1");
    await next();
  });
  guards.registerRoutes(router);
  const server = createServer(getRequestListener(app.fetch));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  onTestFinished(async () => {
    for (const session of sessions.values()) {
      session.close();
    }
    await guards.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  let count = 0;
  /** A live session whose settings are loaded; SessionStart has been raised. */
  async function open(
    fields: Partial<Omit<Session, "id" | "signal" | "emit">> = {},
  ): Promise<TestSession> {
    const session = makeSession(fields);
    sessions.set(session.id, session);
    await guards.hooks.sessionStart(session, "startup");
    return session;
  }

  function makeSession(fields: Partial<Omit<Session, "id" | "signal" | "emit">>): TestSession {
    count += 1;
    const id = `sess_${count}`;
    const abort = new AbortController();
    const events: Emitted[] = [];
    const session: TestSession = {
      kind: "live",
      realm: "global",
      home,
      cwd: project,
      configDir: null,
      container: null,
      toolMode: "full",
      dirScope: "home",
      headless: false,
      agent: "general",
      model: null,
      startedAt: clock.now(),
      ...fields,
      id,
      signal: abort.signal,
      events,
      emit: (type, data) => events.push({ type, data }),
      close() {
        if (sessions.delete(id)) {
          closeListeners.forEach((listener) => listener(session));
        }
        abort.abort();
      },
    };
    return session;
  }

  async function call(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<{ status: number; body: JsonObject }> {
    const response = await fetch(`${origin}/api/v1/agent${path}`, {
      method,
      headers: { "Content-Type": "application/json", ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as JsonObject };
  }

  /** Mints a nonce for a write. */
  async function nonce(session: Session, op: string, scope: string): Promise<string> {
    const answer = await call("POST", "/hooks/begin-write", { session_id: session.id, op, scope });
    return String(answer.body["nonce"]);
  }

  /** Acknowledges whatever the session has loaded. */
  async function ack(session: Session): Promise<void> {
    const { body } = await call("GET", `/hooks?session_id=${session.id}`);
    const trust = body["trust"] as { hash: string; high_risk: boolean };
    await call("POST", "/hooks/trust/ack", {
      session_id: session.id,
      hash: trust.hash,
      high_risk: trust.high_risk,
    });
  }

  return {
    origin,
    folder,
    home,
    project,
    userFile: join(home, ".hoody/settings.json"),
    projectFile: join(project, ".hoody/settings.json"),
    localFile: join(project, ".hoody/settings.local.json"),
    guards,
    hookRuns,
    refreshed,
    open,
    makeSession,
    call,
    nonce,
    ack,
    changesToken: (scope: SettingsScope) => changes?.(scope),
  };
}

export type HooksGateway = Awaited<ReturnType<typeof startHooksGateway>>;

const TOOLS: ReadonlyMap<string, boolean> = new Map([
  ["read_file", true],
  ["list_dir", true],
  ["bash", false],
  ["write_file", false],
  ["edit_file", false],
  ["ask_question_to_user", false],
  ["report_outcome", false],
]);

/** A call as the gate would hand it over. */
export function toolCall(
  session: Session,
  tool: string,
  params: JsonObject,
  agent?: string,
): ToolCall {
  return {
    id: "toolu_1",
    tool,
    params,
    readOnly: TOOLS.get(tool) ?? false,
    session,
    agent: agent ?? session.agent,
    entry: "session",
  };
}

/** Outcomes of the hook events a session emitted. */
export function outcomes(session: TestSession): unknown[] {
  return session.events
    .filter((event) => event.type === "event.hook")
    .map((event) => event.data["outcome"]);
}
