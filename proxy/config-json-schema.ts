import { z } from "zod";
import { configSchema } from "./config-schema.ts";

/** The configuration file as JSON Schema (draft 2020-12), published as `docs/config.schema.json`. */
export function configJsonSchema(): Record<string, unknown> {
  const schema = z.toJSONSchema(configSchema, { io: "input", unrepresentable: "any" });
  return { title: "interpose configuration", ...schema };
}
