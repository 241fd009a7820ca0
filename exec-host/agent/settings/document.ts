import { isHookEvent, MAX_HOOK_SECONDS } from "../hooks/events.ts";
import type { HookEvent } from "../hooks/events.ts";
import { compileMatcher, normalMatcher } from "../hooks/matcher.ts";
import type { Matcher } from "../hooks/matcher.ts";
import { decodeExecTrust, execTrustKey, MAX_EXEC_TRUST } from "../rules/exec-trust.ts";
import type { ExecTrust } from "../rules/exec-trust.ts";
import { decodeRule } from "../rules/rule.ts";
import type { Rule } from "../rules/rule.ts";
import { isObject, ownMember } from "./canonical-json.ts";
import { isTooDeep } from "./json-text.ts";

/** The one version of settings files that is read and written. */
export const SETTINGS_VERSION = 1;
/** Bounds of `rules_timeout_ms`. */
export const MIN_RULES_TIMEOUT_MS = 100;
export const MAX_RULES_TIMEOUT_MS = 120_000;
/** Most hooks of one file; matching every call against a file must stay cheap. */
export const MAX_HOOKS_PER_FILE = 128;
/** Longest hook command in characters: what fits into one argument of a process with room to spare. */
export const MAX_COMMAND_CHARS = 65_536;
const MAX_WARNINGS = 200;
const MAX_LIST_ENTRIES = 1000;

/** Members whose meaning is fixed here; a file that has none of them may be without a version. */
const OWN_KEYS = [
  "hooks",
  "shipped_hooks",
  "disableAllHooks",
  "disable_all_hooks",
  "rules",
  "rules_timeout_ms",
  "exec_trust",
  "mcp_servers",
  "deny_list",
  "deny_urls",
  "disabled_tools",
  "prompt_blocks",
] as const;

/** A lifecycle hook as it stands in a file. */
export interface StoredHook {
  readonly event: HookEvent;
  /** Normal spelling, `*` for the wildcard group. */
  readonly matcher: string;
  readonly command: string;
  readonly name: string;
  readonly description: string;
  /** Seconds; absent or 0: the event's default. */
  readonly timeout: number | undefined;
  readonly disabled: boolean;
  /** null where the matcher does not compile: such a hook is listed and never runs. */
  readonly matches: Matcher | null;
}

/** One settings file, decoded. What is not valid is left out and named in `warnings`. */
export interface SettingsDocument {
  readonly hooks: readonly StoredHook[];
  readonly shippedHooks: ReadonlySet<string>;
  readonly disableAllHooks: boolean;
  readonly rules: readonly Rule[];
  readonly rulesTimeoutMs: number | undefined;
  readonly execTrust: readonly ExecTrust[];
  readonly mcpServers: readonly unknown[];
  readonly denyList: readonly string[];
  readonly denyUrls: readonly string[];
  readonly disabledTools: readonly string[];
  /** `prompt_blocks.team_rules`, where the file says it. */
  readonly teamRules: boolean | undefined;
  readonly warnings: readonly string[];
  /** Those that may hide a rule. */
  readonly ruleWarnings: readonly string[];
}

/** The parsed object of a settings file, or why there is none. */
export type ParsedSettings =
  | { readonly ok: true; readonly value: Record<string, unknown> }
  | { readonly ok: false; readonly reason: string };

/** Parses the text of a settings file. Never throws. */
export function parseSettings(text: string): ParsedSettings {
  if (isTooDeep(text)) {
    return { ok: false, reason: "nests too deeply" };
  }
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? { ok: true, value } : { ok: false, reason: "is not a JSON object" };
  } catch {
    return { ok: false, reason: "is not valid JSON" };
  }
}

/** What the version of a parsed file allows: `absent` means that nothing in it is ours yet. */
export function versionOf(value: Record<string, unknown>): "ok" | "absent" | "missing" | "wrong" {
  const version = ownMember(value, "version");
  if (version === SETTINGS_VERSION) {
    return "ok";
  }
  if (version !== undefined) {
    return "wrong";
  }
  return OWN_KEYS.some((key) => Object.hasOwn(value, key)) ? "missing" : "absent";
}

/**
 * Decodes a parsed settings file. A missing or wrong version leaves out everything but what only narrows (deny
 * lists, disabled tools): a mistake in a version must not lift a ban.
 *
 * @param label how warnings name the file.
 */
