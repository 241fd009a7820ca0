import { z } from "zod";
import { toIssues, type Issue } from "../kernel/issues.ts";
import {
  isJsonObject,
  isSpecialName,
  parseStrictJson,
  StrictJsonError,
} from "../kernel/strict-json.ts";
import { programBySpelling } from "./access.ts";
import { MAX_DOCUMENT_DEPTH, type DecodedDocument } from "./container-document.ts";
import { serviceByName } from "./services.ts";

/** A stored alias (edge-proxy.md 4.2): a host label that stands for a program of a container. */
export interface AliasRecord {
  /** 24 hex characters, made by the server. */
  readonly id: string;
  /** Lower-case host label, unique on this node. */
  readonly alias: string;
  readonly project: string;
  readonly container: string;
  /** A service name or short name, `http`, `https`, `http-<port>` or `https-<port>`. */
  readonly program: string;
  readonly port: number | null;
  /** Instance; null is the first one. */
  readonly index: number | null;
  readonly target_path: string | null;
  readonly allow_path_override: boolean;
  /** ISO 8601; null for none. */
  readonly expires_at: string | null;
  readonly enabled: boolean;
  readonly created_at: string;
  readonly updated_at: string;
}

/** The list of aliases as stored. An entry that is not valid serves nothing and is written back as it is. */
export interface AliasDocument {
  readonly version: number;
  readonly records: readonly AliasRecord[];
  readonly broken: readonly unknown[];
  readonly issues: readonly Issue[];
}

const NAME = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;
const CANONICAL = /^[0-9a-f]{24}-[0-9a-f]{24}/;
const RESERVED: ReadonlySet<string> = new Set(["containers", "proxy", "workspaces"]);
const WEB = /^https?(?:-([1-9]\d{0,4}))?$/;
const ID = /^[0-9a-f]{24}$/;

const nameSchema = z
  .string({ error: "expected a string, or null for a random name" })
  .min(3, { error: "must have 3 to 61 characters" })
  .max(61, { error: "must have 3 to 61 characters" })
  .regex(NAME, { error: "may hold a-z, 0-9 and -, but not - at either end" })
  .refine(
    (name) => !RESERVED.has(name) && !/^(?:proxy|workspaces)-/.test(name) && !isSpecialName(name),
    {
      error: "is reserved",
    },
  )
  .refine((name) => !CANONICAL.test(name), {
    error: "has the form of a container's own host name",
  });

const programSchema = z
  .string({ error: "expected a program name" })
  .refine(isProgram, { error: "Unknown program name" });

const portSchema = z
  .int({ error: "expected a port from 1 to 65535" })
  .min(1, { error: "expected a port from 1 to 65535" })
  .max(65_535, { error: "expected a port from 1 to 65535" });

const indexSchema = z
  .int({ error: "expected a whole number from 1" })
  .min(1, { error: "expected a whole number from 1" })
  .max(65_535, { error: "must be at most 65535" });

const targetPathSchema = z
  .string({ error: "expected a path or null" })
  .max(2048, { error: "must have at most 2048 characters" })
  .regex(/^[^\u0000-\u0020\u007f]*$/, { error: "must not hold spaces or control characters" });

const timeSchema = z.iso.datetime({
  offset: true,
  error: "expected a time such as 2030-01-31T12:00:00Z, or null",
});

const fields = {
  program: programSchema,
  port: portSchema.nullable().optional(),
  index: indexSchema.nullable().optional(),
  target_path: targetPathSchema.nullable().optional(),
  allow_path_override: z.boolean({ error: "expected true or false" }).optional(),
  expires_at: timeSchema.nullable().optional(),
  enabled: z.boolean({ error: "expected true or false" }).optional(),
};

const containerIdSchema = z.string({ error: "expected a container id" }).regex(ID, {
  error: "expected 24 lower-case hex characters",
});

/** A new alias as written. */
export const aliasCreateSchema = z.strictObject({
  container_id: containerIdSchema,
  alias: z
    .union([nameSchema, z.literal(false)])
    .nullable()
    .optional(),
  ...fields,
});

/** A change of an alias: any of its fields. */
export const aliasUpdateSchema = z
  .strictObject({ container_id: containerIdSchema, alias: nameSchema, ...fields })
  .partial();

/** Body that switches an alias on or off. */
export const aliasStateSchema = z.strictObject({
  enabled: z.boolean({ error: "expected true or false" }),
});

