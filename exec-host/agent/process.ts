import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import type { Clock } from "../../policy/kernel/clock.ts";
import { newHex } from "../../policy/kernel/ids.ts";

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
  /** Which end of a longer output is kept. */
  readonly keep: "head" | "tail";
  /** Both outputs in one, in the order they were written; `stderr` is then empty. */
  readonly mergeOutput: boolean;
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
const RUN_MARK = "INTERPOSE_RUN";
const PLAIN_BASH = ["bash", "--norc", "--noprofile", "-c"] as const;

/**
 * Runs one command in a process group of its own and always resolves. The call is over when the process ends, its time
 * is up or `signal` aborts, never when a pipe closes: whatever the command left behind is killed with its group, and what
 * left the group is found by the mark in its environment (a process that both leaves and clears it escapes where no
 * sandbox is at hand).
 *
 * Standard input is a pipe or `/dev/null`, never the socket pair Node makes (decision 53).
 */
export function runCommand(
  spec: CommandSpec,
  clock: Clock,
  signal: AbortSignal,
): Promise<CommandOutcome> {
  const startedAt = clock.monotonic();
  const mark = newHex(8);
  if (signal.aborted) {
    return Promise.resolve(ended("cancelled", null, null, noOutput(), noOutput(), 0));
  }
  let child: ChildProcess;
  try {
    child = launch(spec, mark);
  } catch (error) {
    return Promise.resolve({
      ...ended("not_launched", null, null, noOutput(), noOutput(), 0),
      cause: causeOf(error),
    });
  }
  return new Promise((resolve) => {
    const stdout = collect(spec.maxOutputBytes, spec.keep);
    const stderr = collect(spec.maxOutputBytes, spec.keep);
    let stopped: "timed_out" | "cancelled" | null = null;
    let settled = false;

    child.stdout?.on("data", stdout.add).on("error", ignore);
    child.stderr?.on("data", stderr.add).on("error", ignore);
    if (spec.stdin !== null) {
      child.stdin?.on("error", ignore).end(spec.stdin);
    }

    const forced = (): void => {
      killGroup(child, "SIGKILL");
      killMarked(mark, child.pid);
    };
    const stop = (why: "timed_out" | "cancelled"): void => {
      if (stopped !== null || settled) {
        return;
      }
      stopped = why;
      if (spec.killGraceMs === 0) {
        forced();
        return;
      }
      killGroup(child, "SIGTERM");
      grace = clock.after(spec.killGraceMs, forced);
    };
    let grace = clock.after(spec.timeoutMs, () => stop("timed_out"));
    const deadline = grace;
    const onAbort = (): void => stop("cancelled");
    signal.addEventListener("abort", onAbort, { once: true });

    const settle = (outcome: CommandOutcome): void => {
      if (settled) {
        return;
      }
      settled = true;
      deadline.cancel();
      grace.cancel();
      signal.removeEventListener("abort", onAbort);
      child.stdin?.destroy();
      child.stdout?.destroy();
      child.stderr?.destroy();
      resolve(outcome);
    };

    child.once("error", (error) => {
      const outcome = ended(
        "not_launched",
        null,
        null,
        stdout,
        stderr,
        clock.monotonic() - startedAt,
      );
      settle({ ...outcome, cause: causeOf(error) });
    });
    child.once("exit", (code, exitSignal) => {
      forced();
      const finish = (): void =>
        settle(
          ended(
            stopped ?? "exited",
            stopped === null ? code : null,
            exitSignal,
            stdout,
            stderr,
            clock.monotonic() - startedAt,
          ),
        );
      const drained = clock.after(DRAIN_MS, finish);
      child.once("close", () => {
        drained.cancel();
        finish();
      });
    });
  });
}

function launch(spec: CommandSpec, mark: string): ChildProcess {
  // the outer shell replaces itself; it only turns Node's socket pairs into what the command may see
  const redirect = `${spec.stdin === null ? "" : " < <(exec cat)"}${spec.mergeOutput ? " 2>&1" : ""}`;
  const inner = [...(spec.launcher ?? []), ...PLAIN_BASH, spec.command];
  const argv =
    redirect === "" ? inner : [...PLAIN_BASH, `exec "$@"${redirect}`, "interpose", ...inner];
  return spawn(argv[0] ?? "bash", argv.slice(1), {
    cwd: spec.cwd,
    env: { ...spec.env, [RUN_MARK]: mark },
    detached: true,
    stdio: [spec.stdin === null ? "ignore" : "pipe", "pipe", spec.mergeOutput ? "ignore" : "pipe"],
  });
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

function noOutput(): Output {
  return collect(0, "head");
}

function collect(limit: number, keep: "head" | "tail"): Output {
  let chunks: Buffer[] = [];
  let size = 0;
  let dropped = false;
  return {
    add(chunk) {
      if (keep === "head") {
        const room = limit - size;
        dropped ||= chunk.length > room;
        if (room > 0) {
          // a copy: the slice would keep the whole read buffer alive
          chunks.push(Buffer.from(chunk.subarray(0, room)));
          size += Math.min(room, chunk.length);
        }
        return;
      }
      chunks.push(chunk);
      size += chunk.length;
      if (size > 2 * limit + 65_536) {
        chunks = [Buffer.from(Buffer.concat(chunks).subarray(size - limit))];
        size = limit;
        dropped = true;
      }
    },
    text() {
      const all = Buffer.concat(chunks);
      if (all.length > limit) {
        dropped = true;
      }
      return all.subarray(Math.max(0, all.length - limit)).toString("utf8");
    },
    truncated: () => dropped || size > limit,
  };
}

function ended(
  kind: CommandOutcome["kind"],
  exitCode: number | null,
  signal: string | null,
  stdout: Output,
  stderr: Output,
  durationMs: number,
): CommandOutcome {
  return {
    kind,
    exitCode,
    signal,
    stdout: stdout.text(),
    stderr: stderr.text(),
    truncated: stdout.truncated() || stderr.truncated(),
    durationMs,
  };
}

function causeOf(error: unknown): string {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : "unknown";
}

function ignore(): void {
  // a broken pipe is the command's own choice; how it ended says the rest
}
