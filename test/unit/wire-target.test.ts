import { describe, expect, test } from "vitest";
import {
  canonicalForms,
  encodeForwardPath,
  encodeForwardQuery,
  isForwardablePath,
  joinTarget,
  queryValues,
  readTarget,
  removeQueryKey,
  sameAuthority,
  setQueryPair,
  splitTarget,
} from "../../policy/kernel/target.ts";
import cases from "../cases/targets.json" with { type: "json" };

describe("targets", () => {
  test.for(cases.read)("readTarget() reads $method $target as $kind", (row) => {
    const reading = readTarget(row.method, row.target);
    expect(reading.kind).toBe(row.kind);
    if (reading.kind === "origin") {
      expect(reading).toMatchObject({ target: row.is, authority: row.authority ?? null });
    }
  });

  test.for(cases.canonical)("canonicalForms() of $path", ({ path, forms }) => {
    expect(canonicalForms(path)).toEqual([path, ...forms]);
  });

  test.for(cases.forwardable)("isForwardablePath() of $path is $ok", ({ path, ok }) => {
    expect(isForwardablePath(path)).toBe(ok);
  });

  test.for(cases.encodePath)("encodeForwardPath() of $text", ({ text, bytes }) => {
    expect(encodeForwardPath(text)).toBe(bytes);
  });

  test.for(cases.encodeQuery)("encodeForwardQuery() of $text", ({ text, bytes }) => {
    expect(encodeForwardQuery(text)).toBe(bytes);
  });

  test.for(cases.query)(
    "setQueryPair() and removeQueryKey() on $query",
    ({ query, key, set, removed }) => {
      expect(setQueryPair(query, key, "7")).toBe(set);
      expect(removeQueryKey(query, key)).toBe(removed);
    },
  );

  test("queryValues() decodes once and keeps broken escapes", () => {
    expect(queryValues("t=a+b&t=%2541&x=1&%74=%zz&t", "t")).toEqual(["a b", "%41", "%zz", ""]);
    expect(queryValues(null, "t")).toEqual([]);
  });

  test("splitTarget() cuts at the first question mark and joinTarget() is its inverse", () => {
    expect(splitTarget("/a?b?c")).toEqual({ path: "/a", query: "b?c" });
    for (const target of ["/a", "/a?", "/a?b?c", "*"]) {
      const { path, query } = splitTarget(target);
      expect(joinTarget(path, query)).toBe(target);
    }
  });

  test("sameAuthority() overlooks case, a final dot and a default port, and nothing else", () => {
    expect(sameAuthority("A.example", "a.EXAMPLE.")).toBe(true);
    expect(sameAuthority("a.example:80", "a.example")).toBe(true);
    expect(sameAuthority("[::1]:8080", "[::1]:8080")).toBe(true);
    expect(sameAuthority("a.example:8080", "a.example")).toBe(false);
    expect(sameAuthority("a.example", "b.example")).toBe(false);
    expect(sameAuthority("a.example", "xa.example")).toBe(false);
  });
});
