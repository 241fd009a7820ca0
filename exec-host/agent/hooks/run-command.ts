import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import type { Readable } from "node:stream";
import type { Clock } from "../../../policy/kernel/clock.ts";
import { newHex } from "../../../policy/kernel/ids.ts";
import { captureOutput } from "./captured-output.ts";
import { openOutputPipes } from "./output-pipes.ts";
import { killMarked, RUN_MARK } from "./leftovers.ts";

/** Between the polite and the final signal. */
const KILL_GRACE_MS = 2000;
/** Longest wait for output that is on its way after the process ended. */
const DRAIN_MS = 250;

/** One command to run as a lifecycle hook. */
export interface HookCommand {
  readonly command: string;
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** JSON text for its standard input. */
  readonly stdin: string;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** How the process ended. `exited` with 126 or 127 means that the shell could not start the command. */
export interface CommandResult {
  readonly end: "exited" | "killed" | "timed_out" | "aborted" | "not_launched";
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly durationMs: number;
}

/**
 * Runs a hook command in a process group of its own and returns when the process ends or its time is up, never later because a
 * pipe stays open. Nothing it started lives on: the group is killed, and what left the group is found by its mark.
 * Never rejects.
 */
export async function runCommand(
  deps: { readonly clock: Clock },
  hook: HookCommand,
): Promise<CommandResult> {
  const started = deps.clock.monotonic();
  const elapsed = (): number => Math.round(deps.clock.monotonic() - started);
  const nothing = { exitCode: null, stdout: "" };
  if (hook.signal.aborted) {
    return { end: "aborted", ...nothing, stderr: "", durationMs: 0 };
  }
  // a full or missing temporary folder must not keep a guard from running: then with the streams Node makes
  const pipes = await openOutputPipes().catch(() => null);
  const mark = newHex(12);
  let streams: readonly Readable[] = [];
  try {
    if (hook.signal.aborted) {
      return { end: "aborted", ...nothing, stderr: "", durationMs: elapsed() };
    }
    const child = spawn("bash", [...PLAIN, BEHIND_A_PIPE, "bash", hook.command], {
      cwd: hook.cwd,
      env: { ...hook.env, [RUN_MARK]: mark },
      detached: true,
      stdio: ["pipe", ...(pipes?.childFds ?? (["pipe", "pipe"] as const))],
    });
    pipes?.release();
    const stdout = readInto(pipes?.stdout ?? child.stdout);
    const stderr = readInto(pipes?.stderr ?? child.stderr);
    streams = [stdout.stream, stderr.stream].filter((stream) => stream !== null);
    child.stdin?.on("error", () => {}).end(hook.stdin); // a hook need not read its input
    const ended = await untilEnd(deps.clock, child, hook, mark);
    await untilDrained(deps.clock, streams);
    const launchError = ended.launchError === undefined ? "" : reasonOf(ended.launchError);
    return {
      end: ended.end,
      exitCode: ended.end === "exited" ? child.exitCode : null,
      stdout: stdout.text(),
      stderr: launchError === "" ? stderr.text() : launchError,
      durationMs: elapsed(),
    };
  } catch (cause) {
    return { end: "not_launched", ...nothing, stderr: reasonOf(cause), durationMs: elapsed() };
  } finally {
    pipes?.destroy();
    streams.forEach((stream) => stream.destroy());
  }
}

/** No start-up files: a hook is to behave alike on every machine (decision 53). */
const PLAIN = ["--norc", "--noprofile", "-c"] as const;
/** The outer shell only puts a pipe in place of Node's socket, so that `/dev/stdin` can be opened, and becomes the hook's shell. */
const BEHIND_A_PIPE = `exec bash ${PLAIN.join(" ")} "$1" < <(exec cat)`;

function readInto(stream: Readable | null): {
  readonly stream: Readable | null;
  text(): string;
} {
  const captured = captureOutput();
  stream?.on("data", (chunk: Buffer) => captured.push(chunk)).on("error", () => {}); // what came so far is what there is
  return { stream, text: () => captured.text() };
}

interface Ended {
  readonly end: CommandResult["end"];
  readonly launchError?: unknown;
}

function untilEnd(
  clock: Clock,
  child: ChildProcess,
  hook: HookCommand,
  mark: string,
): Promise<Ended> {
  return new Promise((resolve) => {
    let forced: "timed_out" | "aborted" | undefined;
    const stop = (why: "timed_out" | "aborted"): void => {
      if (forced !== undefined) {
        return;
      }
      forced = why;
      killGroup(child, "SIGTERM");
      graceTimer = clock.after(KILL_GRACE_MS, () => {
        killGroup(child, "SIGKILL");
        // a process that even this does not end (uninterruptible) must not hold the call
        graceTimer = clock.after(KILL_GRACE_MS, () => finish({ end: why }));
      });
    };
    const onAbort = (): void => stop("aborted");
    const timer = clock.after(hook.timeoutMs, () => stop("timed_out"));
    let graceTimer: ReturnType<Clock["after"]> | undefined;
    const finish = (ended: Ended): void => {
      timer.cancel();
      graceTimer?.cancel();
      hook.signal.removeEventListener("abort", onAbort);
      killGroup(child, "SIGKILL");
      if (child.pid !== undefined) {
        killMarked(mark, child.pid);
      }
      resolve(ended);
    };
    hook.signal.addEventListener("abort", onAbort);
    child.once("error", (cause) => {
      finish(
        child.pid === undefined ? { end: "not_launched", launchError: cause } : { end: "killed" },
      );
    });
    child.once("exit", (code) => {
      finish({ end: forced ?? (code === null ? "killed" : "exited") });
    });
  });
}

function killGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) {
    return;
  }
  try {
    process.kill(-child.pid, signal);
  } catch {
    // nothing of the group is left
  }
}

/** The last output may still be in the pipe; a process that escaped with a copy of it is not waited for. */
async function untilDrained(clock: Clock, streams: readonly Readable[]): Promise<void> {
  const open = streams.filter((stream) => !stream.closed && !stream.readableEnded);
  const drained = Promise.all(open.map((stream) => once(stream, "close").catch(() => {}))); // errors close it too
  let timer: ReturnType<Clock["after"]> | undefined;
  const late = new Promise<void>((resolve) => {
    timer = clock.after(DRAIN_MS, resolve);
  });
  await Promise.race([drained, late]);
  timer?.cancel();
}

function reasonOf(cause: unknown): string {
  const code = (cause as NodeJS.ErrnoException).code;
  return `the hook could not be started${code === undefined ? "" : ` (${code})`}`;
}
