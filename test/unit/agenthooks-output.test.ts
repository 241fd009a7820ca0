import { expect, test } from "vitest";
import { readHookOutput } from "../../exec-host/agent/hooks/hook-output.ts";
import cases from "../cases/agenthooks-output.json" with { type: "json" };

test.for(cases)("readHookOutput() reads $name", ({ stdout, expected }, { expect }) => {
  const output = readHookOutput(stdout);
  if (expected === null) {
    expect(output).toBeNull();
  } else {
    expect(output).toMatchObject(expected);
  }
});

test("readHookOutput() takes rewrite and context from the last object", () => {
  const output = readHookOutput(
    [
      '{"hookSpecificOutput":{"updatedInput":{"cmd":"echoed"},"additionalContext":"echoed"}}',
      '{"systemMessage":"note","hookSpecificOutput":{"updatedInput":{"cmd":"real"},"additionalContext":"more"}}',
    ].join("\n"),
  );
  expect(output).toMatchObject({ updatedInput: { cmd: "real" }, context: ["note", "more"] });
});

test("readHookOutput() stays quick on text made of brackets", () => {
  const started = performance.now();
  expect(readHookOutput('{"'.repeat(32_000))).toBeNull();
  expect(readHookOutput("{".repeat(65_000))).toBeNull();
  expect(readHookOutput('{"a":'.repeat(13_000) + '{"decision":"block"}')).toMatchObject({
    decision: "deny",
  });
  expect(performance.now() - started).toBeLessThan(3000);
});
