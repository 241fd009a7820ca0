import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync, readdirSync } from "node:fs";
import type { Readable } from "node:stream";
import type { Clock } from "../../policy/kernel/clock.ts";
import { newHex } from "../../policy/kernel/ids.ts";
import { openOutputPipes } from "./output-pipes.ts";
import type { OutputPipes } from "./output-pipes.ts";

/** A command line for bash and the limits around it. */
export interface CommandSpec {
  /** Text for `bash --norc --noprofile -c`. */
  readonly command: string;
  /** Absolute, existing. */
  readonly cwd: string;
  /** The whole environment; nothing is inherited. */
  readonly env: Readonly<Record<string, string>>;
  /** Written to standard input, then end of file; null: `/dev/null`. */
  readonly stdin: string | null;
  /** From launch; at its end the group gets SIGTERM, and SIGKILL after `killGraceMs`. */
  readonly timeoutMs: number;
  /** 0: SIGKILL at once. */
  readonly killGraceMs: number;
  /** Bytes kept of each output; the rest is read and dropped. */
  readonly maxOutputBytes: number;
  /** Which end of a longer output is kept; `ends`: a quarter from the beginning, the rest from the end, and how much is missing. */
  readonly keep: "head" | "tail" | "ends";
  /** Both outputs in one, in the order they were written; `stderr` is then empty. */
  readonly mergeOutput: boolean;
  /** `**` in a path reaches into subfolders, as it does in every other tool. */
  readonly globstar?: boolean;
  /** Put before the command, for example a sandbox launcher; ends where the command's own words begin. */
  readonly launcher?: readonly string[];
}

/** How a command ended. */
export interface CommandOutcome {
  readonly kind: "exited" | "timed_out" | "cancelled" | "not_launched";
  /** null unless the process ended by itself without a signal. */
  readonly exitCode: number | null;
  /** The signal that ended it, `SIGKILL` after a forced end. */
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly truncated: boolean;
  readonly durationMs: number;
  /** Why it was not launched, an errno name. */
  readonly cause?: string;
}

/** How long output may trail a process that has ended and whose group has been killed. */
const DRAIN_MS = 250;
/** How long a process may take to go after SIGKILL; an uninterruptible one must not hold the call. */
const STUCK_MS = 2000;
const RUN_MARK = "INTERPOSE_RUN";
const PLAIN_BASH = ["bash", "--norc", "--noprofile"] as const;

/**
 * Runs one command in a process group of its own and always resolves. The call is over when the process ends, its time
 * is up or `signal` aborts, never when a pipe closes: whatever the command left behind is killed with its group, and what
 * left the group is found by the mark in its environment (a process that both leaves and clears it escapes where no
 * sandbox is at hand).
 *
 * All three streams are pipes (standard input may be `/dev/null`), never the socket pairs Node makes (decision 53): a
 * socket cannot be opened by the name `/dev/stderr`.
 */
export async function runCommand(
  spec: CommandSpec,
  clock: Clock,
  signal: AbortSignal,
): Promise<CommandOutcome> {
  const startedAt = clock.monotonic();
  const stdout = collect(spec.maxOutputBytes, spec.keep);
  const stderr = collect(spec.maxOutputBytes, spec.keep);
  const ended = (how: Pick<CommandOutcome, "kind"> & Partial<CommandOutcome>): CommandOutcome => ({
    exitCode: null,
    signal: null,
    stdout: stdout.text(),
    stderr: stderr.text(),
    truncated: stdout.truncated() || stderr.truncated(),
    durationMs: Math.round(clock.monotonic() - startedAt),
    ...how,
  });
  // a full or missing temporary folder must not keep a guard from running: then with the streams Node makes
  const pipes = signal.aborted ? null : await openOutputPipes().catch(() => null);
  const streams: Readable[] = [];
  try {
    if (signal.aborted) {
      return ended({ kind: "cancelled" });
    }
    const mark = newHex(12);
    const child = launch(spec, mark, pipes);
    const exit = untilExit(child, mark, spec, clock, signal);
    pipes?.release();
    for (const [output, stream] of [
      [stdout, pipes?.stdout ?? child.stdout],
      [stderr, pipes?.stderr ?? child.stderr],
    ] as const) {
      if (stream !== null) {
        streams.push(stream.on("data", output.add).on("error", ignore));
      }
    }
    if (spec.stdin !== null) {
      child.stdin?.on("error", ignore).end(spec.stdin); // a command need not read its input
    }
    const how = await exit;
    child.stdin?.destroy();
    await untilDrained(clock, streams);
    return ended(how);
  } catch (error) {
    return ended({ kind: "not_launched", cause: causeOf(error) });
  } finally {
    pipes?.destroy();
    streams.forEach((stream) => stream.destroy());
  }
}

