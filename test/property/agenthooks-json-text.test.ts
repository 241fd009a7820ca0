import fc from "fast-check";
import { expect, test } from "vitest";
import { setMember } from "../../exec-host/agent/settings/json-text.ts";

const keys = fc.constantFrom(
  "version",
  "hooks",
  "a",
  "b",
  "10",
  "2",
  "é",
  'q"uote',
  "__proto__",
  "constructor",
);
const indents = fc.constantFrom(undefined, 2, 4, "\t", 0);

/** A JSON text whose keys may repeat, with its members in order. */
const documents = fc
  .tuple(fc.array(fc.tuple(keys, fc.jsonValue())), indents)
  .map(([members, indent]) => {
    const glue = indent === undefined || indent === 0 ? "," : ",\n";
    const space = typeof indent === "number" ? " ".repeat(indent) : (indent ?? "");
    const lines = members.map(
      ([key, value]) => `${space}${JSON.stringify(key)}: ${JSON.stringify(value, null, indent)}`,
    );
    return {
      text: `{${glue === "," ? "" : "\n"}${lines.join(glue)}${glue === "," ? "" : "\n"}}`,
      members,
      lines,
    };
  });

test("setMember() changes one member's value and nothing else", () => {
  fc.assert(
    fc.property(
      documents,
      keys,
      fc.option(fc.jsonValue(), { nil: undefined }),
      ({ text, members, lines }, key, value) => {
        const edited = setMember(text, key, value);
        const before = JSON.parse(text) as Record<string, unknown>;
        const after = JSON.parse(edited) as Record<string, unknown>;
        expect(Object.hasOwn(after, key)).toBe(value !== undefined);
        if (value !== undefined) {
          expect(after[key]).toEqual(JSON.parse(JSON.stringify(value)));
        }
        for (const other of Object.keys(before).filter((name) => name !== key)) {
          expect(after[other]).toEqual(before[other]);
        }
        // the spelling of every other member stands as it was
        for (const [index, [name]] of members.entries()) {
          if (name !== key) {
            expect(edited).toContain(lines[index]);
          }
        }
        expect(setMember(edited, key, value)).toBe(edited);
      },
    ),
    { numRuns: 500 },
  );
});
