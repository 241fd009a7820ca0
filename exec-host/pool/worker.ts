import { chmodSync, chownSync, mkdirSync, realpathSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import type { ExecEndpoint } from "../../dispatcher/envelope.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import { newToken } from "../../policy/kernel/ids.ts";
import { PROTOCOL_VERSION, type WorkerLimits, type WorkerMessage } from "../protocol.ts";
import { residentBytes, startChild, usedCpuMs, type Child } from "./child.ts";
import type { Confinement } from "./confinement.ts";
import type { ChildRole } from "./program.ts";

/** What a container's worker runs with; the `embedded` form of a container's `exec` entry (contract.md 2). */
export interface ExecContainer {
  /** Root of the scripts, absolute. */
  readonly scripts: string;
  /** Ceiling of the resident size of the whole process. */
  readonly memoryMb: number;
  /** Longest uninterrupted run before the worker is replaced. */
  readonly cpuMs: number;
  /** `uid:gid` to run as, when this process is root. */
  readonly user: string | null;
  readonly allow: {
    readonly childProcess: boolean;
    readonly read: readonly string[];
    readonly write: readonly string[];
  };
}

/** Why a worker ended; the label of `interpose_exec_restarts_total`. */
export type EndReason = "cpu" | "memory" | "crash" | "deploy" | "idle";

/** What {@link startWorker} builds on. */
export interface WorkerDeps {
  readonly role: ChildRole;
  readonly clock: Clock;
  readonly confinement: Confinement;
  /** Below it: `containers/<id>/data`. */
  readonly dataDir: string;
  /** Private folder for sockets. */
  readonly runDir: string;
  /** Environment of scripts, before their own files. */
  readonly env: Readonly<Record<string, string>>;
  readonly limits: WorkerLimits;
  readonly startMs: number;
  /** Another program instead of the worker's, for tests. */
  readonly entry?: string | undefined;
}

/** Who hears of a worker's messages, output and end. */
export interface WorkerEvents {
  message(message: WorkerMessage): void;
  output(line: string): void;
  /** The process is gone. `reason` is what it was ended for, or `crash` / `memory` when it ended by itself. */
  end(reason: EndReason, detail: string): void;
}

/** One worker process and what is known of its health. */
export interface Worker {
  readonly generation: number;
  readonly endpoint: ExecEndpoint;
  readonly startedAt: number;
  readonly state: "starting" | "ready" | "ending" | "gone";
  /** Resolves when requests may be sent; rejects when it ended or took too long before that. */
  readonly ready: Promise<void>;
  readonly gone: Promise<void>;
  readonly pid: number | null;
  readonly active: number;
  /** Answered pings so far: after two of them it has seen everything that was sent before the first. */
  readonly pongs: number;
  readonly rssBytes: number;
  /** ms that the oldest unanswered ping waits; 0 when none does. */
  waitingMs(now: number): number;
  /** CPU time it used meanwhile: little means that it was not let run, rather than that it does not come to an end. */
  busyMs(now: number): number;
  ping(now: number): void;
  /** Leaves out a time in which this process itself did not run. */
  excuse(ms: number): void;
  /** Looks at its memory and lets it write again. */
  inspect(): void;
  /** Looks whether the process still runs; false, and no longer ready, when it does not. */
  checkAlive(): boolean;
  end(reason: EndReason, detail: string): void;
}

const MIN_HEAP_MB = 32;
/** What a worker's process takes besides the JavaScript heap. */
const RUNTIME_MB = 48;
/** Scripts get at least so much over the size the process has when it is ready. */
const MIN_ROOM_BYTES = 33_554_432;

/**
 * Starts a worker for a container and races its readiness against its exit and a timer.
 *
 * @throws when its folders cannot be made.
 */
export function startWorker(
  deps: WorkerDeps,
  containerId: string,
  container: ExecContainer,
  generation: number,
  events: WorkerEvents,
): Worker {
  const { clock } = deps;
  const user = deps.confinement.root ? parseUser(container.user) : null;
  const dataDir = join(deps.dataDir, "containers", containerId, "data");
  const socketDir = join(deps.runDir, `${generation}-${newToken(6)}`);
  const logsDir = join(deps.dataDir, "containers", containerId, "logs");
  const manages = deps.role === "manage";
  const scriptsRoot = makeScriptsRoot(container.scripts, user);
  makeFolders(deps, [dataDir, socketDir], logsDir, user);
  const secret = newToken();
  const socketPath = join(socketDir, "s");

  let state: Worker["state"] = "starting";
  let endReason: EndReason | null = null;
  let endDetail = "";
  let lastOutput = "";
  let sawHeapLimit = false;
  let active = 0;
  let pongs = 0;
  let rssBytes = 0;
  let baseBytes = 0;
  let seq = 0;
  let pingAt: number | null = null;
  let cpuAtPing: number | null = null;
  const ready = Promise.withResolvers<void>();
  ready.promise.catch(() => {}); // a caller may have given up waiting; the end is logged by the pool
  const gone = Promise.withResolvers<void>();

  const end = (reason: EndReason, detail: string): void => {
    if (endReason !== null || state === "gone") {
      return;
    }
    endReason = reason;
    endDetail = detail;
    state = "ending";
    ready.reject(new Error(`worker ended before it was ready: ${detail}`));
    child.kill();
  };

  const child: Child = orRemove(socketDir, () =>
    startChild(
      clock,
      {
        role: deps.role,
        cwd: manages ? logsDir : dataDir,
        readPaths: manages ? [`${logsDir}/`] : [`${scriptsRoot}/`, ...container.allow.read],
        writePaths: manages
          ? [`${scriptsRoot}/`, `${socketDir}/`]
          : [`${dataDir}/`, `${socketDir}/`, ...container.allow.write],
        heapMb: Math.max(MIN_HEAP_MB, container.memoryMb - RUNTIME_MB),
        allowChildProcess: !manages && container.allow.childProcess,
        user,
        confinement: deps.confinement,
      },
      {
        message(message) {
          if (state === "gone") {
            return;
          }
          switch (message.type) {
            case "ready":
              if (message.version !== PROTOCOL_VERSION) {
                end("crash", `speaks protocol version ${message.version}`);
              } else if (state === "starting") {
                state = "ready";
                baseBytes = residentBytes(child.enginePid() ?? 0) ?? 0;
                startTimer.cancel();
                ready.resolve();
              }
              return;
            case "failed":
              end("crash", message.message);
              return;
            case "pong":
              active = message.active;
              if (message.seq === seq) {
                pingAt = null;
              }
              return;
            case "logs":
            case "executions":
            case "ended":
              events.message(message);
          }
        },
        output(line) {
          lastOutput = line;
          sawHeapLimit ||= line.includes("heap out of memory");
          events.output(line);
        },
        violation: (detail) => end("crash", `broke the channel protocol: ${detail}`),
        exit(exit) {
          startTimer.cancel();
          const early = state === "starting";
          state = "gone";
          const detail =
            endReason === null
              ? `exited with ${exit.signal ?? `code ${exit.code ?? "?"}`}${early ? ` before it was ready: ${lastOutput.slice(0, 300)}` : ""}`
              : endDetail;
          const reason = endReason ?? (sawHeapLimit ? "memory" : "crash");
          rmSync(socketDir, { recursive: true, force: true });
          ready.reject(new Error(`worker ended before it was ready: ${detail}`));
          gone.resolve();
          events.end(reason, detail);
        },
      },
      deps.entry,
    ),
  );
  const startTimer = clock.after(deps.startMs, () =>
    end("crash", `was not ready within ${deps.startMs} ms`),
  );
  child.send({
    type: "start",
    version: PROTOCOL_VERSION,
    containerId,
    secret,
    socketPath,
    scriptsRoot,
    dataDir,
    env: deps.env,
    limits: deps.limits,
    ...(manages ? { logsDir } : {}),
  });

  return {
    generation,
    endpoint: { origin: { kind: "unix", path: socketPath }, secret, generation },
    startedAt: clock.monotonic(),
    get state() {
      return state;
    },
    ready: ready.promise,
    gone: gone.promise,
    get pid() {
      return child.enginePid();
    },
    get active() {
      return active;
    },
    get pongs() {
      return pongs;
    },
    get rssBytes() {
      return rssBytes;
    },
    waitingMs: (now) => (pingAt === null ? 0 : Math.max(0, now - pingAt)),
    busyMs(now) {
      const used = pingAt === null ? null : usedCpuMs(child.enginePid() ?? 0);
      return used === null || cpuAtPing === null ? this.waitingMs(now) : used - cpuAtPing;
    },
    ping(now) {
      if (state === "ready" && pingAt === null) {
        seq++;
        pingAt = now;
        cpuAtPing = usedCpuMs(child.enginePid() ?? 0);
        child.send({ type: "ping", seq });
      }
    },
    excuse(ms) {
      if (pingAt !== null) {
        pingAt += ms;
      }
    },
    inspect() {
      if (child.held && pingAt !== null) {
        pingAt = clock.monotonic(); // its pong may wait behind what we did not read yet
      }
      child.refill();
      const pid = child.enginePid();
      if (state !== "ready" || pid === null) {
        return;
      }
      rssBytes = residentBytes(pid) ?? 0;
      // A limit below what the engine itself needs would only restart it for ever.
      const limit = Math.max(container.memoryMb * 1_048_576, baseBytes + MIN_ROOM_BYTES);
      if (rssBytes > limit) {
        end("memory", `took ${Math.round(rssBytes / 1_048_576)} MiB of ${container.memoryMb}`);
      }
    },
    checkAlive() {
      const pid = child.enginePid();
      if (state === "ready" && pid !== null && !residentBytes(pid)) {
        state = "ending"; // the exit event, which knows more, is on its way
      }
      return state === "ready";
    },
    end,
  };
}

/** `uid:gid` of the configuration; null for none. */
export function parseUser(text: string | null): { uid: number; gid: number } | null {
  const match = text === null ? null : /^(\d{1,9}):(\d{1,9})$/.exec(text);
  return match === null ? null : { uid: Number(match[1]), gid: Number(match[2]) };
}

/** What `make` gives; when it throws, the folder made for it goes. */
function orRemove<T>(folder: string, make: () => T): T {
  try {
    return make();
  } catch (cause) {
    rmSync(folder, { recursive: true, force: true });
    throw cause;
  }
}

/** A scripts root that is not there yet is made, so that the first script can be written into it. */
function makeScriptsRoot(folder: string, user: { uid: number; gid: number } | null): string {
  try {
    const made = mkdirSync(folder, { recursive: true, mode: 0o750 });
    if (made !== undefined && user !== null) {
      chownSync(folder, user.uid, user.gid);
    }
  } catch {
    // something is in its way, or the place is read-only: the worker finds no scripts then
  }
  try {
    // Permissions are granted by name: a link in the configured path would name other files than the ones read.
    return realpathSync(folder);
  } catch {
    return folder; // not there
  }
}

/**
 * The data and socket folders, private to the user the worker runs as. Another user must be able to pass through
 * the folders above: they get the search bit (0711), which lets nobody list them.
 */
function makeFolders(
  deps: WorkerDeps,
  own: readonly string[],
  logsDir: string,
  user: { uid: number; gid: number } | null,
): void {
  for (const folder of own) {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  }
  mkdirSync(logsDir, { recursive: true, mode: 0o750 });
  if (user === null) {
    return;
  }
  for (const folder of own) {
    chownSync(folder, user.uid, user.gid);
    chmodSync(folder, 0o700);
  }
  chownSync(logsDir, -1, user.gid);
  const container = dirname(logsDir);
  // Ours alone: where sockets had to go to the system's temporary folder, that one is not touched.
  const ways = [
    container,
    dirname(container),
    deps.dataDir,
    join(deps.dataDir, "run"),
    deps.runDir,
  ];
  for (const folder of ways) {
    chmodSync(folder, 0o711);
  }
}
