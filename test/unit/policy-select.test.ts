import { expect, test } from "vitest";
import { explainHooks, selectHook } from "../../dispatcher/select.ts";
import { compilePolicy } from "../../policy/compile/compile.ts";
import type { RuleRequest } from "../../policy/compile/compiled-policy.ts";
import { decodeContainerDocument } from "../../policy/documents/container-document.ts";
import { emptyProjectDocument } from "../../policy/documents/project-document.ts";
import cases from "../cases/hook-rules.json" with { type: "json" };

const PROJECT = "67e89abc123def456789abcd";
const CONTAINER = "890abcdef12345678901cdef";

interface Case {
  readonly name: string;
  readonly rules: readonly unknown[];
  readonly request: {
    readonly method?: string;
    readonly path?: string;
    readonly canonical?: readonly string[];
    readonly headers?: Readonly<Record<string, string>>;
    readonly granting?: readonly string[];
    readonly upgrade?: boolean;
    readonly pathBytes?: number;
  };
  readonly selection: string;
  readonly rule?: number;
  readonly failed?: readonly (string | null)[];
}

function hooksOf(hooks: unknown) {
  const groups = Object.fromEntries(
    cases.groups.map((name) => [name, { type: "ip", range: "10.0.0.0/8" }]),
  );
  const decoded = decodeContainerDocument(
    JSON.stringify({ groups: { ...groups, broken: { type: "ip", range: "x" } }, hooks }),
    PROJECT,
    CONTAINER,
  );
  if (!decoded.ok) {
    throw new Error(decoded.reason);
  }
  return compilePolicy(decoded.document, emptyProjectDocument(PROJECT)).hooks;
}

const withIds = (rules: readonly unknown[]): unknown[] =>
  rules.map((rule, index) =>
    typeof rule === "object" ? { id: String(index).padStart(26, "0"), ...rule } : rule,
  );

test.for(cases.cases as readonly Case[])(
  "selectHook() $name",
  ({ rules, request, selection, rule, failed }) => {
    const hooks = hooksOf({ terminal: withIds(rules) }).get("terminal");
    const path = request.path ?? "/";
    const asked: RuleRequest = {
      method: request.method ?? "GET",
      paths: [path, ...(request.canonical ?? [])],
      header: (name) => request.headers?.[name],
    };
    const more = [
      new Set(request.granting),
      request.upgrade ?? false,
      request.pathBytes ?? path.length,
    ] as const;
    const chosen = selectHook(hooks, asked, ...more);
    expect(chosen.kind === "refuse" ? chosen.code : chosen.kind).toBe(selection);
    if (rule !== undefined) {
      expect(chosen).toMatchObject({ rule: { position: rule } });
    }
    const explained = explainHooks(hooks, asked, ...more);
    expect(explained.selection).toEqual(chosen);
    if (failed !== undefined) {
      expect(explained.verdicts.map((verdict) => verdict.failed)).toEqual(failed);
    }
  },
);

test("selectHook() refuses every request to a service whose hooks cannot be read, and only to that service", () => {
  const hooks = hooksOf({ files: "oops", terminal: [] });
  const asked: RuleRequest = { method: "GET", paths: ["/"], header: () => undefined };
  expect(selectHook(hooks.get("files"), asked, new Set(), true, 1)).toEqual({
    kind: "refuse",
    code: "HOOK_UNAVAILABLE",
    rule: null,
  });
  expect(explainHooks(hooks.get("files"), asked, new Set(), false, 1).verdicts).toEqual([]);
  expect(selectHook(hooks.get("terminal"), asked, new Set(), false, 1)).toEqual({ kind: "none" });
});

test("hooks that are no object make every service unreadable; hooks of platform services never run", () => {
  expect(hooksOf([]).get("terminal")).toMatchObject({ kind: "unreadable" });
  expect([...hooksOf({ logs: withIds([{}]), t: [], nonsense: 1 }).keys()]).toEqual([]);
});

test("a member that occurs twice makes just its service unreadable", () => {
  const decoded = decodeContainerDocument(
    '{"hooks": {"files": [{"match": {}, "match": {}}], "terminal": []}}',
    PROJECT,
    CONTAINER,
  );
  if (!decoded.ok) {
    throw new Error(decoded.reason);
  }
  expect(decoded.document.hooks.get("files")).toMatchObject({ kind: "unreadable" });
  expect(decoded.document.hooks.get("terminal")).toMatchObject({ kind: "rules" });
});

test.for([
  "",
  "[]",
  "{",
  '{"a":1,"a":2}',
  '{"project":"x"}',
  '{"file_version":-1}',
  '{"file_version":"1"}',
])("decodeContainerDocument() refuses %j as a whole", (text) => {
  expect(decodeContainerDocument(text, PROJECT, CONTAINER).ok).toBe(false);
});
