import type {
  HookVerdict,
  JsonObject,
  LifecycleHooks,
  Session,
  ToolCall,
  ToolResult,
} from "../seams.ts";
import { isObject } from "../settings/canonical-json.ts";
import type { LoadedSettings } from "../settings/load.ts";
import { SHORT_HOOK_SECONDS } from "./events.ts";
import type { HookEvent } from "./events.ts";
import { fireHooks, reportHook } from "./fire.ts";
import type { FireDeps, HookRun } from "./fire.ts";
import { toolNames } from "./matcher.ts";
import type { SessionSettings } from "./session-settings.ts";
import { sampleOf, SHIPPED_HOOKS } from "./shipped.ts";
import type { ShippedHook } from "./shipped.ts";

/** Lifecycle hooks of a gateway, and a way to wait for those nobody waits for. */
export interface RunningHooks extends LifecycleHooks {
  /** Ends what is running and waits for it. */
  close(): Promise<void>;
}

/**
 * Raises the events of the gate and of the session life cycle on the settings each session has loaded.
 */
export function createLifecycleHooks(
  deps: FireDeps & { readonly settings: SessionSettings },
): RunningHooks {
  const stop = new AbortController();
  const pending = new Set<Promise<unknown>>();

  async function fire(
    session: Session,
    settings: LoadedSettings,
    event: HookEvent,
    names: readonly string[],
    payload: JsonObject,
    signal: AbortSignal,
  ): Promise<readonly HookRun[]> {
    const trust = await deps.settings.trust(settings);
    const capped = event === "SessionEnd" ? { capSeconds: SHORT_HOOK_SECONDS } : {};
    return fireHooks(deps, {
      session,
      settings,
      event,
      names,
      payload,
      signal: AbortSignal.any([signal, stop.signal]),
      held: trust.needsAck,
      ...capped,
    });
  }

  /** Runs to its end even when the caller does not wait; a failure is ours to log. */
  function inBackground(task: Promise<unknown>): void {
    const guarded = task
      .catch((cause: unknown) => deps.log.error({ err: cause }, "lifecycle hooks failed"))
      .finally(() => pending.delete(guarded));
    pending.add(guarded);
  }

  return {
    async beforeTool(call, signal) {
      const settings = await deps.settings.get(call.session);
      const runs = await fire(
        call.session,
        settings,
        "PreToolUse",
        toolNames(call.tool),
        toolPayload(call),
        signal,
      );
      const verdict = joinRuns(runs);
      if (verdict.kind === "deny") {
        return verdict;
      }
      // the catalogue looks at what would really run
      const asked = shippedFor(settings, "PreToolUse", call.tool).filter((hook) =>
        hook.triggers(sampleOf(verdict.updatedInput ?? call.params, null)),
      );
      for (const hook of asked) {
        reportShipped(deps, call.session, hook, "asked");
      }
      return asked.length === 0
        ? verdict
        : withQuestion(
            verdict,
            asked.map((hook) => hook.message),
          );
    },

    async afterTool(call, result, signal) {
      const settings = await deps.settings.get(call.session);
      const payload = {
        ...toolPayload(call),
        tool_response: {
          is_error: result.isError,
          content: [{ type: "text", text: result.text }],
          ...(result.errorCode === undefined ? {} : { error_code: result.errorCode }),
        },
      };
      const runs = await fire(
        call.session,
        settings,
        "PostToolUse",
        toolNames(call.tool),
        payload,
        signal,
      );
      const sample = sampleOf(call.params, exitCodeOf(result));
      const triggered = shippedFor(settings, "PostToolUse", call.tool).filter((hook) =>
        hook.triggers(sample),
      );
      for (const hook of triggered) {
        reportShipped(deps, call.session, hook, "ran");
      }
      return {
        context: [
          ...runs.filter((run) => run.outcome === "blocked").map((run) => run.reason),
          ...runs.flatMap((run) => run.context),
          ...triggered.map((hook) => hook.message),
        ].filter((line) => line !== ""),
      };
    },

    async sessionStart(session, source) {
      const settings = await deps.settings.get(session);
      const runs = await fire(
        session,
        settings,
        "SessionStart",
        [source],
        { source },
        session.signal,
      );
      return { context: runs.flatMap((run) => run.context) };
    },

    async sessionEnd(session, reason) {
      const settings = await deps.settings.get(session);
      const limit = new AbortController();
      // with many hooks in a row each cap alone would add up
      const timer = deps.clock.after(SHORT_HOOK_SECONDS * 1000, () => limit.abort());
      try {
        await fire(session, settings, "SessionEnd", [reason], { reason }, limit.signal);
      } finally {
        timer.cancel();
      }
    },

    notify(session, type, message) {
      inBackground(
        deps.settings
          .get(session)
          .then((settings) =>
            fire(
              session,
              settings,
              "Notification",
              [type],
              { notification_type: type, message },
              session.signal,
            ),
          ),
      );
    },

    async close() {
      stop.abort();
      await Promise.all(pending);
    },
  };
}

