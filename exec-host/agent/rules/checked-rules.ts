import type { CheckedRules, RulesVerdict, ToolCall } from "../seams.ts";
import type { SessionSettings } from "../hooks/session-settings.ts";
import type { LoadedSettings } from "../settings/load.ts";
import { covers, ownAgent, toAskedRules } from "./coverage.ts";
import type { AskedRule } from "./coverage.ts";
import { toJudgedInput } from "./judged-input.ts";
import type { Judge, JudgeFailure } from "./judge.ts";

/** At or above it a rule counts as broken or as covering the call. */
const YES = 0.5;

/** Why checked rules cannot be asked at all, whatever the call. */
export type FailClosedReason = "trust_hold" | "jev_no_key";

const UNCHECKED_WORDS: Readonly<
  Record<FailClosedReason | JudgeFailure | "input_too_large", string>
> = {
  trust_hold: "the rules wait for their trust hash to be acknowledged",
  jev_no_key: "no judge is configured",
  input_too_large: "the input is too large to be judged",
  late: "the judge did not answer in time",
  unreachable: "the judge cannot be reached",
  refused: "the judge refused the request",
  too_large: "the judge's answer is too large",
  unusable: "the judge gave no usable answer",
};

/** Why every covered call of a session is unchecked now; null when the judge can be asked. */
export function failClosedReason(state: {
  readonly fleet: boolean;
  readonly needsAck: boolean;
  readonly hasJudge: boolean;
}): FailClosedReason | null {
  if (state.fleet && state.needsAck) {
    return "trust_hold";
  }
  return state.hasJudge ? null : "jev_no_key";
}

/**
 * Checked rules on the settings each session has loaded: the judge is asked once per covered call, about all rules that
 * apply. What cannot be checked is not let through.
 *
 * @param deps.judge null where none is configured.
 */
export function createCheckedRules(
  deps: { readonly settings: SessionSettings; readonly judge: Judge | null },
  options: { readonly fleet: boolean },
): CheckedRules {
  async function blocker(settings: LoadedSettings): Promise<FailClosedReason | null> {
    const trust = await deps.settings.trust(settings);
    return failClosedReason({
      fleet: options.fleet,
      needsAck: trust.needsAck,
      hasJudge: deps.judge !== null,
    });
  }

  return {
    async check(call, signal) {
      const settings = await deps.settings.get(call.session);
      const agent = call.agent === call.session.agent ? ownAgent(call.session) : call.agent;
      const covering = settings.rules.filter((rule) =>
        covers(rule, { tool: call.tool, readOnly: call.readOnly, agent }),
      );
      if (covering.length === 0) {
        return { kind: "pass" };
      }
      const asked = toAskedRules(covering);
      const blocked = await blocker(settings);
      if (blocked !== null || deps.judge === null) {
        return unchecked(call, asked, blocked ?? "jev_no_key");
      }
      const input = toJudgedInput(call.tool, call.params);
      if (input === null) {
        return unchecked(call, asked, "input_too_large");
      }
      const question = { tool: call.tool, input, agent, cwd: call.session.cwd, rules: asked };
      const answer = await deps.judge.ask(question, settings.rulesTimeoutMs, signal);
      if (answer.kind === "none") {
        return unchecked(call, asked, answer.reason);
      }
      return toVerdict(asked.filter(({ key }) => !((answer.yes.get(key) ?? 1) < YES)));
    },
  };
}

function toVerdict(applying: readonly AskedRule[]): RulesVerdict {
  const broken = applying.filter(({ rule }) => rule.kind === "limit");
  if (broken.length > 0) {
    return { kind: "deny", reason: `The call breaks ${named(broken)}.`, ruleIds: keys(broken) };
  }
  if (applying.length > 0) {
    return {
      kind: "ask",
      reason: `The call falls under ${named(applying)}.`,
      ruleIds: keys(applying),
      checked: true,
      confirmable: true,
    };
  }
  return { kind: "pass" };
}

/** The main session asks; a helper has nobody to ask. A token never passes an unchecked limit (decision 51). */
function unchecked(
  call: ToolCall,
  asked: readonly AskedRule[],
  why: keyof typeof UNCHECKED_WORDS,
): RulesVerdict {
  const reason = `The call could not be checked against ${named(asked)}: ${UNCHECKED_WORDS[why]} (${why}).`;
  if (call.agent !== call.session.agent) {
    return { kind: "deny", reason, ruleIds: keys(asked) };
  }
  return {
    kind: "ask",
    reason,
    ruleIds: keys(asked),
    checked: false,
    confirmable: asked.every(({ rule }) => rule.kind !== "limit"),
  };
}

function keys(asked: readonly AskedRule[]): readonly string[] {
  return asked.map(({ key }) => key);
}

function named(asked: readonly AskedRule[]): string {
  const [first] = asked;
  if (asked.length === 1 && first !== undefined) {
    return `the rule "${first.key}" (${first.rule.text})`;
  }
  return `the rules ${asked.map(({ key }) => `"${key}"`).join(", ")}`;
}