/** A decoded change of an alias. */
export type AliasUpdate = z.infer<typeof aliasUpdateSchema>;

/** Whether a program can be reached through an alias: SSH cannot, since it is no HTTP service. */
function isProgram(spelling: string): boolean {
  const web = WEB.exec(spelling);
  if (web !== null) {
    return web[1] === undefined || Number(web[1]) <= 65_535;
  }
  return serviceByName(programBySpelling(spelling) ?? "") !== undefined;
}

/** Why a whole record cannot serve although each field is fine; null when it can. */
export function aliasProblem(
  record: Pick<AliasRecord, "program" | "port" | "index">,
): { readonly code: "PORT_REQUIRED" | "BAD_REQUEST"; readonly issue: Issue } | null {
  const web = WEB.exec(record.program);
  if (web !== null) {
    return web[1] === undefined && record.port === null && record.index === null
      ? {
          code: "PORT_REQUIRED",
          issue: { path: "/port", message: "an http or https alias needs a port" },
        }
      : null;
  }
  const service = serviceByName(programBySpelling(record.program) ?? "");
  if (
    service !== undefined &&
    service.name !== "exec" &&
    record.index !== null &&
    record.index > service.maxIndex
  ) {
    return {
      code: "BAD_REQUEST",
      issue: { path: "/index", message: `${service.name} has instances up to ${service.maxIndex}` },
    };
  }
  return null;
}

/** `target_path` as stored: with a `/` in front. */
export function rooted(targetPath: string | null | undefined): string | null {
  return targetPath == null ? null : targetPath.startsWith("/") ? targetPath : `/${targetPath}`;
}

const recordSchema = z.strictObject({
  id: z.string().regex(ID),
  alias: nameSchema,
  project: z.string().regex(ID),
  container: z.string().regex(ID),
  program: programSchema,
  port: portSchema.nullable(),
  index: indexSchema.nullable(),
  target_path: targetPathSchema.nullable(),
  allow_path_override: z.boolean(),
  expires_at: timeSchema.nullable(),
  enabled: z.boolean(),
  created_at: z.string(),
  updated_at: z.string(),
});

/** Decodes the stored list. An entry with a problem is set aside, the second of one name, too. */
export function decodeAliasDocument(text: string | null): DecodedDocument<AliasDocument> {
  if (text === null) {
    return { ok: true, document: { version: 0, records: [], broken: [], issues: [] } };
  }
  let json;
  try {
    json = parseStrictJson(text, { maxDepth: MAX_DOCUMENT_DEPTH });
  } catch (cause) {
    if (cause instanceof StrictJsonError) {
      return { ok: false, reason: `the list of aliases is not valid JSON: ${cause.message}` };
    }
    throw cause;
  }
  const { value } = json;
  if (
    !isJsonObject(value) ||
    !Array.isArray(value["aliases"] ?? []) ||
    json.duplicates.length > 0
  ) {
    return {
      ok: false,
      reason: "the list of aliases is not an object with an array named aliases",
    };
  }
  const version = value["file_version"] ?? 0;
  if (typeof version !== "number" || !Number.isSafeInteger(version) || version < 0) {
    return { ok: false, reason: "/file_version must be a whole number" };
  }
  const records: AliasRecord[] = [];
  const broken: unknown[] = [];
  const issues: Issue[] = [];
  const names = new Set<string>();
  const ids = new Set<string>();
  for (const [position, entry] of ((value["aliases"] ?? []) as unknown[]).entries()) {
    const parsed = recordSchema.safeParse(entry);
    const found = parsed.success ? [] : toIssues(parsed.error);
    if (parsed.success && (names.has(parsed.data.alias) || ids.has(parsed.data.id))) {
      found.push({ path: "/alias", message: "another alias has the same name or id" });
    }
    if (parsed.success && found.length === 0) {
      records.push(parsed.data);
      names.add(parsed.data.alias);
      ids.add(parsed.data.id);
    } else {
      broken.push(entry);
      issues.push(
        ...found.map(({ path, message }) => ({ path: `/aliases/${position}${path}`, message })),
      );
    }
  }
  return { ok: true, document: { version, records, broken, issues } };
}

/** The text that is stored. */
export function formatAliasDocument(
  document: Pick<AliasDocument, "version" | "records" | "broken">,
): string {
  return `${JSON.stringify({ file_version: document.version, aliases: [...document.records, ...document.broken] }, null, 2)}\n`;
}
