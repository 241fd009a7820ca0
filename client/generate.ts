/**
 * Turns an OpenAPI 3.1 description into the text of `schema.ts`: one exported type per named schema and the
 * interface `Operations`, keyed `METHOD /path` with every path argument written `{}`. Knows what the control
 * API's description uses and refuses the rest, so that nothing silently becomes `unknown`.
 */

type Json = Readonly<Record<string, unknown>>;

const HEADER = `/**
 * Types of the control API, generated from its own description (GET /openapi.json). Do not edit;
 * \`node test/support/client-schema.ts\` writes this file again.
 */
`;

const VERBS = ["get", "put", "post", "delete", "patch"] as const;

/**
 * The text of the types, not formatted.
 *
 * @throws Error for a schema that has no translation, with its place.
 */
export function generateSchema(description: unknown): string {
  const root = object(description, "description");
  const named = object(object(root["components"] ?? {}, "components")["schemas"] ?? {}, "schemas");
  const types = Object.entries(named).map(([name, schema]) => {
    if (!/^[A-Z][A-Za-z0-9]*$/.test(name)) {
      throw new Error(`${name} cannot be the name of a type`);
    }
    return `export type ${name} = ${typeOf(schema, name)};\n`;
  });
  const operations = Object.entries(object(root["paths"] ?? {}, "paths")).flatMap(([path, item]) =>
    VERBS.flatMap((verb) => {
      const operation = object(item, path)[verb];
      return operation === undefined ? [] : [operationText(verb, path, object(operation, path))];
    }),
  );
  return `${HEADER}\n${types.join("\n")}\nexport interface Operations {\n${operations.join("")}}\n`;
}

function operationText(verb: string, path: string, operation: Json): string {
  const key = `${verb.toUpperCase()} ${path.replaceAll(/\{[^}]*\}/g, "{}")}`;
  const body = jsonSchema(operation["requestBody"], key);
  const answer = Object.entries(object(operation["responses"] ?? {}, key))
    .filter(([status]) => /^2\d\d$/.test(status))
    .map(([, response]) => jsonSchema(response, key))
    .find((schema) => schema !== undefined);
  return [
    comment(operation["summary"]),
    `${JSON.stringify(key)}: {\n`,
    body === undefined ? "" : `readonly body: ${typeOf(body, `${key} body`)};\n`,
    `readonly answer: ${answer === undefined ? "unknown" : typeOf(answer, `${key} answer`)};\n`,
    "};\n",
  ].join("");
}

/** The JSON schema of a request body or a response; undefined when it has none. */
function jsonSchema(holder: unknown, place: string): unknown {
  if (holder === undefined) {
    return undefined;
  }
  const content = object(object(holder, place)["content"] ?? {}, place);
  const json = content["application/json"];
  return json === undefined ? undefined : object(json, place)["schema"];
}

function typeOf(schema: unknown, place: string): string {
  if (schema === true) {
    return "unknown";
  }
  if (schema === false) {
    return "never";
  }
  const s = object(schema, place);
  if (typeof s["$ref"] === "string") {
    const name = /^#\/components\/schemas\/([A-Za-z0-9]+)$/.exec(s["$ref"])?.[1];
    if (name === undefined) {
      throw new Error(`${place}: ${s["$ref"]} is no reference to a schema`);
    }
    return name;
  }
  if ("const" in s) {
    return JSON.stringify(s["const"]);
  }
  if (Array.isArray(s["enum"])) {
    return union(s["enum"].map((value) => JSON.stringify(value)));
  }
  for (const [keyword, sign] of [
    ["anyOf", "|"],
    ["oneOf", "|"],
    ["allOf", "&"],
  ] as const) {
    const parts = s[keyword];
    if (Array.isArray(parts)) {
      const texts = parts.map((part, at) => `(${typeOf(part, `${place} ${keyword}[${at}]`)})`);
      return sign === "|" ? union(texts) : texts.join(" & ");
    }
  }
  const type = s["type"];
  if (Array.isArray(type)) {
    return union(type.map((one) => `(${typeOf({ ...s, type: one }, place)})`));
  }
  switch (type) {
    case undefined:
      if (Object.keys(s).every((key) => key === "description" || key === "default")) {
        return "unknown";
      }
      break;
    case "string":
      return "string";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    case "null":
      return "null";
    case "array":
      return arrayType(s, place);
    case "object":
      return objectType(s, place);
  }
  throw new Error(`${place}: no type for ${JSON.stringify(schema).slice(0, 200)}`);
}

function arrayType(s: Json, place: string): string {
  if (Array.isArray(s["prefixItems"])) {
    const items = s["prefixItems"].map((item, at) => typeOf(item, `${place}[${at}]`));
    return `readonly [${items.join(", ")}]`;
  }
  return `readonly (${typeOf(s["items"] ?? true, `${place}[]`)})[]`;
}

function objectType(s: Json, place: string): string {
  const members = Object.entries(object(s["properties"] ?? {}, place));
  const required = new Set(Array.isArray(s["required"]) ? s["required"] : []);
  const rest = s["additionalProperties"];
  const open = rest !== undefined && rest !== false;
  if (members.length === 0) {
    return rest === false
      ? "Readonly<Record<string, never>>"
      : `Readonly<Record<string, ${open ? typeOf(rest, `${place}.*`) : "unknown"}>>`;
  }
  const lines = members.map(([name, member]) => {
    const description = typeof member === "object" && member !== null ? member : {};
    const text = comment((description as Json)["description"]);
    const mark = required.has(name) ? "" : "?";
    return `${text}readonly ${JSON.stringify(name)}${mark}: ${typeOf(member, `${place}.${name}`)};\n`;
  });
  if (open) {
    lines.push("readonly [member: string]: unknown;\n");
  }
  return `{\n${lines.join("")}}`;
}

function union(parts: readonly string[]): string {
  const distinct = [...new Set(parts)];
  return distinct.length === 0 ? "never" : distinct.join(" | ");
}

function comment(text: unknown): string {
  return typeof text === "string" && text !== ""
    ? `/** ${text.replaceAll("*/", "* /").replaceAll(/\s+/g, " ")} */\n`
    : "";
}

function object(value: unknown, place: string): Json {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Error(`${place} is no object`);
  }
  return value as Json;
}
