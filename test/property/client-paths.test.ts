import fc from "fast-check";
import { test } from "vitest";
import { ValidationError } from "../../client/errors.ts";
import { escapePath } from "../../client/transport.ts";

const segment = fc.oneof(
  fc.string({ unit: "binary", maxLength: 12 }),
  fc.constantFrom(
    "..",
    ".",
    "",
    "%2e%2e",
    "a/../b",
    "\\..\\",
    "{}",
    "?x=1",
    "#y",
    "ü漢🙂",
    "\u0000",
    "\r\n",
    "$&",
    "__proto__",
  ),
);

test("escapePath() keeps every argument one segment, whatever it is, or refuses it", async ({
  expect,
}) => {
  fc.assert(
    fc.property(segment, segment, (first, second) => {
      let path: string;
      try {
        path = escapePath("/a/{}/b/{}/c", [first, second]);
      } catch (cause) {
        expect(cause).toBeInstanceOf(ValidationError);
        expect(
          [first, second].some((arg) => ["", ".", ".."].includes(arg) || !arg.isWellFormed()),
        ).toBe(true);
        return;
      }
      const url = new URL(`http://x${path}`);
      expect(url.search + url.hash).toBe("");
      const parts = url.pathname.split("/").map(decodeURIComponent);
      expect(parts).toEqual(["", "a", first, "b", second, "c"]);
    }),
    { numRuns: 1000 },
  );
});
