import { spawn } from "node:child_process";
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import type { OutgoingHttpHeaders } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Duplex, Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import type { Envelope, HookEnvelope } from "../../dispatcher/envelope.ts";
import type { ExecutionRecord } from "../../exec-host/execution-records.ts";
import {
  createLineReader,
  decodeWorkerMessage,
  encodeMessage,
  PROTOCOL_VERSION,
  type EndedMessage,
  type LogLine,
  type WorkerLimits,
} from "../../exec-host/protocol.ts";
import { WORKER_NODE_FLAGS } from "../../exec-host/worker/node-flags.ts";
import { callWorker, type WorkerAnswer } from "./frame-call.ts";

export const WORKER_SECRET = "a-secret-of-the-test";
const repository = fileURLToPath(new URL("../../", import.meta.url));

export interface WorkerCall {
  readonly method?: string;
  readonly url?: string;
  readonly headers?: OutgoingHttpHeaders | readonly string[];
  readonly body?: string | Buffer | Readable;
  readonly signal?: AbortSignal;
  /** Given the response stream instead of reading it whole. */
  readonly onResponse?: (response: Readable) => void;
}

export interface TestWorker {
  readonly scriptsRoot: string;
  readonly dataDir: string;
  readonly socketPath: string;
  readonly pid: number;
  /** ms from spawn to the ready message. */
  readonly startMs: number;
  readonly logs: readonly LogLine[];
  readonly executions: readonly ExecutionRecord[];
  readonly ended: readonly EndedMessage[];
  /** Log lines the worker dropped itself. */
  readonly droppedLines: () => number;
  readonly output: () => string;
  readonly isRunning: () => boolean;
  /** Writes a script below the scripts root. */
  write(path: string, text: string): Promise<void>;
  /** A hook dispatch for `script`, with the envelope's other fields as given. */
  hook(script: string, call?: WorkerCall, envelope?: Partial<HookEnvelope>): Promise<WorkerAnswer>;
  /** An ordinary call of the exec service. */
  ordinary(url: string, call?: WorkerCall, envelope?: Partial<Envelope>): Promise<WorkerAnswer>;
  /** Waits until `test` holds for the log so far. */
  untilLogged(test: (line: LogLine) => boolean, timeoutMs?: number): Promise<LogLine>;
  stop(): Promise<void>;
}

export interface WorkerOptions {
  readonly limits?: Partial<WorkerLimits>;
  readonly env?: Readonly<Record<string, string>>;
  readonly scripts?: Readonly<Record<string, string>>;
  /** More permission flags, in front of the program. */
  readonly flags?: readonly string[];
}

const LIMITS: WorkerLimits = {
  maxBufferedBodyBytes: 33_554_432,
  ordinaryTimeoutMs: 3_600_000,
  upstreamConnectMs: 3000,
  upstreamIdleMs: 300_000,
  maxHeaderBytes: 32_768,
  maxDeployments: 1000,
};