export function decodeSettings(value: Record<string, unknown>, label: string): SettingsDocument {
  const warnings: string[] = [];
  const ruleWarnings: string[] = [];
  const warn = (text: string, hidesRule = false): void => {
    const line = `${label}: ${text}`;
    if (warnings.length < MAX_WARNINGS) {
      warnings.push(line);
    }
    if (hidesRule && ruleWarnings.length < MAX_WARNINGS) {
      ruleWarnings.push(line);
    }
  };
  const narrowing = {
    denyList: strings(value, "deny_list", warn),
    denyUrls: strings(value, "deny_urls", warn),
    disabledTools: strings(value, "disabled_tools", warn),
  };
  const version = versionOf(value);
  if (version === "missing" || version === "wrong") {
    warn(`skipped, its version is ${version} (expected ${SETTINGS_VERSION})`, true);
    return { ...EMPTY_DOCUMENT, ...narrowing, warnings, ruleWarnings };
  }
  return {
    hooks: decodeHooks(ownMember(value, "hooks"), warn),
    shippedHooks: decodeShipped(ownMember(value, "shipped_hooks"), warn),
    disableAllHooks: decodeSwitch(value, warn),
    rules: decodeRules(ownMember(value, "rules"), warn),
    rulesTimeoutMs: decodeTimeout(ownMember(value, "rules_timeout_ms"), warn),
    execTrust: decodeGrants(ownMember(value, "exec_trust"), warn),
    mcpServers: decodeList(value, "mcp_servers", warn),
    ...narrowing,
    teamRules: decodeTeamRules(ownMember(value, "prompt_blocks")),
    warnings,
    ruleWarnings,
  };
}

/** What a missing file holds. */
export const EMPTY_DOCUMENT: SettingsDocument = {
  hooks: [],
  shippedHooks: new Set(),
  disableAllHooks: false,
  rules: [],
  rulesTimeoutMs: undefined,
  execTrust: [],
  mcpServers: [],
  denyList: [],
  denyUrls: [],
  disabledTools: [],
  teamRules: undefined,
  warnings: [],
  ruleWarnings: [],
};

type Warn = (text: string, hidesRule?: boolean) => void;

/** The one shape of hooks: event -> groups `{matcher, hooks: [{type: "command", command, …}]}`. Any other is not run. */
function decodeHooks(value: unknown, warn: Warn): readonly StoredHook[] {
  if (value === undefined) {
    return [];
  }
  if (!isObject(value)) {
    warn("hooks is not an object of events; none of it is used");
    return [];
  }
  const hooks: StoredHook[] = [];
  for (const [event, groups] of Object.entries(value)) {
    if (!isHookEvent(event)) {
      warn(`hooks: unknown event ${shown(event)}`);
      continue;
    }
    if (!Array.isArray(groups)) {
      warn(`hooks.${event} is not a list of groups; none of it is used`);
      continue;
    }
    if (groups.length > MAX_HOOKS_PER_FILE) {
      warn(`hooks.${event} has more than ${MAX_HOOKS_PER_FILE} groups; the rest is not used`);
    }
    for (const group of (groups as unknown[]).slice(0, MAX_HOOKS_PER_FILE)) {
      decodeGroup(event, group, hooks, warn);
    }
  }
  return hooks;
}

function decodeGroup(event: HookEvent, group: unknown, hooks: StoredHook[], warn: Warn): void {
  const matcher = isObject(group) ? ownMember(group, "matcher") : undefined;
  const entries = isObject(group) ? ownMember(group, "hooks") : undefined;
  if (!Array.isArray(entries) || (matcher !== undefined && typeof matcher !== "string")) {
    warn(`hooks.${event}: a group needs a list "hooks" and a text "matcher"; it is not used`);
    return;
  }
  const normal = normalMatcher(matcher);
  const matches = compileMatcher(normal);
  if (matches === null) {
    warn(`hooks.${event}: the matcher ${shown(normal)} does not compile; its hooks never run`);
  }
  for (const entry of entries as unknown[]) {
    if (hooks.length >= MAX_HOOKS_PER_FILE) {
      warn(`more than ${MAX_HOOKS_PER_FILE} hooks; the rest is not used`);
      return;
    }
    const hook = decodeHook(event, entry, warn);
    if (typeof hook === "string") {
      warn(`hooks.${event}: ${hook}; it is not used`);
    } else {
      hooks.push({ event, matcher: normal, matches, ...hook });
    }
  }
}

function decodeHook(
  event: HookEvent,
  entry: unknown,
  warn: Warn,
): Omit<StoredHook, "event" | "matcher" | "matches"> | string {
  if (!isObject(entry)) {
    return "an entry is not an object";
  }
  const type = ownMember(entry, "type");
  if (type !== undefined && type !== "command") {
    return `an entry has the unknown type ${shown(typeof type === "string" ? type : typeof type)}`;
  }
  const command = ownMember(entry, "command");
  if (!isCommand(command)) {
    return "an entry has no usable command";
  }
  const timeout = ownMember(entry, "timeout");
  if (timeout !== undefined && !isSeconds(timeout)) {
    // a guard must not vanish because of its timeout
    warn(`hooks.${event}: a timeout is not a whole number of seconds; the default holds`);
  }
  const disabled = ownMember(entry, "disabled");
  return {
    command,
    name: text(ownMember(entry, "name")),
    description: text(ownMember(entry, "description")),
    timeout: isSeconds(timeout) ? Math.min(timeout, MAX_HOOK_SECONDS) : undefined,
    disabled: disabled === true,
  };
}

