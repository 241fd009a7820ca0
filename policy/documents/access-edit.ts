import { isJsonObject } from "../kernel/strict-json.ts";
import type { AccessRule, GroupConfig, GroupValue } from "./access.ts";
import type { AccessPart } from "./container-document.ts";
import { ruleJson, type StoredRule } from "./hook.ts";

/** Most groups of one document. */
export const MAX_GROUPS = 256;

/** The groups and cells of a stored document, or why they cannot be edited one by one. */
export type AccessTables =
  | {
      readonly ok: true;
      readonly groups: Readonly<Record<string, unknown>>;
      /** Rows by group name; a row that is no object counts as broken and is kept. */
      readonly permissions: Readonly<Record<string, unknown>>;
    }
  | { readonly ok: false; readonly reason: string };

/** The tables of a document. Names in them were checked when they were written; hand-made ones are kept as they are. */
export function accessTables(access: AccessPart): AccessTables {
  const groups = access.groups ?? {};
  const permissions = access.permissions ?? {};
  if (!isJsonObject(groups) || !isJsonObject(permissions)) {
    return {
      ok: false,
      reason: `/${isJsonObject(groups) ? "permissions" : "groups"} must be an object`,
    };
  }
  return { ok: true, groups, permissions };
}

type Tables = Extract<AccessTables, { ok: true }>;

/** The document with one group added or replaced; null when it has no room for one more. */
export function setGroup(
  access: AccessPart,
  tables: Tables,
  name: string,
  value: GroupConfig,
): AccessPart | null {
  const groups = withMember(tables.groups, name, value);
  return Object.keys(groups).length > MAX_GROUPS ? null : { ...access, groups };
}

/** The document without a group and its cells; null when there is no such group. */
export function deleteGroup(access: AccessPart, tables: Tables, name: string): AccessPart | null {
  if (!Object.hasOwn(tables.groups, name)) {
    return null;
  }
  return {
    ...access,
    groups: withoutMember(tables.groups, name),
    permissions: withoutMember(tables.permissions, name),
  };
}

/** The document with one cell added or replaced. */
export function setCell(
  access: AccessPart,
  tables: Tables,
  group: string,
  program: string,
  rule: AccessRule,
): AccessPart {
  const row = tables.permissions[group];
  const cells = withMember(isJsonObject(row) ? row : {}, program, rule);
  return { ...access, permissions: withMember(tables.permissions, group, cells) };
}

/** The document without any cell of a group; null when it has none. */
export function deleteCells(access: AccessPart, tables: Tables, group: string): AccessPart | null {
  return Object.hasOwn(tables.permissions, group)
    ? { ...access, permissions: withoutMember(tables.permissions, group) }
    : null;
}

/** The document without one cell; null when there is none. An empty row goes, too. */
export function deleteCell(
  access: AccessPart,
  tables: Tables,
  group: string,
  program: string,
): AccessPart | null {
  const row = tables.permissions[group];
  if (!isJsonObject(row) || !Object.hasOwn(row, program)) {
    return null;
  }
  const cells = withoutMember(row, program);
  return {
    ...access,
    permissions:
      Object.keys(cells).length === 0
        ? withoutMember(tables.permissions, group)
        : withMember(tables.permissions, group, cells),
  };
}

/** Everything of a document at once. */
export function replaceAccess(content: {
  readonly enable_proxy: boolean;
  readonly default: "allow" | "deny";
  readonly groups: Readonly<Record<string, GroupValue>>;
  readonly permissions: Readonly<Record<string, Readonly<Record<string, AccessRule>>>>;
}): AccessPart {
  return { ...content };
}

/** Group names that a stored rule filters by, a broken rule's included. */
export function namedGroups(rule: StoredRule): readonly string[] {
  const json = ruleJson(rule);
  const filter = isJsonObject(json) ? json["applies_to"] : undefined;
  const names: unknown = isJsonObject(filter) ? filter["groups"] : undefined;
  return Array.isArray(names) ? names.filter((name) => typeof name === "string") : [];
}

/** Objects without a prototype, like those of the reader: a name is only ever a name. */
function withMember(
  members: Readonly<Record<string, unknown>>,
  name: string,
  value: unknown,
): Record<string, unknown> {
  const next = Object.assign(Object.create(null) as Record<string, unknown>, members);
  next[name] = value;
  return next;
}

function withoutMember(
  members: Readonly<Record<string, unknown>>,
  name: string,
): Record<string, unknown> {
  const next = Object.assign(Object.create(null) as Record<string, unknown>, members);
  delete next[name];
  return next;
}
