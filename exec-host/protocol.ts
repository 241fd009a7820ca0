import {
  decodeExecutions,
  isCount,
  isList,
  MAX_BATCH,
  type ExecutionsMessage,
} from "./execution-records.ts";

/**
 * Messages between an exec host process (parent) and the worker that runs one container's scripts.
 *
 * They travel as one JSON text per line on file descriptor `CHANNEL_FD` of the worker, a private socket pair
 * made at spawn (the worker opens it with `new net.Socket({ fd: CHANNEL_FD })`). Not Node's own IPC channel:
 * that one takes messages of any size, and a hostile script shares the process with the sender. Calls do
 * not travel here, they go over the worker's own socket (`dispatcher/frames.ts`).
 *
 * Life: parent sends `start`; the worker listens on `socketPath` and says `ready` (or `failed`, and exits);
 * `ping` is answered by `pong` at once from the main loop; `logs`, `executions` and `ended` may come at any
 * time. When the channel closes the worker exits: its parent is gone.
 */
export const PROTOCOL_VERSION = 3;

/** File descriptor of the channel in the worker. */
export const CHANNEL_FD = 3;

/** Longest line either side accepts, in bytes without its newline. The receiver ends a peer that sends more. */
const MAX_MESSAGE_BYTES = 262_144;

/** Longest log text, in UTF-16 units; a longer one is cut by the sender and again by the receiver. */
export const MAX_LOG_TEXT = 8192;

/** Levels of script lines, the least important first. */
export const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;
/** One of those levels. */
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Figures a worker needs; all in ms or bytes. */
export interface WorkerLimits {
  /** Bodies that are buffered for a script; longer ones are answered 413. */
  readonly maxBufferedBodyBytes: number;
  /** An ordinary call without `@timeout`. */
  readonly ordinaryTimeoutMs: number;
  /** Connecting to the service behind a hook. */
  readonly upstreamConnectMs: number;
  /** To the first byte of an answer and between bytes of an unfinished one. */
  readonly upstreamIdleMs: number;
  readonly maxHeaderBytes: number;
  /** Deployments kept in memory (code and `shared`). */
  readonly maxDeployments: number;
}

/** First message of the parent. The secret travels here only, never in argv, environment or a file. */
export interface StartMessage {
  readonly type: "start";
  readonly version: number;
  readonly containerId: string;
  /** Every connection to the worker's socket must say it first. */
  readonly secret: string;
  /** Where the worker listens; its folder exists and is private. */
  readonly socketPath: string;
  readonly scriptsRoot: string;
  /** Working directory of scripts, persistent; the worker's own cwd at start. */
  readonly dataDir: string;
  /** Environment for scripts before their `.env` files; the process environment itself is empty. */
  readonly env: Readonly<Record<string, string>>;
  readonly limits: WorkerLimits;
  /** Folder of the container's logs; only the management process gets it. */
  readonly logsDir?: string;
}

/** Asks whether the worker still looks at its messages. */
export interface PingMessage {
  readonly type: "ping";
  readonly seq: number;
}

/** What the parent tells a worker. */
export type ParentMessage = StartMessage | PingMessage;

/** The socket is listening. */
export interface ReadyMessage {
  readonly type: "ready";
  readonly version: number;
}

/** The worker cannot start; it exits after this. */
export interface FailedMessage {
  readonly type: "failed";
  readonly message: string;
}

/** The answer to a ping. */
export interface PongMessage {
  readonly type: "pong";
  readonly seq: number;
  /** Requests that are running. */
  readonly active: number;
  readonly heapUsedBytes: number;
}

/** One line of a script's console, or of the host about a script. */
export interface LogLine {
  /** ms since the epoch. */
  readonly ts: number;
  readonly level: LogLevel;
  readonly executionId: string;
  /** Path below the scripts root, `default/1/login-audit.js`; empty when no file is concerned. */
  readonly script: string;
  readonly auditId: string | null;
  readonly msg: string;
}

/** Lines that scripts logged since the last such message. */
export interface LogsMessage {
  readonly type: "logs";
  readonly lines: readonly LogLine[];
  /** Lines the worker itself had to drop since its last message. */
  readonly dropped: number;
}

/** How a hook dispatch ended whose answer was cut after its head: the head could not tell. */
export interface EndedMessage {
  readonly type: "ended";
  readonly auditId: string;
  readonly outcome: string;
}

/** What a worker tells the parent. */
export type WorkerMessage =
  | ReadyMessage
  | FailedMessage
  | PongMessage
  | LogsMessage
  | ExecutionsMessage
  | EndedMessage;

/** Those that are written as they are; finished calls have an encoder of their own. */
export type PlainWorkerMessage = Exclude<WorkerMessage, ExecutionsMessage>;

/** A message as the line to write. */
export function encodeMessage(message: ParentMessage | PlainWorkerMessage): string {
  return `${JSON.stringify(message)}\n`;
}

