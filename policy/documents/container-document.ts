import type { Issue } from "../kernel/issues.ts";
import { toPointer } from "../kernel/issues.ts";
import { isJsonObject, parseStrictJson, StrictJsonError } from "../kernel/strict-json.ts";
import { groupValueSchema, isGroupName } from "./access.ts";
import {
  brokenRule,
  decodeStoredRule,
  describe,
  MAX_RULES_PER_DOCUMENT,
  MAX_RULES_PER_SERVICE,
  ruleJson,
  type GroupSet,
  type StoredRule,
} from "./hook.ts";
import { serviceByName, SERVICES } from "./services.ts";

/** Deepest nesting of a stored document. */
export const MAX_DOCUMENT_DEPTH = 32;

const SCHEMA_VERSION = 2;

/**
 * The permission side of a document as it is stored, undecoded: `compile/access.ts` decides how each broken part of
 * it fails closed, and whatever no edit touches is written back as it was.
 */
export interface AccessPart {
  readonly enable_proxy?: unknown;
  readonly default?: unknown;
  readonly groups?: unknown;
  readonly permissions?: unknown;
}

/** Members of an access part, in the order they are written. */
const ACCESS_MEMBERS = ["enable_proxy", "default", "groups", "permissions"] as const;

/** The hooks of one service key: decoded rules, or data that cannot be read; always with its source text. */
export type HooksPart =
  | { readonly kind: "rules"; readonly rules: readonly StoredRule[]; readonly source: string }
  | { readonly kind: "unreadable"; readonly reason: string; readonly source: string };

/** A container's permissions document, decoded (edge-proxy.md 2.1). Whatever is not understood is kept. */
export interface ContainerDocument {
  readonly project: string;
  readonly container: string;
  /** `file_version`; 0 when nothing is stored. */
  readonly version: number;
  readonly access: AccessPart;
  /** By the service key as stored. */
  readonly hooks: ReadonlyMap<string, HooksPart>;
  /** Source text and reason when `hooks` as a whole cannot be read: then every service is unreadable. */
  readonly brokenHooks: { readonly source: string; readonly reason: string } | null;
  /** Members that we do not know, by name, as source text. */
  readonly rest: ReadonlyMap<string, string>;
  /** What is wrong in it, short of making it unreadable. */
  readonly issues: readonly Issue[];
}

/** A stored text decoded, or why the whole document cannot be used. */
export type DecodedDocument<T> =
  | { readonly ok: true; readonly document: T }
  | { readonly ok: false; readonly reason: string };

/** Nothing is stored for this container. */
export function emptyContainerDocument(project: string, container: string): ContainerDocument {
  return {
    project,
    container,
    version: 0,
    access: {},
    hooks: new Map(),
    brokenHooks: null,
    rest: new Map(),
    issues: [],
  };
}

/**
 * The groups that `applies_to` may name: those of the container's own permissions that can be evaluated. A group
 * that is broken counts as gone, since nobody can tell whom a rule for it is about. Looked at only when asked.
 */
export function usableGroups(access: AccessPart): GroupSet {
  const groups = isJsonObject(access.groups) ? access.groups : {};
  const looked = new Map<string, boolean>();
  const isUsable = (name: string): boolean =>
    Object.hasOwn(groups, name) &&
    isGroupName(name) &&
    groupValueSchema.safeParse(groups[name]).success;
  return {
    has(name) {
      const usable = looked.get(name) ?? isUsable(name);
      looked.set(name, usable);
      return usable;
    },
  };
}

/** Rules in the whole document, broken ones included. */
export function countRules(document: ContainerDocument): number {
  let count = 0;
  for (const part of document.hooks.values()) {
    count += part.kind === "rules" ? part.rules.length : 0;
  }
  return count;
}

const KNOWN: ReadonlySet<string> = new Set([
  "project",
  "container",
  "groups",
  "permissions",
  "default",
  "enable_proxy",
  "hooks",
  "schema_version",
  "file_version",
  "etag",
]);

/** Members that both kinds of document share. */
export interface DocumentHead {
  readonly members: Record<string, unknown>;
  readonly version: number;
  readonly access: AccessPart;
  readonly rest: ReadonlyMap<string, string>;
  readonly issues: Issue[];
  source(path: readonly string[]): string;
  /** Paths of members that occur twice below `hooks`; elsewhere they make the document unreadable. */
  readonly hookDuplicates: readonly (readonly string[])[];
}

