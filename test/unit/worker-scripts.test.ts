import { describe, expect, test } from "vitest";
import { areHookCoordinates, isReservedName } from "../../exec-host/scripts/coordinates.ts";
import { parseDirectives } from "../../exec-host/scripts/directives.ts";
import { parseEnvFile } from "../../exec-host/scripts/env-file.ts";
import { boundaryOf, parseMultipart } from "../../exec-host/scripts/multipart.ts";
import { parseSource, SourceError } from "../../exec-host/scripts/source.ts";
import { toPathText } from "../../exec-host/worker/path-text.ts";
import directiveCases from "../cases/worker-directives.json" with { type: "json" };

describe("parseDirectives()", () => {
  test.each(directiveCases)("reads $name", ({ source, expect: wanted, warnings }) => {
    const parsed = parseDirectives(source);
    expect(parsed.directives).toMatchObject(wanted);
    expect(parsed.warnings.map((warning) => warning.directive)).toEqual(warnings);
  });

  test("stops looking after a hundred lines", () => {
    expect(parseDirectives(`${"\n".repeat(98)}// @rawBody`).directives.rawBody).toBe(true);
    expect(parseDirectives(`${"\n".repeat(101)}// @rawBody`).directives.rawBody).toBe(false);
  });
});

describe("areHookCoordinates()", () => {
  test.each([
    [null, null, "/a", true],
    ["app", "7", "/A/b_c-d.js", true],
    ["a".repeat(63), "b".repeat(64), `/${"c".repeat(256)}`, true],
    ["a".repeat(64), null, "/a", false],
    ["", null, "/a", false],
    ["App", null, "/a", false],
    ["a-b", null, "/a", false],
    [null, "b".repeat(65), "/a", false],
    [null, "a_b", "/a", false],
    [null, null, `/${"c".repeat(257)}`, false],
    [null, null, "a", false],
    [null, null, "/a//b", false],
    [null, null, "/a/../b", false],
    [null, null, "/.", false],
    [null, null, "/a%20", false],
    [null, null, "/a*", false],
    [null, null, "/\u00e9", false],
    [null, null, "/a\n", false],
  ])("%s %s %s: %s", (subdomain, execId, path, fits) => {
    expect(areHookCoordinates(subdomain, execId, path)).toBe(fits);
  });

  test("isReservedName() holds in any case", () => {
    expect(
      ["node_modules", "Node_Modules", ".git", "_SDK", "_hoody", ".hoody-cache"].every(
        isReservedName,
      ),
    ).toBe(true);
    expect(["lib", "constructor", "__proto__"].some(isReservedName)).toBe(false);
  });
});

describe("parseSource()", () => {
  test.each([
    ["module.exports = f;", "module"],
    ["module['exports'] = f;", "module"],
    ["exports.default = f;", "module"],
    ["exports = module.exports = f;", "module"],
    ["(function () { module.exports = f; })();", "module"],
    ["module.exports.default = f;", "module"],
    ["module.exports.other = f;", "body"],
    ["exports.other = f;", "body"],
    ["const text = 'module.exports = 1';", "body"],
    ["// module.exports = 1\nreturn 1;", "body"],
    ["export default f;", "esm"],
    ["export { f as default };", "esm"],
    ["export const a = 1;", "esm"],
    ["import a from 'a'; return a;", "body"],
    ["await f(); return 1;", "body"],
    ["", "body"],
  ])("takes %s for %s", (text, shape) => {
    expect(parseSource(text, false).shape).toBe(shape);
  });

  test("keeps lines and columns of code behind imports and import.meta", () => {
    const { code, imports } = parseSource(
      "import a, {\n  b as c,\n} from 'x'; import 'y';\nimport.meta.url;",
      false,
    );
    expect(code.split("\n")).toEqual([
      "           ",
      "         ",
      "                       ",
      "importMeta_.url;",
    ]);
    expect(imports).toEqual([
      { specifier: "x", imported: "default", local: "a" },
      { specifier: "x", imported: "b", local: "c" },
      { specifier: "y", imported: null, local: null },
    ]);
  });

  test.each([
    ["a = ;", 1],
    ["\n\nif (", 3],
    ["x\n}\n", 2],
  ])("names the line of what does not parse: %j", (text, line) => {
    let thrown: unknown;
    try {
      parseSource(text, false);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(SourceError);
    expect(thrown).toMatchObject({ line });
  });

  test("does not end in a stack overflow on deep code that parses", () => {
    expect(parseSource(`return ${"a+".repeat(3000)}a;`, false).shape).toBe("body");
  });
});

describe("parseEnvFile()", () => {
  test("reads names, quotes, escapes and comments, and leaves the rest out", () => {
    const text = [
      "A=1",
      "export B = two words # note",
      'C="a # b\\n\\"c\\""',
      "D='single $x'",
      "E=",
      "# F=1",
      "1G=1",
      "H",
      "I=a#b",
      "A=2",
    ].join("\r\n");
    expect([...parseEnvFile(text)]).toEqual([
      ["A", "2"],
      ["B", "two words"],
      ["C", 'a # b\n"c"'],
      ["D", "single $x"],
      ["E", ""],
      ["I", "a#b"],
    ]);
  });
});

describe("parseMultipart()", () => {
  const parse = (text: string) => parseMultipart(Buffer.from(text, "latin1"), "B");
  const part = (head: string, data: string) => `--B\r\n${head}\r\n\r\n${data}\r\n`;

  test("reads fields and files, keeping repeats and empty ones", () => {
    const form = parse(
      `preamble\r\n${part('Content-Disposition: form-data; name="a"', "1")}${part('content-disposition: form-data; name="a"', "")}${part('Content-Disposition: form-data; name="f"; filename=""\r\nContent-Type: x/y', "")}--B--\r\nepilogue`,
    );
    expect(form?.fields).toEqual([
      ["a", "1"],
      ["a", ""],
    ]);
    expect(form?.files).toMatchObject([{ fieldName: "f", filename: "", type: "x/y", size: 0 }]);
  });

  test.each([
    ["", "nothing"],
    ["--B", "no line end"],
    ["--B\r\nContent-Disposition: form-data\r\n\r\nx\r\n--B--", "no name"],
    ["--B\r\nX: y\r\n\r\nx\r\n--B--", "no disposition"],
    ["--B\r\nContent-Disposition: form-data; name=a\r\n\r\nx", "no end"],
    ["x--B--", "delimiter in mid-line"],
  ])("takes %j for no form (%s)", (text) => {
    expect(parse(text)).toBeNull();
  });

  test("boundaryOf() reads plain and quoted boundaries", () => {
    expect(boundaryOf("multipart/form-data; boundary=abc; x=y")).toBe("abc");
    expect(boundaryOf('multipart/form-data; charset=x; Boundary="a b"')).toBe("a b");
    expect(boundaryOf("multipart/form-data")).toBeNull();
  });
});

describe("toPathText()", () => {
  test.each([
    ["/plain%20", "/plain%20"],
    ["/caf\u00c3\u00a9", "/caf\u00e9"],
    ["/\u00e2\u0082\u00ac\u00f0\u009f\u0098\u0080", "/\u20ac\u{1f600}"],
    ["/\u00ff\u00c3", "/%FF%C3"],
    ["/\u00c0\u00af", "/%C0%AF"],
    ["/\u00ed\u00a0\u0080", "/%ED%A0%80"],
    ["/\u00e2\u0082", "/%E2%82"],
  ])("%j is %j", (bytes, text) => {
    expect(toPathText(bytes)).toBe(text);
  });
});
