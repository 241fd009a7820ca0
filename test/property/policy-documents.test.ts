import fc from "fast-check";
import { expect, test } from "vitest";
import { selectHook } from "../../dispatcher/select.ts";
import { compilePolicy } from "../../policy/compile/compile.ts";
import { compileTexts } from "../../policy/store/cache.ts";
import {
  decodeContainerDocument,
  formatContainerDocument,
  rulesOf,
  withRules,
} from "../../policy/documents/container-document.ts";
import type { HookRule, StoredRule } from "../../policy/documents/hook.ts";
import {
  insertRule,
  moveRule,
  removeRule,
  replaceRule,
} from "../../policy/documents/hooks-edit.ts";
import {
  decodeProjectDocument,
  emptyProjectDocument,
} from "../../policy/documents/project-document.ts";
import { parseStrictJson, StrictJsonError } from "../../policy/kernel/strict-json.ts";

const RUNS = { numRuns: Number(process.env["PROPERTY_RUNS"] ?? 1_000) };
const PROJECT = "67e89abc123def456789abcd";
const CONTAINER = "890abcdef12345678901cdef";

/** JSON as anybody might leave it in a document: our own words in all the wrong places. */
const names = fc.constantFrom(
  "groups",
  "permissions",
  "hooks",
  "default",
  "enable_proxy",
  "file_version",
  "terminal",
  "files",
  "t",
  "logs",
  "match",
  "script",
  "path",
  "method",
  "headers",
  "timeout",
  "applies_to",
  "id",
  "type",
  "range",
  "__proto__",
  "constructor",
  "x",
);
const values = fc.constantFrom(
  null,
  true,
  0,
  -1,
  1.5,
  500,
  "",
  "*",
  "GET",
  "/a*",
  "/a",
  "allow",
  "staff",
  "ip",
  "10.0.0.0/8",
  "0".repeat(26),
);
const { json } = fc.letrec<{ json: unknown }>((tie) => ({
  json: fc.oneof(
    { maxDepth: 5, withCrossShrink: true },
    values,
    fc.array(tie("json"), { maxLength: 4 }),
    fc
      .array(fc.tuple(names, tie("json")), { maxLength: 5 })
      .map((members) => Object.fromEntries(members)),
  ),
}));
const hooksDocument = fc
  .record(
    {
      groups: json,
      permissions: json,
      hooks: fc.dictionary(fc.constantFrom("terminal", "files", "t"), json),
      default: json,
    },
    { requiredKeys: [] },
  )
  .map((document) => JSON.stringify(document));

test("parseStrictJson() reads what JSON.parse reads, and each source is that of its value", () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 4 }), fc.nat(3), (text, indent) => {
      const spaced = JSON.stringify(JSON.parse(text), null, indent);
      const parsed = parseStrictJson(spaced, { maxDepth: 32, spanDepth: 2 });
      expect(JSON.stringify(parsed.value)).toBe(JSON.stringify(JSON.parse(spaced)));
      expect(parsed.source([])).toBe(spaced);
      if (typeof parsed.value === "object" && parsed.value !== null) {
        for (const [name, member] of Object.entries(parsed.value)) {
          expect(JSON.stringify(JSON.parse(parsed.source([name]) ?? ""))).toBe(
            JSON.stringify(member),
          );
        }
      }
    }),
    RUNS,
  );
});

test("parseStrictJson() refuses what JSON.parse refuses, and only with its own error", () => {
  const damaged = fc
    .tuple(
      fc.json({ maxDepth: 3 }),
      fc.nat(),
      fc.constantFrom("", "}", "]", '"', ",", "\\", "0", "-", "e", "\u0000", "nul", " "),
    )
    .map(([text, at, piece]) => {
      const cut = at % (text.length + 1);
      return text.slice(0, cut) + piece + text.slice(cut + 1);
    });
  fc.assert(
    fc.property(damaged, (text) => {
      let expected: unknown;
      try {
        expected = JSON.parse(text, (_, value: unknown) => {
          // Numbers that would turn into infinity are the one thing that we are stricter about.
          if (typeof value === "number" && !Number.isFinite(value)) {
            throw new SyntaxError("number out of range");
          }
          return value;
        });
      } catch {
        expect(() => parseStrictJson(text, { maxDepth: 32 })).toThrow(StrictJsonError);
        return;
      }
      expect(JSON.stringify(parseStrictJson(text, { maxDepth: 32 }).value)).toBe(
        JSON.stringify(expected),
      );
    }),
    RUNS,
  );
});

