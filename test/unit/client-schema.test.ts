import { readFileSync } from "node:fs";
import { test } from "vitest";
import { generateSchema } from "../../client/generate.ts";
import { controlDescription, formatted, SCHEMA_FILE } from "../support/client-schema.ts";

test("client/schema.ts is what the control API's description gives", async ({ expect }) => {
  const text = formatted(generateSchema(await controlDescription()));
  expect(text, "run node test/support/client-schema.ts").toBe(readFileSync(SCHEMA_FILE, "utf8"));
});

/** The type of one schema, without line breaks. */
function typeOf(schema: unknown): string {
  const text = generateSchema({ components: { schemas: { It: schema } } });
  return /export type It = ([\s\S]*?);\n\nexport/.exec(text)?.[1]?.replaceAll(/\s+/g, " ") ?? "";
}

test.for<[unknown, string]>([
  [{ type: "string", pattern: "^a$" }, "string"],
  [{ type: "integer" }, "number"],
  [{ type: ["string", "null"] }, "(string) | (null)"],
  [{ enum: ["a", 1, null] }, '"a" | 1 | null'],
  [{ const: true }, "true"],
  [{}, "unknown"],
  [true, "unknown"],
  [{ not: {} }, ""],
  [{ type: "array", items: { type: "string" } }, "readonly (string)[]"],
  [{ type: "array", prefixItems: [{ type: "string" }, true] }, "readonly [string, unknown]"],
  [{ type: "object" }, "Readonly<Record<string, unknown>>"],
  [{ type: "object", additionalProperties: false }, "Readonly<Record<string, never>>"],
  [
    { type: "object", additionalProperties: { type: "number" } },
    "Readonly<Record<string, number>>",
  ],
  [
    {
      type: "object",
      properties: { a: { type: "string", description: "An */ a." }, "b-c": { type: "null" } },
      required: ["a"],
      additionalProperties: {},
    },
    '{ /** An * / a. */ readonly "a": string; readonly "b-c"?: null; readonly [member: string]: unknown; }',
  ],
  [
    { anyOf: [{ type: "string" }, { type: "string" }, { type: "boolean" }] },
    "(string) | (boolean)",
  ],
  [
    { allOf: [{ $ref: "#/components/schemas/It" }, { type: "object" }] },
    "(It) & (Readonly<Record<string, unknown>>)",
  ],
])("generateSchema() translates %j", ([schema, type], { expect }) => {
  if (type === "") {
    expect(() => typeOf(schema)).toThrow("no type for");
  } else {
    expect(typeOf(schema)).toBe(type);
  }
});

test("generateSchema() refuses what it cannot name", ({ expect }) => {
  expect(() => generateSchema(null)).toThrow("is no object");
  expect(() => generateSchema({ components: { schemas: { "a; evil": {} } } })).toThrow(
    "name of a type",
  );
  expect(() => typeOf({ $ref: "https://elsewhere/x" })).toThrow("no reference");
  expect(() => typeOf({ type: "tuple" })).toThrow("no type for");
});

test("generateSchema() makes an entry per operation, its path arguments without names", ({
  expect,
}) => {
  const json = (schema: unknown) => ({ content: { "application/json": { schema } } });
  const text = generateSchema({
    paths: {
      "/a/{id}/b/{name}": {
        post: {
          summary: "Make it",
          requestBody: json({ type: "string" }),
          responses: { 201: json({ type: "boolean" }), 400: json({ type: "null" }) },
        },
        get: { responses: { 200: { content: { "text/event-stream": {} } } } },
      },
    },
  }).replaceAll(/\s+/g, " ");
  expect(text).toContain(
    '"GET /a/{}/b/{}": { readonly answer: unknown; }; /** Make it */ "POST /a/{}/b/{}": { readonly body: string; readonly answer: boolean; };',
  );
});