/** A line of a worker, or null when it is not a message of this protocol. Never throws. */
export function decodeWorkerMessage(line: string): WorkerMessage | null {
  const value = parseObject(line);
  if (value === null) {
    return null;
  }
  switch (value["type"]) {
    case "ready":
      return isCount(value["version"]) ? { type: "ready", version: value["version"] } : null;
    case "failed":
      return { type: "failed", message: text(value["message"], 2000) };
    case "pong": {
      const { seq, active, heapUsedBytes } = value;
      return isCount(seq) && isCount(active) && isCount(heapUsedBytes)
        ? { type: "pong", seq, active, heapUsedBytes }
        : null;
    }
    case "logs": {
      const lines = decodeList(value["lines"], decodeLogLine);
      return lines === null
        ? null
        : { type: "logs", lines, dropped: isCount(value["dropped"]) ? value["dropped"] : 0 };
    }
    case "executions":
      return decodeExecutions(value);
    case "ended":
      return {
        type: "ended",
        auditId: text(value["auditId"], 64),
        outcome: text(value["outcome"], 32),
      };
    default:
      return null;
  }
}

/** A line of the parent, or null when it is not a message of this protocol. */
export function decodeParentMessage(line: string): ParentMessage | null {
  const value = parseObject(line);
  if (value === null) {
    return null;
  }
  if (value["type"] === "ping") {
    return isCount(value["seq"]) ? { type: "ping", seq: value["seq"] } : null;
  }
  const { version, containerId, secret, socketPath, scriptsRoot, dataDir, env, limits } = value;
  if (
    value["type"] !== "start" ||
    !isCount(version) ||
    typeof containerId !== "string" ||
    typeof secret !== "string" ||
    typeof socketPath !== "string" ||
    typeof scriptsRoot !== "string" ||
    typeof dataDir !== "string" ||
    !isRecord(env) ||
    !Object.values(env).every((entry) => typeof entry === "string") ||
    !isRecord(limits) ||
    !LIMIT_NAMES.every((name) => isCount(limits[name]))
  ) {
    return null;
  }
  return {
    type: "start",
    version,
    containerId,
    secret,
    socketPath,
    scriptsRoot,
    dataDir,
    env: env as Record<string, string>,
    limits: limits as unknown as WorkerLimits,
    ...(typeof value["logsDir"] === "string" ? { logsDir: value["logsDir"] } : {}),
  };
}

/**
 * Splits a byte stream into lines. `push` returns false as soon as a line exceeds `maxBytes`: the peer does not
 * keep to the protocol and is to be ended.
 */
export function createLineReader(onLine: (line: string) => void, maxBytes = MAX_MESSAGE_BYTES) {
  let held: Buffer[] = [];
  let heldBytes = 0;
  return {
    push(chunk: Buffer): boolean {
      let from = 0;
      for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, from)) {
        const part = chunk.subarray(from, end);
        if (heldBytes + part.length > maxBytes) {
          return false;
        }
        const line = heldBytes === 0 ? part : Buffer.concat([...held, part]);
        held = [];
        heldBytes = 0;
        from = end + 1;
        onLine(line.toString("utf8"));
      }
      if (from < chunk.length) {
        const rest = chunk.subarray(from);
        held.push(rest);
        heldBytes += rest.length;
      }
      return heldBytes <= maxBytes;
    },
  };
}

const LIMIT_NAMES = [
  "maxBufferedBodyBytes",
  "ordinaryTimeoutMs",
  "upstreamConnectMs",
  "upstreamIdleMs",
  "maxHeaderBytes",
  "maxDeployments",
] as const satisfies readonly (keyof WorkerLimits)[];

function decodeLogLine(value: Record<string, unknown>): LogLine | null {
  const level = LOG_LEVELS.find((name) => name === value["level"]);
  if (level === undefined || !isCount(value["ts"])) {
    return null;
  }
  return {
    ts: value["ts"],
    level,
    executionId: text(value["executionId"], 64),
    script: text(value["script"], 512),
    auditId: auditId(value["auditId"]),
    msg: text(value["msg"], MAX_LOG_TEXT),
  };
}

function decodeList<T>(
  value: unknown,
  decode: (entry: Record<string, unknown>) => T | null,
): T[] | null {
  if (!isList(value, MAX_BATCH)) {
    return null;
  }
  const list: T[] = [];
  for (const entry of value) {
    const decoded = isRecord(entry) ? decode(entry) : null;
    if (decoded === null) {
      return null;
    }
    list.push(decoded);
  }
  return list;
}

function parseObject(line: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(line);
    return isRecord(value) ? value : null;
  } catch {
    return null; // a line that is no JSON is no message
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function text(value: unknown, max: number): string {
  return typeof value === "string" ? value.slice(0, max) : "";
}

function auditId(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value.slice(0, 64) : null;
}
