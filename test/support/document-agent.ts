import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { type Answer, ask } from "./ask.ts";
import { CONTAINER, openTestEdge, type TestEdge } from "./edge.ts";

/** JSON under test: what is in it is what the test asserts. */
export type Json = Record<string, unknown>;

/** What one request to the agent says besides method and path. */
export interface AgentCall {
  readonly body?: unknown;
  /** Sent instead of `body`, as it is. */
  readonly raw?: string | Buffer;
  readonly headers?: Record<string, string>;
}

/**
 * A whole edge with the agent gateway of its first container, met the way a client meets it. `home` is the agent's home,
 * `project` a folder in it.
 */
export interface DocumentAgent {
  readonly edge: TestEdge;
  readonly host: string;
  /** Address of the agent without a path. */
  readonly origin: string;
  readonly home: string;
  readonly project: string;
  /** A request below `/api/v1/agent`. */
  call(method: string, path: string, call?: AgentCall): Promise<Answer>;
  /** A run without a session in the project. */
  run(tool: string, body: Json, headers?: Record<string, string>, query?: string): Promise<Answer>;
  /** A live session in the project. */
  session(body?: Json, headers?: Record<string, string>): Promise<string>;
  runIn(session: string, tool: string, body: Json): Promise<Answer>;
  /** A nonce for one write. */
  nonce(session: string, op: string, scope?: string): Promise<string>;
  /** A guarded write with a fresh nonce of the scope. */
  write(
    method: string,
    path: string,
    op: string,
    session: string,
    body: Json,
    scope?: string,
  ): Promise<Answer>;
  /** Writes a file below the home, folders included; objects as JSON. */
  put(name: string, content: string | Json): string;
  close(): Promise<void>;
}

/** @param agent members of the container's `agent` besides its kind. */
export async function openDocumentAgent(agent: Json = {}): Promise<DocumentAgent> {
  const edge = await openTestEdge({
    container: { agent: { kind: "embedded", rateLimit: "off", ...agent } },
    config: { log: { level: "error" } },
  });
  const home = join(edge.folder, "data/containers", CONTAINER, "home");
  const project = join(home, "project");
  mkdirSync(project, { recursive: true });
  const host = edge.host("agent-1");
  const self: DocumentAgent = {
    edge,
    host,
    origin: `http://${host}:${edge.port}`,
    home,
    project,
    call(method, path, { body, raw, headers = {} } = {}) {
      const payload = raw ?? (body === undefined ? undefined : JSON.stringify(body));
      return ask(edge.port, {
        method,
        host,
        path: `/api/v1/agent${path}`,
        headers: {
          "content-type": "application/json",
          // Node leaves it out of a DELETE
          ...(payload === undefined
            ? {}
            : { "content-length": String(Buffer.byteLength(payload)) }),
          ...headers,
        },
        // as bytes: Node writes a text and the head before it in one encoding
        ...(payload === undefined
          ? {}
          : { body: typeof payload === "string" ? Buffer.from(payload) : payload }),
      });
    },
    run: (tool, body, headers = {}, query = "") =>
      self.call("POST", `/tools/${tool}/run${query}`, {
        body,
        headers: { "x-hoody-cwd": project, ...headers },
      }),
    async session(body = {}, headers = {}) {
      const answer = await self.call("POST", "/sessions", {
        body: { cwd: project, ...body },
        headers,
      });
      return String(answer.json["session_id"]);
    },
    runIn: (session, tool, body) =>
      self.call("POST", `/sessions/${session}/tools/${tool}/run`, { body }),
    async nonce(session, op, scope = "project") {
      const answer = await self.call("POST", "/hooks/begin-write", {
        body: { session_id: session, op, scope },
      });
      return String(answer.json["nonce"]);
    },
    async write(method, path, op, session, body, scope = "project") {
      const nonce = await self.nonce(session, op, scope);
      return self.call(method, path, { body: { session_id: session, nonce, scope, ...body } });
    },
    put(name, content) {
      const path = join(home, name);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
      return path;
    },
    close: () => edge.close(),
  };
  return self;
}

/** `details` of an error answer. */
export function detailsOf(answer: Answer): Json {
  return (answer.json["details"] ?? {}) as Json;
}

/** Status and code, what clients match on. */
export function outcomeOf(answer: Answer): [number, unknown] {
  return [answer.status, answer.json["code"] ?? answer.json["is_error"]];
}

/** First text of a result. */
export function textOf(answer: Answer): string {
  const [first] = (answer.json["content"] ?? []) as { text: string }[];
  return first?.text ?? "";
}

/**
 * A published document whose name begins so, when it lies beside the checkout; samples in it are read at test time and
 * kept nowhere else. Empty otherwise.
 */
export function publishedDocument(prefix: string): string {
  const folder = resolve(import.meta.dirname, "../../../shared/seeds");
  const name = existsSync(folder)
    ? readdirSync(folder).find((file) => file.startsWith(prefix))
    : undefined;
  return name === undefined ? "" : readFileSync(join(folder, name), "utf8");
}
