import {
  MAX_RULES_PER_DOCUMENT,
  MAX_RULES_PER_SERVICE,
  type HookRule,
  type StoredRule,
} from "./hook.ts";

/** The rules of one service and the position of the rule that an edit was about. */
export interface Edited {
  readonly rules: readonly StoredRule[];
  readonly position: number;
}

/** Why one more rule does not fit into a document; null when it does. */
export function capProblem(ofService: number, ofDocument: number): string | null {
  if (ofService >= MAX_RULES_PER_SERVICE) {
    return `the service already has ${ofService} hooks; at most ${MAX_RULES_PER_SERVICE} are allowed`;
  }
  if (ofDocument >= MAX_RULES_PER_DOCUMENT) {
    return `the container already has ${ofDocument} hooks; at most ${MAX_RULES_PER_DOCUMENT} are allowed`;
  }
  return null;
}

/** Position of a rule by id, or -1. */
export function findRule(rules: readonly StoredRule[], id: string): number {
  return rules.findIndex((rule) => rule.id === id);
}

/** Inserts before `position`; undefined and positions past the end append. */
export function insertRule(
  rules: readonly StoredRule[],
  rule: HookRule,
  position: number | undefined,
): Edited {
  const at = Math.min(position ?? rules.length, rules.length);
  return { rules: rules.toSpliced(at, 0, { kind: "valid", id: rule.id, rule }), position: at };
}

/** Replaces the rule of the same id in place; null when there is none. */
export function replaceRule(rules: readonly StoredRule[], rule: HookRule): Edited | null {
  const at = findRule(rules, rule.id);
  return at < 0
    ? null
    : { rules: rules.with(at, { kind: "valid", id: rule.id, rule }), position: at };
}

/** Takes the rule out and puts it in again at `position`, the end at most; null when there is none of that id. */
export function moveRule(
  rules: readonly StoredRule[],
  id: string,
  position: number,
): Edited | null {
  const from = findRule(rules, id);
  const rule = rules[from];
  if (rule === undefined) {
    return null;
  }
  const rest = rules.toSpliced(from, 1);
  const at = Math.min(position, rest.length);
  return { rules: rest.toSpliced(at, 0, rule), position: at };
}

/** Takes the rule out; null when there is none of that id. */
export function removeRule(rules: readonly StoredRule[], id: string): Edited | null {
  const at = findRule(rules, id);
  return at < 0 ? null : { rules: rules.toSpliced(at, 1), position: at };
}
