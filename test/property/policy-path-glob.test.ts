import fc from "fast-check";
import picomatch from "picomatch";
import { expect, test } from "vitest";
import { compilePathGlob } from "../../policy/compile/path-glob.ts";

/** The grammar in ten lines: a final star fits any rest, another one or more characters of one segment. */
function fits(glob: string, path: string): boolean {
  if (glob === "") {
    return path === "";
  }
  if (glob === "*") {
    return true;
  }
  if (!glob.startsWith("*")) {
    return path !== "" && path[0] === glob[0] && fits(glob.slice(1), path.slice(1));
  }
  const end = `${path}/`.indexOf("/");
  return Array.from({ length: end }, (_, i) => i + 1).some((n) =>
    fits(glob.slice(1), path.slice(n)),
  );
}

const text = (alphabet: string, max: number) =>
  fc
    .array(fc.constantFrom(...alphabet.split("")), { maxLength: max })
    .map((chars) => `/${chars.join("")}`);

test("compilePathGlob() equals the reference matcher", () => {
  fc.assert(
    fc.property(text("ab./*", 9), text("ab./%", 10), (glob, path) => {
      expect(compilePathGlob(glob).test(path)).toBe(fits(glob, path));
    }),
    { numRuns: Number(process.env["PROPERTY_RUNS"] ?? 5_000) },
  );
});

test("compilePathGlob() equals the reference matcher on paths made from the glob", () => {
  const glob = text("ab./*", 12);
  const made = glob.chain((pattern) =>
    fc.tuple(
      fc.constant(pattern),
      fc
        .array(fc.constantFrom("a", "b", "ab", "a.", "", "/", "aab"), {
          minLength: 13,
          maxLength: 13,
        })
        .map((fills) =>
          pattern
            .split("")
            .map((char, i) => (char === "*" ? fills[i] : char))
            .join(""),
        ),
    ),
  );
  fc.assert(
    fc.property(made, ([pattern, path]) => {
      expect(compilePathGlob(pattern).test(path)).toBe(fits(pattern, path));
    }),
    { numRuns: Number(process.env["PROPERTY_RUNS"] ?? 5_000) },
  );
});

test("compilePathGlob() equals picomatch on globs without a final star", () => {
  // Every option that says what a star, a dot or a slash means, so that nothing but the two rules is left.
  const options = {
    bash: false,
    dot: true,
    fastpaths: false,
    literalBrackets: true,
    nobrace: true,
    nocase: false,
    noext: true,
    noglobstar: true,
    nonegate: true,
    regex: false,
    strictSlashes: true,
    windows: false,
  };
  fc.assert(
    fc.property(text("ab./*", 9), text("ab./", 10), (glob, path) => {
      fc.pre(!glob.endsWith("*"));
      // A star of ours is at least one character: one of any kind, then any number.
      const expression = picomatch.makeRe(glob.replaceAll("*", "?*"), options);
      expect(compilePathGlob(glob).test(path)).toBe(expression.test(path));
    }),
    { numRuns: Number(process.env["PROPERTY_RUNS"] ?? 2_000) },
  );
});
