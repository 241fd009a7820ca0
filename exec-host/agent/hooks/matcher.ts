import { compileLinear } from "./linear-regexp.ts";

/** Names under which hook authors know the tools, with the internal names. */
const ALIASES: ReadonlyMap<string, string> = new Map([
  ["Bash", "bash"],
  ["Edit", "edit_file"],
  ["MultiEdit", "edit_file"],
  ["Write", "write_file"],
  ["Read", "read_file"],
  ["LS", "list_dir"],
  ["Glob", "glob"],
  ["Grep", "grep"],
  ["AskUserQuestion", "ask_question_to_user"],
  ["Task", "spawn_agent"],
]);

const aliasesOf = new Map<string, string[]>();
for (const [alias, tool] of ALIASES) {
  aliasesOf.set(tool, [...(aliasesOf.get(tool) ?? []), alias]);
}

/** The internal name that a name or alias means. */
export function toToolName(name: string): string {
  return ALIASES.get(name) ?? name;
}

/** A tool's internal name followed by its aliases; also for an alias. */
export function toolNames(name: string): readonly string[] {
  const tool = toToolName(name);
  return [tool, ...(aliasesOf.get(tool) ?? [])];
}

/** The matcher in its one spelling: absent, empty and `*` are the wildcard group, `*`. */
export function normalMatcher(matcher: string | undefined): string {
  return matcher === undefined || matcher === "" ? "*" : matcher;
}

/** Tests the names a thing is known by; true when one of them fits. */
export type Matcher = (names: readonly string[]) => boolean;

/** Longest name a pattern is run on; a longer one fits every pattern, so that no name is too long for a gate. */
const MAX_NAME_CHARS = 256;

/**
 * Compiles a matcher (section 9): the wildcard fits all; a text of letters, digits, `_` and `|` is a list of exact names; anything
 * else is an anchored, case-sensitive regular expression.
 *
 * @returns null when it does not compile.
 */
export function compileMatcher(matcher: string): Matcher | null {
  const normal = normalMatcher(matcher);
  if (normal === "*") {
    return () => true;
  }
  if (/^[A-Za-z0-9_|]+$/.test(normal)) {
    const wanted = new Set(normal.split("|"));
    return (names) => names.some((name) => wanted.has(name));
  }
  const pattern = compileLinear(normal);
  if (pattern === null) {
    return null;
  }
  return (names) => names.some((name) => name.length > MAX_NAME_CHARS || pattern.test(name));
}
