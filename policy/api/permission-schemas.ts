import { z } from "zod";
import {
  defaultSchema,
  groupConfigSchema,
  groupsSchema,
  permissionsSchema,
} from "../documents/access.ts";
import { toIssues } from "../kernel/issues.ts";
import { issuesError } from "../kernel/json-api.ts";

// What the decoders of names and groups look like from outside; they are functions, which nothing can describe.
const GROUP_REF = { $ref: "#/components/schemas/Group" };
const GROUPS = {
  type: "object",
  description: "One configuration per group, or several of which any satisfies it",
  additionalProperties: { anyOf: [GROUP_REF, { type: "array", items: GROUP_REF, minItems: 1 }] },
} as const;
const ACCESS_RULE = {
  description: "All instances or none, one, several, or a range such as 8000-8100",
  anyOf: [
    { type: "boolean" },
    { type: "integer", minimum: 0, maximum: 65_535 },
    { type: "array", items: { type: "integer", minimum: 0, maximum: 65_535 } },
    { type: "string", pattern: "^(\\*|\\d+-\\d+)$" },
  ],
} as const;
const PERMISSIONS = {
  type: "object",
  description: "By group, then by program",
  additionalProperties: { type: "object", additionalProperties: ACCESS_RULE },
} as const;

const version = { file_version: z.int(), etag: z.string() };
const documentSchema = z.looseObject({
  project: z.string(),
  groups: z.record(z.string(), z.unknown()).meta(GROUPS),
  permissions: z.record(z.string(), z.record(z.string(), z.unknown())).meta(PERMISSIONS),
  default: defaultSchema,
  enable_proxy: z.boolean(),
  schema_version: z.int(),
  ...version,
});
/** `data` of a container's permissions. */
export const CONTAINER_DOCUMENT = documentSchema
  .extend({ container: z.string(), hooks: z.record(z.string(), z.array(z.unknown())) })
  .meta({ id: "ContainerPermissions" });
/** `data` of a project's permissions. */
export const PROJECT_DOCUMENT = documentSchema.meta({ id: "ProjectPermissions" });

const ignored = z.unknown().optional();
const bulkMembers = {
  project: z.string().optional(),
  groups: groupsSchema.meta(GROUPS),
  permissions: permissionsSchema.meta(PERMISSIONS),
  default: defaultSchema.optional(),
  enable_proxy: z.boolean({ error: "expected true or false" }).optional(),
  hooks: ignored,
  schema_version: ignored,
  file_version: ignored,
  etag: ignored,
};
/** A whole document as written; members that only the server sets are ignored (decision 35). */
export const BULK = {
  Container: z.strictObject({ ...bulkMembers, container: z.string().optional() }),
  Project: z.strictObject(bulkMembers),
};

/** Bodies of the calls that write one part. */
export const defaultBody = z.strictObject({ default: defaultSchema });
/** Body that opens or closes the address. */
export const stateBody = z.strictObject({
  enable_proxy: z.boolean({ error: "expected true or false" }),
});
/** Body that sets one permission. */
export const cellBody = z.strictObject({
  program: z.string({ error: "expected a program name" }),
  access: z
    .unknown()
    .refine((access) => access !== undefined, { error: "is missing" })
    .meta(ACCESS_RULE),
});

/** The schema of one group configuration, for the components of the API description. */
export function groupComponent(): object {
  const { $schema: _dialect, ...schema } = z.toJSONSchema(groupConfigSchema, {
    io: "input",
    unrepresentable: "any",
  });
  return schema;
}

/** Decodes a body that is not about hooks; every problem is a 400 (edge-proxy.md 2.6). */
export function checkedBody<V>(schema: z.ZodType<V>, body: unknown): V {
  const parsed = schema.safeParse(body);
  if (!parsed.success) {
    throw issuesError("BAD_REQUEST", "Invalid body", toIssues(parsed.error));
  }
  return parsed.data;
}