test("no stored text makes decoding, compiling or choosing throw, and none opens what it does not say", () => {
  fc.assert(
    fc.property(
      fc.oneof(
        hooksDocument,
        json.map((value) => JSON.stringify(value)),
        fc.string(),
      ),
      hooksDocument,
      (own, shared) => {
        const policy = compileTexts(PROJECT, CONTAINER, own, shared);
        for (const hooks of policy.hooks.values()) {
          const request = { method: "GET", paths: ["/a"], header: () => undefined };
          const selection = selectHook(hooks, request, new Set(["staff"]), false, 2);
          if (hooks.kind === "unreadable") {
            expect(selection).toMatchObject({ kind: "refuse", code: "HOOK_UNAVAILABLE" });
          }
          if (selection.kind === "dispatch") {
            expect(selection.rule.invalid).toBeNull();
          }
        }
        if (policy.unavailable !== null) {
          expect(policy.access).toMatchObject({ enableProxy: false, defaultAllow: false });
        }
        expect(() => decodeProjectDocument(own, PROJECT)).not.toThrow();
      },
    ),
    RUNS,
  );
});

test("a document that is written back says what it said, byte for byte where nothing was edited", () => {
  fc.assert(
    fc.property(hooksDocument, (text) => {
      const decoded = decodeContainerDocument(text, PROJECT, CONTAINER);
      if (!decoded.ok) {
        return;
      }
      const written = formatContainerDocument(withRules(decoded.document, "notes", []));
      const again = decodeContainerDocument(written, PROJECT, CONTAINER);
      expect(again.ok).toBe(true);
      if (again.ok) {
        for (const [service, part] of decoded.document.hooks) {
          expect(again.document.hooks.get(service)?.source).toBe(part.source);
        }
        expect(JSON.stringify(again.document.access)).toBe(JSON.stringify(decoded.document.access));
        const compiled = compilePolicy(again.document, emptyProjectDocument(PROJECT));
        expect([...compiled.hooks.keys()]).toEqual([
          ...compilePolicy(decoded.document, emptyProjectDocument(PROJECT)).hooks.keys(),
        ]);
      }
    }),
    RUNS,
  );
});

const ruleOf = (n: number): HookRule => ({
  id: String(n).padStart(26, "0"),
  match: {},
  script: { path: `/${n}` },
});
const ids = (rules: readonly StoredRule[]): (string | null)[] => rules.map((rule) => rule.id);

test("edits keep the order and the ids of all other rules", () => {
  const edit = fc.record({
    kind: fc.constantFrom("insert", "move", "remove", "replace"),
    at: fc.nat(9),
    to: fc.nat(12),
  });
  fc.assert(
    fc.property(fc.array(edit, { maxLength: 20 }), (edits) => {
      let rules: readonly StoredRule[] = [];
      let model: string[] = [];
      edits.forEach(({ kind, at, to }, step) => {
        const id = model[at % Math.max(model.length, 1)] ?? "0".repeat(26);
        const before = ids(rules);
        if (kind === "insert") {
          const edited = insertRule(rules, ruleOf(step + 1), to);
          model = model.toSpliced(Math.min(to, model.length), 0, ruleOf(step + 1).id);
          rules = edited.rules;
          expect(ids(rules)[edited.position]).toBe(ruleOf(step + 1).id);
        } else if (kind === "move") {
          const edited = moveRule(rules, id, to);
          expect(edited === null).toBe(!model.includes(id));
          if (edited !== null) {
            const rest = model.filter((each) => each !== id);
            model = rest.toSpliced(Math.min(to, rest.length), 0, id);
            rules = edited.rules;
          }
        } else if (kind === "remove") {
          rules = removeRule(rules, id)?.rules ?? rules;
          model = model.filter((each) => each !== id);
        } else {
          rules = replaceRule(rules, { ...ruleOf(0), id })?.rules ?? rules;
          expect(ids(rules)).toEqual(before);
        }
        expect(ids(rules)).toEqual(model);
      });
    }),
    RUNS,
  );
});

test("a member that is moved between services leaves the others alone", () => {
  const decoded = decodeContainerDocument(
    JSON.stringify({ hooks: { terminal: [ruleOf(1)], files: [ruleOf(2), { broken: 1 }] } }),
    PROJECT,
    CONTAINER,
  );
  if (!decoded.ok) {
    throw new Error(decoded.reason);
  }
  const edited = withRules(
    decoded.document,
    "terminal",
    insertRule(rulesOf(decoded.document, "terminal"), ruleOf(3), 0).rules,
  );
  expect(edited.hooks.get("files")).toBe(decoded.document.hooks.get("files"));
});
