import fc from "fast-check";
import { describe, test } from "vitest";
import { SERVICES } from "../../policy/documents/services.ts";
import { forceQuery, forcedPairs } from "../../proxy/forced-query.ts";

const pair = fc.oneof(
  fc.constantFrom(
    "terminal_id=9",
    "terminal%5fid=9",
    "%74erminal_id",
    "display=1",
    "id=3",
    "i%64=4",
    "browser_port=1",
    "browser%5Fport=2",
    "agent=1",
    "x=%ZZ",
    "",
    "=",
    "a+b=c",
  ),
  fc.string({ unit: fc.constantFrom("a", "%", "=", "+", "_", "6", "9"), maxLength: 8 }),
);
const query = fc.option(
  fc.array(pair, { maxLength: 8 }).map((pairs) => pairs.join("&")),
  { nil: null },
);
const service = fc.constantFrom(...SERVICES);

/** Another reader of the same query: what a service in the container would see. */
const valuesOf = (text: string | null, key: string) => new URLSearchParams(text ?? "").getAll(key);

describe("forceQuery()", () => {
  test("leaves one value of every forced key, and it is ours", ({ expect }) => {
    fc.assert(
      fc.property(query, service, fc.nat(9), fc.constantFrom("plain", "hook"), (q, to, n, use) => {
        const index = Math.max(n, to.minIndex);
        const forced = forceQuery(q, to, index, use);
        for (const { key, value } of forcedPairs(to, index, use)) {
          expect(valuesOf(forced, key)).toEqual(value === null ? [] : [value]);
        }
      }),
    );
  });

  test("changes nothing when done again, and keeps all other pairs byte for byte", ({ expect }) => {
    fc.assert(
      fc.property(query, service, fc.integer({ min: 1, max: 9 }), (q, to, index) => {
        const forced = forceQuery(q, to, index, "plain");
        expect(forceQuery(forced, to, index, "plain")).toBe(forced);
        const keys = new Set(forcedPairs(to, index, "plain").map(({ key }) => key));
        const others = (text: string | null) =>
          text === null
            ? []
            : text
                .split("&")
                .filter((one) => [...new URLSearchParams(one).keys()].every((k) => !keys.has(k)));
        const kept = others(forced);
        // An empty query is no pair at all.
        expect(kept.filter((one) => one !== "")).toEqual(others(q).filter((one) => one !== ""));
      }),
    );
  });
});
