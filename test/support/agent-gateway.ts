import { mkdir, mkdtemp, realpath, rm } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { edgeAuthField } from "../../exec-host/agent/edge-auth.ts";
import { detectSandbox } from "../../exec-host/agent/sandbox.ts";
import type { Sandbox } from "../../exec-host/agent/sandbox.ts";
import type {
  AgentGuards,
  CheckedRules,
  CreateGuards,
  JsonObject,
  LifecycleHooks,
  ToolSettings,
} from "../../exec-host/agent/seams.ts";
import { createAgentServer } from "../../exec-host/agent/server.ts";
import type { AgentServer, AgentServerOptions } from "../../exec-host/agent/server.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";

/** Secret between the tests' edge and their gateways. */
export const SECRET = "a-secret-between-edge-and-gateway";

/** What a test changes about the parts that lifecycle hooks and rules would play. */
export interface GatewayTestOptions {
  readonly hooks?: Partial<LifecycleHooks>;
  readonly rules?: CheckedRules;
  readonly settings?: Partial<ToolSettings>;
  readonly createGuards?: CreateGuards;
  readonly clock?: Clock;
  readonly sandbox?: Sandbox;
  readonly options?: Partial<AgentServerOptions>;
}

/** An answer with its body read. */
export interface Answer {
  readonly status: number;
  readonly headers: Record<string, string | string[] | undefined>;
  readonly text: string;
  /** The body as JSON; `{}` when it is something else. */
  readonly json: JsonObject;
}

/** One request, signed unless `sign` is false. */
export interface Call {
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
  readonly sign?: boolean;
  /** Sent instead of `body`, as it is. */
  readonly raw?: string | Buffer;
  readonly chunked?: boolean;
  readonly signal?: AbortSignal;
}

/** A gateway on a loopback port with a home and a project folder of its own. */
export interface TestGateway {
  readonly server: AgentServer;
  readonly port: number;
  readonly root: string;
  readonly home: string;
  readonly project: string;
  call(method: string, target: string, call?: Call): Promise<Answer>;
  /** A run without a session in the project folder. */
  run(tool: string, body: JsonObject, headers?: Record<string, string>): Promise<Answer>;
  createSession(body?: JsonObject): Promise<string>;
  /** A run in a live session. */
  runIn(session: string, tool: string, body: JsonObject): Promise<Answer>;
}

const noSettings: ToolSettings = {
  mcpServers: [],
  denyList: [],
  denyUrls: [],
  disabledTools: [],
  warnings: [],
};

/** Guards that object to nothing. */
export function nullGuards(options: GatewayTestOptions): CreateGuards {
  return (): AgentGuards => ({
    hooks: {
      beforeTool: () => Promise.resolve({ kind: "allow", context: [] }),
      afterTool: () => Promise.resolve({ context: [] }),
      sessionStart: () => Promise.resolve({ context: [] }),
      sessionEnd: () => Promise.resolve(),
      notify: () => {},
      ...options.hooks,
    },
    rules: options.rules ?? { check: () => Promise.resolve({ kind: "pass" }) },
    settings: { toolSettings: () => Promise.resolve({ ...noSettings, ...options.settings }) },
    registerRoutes: () => {},
    close: () => Promise.resolve(),
  });
}

/** No sandbox, so that what is tested is the gate. */
export const noSandbox: Sandbox = {
  kind: "none",
  reason: "not used in this test",
  launcher: () => [],
};

/** The sandbox of this machine. */
export function realSandbox(): Promise<Sandbox> {
  return detectSandbox(systemClock, process.env["PATH"] ?? "");
}

/** Starts a gateway that ends with the test. */
export async function startGateway(options: GatewayTestOptions = {}): Promise<TestGateway> {
  const root = await realpath(await mkdtemp(join(tmpdir(), "agent-")));
  const home = join(root, "home");
  const project = join(home, "project");
  await mkdir(project, { recursive: true });
  const server = createAgentServer(
    {
      clock: options.clock ?? systemClock,
      log: silentLog(),
      metrics: { toolRun: () => {}, hookRun: () => {} },
      sandbox: options.sandbox ?? noSandbox,
      createGuards: options.createGuards ?? nullGuards(options),
    },
    {
      containerId: "c",
      home,
      dataDir: join(root, "data"),
      fleet: false,
      realms: [],
      judge: null,
      env: { PATH: process.env["PATH"] ?? "", LANG: "C.UTF-8" },
      secrets: [SECRET],
      rateLimit: null,
      ...options.options,
    },
  );
  await new Promise<void>((resolve) => {
    server.http.listen(0, "127.0.0.1", resolve);
  });
  onTestFinished(async () => {
    await server.close();
    await rm(root, { recursive: true, force: true });
  });
  const { port } = server.http.address() as AddressInfo;
  const call = (method: string, target: string, what: Call = {}): Promise<Answer> =>
    send(port, method, target, what);
  return {
    server,
    port,
    root,
    home,
    project,
    call,
    run: (tool, body, headers = {}) =>
      call("POST", `/api/v1/agent/tools/${tool}/run`, {
        body,
        headers: { "x-hoody-cwd": project, ...headers },
      }),
    async createSession(body = {}) {
      const answer = await call("POST", "/api/v1/agent/sessions", {
        body: { cwd: project, ...body },
      });
      return String(answer.json["session_id"]);
    },
    runIn: (session, tool, body) =>
      call("POST", `/api/v1/agent/sessions/${session}/tools/${tool}/run`, { body }),
  };
}

function send(port: number, method: string, target: string, call: Call): Promise<Answer> {
  const payload = call.raw ?? (call.body === undefined ? "" : JSON.stringify(call.body));
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      {
        port,
        host: "127.0.0.1",
        method,
        path: target,
        agent: false,
        headers: {
          "content-type": "application/json",
          ...(call.sign === false
            ? {}
            : { "x-hoody-edge-auth": edgeAuthField(SECRET, method, target, Date.now()) }),
          ...(call.chunked === true
            ? { "transfer-encoding": "chunked" }
            : payload.length > 0
              ? { "content-length": String(Buffer.byteLength(payload)) }
              : {}),
          ...call.headers,
        },
        ...(call.signal === undefined ? {} : { signal: call.signal }),
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.once("error", reject);
        response.once("end", () => {
          const text = Buffer.concat(chunks).toString("utf8");
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            text,
            json: parse(text),
          });
        });
      },
    );
    request.once("error", reject);
    request.end(payload);
  });
}

function parse(text: string): JsonObject {
  try {
    return JSON.parse(text) as JsonObject;
  } catch {
    return {};
  }
}

/** Error code of an answer. */
export function codeOf(answer: Answer): unknown {
  return answer.json["code"];
}

/** `details` of an error answer. */
export function detailsOf(answer: Answer): JsonObject {
  return (answer.json["details"] ?? {}) as JsonObject;
}

/** First text of a result envelope. */
export function textOf(answer: Answer): string {
  const [first] = (answer.json["content"] ?? []) as { text: string }[];
  return first?.text ?? "";
}
