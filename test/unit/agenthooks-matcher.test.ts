import { expect, test } from "vitest";
import { compileMatcher, toolNames } from "../../exec-host/agent/hooks/matcher.ts";

test.for([
  ["*", "bash", true],
  ["", "bash", true],
  ["Bash", "bash", true],
  ["bash", "bash", true],
  ["BASH", "bash", false],
  ["Bas", "bash", false],
  ["Edit|Write", "write_file", true],
  ["MultiEdit", "edit_file", true],
  ["Edit|Write", "bash", false],
  ["mcp__.*", "mcp__git__push", true],
  ["mcp__.*", "xmcp__git__push", false],
  ["mcp__git__(push|pull)", "mcp__git__push", true],
  ["(?!Bash|bash).*", "bash", false],
  ["(?!Bash|bash).*", "write_file", true],
  ["^(?!mcp__).*$", "mcp__a__b", false],
  [".*_file", "read_file", true],
  ["Bash ", "bash", false],
] as const)("compileMatcher(%j) on %s is %s", ([matcher, tool, expected], { expect }) => {
  expect(compileMatcher(matcher)?.(toolNames(tool))).toBe(expected);
});

test.for([
  "([",
  "*bash",
  "(a)\\1",
  "(?<=a)b",
  "(?<!a)b",
  "a(?=b)c",
  "\\p{L}+",
  "(?i:a).",
  "(((((a{9}){9}){9}){9}){9}).",
])("compileMatcher(%j) does not compile", (matcher, { expect }) => {
  expect(compileMatcher(matcher)).toBeNull();
});

test("compileMatcher() is not slowed down by patterns that trap backtracking engines", () => {
  const started = performance.now();
  for (const pattern of [
    "(a+)+!",
    "(a|a)*!",
    "(a|aa)+!",
    "(.*.*)*".repeat(30) + "!",
    "([a-z]+)*!",
    "(a?){100}a{100}!",
  ]) {
    expect(compileMatcher(pattern)?.(["a".repeat(250)])).toBe(false);
  }
  expect(performance.now() - started).toBeLessThan(2000);
});

test("compileMatcher() lets a name that is too long to be tried fit, so that no gate is walked round", () => {
  expect(compileMatcher("x.")?.(["a".repeat(300)])).toBe(true);
});
