import { toToolName } from "../hooks/matcher.ts";
import type { Session } from "../seams.ts";
import { isChecked } from "./rule.ts";
import type { LoadedRule } from "./rule.ts";

/** Tools that talk to a person: only a rule that names them covers them. */
const CONVERSATIONAL = new Set(["ask_question_to_user", "report_outcome"]);

/** One call as rules see it: by tool name and acting agent, never by what it runs. */
export interface CoveredCall {
  /** Internal name or alias. */
  readonly tool: string;
  readonly readOnly: boolean;
  /** null for a workflow step that has no agent. */
  readonly agent: string | null;
}

/** True when a rule is about calls of that agent. */
export function coversAgent(rule: LoadedRule, agent: string | null): boolean {
  return rule.agents.length === 0 || (agent !== null && rule.agents.includes(agent));
}

/** True when a rule must be asked about before that call (section 11.4). */
export function covers(rule: LoadedRule, call: CoveredCall): boolean {
  if (!isChecked(rule.kind) || !coversAgent(rule, call.agent)) {
    return false;
  }
  const tool = toToolName(call.tool);
  if (rule.tools.length > 0) {
    return rule.tools.some((name) => toToolName(name) === tool);
  }
  return !call.readOnly && !CONVERSATIONAL.has(tool);
}

/** The agent a session's own calls are made by. */
export function ownAgent(session: Session): string {
  return session.toolMode === "orchestrator" ? "orchestrator" : session.agent;
}

/** A rule with the id under which the judge is asked: with its scope where two scopes use the same id. */
export interface AskedRule {
  readonly key: string;
  readonly rule: LoadedRule;
}

/** Gives every rule of one question an id of its own. */
export function toAskedRules(rules: readonly LoadedRule[]): readonly AskedRule[] {
  return rules.map((rule) => {
    const twins = rules.filter((other) => other.id === rule.id).length;
    return { key: twins > 1 ? `${rule.layer}/${rule.id}` : rule.id, rule };
  });
}