/** Starts a real worker process the way the pool does: permission flags, empty environment, a channel on fd 3. */
export async function startWorker(options: WorkerOptions = {}): Promise<TestWorker> {
  const home = await realpath(await mkdtemp(join(tmpdir(), "interpose-worker-")));
  const scriptsRoot = join(home, "scripts");
  const dataDir = join(home, "data");
  const runDir = join(home, "run");
  await Promise.all([scriptsRoot, dataDir, runDir].map((folder) => mkdir(folder)));
  const write = async (path: string, text: string): Promise<void> => {
    await mkdir(dirname(join(scriptsRoot, path)), { recursive: true });
    await writeFile(join(scriptsRoot, path), text);
  };
  for (const [path, text] of Object.entries(options.scripts ?? {})) {
    await write(path, text);
  }
  const socketPath = join(runDir, "worker.sock");
  const startedAt = performance.now();
  const child = spawn(
    process.execPath,
    [
      "--permission",
      "--no-warnings",
      ...WORKER_NODE_FLAGS,
      `--allow-fs-read=${repository}exec-host/`,
      `--allow-fs-read=${repository}policy/kernel/`,
      `--allow-fs-read=${repository}dispatcher/`,
      `--allow-fs-read=${repository}package.json`,
      `--allow-fs-read=${repository}node_modules/acorn/`,
      `--allow-fs-read=${scriptsRoot}`,
      `--allow-fs-read=${dataDir}`,
      `--allow-fs-write=${dataDir}`,
      `--allow-fs-read=${runDir}`,
      `--allow-fs-write=${runDir}`,
      ...(options.flags ?? []),
      join(repository, "exec-host/worker/main.ts"),
    ],
    { cwd: dataDir, env: {}, stdio: ["ignore", "pipe", "pipe", "pipe"] },
  );
  const channel = child.stdio[3] as Duplex;
  const logs: LogLine[] = [];
  const executions: ExecutionRecord[] = [];
  const ended: EndedMessage[] = [];
  const watchers = new Set<() => void>();
  let output = "";
  let dropped = 0;
  let startMs = 0;
  child.stdout?.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr?.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  await new Promise<void>((resolve, reject) => {
    const lines = createLineReader((line) => {
      const message = decodeWorkerMessage(line);
      if (message?.type === "ready") {
        startMs = performance.now() - startedAt;
        resolve();
      } else if (message?.type === "failed") {
        reject(new Error(message.message));
      } else if (message?.type === "logs") {
        logs.push(...message.lines);
        dropped += message.dropped;
        for (const watcher of watchers) {
          watcher();
        }
      } else if (message?.type === "executions") {
        executions.push(...message.entries);
      } else if (message?.type === "ended") {
        ended.push(message);
      }
    });
    channel.on("data", (chunk: Buffer) => lines.push(chunk));
    channel.on("error", () => {});
    child.once("exit", (code) => reject(new Error(`worker ended (${code}): ${output}`)));
    channel.write(
      encodeMessage({
        type: "start",
        version: PROTOCOL_VERSION,
        containerId: "890abcdef12345678901cdef",
        secret: WORKER_SECRET,
        socketPath,
        scriptsRoot,
        dataDir,
        env: options.env ?? {},
        limits: { ...LIMITS, ...options.limits },
      }),
    );
  });

  const at = { path: socketPath, secret: WORKER_SECRET };
  return {
    scriptsRoot,
    dataDir,
    socketPath,
    pid: child.pid ?? 0,
    startMs,
    logs,
    executions,
    ended,
    droppedLines: () => dropped,
    output: () => output,
    isRunning: () => child.exitCode === null && child.signalCode === null,
    write,
    hook(script, call = {}, envelope = {}) {
      const url = call.url ?? "/";
      const full: HookEnvelope = {
        kind: "hook",
        auditId: "550e8400-e29b-41d4-a716-446655440000",
        method: call.method ?? "GET",
        path: url.split("?")[0] ?? "/",
        service: "terminal",
        upstreamHost: "127.0.0.1",
        upstreamPort: 9,
        subdomain: null,
        execId: null,
        scriptPath: script,
        timeoutMs: 10_000,
        clientAddress: "203.0.113.7",
        ...envelope,
      };
      return callWorker(at, full, { ...call, fields: toFields(call) });
    },
    ordinary(url, call = {}, envelope = {}) {
      const full = {
        kind: "ordinary",
        subdomain: null,
        execId: null,
        clientAddress: "203.0.113.7",
        manage: false,
        ...envelope,
      } as Envelope;
      return callWorker(at, full, { ...call, url, fields: toFields(call) });
    },
    untilLogged(test, timeoutMs = 10_000) {
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => {
          watchers.delete(look);
          reject(new Error(`not logged; the log has ${JSON.stringify(logs.map((l) => l.msg))}`));
        }, timeoutMs);
        const look = (): void => {
          const line = logs.find(test);
          if (line !== undefined) {
            clearTimeout(timer);
            watchers.delete(look);
            resolve(line);
          }
        };
        watchers.add(look);
        look();
      });
    },
    async stop() {
      child.kill("SIGKILL");
      await exited;
      await rm(home, { recursive: true, force: true });
    },
  };
}

function toFields(call: WorkerCall): string[] {
  const given = call.headers ?? {};
  const lines = Array.isArray(given)
    ? [...(given as readonly string[])]
    : Object.entries(given as OutgoingHttpHeaders).flatMap(([name, value]) =>
        [value].flat().flatMap((one) => [name, String(one)]),
      );
  if (!lines.some((name, at) => at % 2 === 0 && name.toLowerCase() === "host")) {
    lines.push("Host", "service.example");
  }
  return lines;
}
