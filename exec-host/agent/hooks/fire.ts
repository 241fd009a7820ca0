import type { Clock } from "../../../policy/kernel/clock.ts";
import type { Log } from "../../../policy/kernel/log.ts";
import type { AgentMetrics, JsonObject, Session } from "../seams.ts";
import type { LoadedHook, LoadedSettings } from "../settings/load.ts";
import { hookSeconds } from "./events.ts";
import type { HookEvent, HookOutcome } from "./events.ts";
import { readHookOutput } from "./hook-output.ts";
import type { HookOutput } from "./hook-output.ts";
import { runCommand } from "./run-command.ts";
import type { CommandResult } from "./run-command.ts";
import { needsTrust } from "./trust.ts";

const MAX_PARALLEL = 16;
const MAX_REASON_CHARS = 8192;
const MAX_SHOWN_CHARS = 500;
/** Exit codes with which a shell says that it could not start the command. */
const NOT_STARTED = new Set([126, 127]);
/** Events whose hooks can hold something up or send a reason back; elsewhere exit code 2 is only a failure. */
const ANSWERING: ReadonlySet<HookEvent> = new Set<HookEvent>([
  "PreToolUse",
  "PostToolUse",
  "UserPromptSubmit",
  "Stop",
  "SubagentStop",
  "PreCompact",
]);
/** Events without a subject: every matcher fits them. */
const WITHOUT_SUBJECT: ReadonlySet<HookEvent> = new Set<HookEvent>(["UserPromptSubmit", "Stop"]);
/** Events whose plain output is context. */
const PLAIN_CONTEXT: ReadonlySet<HookEvent> = new Set<HookEvent>([
  "SessionStart",
  "UserPromptSubmit",
]);

/** One raising of an event. */
export interface Firing {
  readonly session: Session;
  readonly settings: LoadedSettings;
  readonly event: HookEvent;
  /** Names that matchers are tried on. */
  readonly names: readonly string[];
  /** Members of the hooks' standard input beside those every event has. */
  readonly payload: JsonObject;
  readonly signal: AbortSignal;
  /** Trust is missing: what needs it does not run. */
  readonly held: boolean;
  /** Upper bound of every timeout, in seconds. */
  readonly capSeconds?: number;
  /** A test run: stamped into the input. */
  readonly test?: boolean;
}

/** What became of one hook. `result` is absent where no process was started. */
export interface HookRun {
  readonly hook: Pick<LoadedHook, "event" | "matcher" | "command" | "name" | "layer">;
  readonly outcome: HookOutcome;
  readonly reason: string;
  readonly output: HookOutput | null;
  readonly context: readonly string[];
  readonly result?: CommandResult;
}

/** What firing needs besides the call. */
export interface FireDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: AgentMetrics;
  readonly env: Readonly<Record<string, string>>;
  readonly fleet: boolean;
}

/**
 * Raises an event: every enabled hook of it gets exactly one outcome, in the stream, the log and the metric. Hooks that fit run in
 * parallel, the same command once. Never rejects.
 *
 * @returns the runs in the order the hooks were loaded, those that did not fit left out.
 */
export async function fireHooks(deps: FireDeps, firing: Firing): Promise<readonly HookRun[]> {
  if (firing.settings.disableAllHooks) {
    return [];
  }
  const hooks = firing.settings.hooks.filter(
    (hook) => hook.event === firing.event && !hook.disabled,
  );
  const fitting: LoadedHook[] = [];
  for (const hook of hooks) {
    if (WITHOUT_SUBJECT.has(firing.event) || hook.matches?.(firing.names) === true) {
      fitting.push(hook);
    } else {
      report(deps, firing, idle(hook, "not_matched"));
    }
  }
  const runs = new Map<string, HookRun>();
  const runnable: LoadedHook[] = [];
  for (const hook of fitting) {
    if (firing.held && needsTrust(hook, deps.fleet)) {
      continue;
    }
    if (!runnable.some((other) => other.command === hook.command)) {
      runnable.push(hook);
    }
  }
  const input = toInput(firing);
  await inParallel(runnable, async (hook) => {
    const run = await runHook(deps, firing, hook, input);
    runs.set(hook.command, run);
    report(deps, firing, run);
  });
  const results: HookRun[] = [];
  for (const hook of fitting) {
    const run = runs.get(hook.command);
    if (run === undefined) {
      const held = idle(hook, "held");
      report(deps, firing, held);
      results.push(held);
    } else if (!results.includes(run)) {
      results.push(run);
    }
  }
  return results;
}

/** Runs one hook that need not be stored: test-before-save. Reported like any other. */
export async function fireOne(deps: FireDeps, firing: Firing, hook: LoadedHook): Promise<HookRun> {
  const input = toInput(firing);
  const run = await runHook(deps, firing, hook, input);
  report(deps, firing, run);
  return run;
}

/** The JSON a hook reads; the stamped members stand behind the payload, which cannot replace them. */
function toInput(firing: Firing): string {
  return JSON.stringify({
    transcript_path: "",
    permission_mode: "default",
    ...firing.payload,
    session_id: firing.session.id,
    cwd: firing.session.cwd,
    hook_event_name: firing.event,
    ...(firing.test === true ? { hook_test: true } : {}),
  });
}

