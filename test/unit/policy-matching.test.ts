import { describe, expect, test } from "vitest";
import { compilePathGlob } from "../../policy/compile/path-glob.ts";
import { compileHeaders, compileMethod, compilePath } from "../../policy/compile/predicate.ts";
import type { RuleRequest } from "../../policy/compile/compiled-policy.ts";
import cases from "../cases/matching.json" with { type: "json" };

function request(parts: {
  method?: string;
  paths?: string[];
  headers?: Record<string, string | undefined>;
}): RuleRequest {
  return {
    method: parts.method ?? "GET",
    paths: parts.paths ?? ["/"],
    header: (name) => parts.headers?.[name],
  };
}

describe("compilePath()", () => {
  test.for(cases.paths)("$glob", ({ glob, fits, not }) => {
    const test = compilePath(glob);
    expect(fits.filter((path) => !test(request({ paths: [path] })))).toEqual([]);
    expect(not.filter((path) => test(request({ paths: [path] })))).toEqual([]);
  });

  test("fits when any reading fits", () => {
    expect(compilePath("/a")(request({ paths: ["/%61", "/a"] }))).toBe(true);
  });
});

test.for(cases.refusedGlobs)("compilePathGlob() refuses %j", (glob) => {
  expect(() => compilePathGlob(glob)).toThrow("not a path glob");
});

test("compilePathGlob() is linear where star expressions usually backtrack", () => {
  const glob = `/${"*a".repeat(120)}*b*/x`;
  const expression = compilePathGlob(glob);
  const started = performance.now();
  expect(expression.test(`/${"a".repeat(16_000)}/x`)).toBe(false);
  expect(compilePathGlob(`/${"*/".repeat(100)}x`).test(`/${"aaa/".repeat(4_000)}`)).toBe(false);
  expect(performance.now() - started).toBeLessThan(1_000);
});

test.for(cases.methods)("compileMethod() $rule", ({ rule, fits, not }) => {
  const test = compileMethod(rule);
  expect(fits.filter((method) => !test(request({ method })))).toEqual([]);
  expect(not.filter((method) => test(request({ method })))).toEqual([]);
});

test.for(cases.headers)("compileHeaders() $rule on $headers", ({ rule, headers, fits }) => {
  expect(compileHeaders(rule as Record<string, string>)(request({ headers }))).toBe(fits);
});