/**
 * Reads what both kinds of document share. `ids` are the identities the document must have: taken from where it
 * is stored when absent, and a contradiction makes the whole document unusable.
 */
export function decodeHead(
  text: string,
  ids: Readonly<Record<string, string>>,
): DecodedDocument<DocumentHead> {
  let json;
  try {
    json = parseStrictJson(text, { maxDepth: MAX_DOCUMENT_DEPTH, spanDepth: 2 });
  } catch (cause) {
    if (cause instanceof StrictJsonError) {
      return { ok: false, reason: `the document is not valid JSON: ${cause.message}` };
    }
    throw cause;
  }
  const members = json.value;
  if (!isJsonObject(members)) {
    return { ok: false, reason: "the document is not a JSON object" };
  }
  const twice = json.duplicates.find((path) => path[0] !== "hooks" || path.length === 1);
  if (twice) {
    return { ok: false, reason: `${toPointer(twice)} occurs twice` };
  }
  for (const [name, id] of Object.entries(ids)) {
    if (members[name] !== undefined && members[name] !== id) {
      return {
        ok: false,
        reason: `/${name} is ${describe(members[name])}, but the document is that of ${id}`,
      };
    }
  }
  const version = members["file_version"] ?? 0;
  if (typeof version !== "number" || !Number.isSafeInteger(version) || version < 0) {
    return {
      ok: false,
      reason: `/file_version must be a whole number, but is ${describe(version)}`,
    };
  }
  const rest = new Map<string, string>();
  for (const name of Object.keys(members)) {
    const source = json.source([name]);
    if (!KNOWN.has(name) && source !== undefined) {
      rest.set(name, source);
    }
  }
  const document: DocumentHead = {
    members,
    version,
    access: accessOf(members),
    rest,
    issues: [...rest.keys()].map((name) => ({ path: toPointer([name]), message: "unknown key" })),
    source: (path) => json.source(path) ?? "null",
    hookDuplicates: json.duplicates.filter((path) => path[0] === "hooks"),
  };
  return { ok: true, document };
}

function accessOf(members: Record<string, unknown>): AccessPart {
  return Object.fromEntries(
    ACCESS_MEMBERS.filter((name) => members[name] !== undefined).map((name) => [
      name,
      members[name],
    ]),
  );
}

/**
 * Decodes the stored document of a container. A broken rule, a service whose hooks cannot be read and unknown
 * members are kept apart, so that each fails closed for exactly what it concerns (decisions 33 and 38).
 */
export function decodeContainerDocument(
  text: string,
  project: string,
  container: string,
): DecodedDocument<ContainerDocument> {
  const decoded = decodeHead(text, { project, container });
  if (!decoded.ok) {
    return decoded;
  }
  const head = decoded.document;
  const { access, issues } = head;
  const hooks = new Map<string, HooksPart>();
  let brokenHooks: ContainerDocument["brokenHooks"] = null;
  const stored = head.members["hooks"];
  if (stored !== undefined && !isJsonObject(stored)) {
    brokenHooks = {
      source: head.source(["hooks"]),
      reason: `hooks must be an object, but is ${describe(stored)}`,
    };
    issues.push({ path: "/hooks", message: brokenHooks.reason });
  } else if (stored !== undefined) {
    const groups = usableGroups(access);
    for (const [key, value] of Object.entries(stored)) {
      const twice = head.hookDuplicates.find((path) => path[1] === key);
      const part = decodeHooks(key, value, twice, head.source(["hooks", key]), groups);
      hooks.set(key, part);
      issues.push(...hookIssues(key, part));
    }
  }
  const document: ContainerDocument = {
    project,
    container,
    version: head.version,
    access,
    hooks,
    brokenHooks,
    rest: head.rest,
    issues,
  };
  if (countRules(document) > MAX_RULES_PER_DOCUMENT) {
    issues.push({
      path: "/hooks",
      message: `more than ${MAX_RULES_PER_DOCUMENT} hooks in one document`,
    });
  }
  return { ok: true, document };
}

