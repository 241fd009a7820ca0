import type { SettingsLayer } from "../seams.ts";
import { isObject } from "../settings/canonical-json.ts";

/** What a rule does: the first two are checked before covered calls, the others are advice in the prompt. */
const RULE_KINDS = ["limit", "check_in", "guidance", "playbook"] as const;
/** One of those kinds. */
export type RuleKind = (typeof RULE_KINDS)[number];

/** Rules of one group (checked, prompt) that a scope holds, and that all loaded scopes together hold. */
export const MAX_RULES_PER_GROUP = 32;
const MAX_TEXT_CHARS = 500;
const MAX_TOOLS = 32;
const MAX_AGENTS = 16;
const MAX_NAME_CHARS = 128;

/** A rule as it stands in a settings file. */
export interface Rule {
  readonly id: string;
  readonly text: string;
  readonly kind: RuleKind;
  /** Internal names or aliases; empty: every tool that is not read-only. */
  readonly tools: readonly string[];
  /** Empty: every agent. */
  readonly agents: readonly string[];
}

/** A rule with the file it came from. */
export interface LoadedRule extends Rule {
  readonly layer: SettingsLayer;
  readonly source: string;
}

/** A refused rule. `code` is the gateway's error code for it, `field` the member at fault. */
export interface RuleProblem {
  readonly code: "bad_request" | "rule_tools_not_allowed";
  readonly field: string;
  readonly message: string;
}

/** A rule, or what is wrong with it. */
export type DecodedRule =
  | { readonly ok: true; readonly rule: Rule }
  | { readonly ok: false; readonly problem: RuleProblem };

/** True for the kinds that the judge is asked about. */
export function isChecked(kind: RuleKind): boolean {
  return kind === "limit" || kind === "check_in";
}

const ID = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const CONTROL = /\p{Cc}/u;
const INVISIBLE = /\p{Cf}/u;

/**
 * A spelling of the tag that opens instructions of the platform itself: bracket plain, as an entity or escaped; any
 * dash, underscore or space between the words. Tested on a compatibility-folded copy.
 */
const REMINDER_TAG =
  /(?:<|&lt;?|&#0*60;?|&#x0*3c;?|\\u003c|\\x3c)\s*\/?\s*system[\s_\-\u2010-\u2015\u2212]*reminder/i;

/** True when a text could pass for instructions of the platform once it stands in a prompt. */
function spellsReminderTag(text: string): boolean {
  return REMINDER_TAG.test(text.normalize("NFKC"));
}

/** Validates one rule from outside; unknown members and `applies_as` are ignored. */
export function decodeRule(value: unknown): DecodedRule {
  if (!isObject(value)) {
    return refused("", "must be an object");
  }
  const { id, text, kind } = value;
  if (typeof id !== "string" || !ID.test(id)) {
    return refused(
      "id",
      "must be 1 to 64 characters of a-z, 0-9, _ or -, beginning with a letter or digit",
    );
  }
  if (!isRuleKind(kind)) {
    return refused("kind", `must be one of ${RULE_KINDS.join(", ")}`);
  }
  const textProblem = checkText(text, kind);
  if (typeof text !== "string" || textProblem !== null) {
    return refused("text", textProblem ?? "must be a string");
  }
  const tools = decodeNames(value["tools"], MAX_TOOLS);
  if (tools === null) {
    return refused("tools", `must be at most ${MAX_TOOLS} tool names`);
  }
  if (tools.length > 0 && !isChecked(kind)) {
    return {
      ok: false,
      problem: {
        code: "rule_tools_not_allowed",
        field: "tools",
        message: `a ${kind} rule cannot be limited to tools`,
      },
    };
  }
  const agents = decodeNames(value["agents"], MAX_AGENTS);
  if (agents === null || new Set(agents).size !== agents.length) {
    return refused("agents", `must be at most ${MAX_AGENTS} different agent names`);
  }
  return { ok: true, rule: { id, text, kind, tools, agents } };
}

/** The form a rule takes in a settings file: empty lists are left out. */
export function toStoredRule(rule: Rule): Record<string, unknown> {
  return {
    id: rule.id,
    text: rule.text,
    kind: rule.kind,
    ...(rule.tools.length > 0 ? { tools: rule.tools } : {}),
    ...(rule.agents.length > 0 ? { agents: rule.agents } : {}),
  };
}

/** The form a rule takes in answers. */
export function toListedRule(rule: LoadedRule): Record<string, unknown> {
  return {
    id: rule.id,
    text: rule.text,
    kind: rule.kind,
    applies_as: isChecked(rule.kind) ? "checked" : "prompt",
    tools: rule.tools,
    agents: rule.agents,
    source: rule.source,
  };
}

function refused(field: string, message: string): DecodedRule {
  return { ok: false, problem: { code: "bad_request", field, message } };
}

function isRuleKind(value: unknown): value is RuleKind {
  return RULE_KINDS.some((kind) => kind === value);
}

function checkText(text: unknown, kind: RuleKind): string | null {
  if (typeof text !== "string" || text.trim() === "") {
    return "must be a text that is not empty";
  }
  if (Array.from(text).length > MAX_TEXT_CHARS) {
    return `must be at most ${MAX_TEXT_CHARS} characters`;
  }
  if (CONTROL.test(text) || !text.isWellFormed()) {
    return "must not contain control characters or broken code points";
  }
  if (!isChecked(kind) && INVISIBLE.test(text)) {
    return "must not contain invisible format characters";
  }
  if (!isChecked(kind) && spellsReminderTag(text)) {
    return "must not spell a system-reminder tag";
  }
  return null;
}

function decodeNames(value: unknown, max: number): readonly string[] | null {
  if (value === undefined) {
    return [];
  }
  if (!Array.isArray(value) || value.length > max) {
    return null;
  }
  const names: string[] = [];
  for (const name of value as unknown[]) {
    if (
      typeof name !== "string" ||
      name === "" ||
      name.length > MAX_NAME_CHARS ||
      CONTROL.test(name)
    ) {
      return null;
    }
    names.push(name);
  }
  return names;
}
