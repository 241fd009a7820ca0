import type { LoadedRule } from "./rule.ts";
import { isChecked } from "./rule.ts";
import { coversAgent } from "./coverage.ts";

/** Bytes of rule lines that an agent's prompt block holds. */
export const PROMPT_BUDGET_BYTES = 8192;

/** The prompt rules of one agent, as far as they fit. */
export interface PromptRules {
  readonly rules: readonly LoadedRule[];
  readonly bytes: number;
  /** Ids of rules that did not fit. */
  readonly overBudget: readonly string[];
}

/** Picks an agent's guidance, then its playbooks, each in settings order, until the budget is spent. */
export function pickPromptRules(rules: readonly LoadedRule[], agent: string): PromptRules {
  const mine = rules.filter((rule) => !isChecked(rule.kind) && coversAgent(rule, agent));
  const ordered = [
    ...mine.filter((rule) => rule.kind === "guidance"),
    ...mine.filter((rule) => rule.kind === "playbook"),
  ];
  const picked: LoadedRule[] = [];
  const overBudget: string[] = [];
  let bytes = 0;
  for (const rule of ordered) {
    const size = Buffer.byteLength(toPromptLine(rule));
    if (bytes + size > PROMPT_BUDGET_BYTES) {
      overBudget.push(rule.id);
    } else {
      bytes += size;
      picked.push(rule);
    }
  }
  return { rules: picked, bytes, overBudget };
}

/** One line of the block, its end included. */
function toPromptLine(rule: LoadedRule): string {
  return `- [${rule.id}] ${rule.text}\n`;
}
