import fc from "fast-check";
import { expect, test } from "vitest";
import { isForbidden } from "../../policy/kernel/http1/field-section.ts";
import { newRequestId } from "../../policy/kernel/ids.ts";
import { removeQueryKey } from "../../policy/kernel/target.ts";
import { forceQuery, forcedPairs } from "../../proxy/forced-query.ts";
import { SERVICES } from "../../policy/documents/services.ts";

/** The same said as an expression (RFC 9112 2.2, 5.2): control characters, a lone CR or LF, continuation lines. */
const FORBIDDEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|[^\r]\n|\n[ \t]/;

const heads = fc
  .array(
    fc.oneof(
      { weight: 3, arbitrary: fc.constantFrom("\r\n", "\r", "\n", " ", "\t", "a: b", ":", "\x7f") },
      { weight: 1, arbitrary: fc.string({ unit: fc.nat(255).map((n) => String.fromCharCode(n)) }) },
    ),
  )
  .map((parts) => parts.join(""));

test("isForbidden() says what the expression says", () => {
  fc.assert(
    fc.property(heads, (text) => {
      expect(isForbidden(text)).toBe(FORBIDDEN.test(text));
    }),
    { numRuns: 2000 },
  );
});

test("newRequestId() gives 16 hex characters, never the same twice", () => {
  const ids = Array.from({ length: 20_000 }, () => newRequestId());
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids.every((id) => /^[0-9a-f]{16}$/.test(id))).toBe(true);
});

const queries = fc
  .array(
    fc.tuple(
      fc.constantFrom("terminal_id", "terminal%5Fid", "%74erminal_id", "display", "x", "", "a+b"),
      fc.constantFrom("", "=1", "=%32", "=a=b"),
    ),
  )
  .map((pairs) => pairs.map(([key, value]) => key + value).join("&"));

test("removeQueryKey() leaves no spelling of the key and every other pair as it was", () => {
  fc.assert(
    fc.property(queries, (query) => {
      const rest = removeQueryKey(query, "terminal_id");
      const isKey = (pair: string): boolean =>
        decodeURIComponent((pair.split("=")[0] ?? "").replaceAll("+", " ")) === "terminal_id";
      const kept = query.split("&").filter((pair) => !isKey(pair));
      expect(rest).toBe(kept.length === 0 ? null : kept.join("&"));
    }),
  );
});

test("forceQuery() gives the same for an instance it has seen before as for a new one", () => {
  const services = fc.constantFrom(...SERVICES);
  fc.assert(
    fc.property(
      services,
      fc.nat(3),
      fc.constantFrom("plain", "hook"),
      (service, index, purpose) => {
        const first = forceQuery("a=1", service, index, purpose);
        expect(forceQuery("a=1", service, index, purpose)).toBe(first);
        for (const { key, value } of forcedPairs(service, index, purpose)) {
          expect(first?.includes(`${key}=`) ?? false).toBe(value !== null);
        }
      },
    ),
  );
});
