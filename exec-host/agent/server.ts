import { createServer } from "node:http";
import type { IncomingMessage, Server } from "node:http";
import { getRequestListener } from "@hono/node-server";
import type { HttpBindings } from "@hono/node-server";
import type { MiddlewareHandler } from "hono";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { Log } from "../../policy/kernel/log.ts";
import { builtinTool, CATALOGUE } from "../tools/catalogue.ts";
import { createCap, createRateLimiter } from "./caps.ts";
import type { RateLimit } from "./caps.ts";
import { createChangeBoard } from "./change-routes.ts";
import { createConfirmTokens } from "./confirm-tokens.ts";
import { EDGE_AUTH_FIELD, isEdgeAuthValid } from "./edge-auth.ts";
import { AgentError } from "./errors.ts";
import { registerJobRoutes } from "./job-routes.ts";
import { createJobs } from "./jobs.ts";
import { createMcpHub } from "./mcp.ts";
import { AGENT_PREFIX, createRouter, errorAnswer, jsonAnswer } from "./router.ts";
import type { AgentEnv } from "./router.ts";
import { createToolRuns } from "./runs.ts";
import type { ToolRuns } from "./runs.ts";
import type { Sandbox } from "./sandbox.ts";
import type {
  AgentGuards,
  AgentMetrics,
  AgentOptions,
  CreateGuards,
  JsonObject,
  ToolLookup,
} from "./seams.ts";
import { registerSessionRoutes } from "./session-routes.ts";
import { createSessions } from "./sessions.ts";
import type { Sessions } from "./sessions.ts";
import { registerToolRoutes } from "./tool-routes.ts";
import { startTurn } from "./turns.ts";
import type { Turn } from "./turns.ts";
import { createStreamSockets, refuseUpgrade } from "./ws-stream.ts";

/** What a gateway process needs beyond the decoded configuration. */
export interface AgentServerOptions extends AgentOptions {
  /** One secret, or two while they are being exchanged; none: nothing is served. */
  readonly secrets: readonly string[];
  readonly rateLimit: RateLimit | null;
  /** Bytes; 8 MiB unless said. */
  readonly maxBodyBytes?: number;
  /** Event streams per client; 16 unless said. */
  readonly maxStreamsPerClient?: number;
  readonly idleMs?: number;
}

/** A gateway that is not listening yet. */
export interface AgentServer {
  readonly http: Server;
  readonly sessions: Sessions;
  readonly runs: ToolRuns;
  /** Starts a scripted turn in a live session: the place of the model loop, and what tests drive. */
  startTurn(
    sessionId: string,
    script: (turn: Turn) => Promise<void>,
  ): { readonly turnId: string; readonly done: Promise<void> };
  status(): JsonObject;
  /** Ends sessions, jobs, streams and connections; bounded by the life-cycle hooks' own limits. */
  close(): Promise<void>;
}

interface AgentServerDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: AgentMetrics;
  readonly sandbox: Sandbox;
  readonly createGuards: CreateGuards;
}

const MAX_BODY_BYTES = 8 * 1024 * 1024;
/** Request bodies held at once, all clients together. */
const MAX_HELD_BYTES = 128 * 1024 * 1024;
const KEEP_ALIVE_MS = 120_000;
/** What is still read of a body that is refused, so that the answer arrives. */
const MAX_DRAIN_BYTES = 64 * 1024 * 1024;
const DRAIN_MS = 5000;
const HEALTH = `${AGENT_PREFIX}/health`;

/** Builds a gateway: guard, limits, routes, sessions, jobs, tools. Listening is the caller's. */
export function createAgentServer(deps: AgentServerDeps, options: AgentServerOptions): AgentServer {
  const { clock, log, metrics, sandbox } = deps;
  let guards: AgentGuards | null = null;
  const needGuards = (): AgentGuards => {
    if (guards === null) {
      throw new Error("guards are used before they are built");
    }
    return guards;
  };

  const sessions = createSessions({ clock, log, hooks: () => needGuards().hooks }, options);
  const mcp = createMcpHub({ clock, log, settings: () => needGuards().settings }, options.env);
  const tokens = createConfirmTokens(clock);
  const jobs = createJobs(clock);
  const changes = createChangeBoard({ clock, log });
  const streams = createCap(options.maxStreamsPerClient ?? 16);
  const runs = createToolRuns(
    { clock, log, metrics, tokens, mcp, sandbox, guards: needGuards },
    options,
  );
  const tools: ToolLookup = {
    isReadOnly: (name) => builtinTool(name)?.readOnly,
    names: () => CATALOGUE.map((tool) => tool.name),
  };
  const built = deps.createGuards({ clock, log, metrics, sessions, tools, mcp, changes }, options);
  guards = built;
  sessions.onClose((session) => {
    tokens.dropSession(session.id);
    mcp.release(session);
  });

  const status = (): JsonObject => ({
    status: "ok",
    sessions: sessions.all().length,
    jobs: jobs.alive(),
    executions: runs.inUse(),
    read_only_sandbox: sandbox.kind,
    ...(sandbox.reason === null ? {} : { read_only_sandbox_reason: sandbox.reason }),
  });

  const { app, router } = createRouter({ log }, options.realms);
  const rate = createRateLimiter(clock, options.rateLimit);
  app.use("*", admit({ clock, rate }, options));
  app.get(HEALTH, () => jsonAnswer({ status: "ok", read_only_sandbox: sandbox.kind }));
  app.get(`${AGENT_PREFIX}/openapi.json`, () =>
    jsonAnswer(
      app.getOpenAPI31Document({
        openapi: "3.1.0",
        info: { title: "interpose agent gateway", version: "1" },
      }),
    ),
  );
  registerToolRoutes(router, { clock, sessions, runs, jobs, streams });
  registerSessionRoutes(router, { clock, sessions, mcp, streams }, options.realms);
  registerJobRoutes(router, jobs);
  changes.register(router, sessions, options.home);
  built.registerRoutes(router);

  const sockets = createStreamSockets({ sessions, streams, log });
  const listener = getRequestListener(app.fetch, { overrideGlobalObjects: false });
  const http = createServer(
    { maxHeaderSize: 32_768, requestTimeout: 0 },
    (request, response) => void listener(request, response),
  );
  // longer than the edge keeps an idle connection: the side that sends requests is the one to close it
  http.keepAliveTimeout = KEEP_ALIVE_MS;
  http.on("upgrade", (request, socket, head) => {
    if (!isAdmitted(request, options.secrets, clock.now())) {
      refuseUpgrade(socket, new AgentError("forbidden"));
      return;
    }
    if (rate.take(clientOf(request)) > 0) {
      refuseUpgrade(socket, new AgentError("rate_limited"));
      return;
    }
    sockets.accept(request, socket, head, clientOf(request));
  });

  return {
    http,
    sessions,
    runs,
    status,
    startTurn: (id, script) => startTurn({ clock, runs }, sessions.require(id), script),
    async close() {
      http.close();
      jobs.close();
      await sessions.closeAll();
      sockets.close();
      await mcp.close();
      await built.close();
      http.closeAllConnections();
    },
  };
}