function toolPayload(call: ToolCall): JsonObject {
  return { tool_name: call.tool, tool_input: call.params, tool_use_id: call.id };
}

/** Deny beats ask beats allow; a rewrite is the last one's in load order, and one that is no object denies (decision 52). */
function joinRuns(runs: readonly HookRun[]): HookVerdict {
  const denied = runs.filter((run) => run.outcome === "blocked");
  if (denied.length > 0) {
    return { kind: "deny", reason: joinReasons(denied, "A lifecycle hook blocked this call.") };
  }
  const rewrite = runs.findLast(
    (run) => run.output !== null && "updatedInput" in run.output,
  )?.output;
  if (rewrite !== undefined && rewrite !== null && !isObject(rewrite.updatedInput)) {
    return {
      kind: "deny",
      reason: "A lifecycle hook returned an updatedInput that is not an object.",
    };
  }
  const updated = isObject(rewrite?.updatedInput) ? { updatedInput: rewrite.updatedInput } : {};
  const context = runs.flatMap((run) => run.context);
  const asked = runs.filter((run) => run.outcome === "asked");
  if (asked.length > 0) {
    const reason = joinReasons(asked, "A lifecycle hook asks for confirmation.");
    return { kind: "ask", reason, ...updated, context };
  }
  return { kind: "allow", ...updated, context };
}

function withQuestion(
  verdict: Exclude<HookVerdict, { kind: "deny" }>,
  messages: readonly string[],
): HookVerdict {
  const reasons = verdict.kind === "ask" ? [verdict.reason, ...messages] : messages;
  return { ...verdict, kind: "ask", reason: reasons.join(" ") };
}

function joinReasons(runs: readonly HookRun[], fallback: string): string {
  const reasons = runs.map((run) => run.reason).filter((reason) => reason !== "");
  return reasons.length > 0 ? reasons.join("\n") : fallback;
}

function shippedFor(
  settings: LoadedSettings,
  event: HookEvent,
  tool: string,
): readonly ShippedHook[] {
  if (settings.disableAllHooks) {
    return [];
  }
  return SHIPPED_HOOKS.filter(
    (hook) =>
      hook.event === event && hook.tools.includes(tool) && settings.shippedHooks.has(hook.id),
  );
}

function reportShipped(
  deps: FireDeps,
  session: Session,
  hook: ShippedHook,
  outcome: "asked" | "ran",
): void {
  reportHook(deps, session, {
    event: hook.event,
    name: hook.name,
    command: "",
    matcher: hook.matcher,
    scope: "shipped",
    outcome,
    reason: hook.message,
    shipped_id: hook.id,
  });
}

/** Exit code of a finished shell call, as the shell tool writes it into its result; null for other failures. */
function exitCodeOf(result: ToolResult): number | null {
  if (!result.isError) {
    return 0;
  }
  const code =
    result.errorCode === "exit_code" ? /\[exit code (\d{1,3})\]\s*$/.exec(result.text) : null;
  return code === null ? null : Number(code[1]);
}
