import fc from "fast-check";
import { expect, test } from "vitest";
import { readHookOutput } from "../../exec-host/agent/hooks/hook-output.ts";
import { isHighRisk } from "../../exec-host/agent/hooks/high-risk.ts";
import { SHIPPED_HOOKS } from "../../exec-host/agent/hooks/shipped.ts";
import { decodeRule } from "../../exec-host/agent/rules/rule.ts";
import { decodeSettings, parseSettings } from "../../exec-host/agent/settings/document.ts";
import { setMember } from "../../exec-host/agent/settings/json-text.ts";

const names = fc.constantFrom(
  "version",
  "hooks",
  "rules",
  "PreToolUse",
  "matcher",
  "command",
  "timeout",
  "id",
  "text",
  "kind",
  "tools",
  "exec_trust",
  "mcp_servers",
  "shipped_hooks",
  "deny_list",
  "__proto__",
  "constructor",
);

/** JSON whose keys are the ones that settings give a meaning to. */
const { odd } = fc.letrec<{ odd: unknown }>((tie) => ({
  odd: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom<unknown>(1, 0, -1, 1.5, "", "*", "([", "limit", "echo", true, false, null),
    fc.array(tie("odd"), { maxLength: 3 }),
    fc.dictionary(names, tie("odd"), { maxKeys: 4 }),
  ),
}));

test("whatever stands in a settings file is decoded or named in a warning, never thrown", () => {
  fc.assert(
    fc.property(fc.dictionary(names, odd), (settings) => {
      const text = JSON.stringify({ ...settings, version: 1 });
      const parsed = parseSettings(text);
      expect(parsed.ok).toBe(true);
      const document = decodeSettings(parsed.ok ? parsed.value : {}, "file");
      expect(document.ruleWarnings.every((line) => document.warnings.includes(line))).toBe(true);
      for (const hook of document.hooks) {
        expect(hook.command.trim()).not.toBe("");
      }
      JSON.parse(setMember(text, "rules", []));
    }),
    { numRuns: 1000 },
  );
});

test("rules and hook output of any kind are decoded or refused, never thrown", () => {
  fc.assert(
    fc.property(odd, fc.string(), (value, text) => {
      decodeRule(value);
      readHookOutput(text + JSON.stringify(value) + text);
      isHighRisk(text);
      SHIPPED_HOOKS.forEach((hook) => hook.triggers({ text, exitCode: 2 }));
      parseSettings(text);
    }),
    { numRuns: 1000 },
  );
});