function decodeHooks(
  key: string,
  value: unknown,
  twice: readonly string[] | undefined,
  source: string,
  groups: GroupSet,
): HooksPart {
  if (twice !== undefined) {
    return { kind: "unreadable", reason: `${toPointer(twice)} occurs twice`, source };
  }
  if (!Array.isArray(value)) {
    return {
      kind: "unreadable",
      reason: `hooks.${key} must be an array, but is ${describe(value)}`,
      source,
    };
  }
  const ids = new Set<string>();
  const rules = value.map((raw: unknown, index): StoredRule => {
    const rule = decodeStoredRule(raw, groups);
    const repeated = rule.id !== null && ids.has(rule.id);
    if (rule.id !== null) {
      ids.add(rule.id);
    }
    if (repeated) {
      return brokenRule(raw, null, "/id: another rule of the service has the same id", groups);
    }
    return index < MAX_RULES_PER_SERVICE
      ? rule
      : brokenRule(raw, rule.id, `a service has at most ${MAX_RULES_PER_SERVICE} hooks`, groups);
  });
  return { kind: "rules", rules, source };
}

function hookIssues(key: string, part: HooksPart): Issue[] {
  const issues: Issue[] = [];
  if (!serviceByName(key)?.hookable) {
    issues.push({
      path: toPointer(["hooks", key]),
      message: "is not a service that can have hooks",
    });
  }
  if (part.kind === "unreadable") {
    return [...issues, { path: toPointer(["hooks", key]), message: part.reason }];
  }
  part.rules.forEach((rule, index) => {
    if (rule.kind === "invalid") {
      issues.push({ path: toPointer(["hooks", key, index]), message: rule.reason });
    }
  });
  return issues;
}

/** Why a service's hooks cannot be read; null when they can. */
export function unreadableReason(document: ContainerDocument, service: string): string | null {
  if (document.brokenHooks !== null) {
    return document.brokenHooks.reason;
  }
  const part = document.hooks.get(service);
  return part?.kind === "unreadable" ? part.reason : null;
}

/** The readable rules of a service; empty without any. */
export function rulesOf(document: ContainerDocument, service: string): readonly StoredRule[] {
  const part = document.hooks.get(service);
  return part?.kind === "rules" ? part.rules : [];
}

/** The document with other rules for one service; an empty list takes the key out. */
export function withRules(
  document: ContainerDocument,
  service: string,
  rules: readonly StoredRule[],
): ContainerDocument {
  const hooks = new Map(document.hooks);
  if (rules.length === 0) {
    hooks.delete(service);
  } else {
    hooks.set(service, {
      kind: "rules",
      rules,
      source: indent(indent(JSON.stringify(rules.map(ruleJson), null, 2))),
    });
  }
  return { ...document, hooks };
}

/** The text that is stored. Hooks and unknown members that nobody edited keep their bytes (decision 38). */
export function formatContainerDocument(document: ContainerDocument): string {
  const hooks = new Map([...document.hooks].map(([key, part]) => [key, part.source]));
  return formatMembers([
    ["project", JSON.stringify(document.project)],
    ["container", JSON.stringify(document.container)],
    ["schema_version", String(SCHEMA_VERSION)],
    ["file_version", String(document.version)],
    ...accessMembers(document.access),
    ["hooks", document.brokenHooks?.source ?? formatMembers([...hooks], 1)],
    ...document.rest,
  ]);
}

/** The access members of a document as name and source. */
export function accessMembers(access: AccessPart): [string, string][] {
  return ACCESS_MEMBERS.flatMap((name): [string, string][] =>
    access[name] === undefined ? [] : [[name, indent(JSON.stringify(access[name], null, 2))]],
  );
}

function indent(source: string): string {
  return source.replaceAll("\n", "\n  ");
}

/** An object text from names and value texts, written so that a person can read it. */
export function formatMembers(members: readonly (readonly [string, string])[], depth = 0): string {
  if (members.length === 0) {
    return "{}";
  }
  const margin = "  ".repeat(depth + 1);
  const lines = members.map(([name, source]) => `${margin}${JSON.stringify(name)}: ${source}`);
  return `{\n${lines.join(",\n")}\n${"  ".repeat(depth)}}${depth === 0 ? "\n" : ""}`;
}

/** Services that can have hooks, in the order of the service table. */
export const HOOKABLE_SERVICES: readonly string[] = SERVICES.filter(
  (service) => service.hookable,
).map((service) => service.name);
