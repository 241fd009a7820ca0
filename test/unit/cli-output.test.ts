import fc from "fast-check";
import { test } from "vitest";
import { parse } from "yaml";
import {
  formatCell,
  formatJson,
  formatJsonLine,
  formatMembers,
  formatTable,
  formatYaml,
} from "../../proxy/cli/output.ts";
import { safeText } from "../../policy/kernel/safe-text.ts";

const HOSTILE = "\u001b[2J\u009b31m\u0007\r\nnext\u007f\u202eabc\u2028\u0000";
/** Anything a terminal could take for an order, line feeds apart. */
// eslint-disable-next-line no-control-regex -- these are what must not be there
const ORDERS = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/;

test("safeText() shows controls as escapes, on one line", ({ expect }) => {
  expect(safeText(HOSTILE)).toBe("\\x1b[2J\\x9b31m\\x07\\x0d\\x0anext\\x7f\\u202eabc\\u2028\\x00");
  expect(safeText("plain Ünïcode 漢字 🙂")).toBe("plain Ünïcode 漢字 🙂");
});

test("no format lets a control character through, and JSON and YAML keep the value", async ({
  expect,
}) => {
  await fc.assert(
    fc.asyncProperty(
      fc.dictionary(fc.string({ unit: "binary" }), fc.string({ unit: "binary" }), { maxKeys: 4 }),
      fc.string({ unit: "binary-ascii" }),
      async (data, text) => {
        const value = { ...data, text, fixed: HOSTILE };
        const outputs = [
          formatJson(value),
          formatJsonLine(value),
          formatYaml(value),
          formatMembers(value),
        ];
        for (const output of outputs) {
          expect(output).not.toMatch(ORDERS);
        }
        expect(JSON.parse(outputs[0] ?? "")).toEqual(JSON.parse(JSON.stringify(value)));
        expect(parse(outputs[2] ?? "")).toEqual(JSON.parse(JSON.stringify(value)));
      },
    ),
    { numRuns: 300 },
  );
});

test("formatTable() aligns columns and has a footer", ({ expect }) => {
  const view = {
    columns: ["a", "long"],
    rows: [
      ["x", 1],
      ["yyy", ["p", "q"]],
      [null, { k: 1 }],
    ],
    empty: "Nothing.",
    footer: "Version file:v1",
  };
  expect(formatTable(view, false)).toBe(
    'A    LONG\nx    1\nyyy  p,q\n-    {"k":1}\nVersion file:v1\n',
  );
  expect(formatTable(view, true)).toBe('x    1\nyyy  p,q\n-    {"k":1}\n');
  expect(formatTable({ ...view, rows: [] }, false)).toBe("Nothing.\nVersion file:v1\n");
  expect(formatTable({ ...view, rows: [] }, true)).toBe("");
});

test("formatCell() shows nothing as a dash", ({ expect }) => {
  expect([undefined, null, "", [], 0, false].map(formatCell)).toEqual([
    "-",
    "-",
    "-",
    "-",
    "0",
    "false",
  ]);
});
