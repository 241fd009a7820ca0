/** Lifecycle events, a closed set. The gateway raises the first five; the others are stored and can be test-fired. */
export const HOOK_EVENTS = [
  "SessionStart",
  "SessionEnd",
  "PreToolUse",
  "PostToolUse",
  "Notification",
  "PreCompact",
  "Stop",
  "SubagentStart",
  "SubagentStop",
  "UserPromptSubmit",
] as const;
/** One of those events. */
export type HookEvent = (typeof HOOK_EVENTS)[number];

/** How one lifecycle hook ended; exactly one word per hook of a raised event. */
const HOOK_OUTCOMES = [
  "ran",
  "blocked",
  "asked",
  "failed",
  "timed_out",
  "not_launched",
  "held",
  "not_matched",
] as const;
/** One of those words. */
export type HookOutcome = (typeof HOOK_OUTCOMES)[number];

/** Longest timeout a hook may ask for, in seconds; larger ones are clamped. */
export const MAX_HOOK_SECONDS = 86_400;
/** Cap of every test run and of SessionEnd, in seconds. */
export const SHORT_HOOK_SECONDS = 60;

/** True for a name of the closed set. */
export function isHookEvent(value: unknown): value is HookEvent {
  return HOOK_EVENTS.some((event) => event === value);
}

/** Seconds a hook may run: its own timeout, or the event's default where that is 0 or absent. */
export function hookSeconds(event: HookEvent, timeout: number | undefined): number {
  const fallback =
    event === "UserPromptSubmit" || event === "SessionEnd" ? SHORT_HOOK_SECONDS : 600;
  const seconds = timeout === undefined || timeout === 0 ? fallback : timeout;
  return event === "SessionEnd" ? Math.min(seconds, SHORT_HOOK_SECONDS) : seconds;
}
