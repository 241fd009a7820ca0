import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "vitest";
import { ERRORS, type ErrorCode, errorBody, errorFields } from "../../policy/kernel/errors.ts";

const page = readFileSync(join(import.meta.dirname, "../../docs/errors.md"), "utf8");
const rows = page.split("\n").filter((line) => line.startsWith("| `"));

test.for(Object.keys(ERRORS) as ErrorCode[])(
  "docs/errors.md tells status and text of %s",
  (code, { expect }) => {
    const entry: { status: number; error?: string } = ERRORS[code];
    const row = rows.find((line) => line.split("|")[1]?.includes(`\`${code}\``));
    expect(row?.split("|")[2]?.trim()).toBe(String(entry.status));
    expect(row).toContain(entry.error === undefined ? code : `\`${entry.error}\``);
  },
);

test("docs/errors.md has no code that does not exist", ({ expect }) => {
  const documented = rows.flatMap((line) =>
    [...(line.split("|")[1] ?? "").matchAll(/`([A-Z_]+)`/g)].map((m) => m[1]),
  );
  expect(documented.filter((code) => !((code as string) in ERRORS))).toEqual([]);
});

test.for(Object.keys(ERRORS) as ErrorCode[])(
  "errorBody(%s) has the members of every answer of ours",
  (code, { expect }) => {
    const body = JSON.parse(errorBody(code, undefined, "id")) as Record<string, unknown>;
    expect(Object.keys(body)).toEqual(["statusCode", "error", "code", "message", "auditId"]);
    expect(errorFields(code)).toContain("no-store");
  },
);
