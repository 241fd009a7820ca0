import fc from "fast-check";
import { test } from "vitest";
import { runCli } from "../support/cli-run.ts";

const COMMANDS = [
  ["containers", "list"],
  ["containers", "get"],
  ["containers", "proxy", "hooks", "list"],
  ["containers", "proxy", "hooks", "create"],
  ["containers", "proxy", "hooks", "delete"],
  ["containers", "proxy", "services", "hooks", "clear"],
  ["containers", "proxy", "services", "get"],
  ["containers", "proxy", "permissions", "get"],
  ["containers", "proxy", "permissions", "group", "jwt", "set"],
  ["projects", "proxy", "permissions", "cell", "set"],
  ["containers", "proxy", "groups", "list"],
  ["proxy", "aliases", "list"],
  ["proxy", "aliases", "create"],
  ["explain"],
  ["tail", "--no-follow"],
];
const WORDS = [
  "-c",
  "890abcdef12345678901cdef",
  "--project",
  "terminal",
  "GET",
  "/x",
  "-y",
  "-o",
  "json",
  "yaml",
  "table",
  "-q",
];
const FLAGS = [
  "--if-match",
  "file:v1",
  "--script-path",
  "--match-method",
  "--access",
  "true",
  "--header",
  "a=b",
  "--program",
  "--",
  "-",
  "--unknown",
  "-n",
  "3",
  "__proto__",
  "",
];

const line = fc
  .tuple(
    fc.constantFrom(...COMMANDS),
    fc.array(
      fc.oneof(fc.constantFrom(...WORDS), fc.constantFrom(...FLAGS), fc.string({ maxLength: 8 })),
      { maxLength: 9 },
    ),
  )
  .map(([command, rest]) => [...command, ...rest]);

/** What a server of any kind might answer. */
const answer = fc.record({
  status: fc.constantFrom(200, 200, 200, 201, 400, 404, 412, 500),
  body: fc.oneof(
    fc.json({ maxDepth: 4 }),
    fc
      .jsonValue({ maxDepth: 3 })
      .map((data) => JSON.stringify({ statusCode: 200, message: "", data })),
    fc.string(),
  ),
});

test("no command line and no answer makes a command throw, or say more than one sentence", async ({
  expect,
}) => {
  await fc.assert(
    fc.asyncProperty(line, answer, async (args, { status, body }) => {
      const result = await runCli(args, {
        fetch: () =>
          Promise.resolve(
            new Response(body, { status, headers: { "content-type": "application/json" } }),
          ),
      });
      expect([0, 1, 2]).toContain(result.code);
      if (result.code === 0) {
        expect(result.stderr).toBe("");
      } else {
        expect(result.stdout).toBe("");
        expect(result.stderr).toMatch(/^Error[^\n]*\n$/);
      }
    }),
    { numRuns: 400 },
  );
});
