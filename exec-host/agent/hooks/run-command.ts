import type { Clock } from "../../../policy/kernel/clock.ts";
import * as processes from "../process.ts";

/** Between the polite and the final signal. */
const KILL_GRACE_MS = 2000;
/** Kept of each output: an answer may stand behind a flood. */
const MAX_OUTPUT_BYTES = 64 * 1024;

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
 * Runs a hook command as every other command is run (`../process.ts`), with both outputs apart. Never rejects.
 */
export async function runCommand(
  deps: { readonly clock: Clock },
  hook: HookCommand,
): Promise<CommandResult> {
  const outcome = await processes.runCommand(
    {
      command: hook.command,
      cwd: hook.cwd,
      env: hook.env,
      stdin: hook.stdin,
      timeoutMs: hook.timeoutMs,
      killGraceMs: KILL_GRACE_MS,
      maxOutputBytes: MAX_OUTPUT_BYTES,
      keep: "ends",
      mergeOutput: false,
    },
    deps.clock,
    hook.signal,
  );
  return {
    end: endOf(outcome),
    exitCode: outcome.exitCode,
    stdout: outcome.stdout,
    stderr:
      outcome.kind === "not_launched"
        ? `the hook could not be started (${outcome.cause ?? "unknown"})`
        : outcome.stderr,
    durationMs: outcome.durationMs,
  };
}

function endOf(outcome: processes.CommandOutcome): CommandResult["end"] {
  switch (outcome.kind) {
    case "exited":
      return outcome.exitCode === null ? "killed" : "exited";
    case "cancelled":
      return "aborted";
    case "timed_out":
    case "not_launched":
      return outcome.kind;
  }
}
