import { Ajv2020 } from "ajv/dist/2020.js";
import type { JsonObject } from "../agent/seams.ts";

/** What is wrong with parameters: a JSON pointer's dotted form and a sentence. */
export interface SchemaProblem {
  readonly field: string;
  readonly message: string;
}

/** Checks parameters; null when they fit. */
export type ParamsCheck = (params: JsonObject) => SchemaProblem | null;

/**
 * Compiles a tool's JSON Schema. Schemas of MCP servers come from outside: unknown keywords and formats are ignored,
 * references out of the document are not fetched.
 *
 * @throws Error when the schema itself is unusable; the tool must then not be offered.
 */
export function compileParams(schema: JsonObject): ParamsCheck {
  // one compiler per schema: schemas from outside may carry equal ids, and a dropped server frees its code
  const ajv = new Ajv2020({
    strict: false,
    validateFormats: false,
    allErrors: false,
    logger: false,
  });
  const { $schema: _dialect, $id: _id, ...rest } = schema;
  const validate = ajv.compile(rest);
  return (params) => {
    if (validate(params)) {
      return null;
    }
    const error = validate.errors?.[0];
    const named: unknown = error?.params["missingProperty"] ?? error?.params["additionalProperty"];
    const path = (error?.instancePath ?? "").split("/").filter((part) => part !== "");
    const field = [...path, ...(typeof named === "string" ? [named] : [])].join(".");
    return {
      field,
      message: `${field === "" ? "The parameters" : field} ${error?.message ?? "do not fit the schema"}`,
    };
  };
}