function launch(spec: CommandSpec, mark: string, pipes: OutputPipes | null): ChildProcess {
  // the outer shell replaces itself; it only turns Node's socket pairs into what the command may see
  const redirect =
    (spec.stdin === null ? "" : " < <(exec cat)") +
    (spec.mergeOutput && pipes === null ? " 2>&1" : "");
  const shell = [...PLAIN_BASH, ...(spec.globstar === true ? ["-O", "globstar"] : [])];
  const inner = [...(spec.launcher ?? []), ...shell, "-c", spec.command];
  const argv =
    redirect === "" ? inner : [...PLAIN_BASH, "-c", `exec "$@"${redirect}`, "interpose", ...inner];
  const [out, err] = pipes?.childFds ?? (["pipe", spec.mergeOutput ? "ignore" : "pipe"] as const);
  return spawn(argv[0] ?? "bash", argv.slice(1), {
    cwd: spec.cwd,
    env: { ...spec.env, [RUN_MARK]: mark },
    detached: true,
    stdio: [
      spec.stdin === null ? "ignore" : "pipe",
      out,
      spec.mergeOutput && pipes !== null ? out : err,
    ],
  });
}

type Exit = Pick<CommandOutcome, "kind"> & Partial<CommandOutcome>;

/** Resolves when the process has ended or is given up, with everything it started killed. */
function untilExit(
  child: ChildProcess,
  mark: string,
  spec: CommandSpec,
  clock: Clock,
  signal: AbortSignal,
): Promise<Exit> {
  return new Promise((resolve) => {
    let stopped: "timed_out" | "cancelled" | null = null;
    const forced = (): void => {
      killGroup(child, "SIGKILL");
      killMarked(mark, child.pid);
    };
    const finish = (how: Exit): void => {
      deadline.cancel();
      grace?.cancel();
      signal.removeEventListener("abort", onAbort);
      forced();
      resolve(how);
    };
    const giveUp = (): void => {
      forced();
      grace = clock.after(STUCK_MS, () => finish({ kind: stopped ?? "exited", signal: "SIGKILL" }));
    };
    const stop = (why: "timed_out" | "cancelled"): void => {
      if (stopped !== null) {
        return;
      }
      stopped = why;
      if (spec.killGraceMs === 0) {
        giveUp();
        return;
      }
      killGroup(child, "SIGTERM");
      grace = clock.after(spec.killGraceMs, giveUp);
    };
    const onAbort = (): void => stop("cancelled");
    let grace: ReturnType<Clock["after"]> | undefined;
    const deadline = clock.after(spec.timeoutMs, () => stop("timed_out"));
    signal.addEventListener("abort", onAbort, { once: true });
    child.once("error", (error) => {
      if (child.pid === undefined) {
        finish({ kind: "not_launched", cause: causeOf(error) });
      }
    });
    child.once("exit", (code, exitSignal) =>
      finish({
        kind: stopped ?? "exited",
        exitCode: stopped === null ? code : null,
        signal: exitSignal,
      }),
    );
  });
}

/** The last output may still be in the pipe; a process that escaped with a copy of it is not waited for. */
async function untilDrained(clock: Clock, streams: readonly Readable[]): Promise<void> {
  const open = streams.filter((stream) => !stream.closed && !stream.readableEnded);
  const drained = Promise.all(open.map((stream) => once(stream, "close").catch(ignore)));
  let timer: ReturnType<Clock["after"]> | undefined;
  const late = new Promise<void>((resolve) => {
    timer = clock.after(DRAIN_MS, resolve);
  });
  await Promise.race([drained, late]);
  timer?.cancel();
}

