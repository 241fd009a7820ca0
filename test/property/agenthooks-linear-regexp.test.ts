import fc from "fast-check";
import { test } from "vitest";
import { compileLinear } from "../../exec-host/agent/hooks/linear-regexp.ts";

const atom = fc.constantFrom(
  "a",
  "b",
  "_",
  ".",
  "\\w",
  "\\d",
  "[ab]",
  "[^a]",
  "[a-c_]",
  "\\b",
  "1",
  "\\.",
  "^",
  "$",
);
const quantifier = fc.constantFrom("", "", "*", "+", "?", "{2}", "{1,2}", "{0,1}", "*?", "+?");

const { pattern } = fc.letrec<{ pattern: string; term: string }>((tie) => ({
  pattern: fc
    .array(
      fc.array(tie("term"), { maxLength: 3 }).map((terms) => terms.join("")),
      { minLength: 1, maxLength: 3 },
    )
    .map((choices) => choices.join("|")),
  term: fc.oneof(
    { maxDepth: 2, withCrossShrink: true },
    fc
      .tuple(atom, quantifier)
      .map(([text, mark]) => (/^(?:\\b|\^|\$)$/.test(text) ? text : text + mark)),
    fc
      .tuple(fc.constantFrom("(", "(?:"), tie("pattern"), quantifier)
      .map(([open, body, mark]) => `${open}${body})${mark}`),
  ),
}));

test("compileLinear() agrees with the language's own engine", () => {
  fc.assert(
    fc.property(
      pattern,
      fc.string({ unit: fc.constantFrom("a", "b", "c", "_", "1", ".", " "), maxLength: 5 }),
      (source, text) => {
        // the other engine backtracks: with many repetitions in one pattern it would not come back
        fc.pre((source.match(/[*+?{]/g) ?? []).length <= 5);
        const linear = compileLinear(source);
        if (linear === null) {
          return true; // too large, or refused: never a wrong answer
        }
        return linear.test(text) === new RegExp(`^(?:${source})$`).test(text);
      },
    ),
    { numRuns: 1500 },
  );
});