async function runHook(
  deps: FireDeps,
  firing: Firing,
  hook: LoadedHook,
  stdin: string,
): Promise<HookRun> {
  const seconds = Math.min(hookSeconds(hook.event, hook.timeout), firing.capSeconds ?? Infinity);
  const { cwd } = firing.session;
  const result = await runCommand(deps, {
    command: hook.command,
    cwd,
    env: {
      ...deps.env,
      HOME: firing.session.home,
      HOODY_PROJECT_DIR: cwd,
      CLAUDE_PROJECT_DIR: cwd,
    },
    stdin,
    timeoutMs: seconds * 1000,
    signal: firing.signal,
  });
  const output =
    result.end === "exited" && result.exitCode === 0 ? readHookOutput(result.stdout) : null;
  const outcome = outcomeOf(hook.event, result, output);
  const reason = reasonOf(outcome, result, output).trim().slice(0, MAX_REASON_CHARS);
  return {
    hook,
    outcome,
    reason,
    output,
    context: contextOf(hook.event, outcome, result, output),
    result,
  };
}

function outcomeOf(
  event: HookEvent,
  result: CommandResult,
  output: HookOutput | null,
): HookOutcome {
  switch (result.end) {
    case "timed_out":
      return "timed_out";
    case "not_launched":
      return "not_launched";
    case "aborted":
    case "killed":
      return "failed";
    case "exited":
      break;
  }
  if (result.exitCode === 2) {
    return ANSWERING.has(event) ? "blocked" : "failed";
  }
  if (result.exitCode !== 0) {
    return NOT_STARTED.has(result.exitCode ?? 0) ? "not_launched" : "failed";
  }
  if (output?.decision === "deny" && ANSWERING.has(event)) {
    return "blocked";
  }
  return output?.decision === "ask" && event === "PreToolUse" ? "asked" : "ran";
}

function reasonOf(outcome: HookOutcome, result: CommandResult, output: HookOutput | null): string {
  switch (outcome) {
    case "blocked":
    case "asked":
      return output === null ? result.stderr : output.reason;
    case "timed_out":
      return "its time was up";
    case "not_launched":
      return result.stderr;
    case "failed":
      return result.end === "exited" ? `exit code ${result.exitCode}` : result.end;
    case "ran":
    case "held":
    case "not_matched":
      return "";
  }
}

function contextOf(
  event: HookEvent,
  outcome: HookOutcome,
  result: CommandResult,
  output: HookOutput | null,
): readonly string[] {
  if (output !== null) {
    return output.context;
  }
  const text = result.stdout.trim();
  return outcome === "ran" && PLAIN_CONTEXT.has(event) && text !== ""
    ? [text.slice(0, MAX_REASON_CHARS)]
    : [];
}

function idle(hook: LoadedHook, outcome: "held" | "not_matched"): HookRun {
  return {
    hook,
    outcome,
    reason: outcome === "held" ? "waits for its trust hash to be acknowledged" : "",
    output: null,
    context: [],
  };
}

function report(deps: FireDeps, firing: Firing, run: HookRun): void {
  reportHook(deps, firing.session, {
    event: firing.event,
    name: run.hook.name,
    command: run.hook.command.slice(0, MAX_SHOWN_CHARS),
    matcher: run.hook.matcher,
    scope: run.hook.layer,
    outcome: run.outcome,
    reason: run.reason,
    ...(run.result === undefined
      ? {}
      : { exit_code: run.result.exitCode, duration_ms: run.result.durationMs }),
    ...(firing.test === true ? { test: true } : {}),
  });
}

/** One finished hook, as the session stream shows it. */
export interface HookReport {
  readonly event: HookEvent;
  readonly name: string;
  /** Its beginning; empty for a shipped hook. */
  readonly command: string;
  readonly matcher: string;
  readonly scope: string;
  readonly outcome: HookOutcome;
  readonly reason: string;
  readonly exit_code?: number | null;
  readonly duration_ms?: number;
  readonly shipped_id?: string;
  readonly test?: boolean;
}

/** Says how a hook ended in the session stream, the log and the metric. What the hook printed does not go into the log. */
export function reportHook(
  deps: Pick<FireDeps, "log" | "metrics">,
  session: Session,
  hook: HookReport,
): void {
  session.emit("event.hook", { ...hook });
  deps.metrics.hookRun(hook.event, hook.outcome);
  const broken =
    hook.outcome === "failed" || hook.outcome === "timed_out" || hook.outcome === "not_launched";
  deps.log[broken ? "warn" : hook.outcome === "not_matched" ? "debug" : "info"](
    {
      session: session.id,
      event: hook.event,
      scope: hook.scope,
      outcome: hook.outcome,
      exitCode: hook.exit_code,
      durationMs: hook.duration_ms,
    },
    "lifecycle hook",
  );
}

async function inParallel<T>(items: readonly T[], task: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items];
  const lane = async (): Promise<void> => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
      await task(item);
    }
  };
  await Promise.all(Array.from({ length: Math.min(MAX_PARALLEL, items.length) }, lane));
}
