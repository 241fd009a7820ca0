import { spawn, type ChildProcess, type StdioOptions } from "node:child_process";
import { readFileSync } from "node:fs";
import type { Duplex, Readable } from "node:stream";
import {
  createLineReader,
  decodeWorkerMessage,
  encodeMessage,
  type ParentMessage,
  type WorkerMessage,
} from "../protocol.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import { WORKER_NODE_FLAGS } from "../worker/node-flags.ts";
import { wrapCommand, type Confinement } from "./confinement.ts";
import { findProgram, type ChildRole } from "./program.ts";

/**
 * The only module that starts processes for scripts (style: one door each). It knows flags and pipes; when a
 * worker is started, watched or replaced is the pool's matter.
 */

/** What one worker process may use. Paths are absolute. */
export interface ChildSpec {
  readonly role: ChildRole;
  /** Working directory; must exist. */
  readonly cwd: string;
  /** Files and folders it may read, besides the product's own sources. */
  readonly readPaths: readonly string[];
  /** Files and folders it may read and write. */
  readonly writePaths: readonly string[];
  /**
   * Ceiling of the JavaScript heap, in MiB. The resident size is watched by the pool; what grows between two looks
   * is refused by the kernel where a helper sets its limit.
   */
  readonly heapMb: number;
  readonly allowChildProcess: boolean;
  readonly user: { readonly uid: number; readonly gid: number } | null;
  readonly confinement: Confinement;
}

/** How a child process ended. */
export interface ChildExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** Who hears of a child's messages, output and end. */
export interface ChildHandlers {
  message(message: WorkerMessage): void;
  /** A line of the process's own output: crash reports of the runtime, or a script that writes there itself. */
  output(line: string): void;
  /** The worker broke the channel's rules; the caller ends it. */
  violation(detail: string): void;
  /** Last call: the process is gone and its pipes are closed or given up. */
  exit(exit: ChildExit): void;
}

/** A running worker process. */
export interface Child {
  /** The process of the script engine itself, behind any wrapper; known once it is ready. */
  enginePid(): number | null;
  send(message: ParentMessage): void;
  /** SIGKILL to the whole of it. Idempotent. */
  kill(): void;
  /** Gives the worker a fresh allowance of channel and output bytes; called by the pool's tick. */
  refill(): void;
  /** True while it is held back for having written more than its allowance. */
  readonly held: boolean;
}

/** Bytes a worker may write between two ticks; more makes it wait, so that a flood costs the parent little. */
const ALLOWANCE_BYTES = 262_144;
/** What a line or an entry costs the parent beside its bytes, so that a flood of short ones is no cheaper. */
const ENTRY_COST_BYTES = 64;
/** Lines of output taken between two ticks; the rest is counted. */
const MAX_OUTPUT_LINES = 100;
/** Address space the engine reserves at its start without using it (576 MiB measured), and room to spare. */
const ENGINE_DATA_MB = 1024;
const MAX_OUTPUT_LINE = 8192;
const OUTPUT_GRACE_MS = 50;
const PROBE_MS = 5000;

/**
 * Node's flags for a worker: the permission model with reads of its sources, scripts and data only, no child
 * processes, add-ons or threads unless allowed, and a bounded heap. `node:sqlite` opens files past the permission
 * model (seen on 24.21), so it is switched off; so is the debugger that a signal from outside would start.
 */
export function nodeFlags(spec: ChildSpec, ownPaths: readonly string[]): string[] {
  const flags = [
    "--permission",
    "--no-experimental-sqlite",
    "--disable-sigusr1",
    `--max-old-space-size=${spec.heapMb}`,
    ...WORKER_NODE_FLAGS,
  ];
  for (const path of [...ownPaths, ...spec.readPaths, ...spec.writePaths]) {
    flags.push(`--allow-fs-read=${path}`);
  }
  for (const path of spec.writePaths) {
    flags.push(`--allow-fs-write=${path}`);
  }
  if (spec.allowChildProcess) {
    flags.push("--allow-child-process");
  }
  return flags;
}

/**
 * Starts a worker. The environment is empty; `given` replaces the worker's program in tests.
 *
 * @throws when no process can be made at all; a program that cannot run is told by `exit`.
 */