/** Guard, rate limit and body cap, in this order (section 1.1). Health is open and not limited (decision 62). */
function admit(
  deps: { readonly clock: Clock; readonly rate: { take(client: string): number } },
  options: AgentServerOptions,
): MiddlewareHandler<AgentEnv> {
  const maxBodyBytes = options.maxBodyBytes ?? MAX_BODY_BYTES;
  const held = { bytes: 0 };
  return async (c, next) => {
    const { incoming } = c.env as HttpBindings;
    if (c.req.path === HEALTH && c.req.method === "GET") {
      await next();
      return;
    }
    if (!isAdmitted(incoming, options.secrets, deps.clock.now())) {
      return errorAnswer(new AgentError("forbidden"));
    }
    const client = clientOf(incoming);
    const waitSeconds = deps.rate.take(client);
    if (waitSeconds > 0) {
      return errorAnswer(new AgentError("rate_limited"), waitSeconds);
    }
    c.set("client", client);
    if (c.req.method === "GET" || c.req.method === "HEAD") {
      await next();
      return;
    }
    const mine = { bytes: 0 };
    try {
      const body = await readBody(incoming, maxBodyBytes, (bytes) => {
        mine.bytes += bytes;
        held.bytes += bytes;
        return held.bytes <= MAX_HELD_BYTES;
      });
      if (typeof body === "string") {
        const answer = errorAnswer(new AgentError(body));
        // a peer that is still sending would lose the answer to a reset
        if (!(await drain(incoming, deps.clock))) {
          answer.headers.set("Connection", "close");
        }
        return answer;
      }
      c.set("bodyBytes", body);
      await next();
      return;
    } finally {
      held.bytes -= mine.bytes;
    }
  };
}

function isAdmitted(request: IncomingMessage, secrets: readonly string[], now: number): boolean {
  const field = request.headers[EDGE_AUTH_FIELD.toLowerCase()];
  return isEdgeAuthValid(
    typeof field === "string" ? field : undefined,
    secrets,
    request.method ?? "",
    request.url ?? "",
    now,
  );
}

/** Once the guard has passed, the edge's word on the client's address counts. */
function clientOf(request: IncomingMessage): string {
  const address = request.headers["x-real-ip"];
  return typeof address === "string" ? address : (request.socket.remoteAddress ?? "local");
}

/** Reads and drops what is left of a refused body, within limits; false when there is more. */
function drain(request: IncomingMessage, clock: Clock): Promise<boolean> {
  if (request.complete) {
    return Promise.resolve(true);
  }
  return new Promise((resolve) => {
    let left = MAX_DRAIN_BYTES;
    const settle = (complete: boolean): void => {
      timer.cancel();
      request.removeListener("data", onData);
      resolve(complete);
    };
    const onData = (chunk: Buffer): void => {
      left -= chunk.length;
      if (left < 0) {
        request.pause();
        settle(false);
      }
    };
    const timer = clock.after(DRAIN_MS, () => settle(false));
    request.once("end", () => settle(true));
    request.once("close", () => settle(request.complete));
    request.on("data", onData).resume();
  });
}

/**
 * The whole body, or the code to refuse it with: larger than the cap by its declared length or by count, or no room left.
 *
 * @param take counts bytes that are now held; false when there are too many.
 */
function readBody(
  request: IncomingMessage,
  maxBytes: number,
  take: (bytes: number) => boolean,
): Promise<Buffer | "payload_too_large" | "service_unavailable"> {
  if (Number(request.headers["content-length"] ?? 0) > maxBytes) {
    return Promise.resolve("payload_too_large");
  }
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const refuse = (code: "payload_too_large" | "service_unavailable"): void => {
      request.removeAllListeners("data");
      request.pause();
      resolve(code);
    };
    request.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size > maxBytes) {
        refuse("payload_too_large");
      } else if (take(chunk.length)) {
        chunks.push(chunk);
      } else {
        refuse("service_unavailable");
      }
    });
    request.once("end", () => resolve(Buffer.concat(chunks)));
    request.once("error", reject);
    request.once("close", () => reject(new Error("the body broke off")));
  });
}