/** Kills the group of a process that was started detached; a group that is gone is fine. */
export function killGroup(child: ChildProcess, signal: "SIGTERM" | "SIGKILL"): void {
  if (child.pid === undefined) {
    return;
  }
  try {
    process.kill(-child.pid, signal);
  } catch {
    // ESRCH: nothing of the group is left
  }
}

/** Kills processes that left the group but still carry the run's mark; `leader` is older than all of them. */
function killMarked(mark: string, leader: number | undefined): void {
  if (leader !== undefined) {
    killProcessesWith(`${RUN_MARK}=${mark}`, leader);
  }
}

/**
 * Kills every process of ours whose environment holds `entry` (`NAME=value`); several rounds, because they may be forking.
 *
 * @param olderThan a process id that none of them is older than; 0: look at all.
 */
export function killProcessesWith(entry: string, olderThan = 0): void {
  if (process.platform !== "linux") {
    return;
  }
  for (let round = 0; round < 4; round++) {
    const found = laterPids(olderThan).filter((pid) =>
      environmentOf(pid).split("\0").includes(entry),
    );
    if (found.length === 0) {
      return;
    }
    for (const pid of found) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // it ended meanwhile
      }
    }
  }
}

/** Processes that can descend from `leader`, itself left out: younger ones, or all when process ids wrapped since. */
function laterPids(leader: number): number[] {
  try {
    const last = Number(readFileSync("/proc/loadavg", "latin1").trim().split(" ").at(-1));
    const pids = readdirSync("/proc").map(Number).filter(Number.isInteger);
    return pids.filter(
      (pid) => pid !== process.pid && (last < leader ? pid !== leader : pid > leader),
    );
  } catch {
    return [];
  }
}

function environmentOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1");
  } catch {
    return ""; // gone, or another user's
  }
}

interface Output {
  readonly add: (chunk: Buffer) => void;
  text(): string;
  readonly truncated: () => boolean;
}

/** Keeps at most `limit` bytes of a stream of any length. */
function collect(limit: number, keep: CommandSpec["keep"]): Output {
  const headLimit = keep === "head" ? limit : keep === "ends" ? Math.floor(limit / 4) : 0;
  const tailLimit = limit - headLimit;
  const head: Buffer[] = [];
  let headBytes = 0;
  let tail: Buffer[] = [];
  let tailBytes = 0;
  let total = 0;

  const trim = (): void => {
    const joined = Buffer.concat(tail, tailBytes);
    tail = [Buffer.from(joined.subarray(Math.max(0, tailBytes - tailLimit)))];
    tailBytes = Math.min(tailBytes, tailLimit);
  };

  return {
    add(chunk) {
      total += chunk.length;
      const room = headLimit - headBytes;
      if (room > 0) {
        // a copy: the slice would keep the whole read buffer alive
        const part = Buffer.from(chunk.subarray(0, room));
        head.push(part);
        headBytes += part.length;
      }
      const rest = chunk.subarray(Math.max(0, room));
      if (tailLimit > 0 && rest.length > 0) {
        tail.push(rest);
        tailBytes += rest.length;
        if (tailBytes > 2 * tailLimit + 65_536) {
          trim();
        }
      }
    },
    text() {
      trim();
      const missing = total - headBytes - tailBytes;
      const kept = [...head, ...tail];
      if (missing === 0 || keep !== "ends") {
        return Buffer.concat(kept).toString("utf8");
      }
      const first = Buffer.concat(head).toString("utf8");
      const last = Buffer.concat(tail).toString("utf8");
      return `${first}\n[… ${missing} bytes left out …]\n${last}`;
    },
    truncated: () => total > limit,
  };
}

function causeOf(error: unknown): string {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : "unknown";
}

function ignore(): void {
  // a broken pipe is the command's own choice; how it ended says the rest
}