/** True for a command that can be handed to a process. */
export function isCommand(value: unknown): value is string {
  return (
    typeof value === "string" &&
    value.trim() !== "" &&
    value.length <= MAX_COMMAND_CHARS &&
    !value.includes("\0")
  );
}

/** True for a whole, non-negative number of seconds of any size. */
export function isSeconds(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0;
}

function decodeShipped(value: unknown, warn: Warn): ReadonlySet<string> {
  if (value === undefined) {
    return new Set();
  }
  if (!isObject(value)) {
    warn("shipped_hooks is not an object");
    return new Set();
  }
  return new Set(Object.keys(value).filter((id) => value[id] === true));
}

function decodeSwitch(value: Record<string, unknown>, warn: Warn): boolean {
  let off = false;
  for (const key of ["disableAllHooks", "disable_all_hooks"]) {
    const member = ownMember(value, key);
    if (member !== undefined && typeof member !== "boolean") {
      warn(`${key} is not true or false; it is ignored`);
    }
    off ||= member === true;
  }
  return off;
}

function decodeRules(value: unknown, warn: Warn): readonly Rule[] {
  if (value === undefined) {
    return [];
  }
  if (!Array.isArray(value)) {
    warn("rules is not a list; none of it is used", true);
    return [];
  }
  const rules: Rule[] = [];
  const ids = new Set<string>();
  for (const entry of (value as unknown[]).slice(0, MAX_LIST_ENTRIES)) {
    const decoded = decodeRule(entry);
    if (!decoded.ok) {
      warn(`a rule is left out: ${decoded.problem.field} ${decoded.problem.message}`, true);
    } else if (ids.has(decoded.rule.id)) {
      warn(`a second rule ${decoded.rule.id} is left out`, true);
    } else {
      ids.add(decoded.rule.id);
      rules.push(decoded.rule);
    }
  }
  if (value.length > MAX_LIST_ENTRIES) {
    warn(`rules has more than ${MAX_LIST_ENTRIES} entries; the rest is left out`, true);
  }
  return rules;
}

function decodeTimeout(value: unknown, warn: Warn): number | undefined {
  if (value === undefined) {
    return undefined;
  }
  if (isSeconds(value) && value >= MIN_RULES_TIMEOUT_MS && value <= MAX_RULES_TIMEOUT_MS) {
    return value;
  }
  warn(
    `rules_timeout_ms is not between ${MIN_RULES_TIMEOUT_MS} and ${MAX_RULES_TIMEOUT_MS}; it is ignored`,
  );
  return undefined;
}

function decodeGrants(value: unknown, warn: Warn): readonly ExecTrust[] {
  if (value === undefined) {
    return [];
  }
  if (!Array.isArray(value)) {
    warn("exec_trust is not a list; none of it is used");
    return [];
  }
  const grants = new Map<string, ExecTrust>();
  for (const entry of (value as unknown[]).slice(0, MAX_EXEC_TRUST)) {
    const grant = decodeExecTrust(entry);
    if (typeof grant === "string") {
      warn(`a grant of exec_trust is left out: ${grant}`);
    } else {
      grants.set(execTrustKey(grant), grant);
    }
  }
  return [...grants.values()];
}

function decodeList(value: Record<string, unknown>, key: string, warn: Warn): readonly unknown[] {
  const list = ownMember(value, key);
  if (list === undefined) {
    return [];
  }
  if (!Array.isArray(list)) {
    warn(`${key} is not a list; none of it is used`);
    return [];
  }
  return (list as unknown[]).slice(0, MAX_LIST_ENTRIES);
}

function strings(value: Record<string, unknown>, key: string, warn: Warn): readonly string[] {
  const list = decodeList(value, key, warn);
  const texts = list.filter((entry) => typeof entry === "string");
  if (texts.length !== list.length) {
    warn(`${key} has entries that are not texts; they are ignored`);
  }
  return texts;
}

function decodeTeamRules(value: unknown): boolean | undefined {
  const member = isObject(value) ? ownMember(value, "team_rules") : undefined;
  return typeof member === "boolean" ? member : undefined;
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** A short, quoted form of outside text for messages. */
function shown(value: string): string {
  return JSON.stringify(value.length > 80 ? `${value.slice(0, 80)}…` : value);
}