export function startChild(
  clock: Clock,
  spec: ChildSpec,
  handlers: ChildHandlers,
  given?: string,
): Child {
  const { entry, readPaths: ownPaths } = findProgram(spec.role, given);
  const command = wrapCommand(spec.confinement, {
    command: process.execPath,
    args: [...nodeFlags(spec, ownPaths), entry],
    user: spec.user,
    readPaths: [process.execPath, ...ownPaths, ...spec.readPaths],
    writePaths: spec.writePaths,
    cwd: spec.cwd,
    maxDataBytes: (ENGINE_DATA_MB + 3 * spec.heapMb) * 1_048_576,
  });
  const stdio: StdioOptions = ["ignore", "pipe", "pipe", "pipe"];
  const process_ = spawn(command.command, command.args, {
    cwd: spec.cwd,
    env: {},
    stdio,
    detached: true, // a process group of its own, so that what it starts can be ended with it
    ...(command.user === null ? {} : { uid: command.user.uid, gid: command.user.gid }),
  });
  const channel = (process_.stdio as typeof process_.stdio | undefined)?.[3] as Duplex | undefined;
  if (!channel) {
    process_.on("error", () => {}); // comes later and says no more than this does
    throw new Error("no process can be started: this one has too many open files");
  }
  let gone = false;
  let spent = 0;
  let held = false;
  let outputLines = 0;
  let enginePid: number | null = null;
  const readable: Readable[] = [channel];

  /** Counts what the worker wrote; over the allowance everything waits for the next tick. */
  const charge = (bytes: number): void => {
    spent += bytes;
    if (spent > ALLOWANCE_BYTES && !held) {
      held = true;
      for (const stream of readable) {
        stream.pause();
      }
    }
  };

  const lines = createLineReader((line) => {
    const message = decodeWorkerMessage(line);
    if (message === null) {
      handlers.violation("a line that is no message");
      return;
    }
    charge(ENTRY_COST_BYTES * (1 + entriesOf(message)));
    if (message.type === "ready") {
      enginePid ??= findLeaf(process_.pid ?? 0);
    }
    handlers.message(message);
  });
  channel.on("data", (chunk: Buffer) => {
    charge(chunk.length);
    if (!gone && !lines.push(chunk)) {
      handlers.violation("a line that is too long");
    }
  });
  channel.on("error", () => {}); // a dying worker resets its end; the exit event tells

  for (const stream of [process_.stdout, process_.stderr]) {
    if (stream === null) {
      continue;
    }
    readable.push(stream);
    let rest = "";
    stream.setEncoding("utf8");
    stream.on("error", () => {}); // as above
    stream.on("data", (text: string) => {
      const parts = (rest + text).split("\n");
      rest = parts.pop() ?? "";
      charge(text.length + ENTRY_COST_BYTES * parts.length);
      if (rest.length > MAX_OUTPUT_LINE) {
        parts.push(rest);
        rest = "";
      }
      for (const part of parts) {
        if (part !== "" && ++outputLines <= MAX_OUTPUT_LINES) {
          handlers.output(part.slice(0, MAX_OUTPUT_LINE));
        }
      }
    });
  }

  const finish = (exit: ChildExit): void => {
    if (gone) {
      return;
    }
    gone = true;
    channel.destroy();
    process_.stdout?.destroy();
    process_.stderr?.destroy();
    handlers.exit(exit);
  };
  process_.on("exit", (code, signal) => {
    killGroup(process_);
    // Output still in the pipes (a crash report) is read for a moment; a grandchild may hold them open for ever.
    const timer = clock.after(OUTPUT_GRACE_MS, () => finish({ code, signal }));
    process_.on("close", () => {
      timer.cancel();
      finish({ code, signal });
    });
  });
  process_.on("error", (error) => {
    if (process_.pid === undefined) {
      handlers.output(`cannot start: ${error.message}`);
      finish({ code: null, signal: null });
    }
  });

  return {
    enginePid: () => enginePid,
    send(message) {
      if (!gone && channel.writable) {
        channel.write(encodeMessage(message));
      }
    },
    kill() {
      killAll(process_, enginePid);
    },
    refill() {
      spent = 0;
      if (outputLines > MAX_OUTPUT_LINES) {
        handlers.output(`${outputLines - MAX_OUTPUT_LINES} lines of output were left out`);
      }
      outputLines = 0;
      if (held) {
        held = false;
        for (const stream of readable) {
          stream.resume();
        }
      }
    },
    get held() {
      return held;
    },
  };
}

function entriesOf(message: WorkerMessage): number {
  switch (message.type) {
    case "logs":
      return message.lines.length;
    case "executions":
      return message.entries.length;
    default:
      return 0;
  }
}

/** Runs a helper program once and tells whether it worked; see `detectConfinement`. */
export function probeProgram(command: string, args: readonly string[]): Promise<boolean> {
  return new Promise((resolve) => {
    const tried = spawn(command, args, {
      env: {},
      stdio: "ignore",
      timeout: PROBE_MS,
      killSignal: "SIGKILL",
    });
    tried.on("error", () => resolve(false));
    tried.on("exit", (code) => resolve(code === 0));
  });
}

/** Resident size of a process in bytes; null when it is gone or the platform has no procfs. */
export function residentBytes(pid: number): number | null {
  try {
    const pages = Number(readFileSync(`/proc/${pid}/statm`, "latin1").split(" ")[1]);
    return Number.isFinite(pages) ? pages * PAGE_BYTES : null;
  } catch {
    return null; // ended between two looks
  }
}

/** CPU time that a process has used, in ms (steps of 10); null when it is gone or the platform has no procfs. */
export function usedCpuMs(pid: number): number | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The second field is the command in brackets and may hold anything; utime and stime are fields 14 and 15.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
  } catch {
    return null; // ended between two looks
  }
}

const TICK_MS = 10;
const PAGE_BYTES = 4096;

function killAll(outer: ChildProcess, enginePid: number | null): void {
  if (outer.exitCode !== null || outer.signalCode !== null) {
    return; // its number may already belong to another process
  }
  const inner = enginePid ?? findLeaf(outer.pid ?? 0);
  if (inner !== null && inner !== outer.pid) {
    try {
      process.kill(inner, "SIGKILL");
    } catch {
      // already gone
    }
  }
  killGroup(outer);
}

/** Whatever the worker started and did not set apart; needs no process namespace. */
function killGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) {
      process.kill(-pid, "SIGKILL");
    }
  } catch {
    // nobody left
  }
}

/** Follows the only children down from a wrapper to the engine. */
function findLeaf(pid: number): number | null {
  let leaf = pid;
  for (let depth = 0; depth < 4 && leaf > 0; depth++) {
    let children: string[];
    try {
      children = readFileSync(`/proc/${leaf}/task/${leaf}/children`, "latin1").trim().split(" ");
    } catch {
      break; // no procfs, or gone
    }
    const next = Number(children[0]);
    if (children.length !== 1 || !(next > 0)) {
      break;
    }
    leaf = next;
  }
  return leaf > 0 ? leaf : null;
}
