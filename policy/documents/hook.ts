import { z } from "zod";
import { formatIssues, toIssues, type Issue } from "../kernel/issues.ts";
import { isJsonObject } from "../kernel/strict-json.ts";

/** Most rules of one service, and of one container document (edge-proxy.md 6.1). */
export const MAX_RULES_PER_SERVICE = 8;
export const MAX_RULES_PER_DOCUMENT = 32;
/** Longest deadline of a rule, in ms. */
export const MAX_TIMEOUT_MS = 30_000;

/** Deadline of a rule without `timeout`, in ms. */
export const DEFAULT_HOOK_TIMEOUT_MS = 500;

/** Methods that a rule may list. */
const HOOK_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] as const;

/** Form of a rule id: a lower-case Crockford ULID. */
export const HOOK_ID = /^[0-9a-hjkmnp-tv-z]{26}$/;

/** Form of a permission group's name. */
export const GROUP_NAME = /^[A-Za-z0-9_-]{1,50}$/;

/** Any case, spelled out: the pattern also stands in the API description, where there are no flags. */
const ANY_CASE = HOOK_METHODS.map((method) =>
  method.replace(/./g, (letter) => `[${letter}${letter.toLowerCase()}]`),
).join("|");
const ONE_METHOD = new RegExp(`^(?:${ANY_CASE})$`);
const METHOD_OR_ANY = new RegExp(`^(?:\\*|${ANY_CASE})$`);
const MATCH_PATH = /^(?:\*|\/[A-Za-z0-9._\-/*]{0,256})$/;
const SCRIPT_PATH = /^\/[A-Za-z0-9._\-/]{0,256}$/;
const FIELD_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/**
 * A value in a message: short, quoted where it is text. What objects and arrays hold is not shown, since readiness
 * answers are open to everyone.
 */
export function describe(value: unknown): string {
  if (value === undefined) {
    return "nothing";
  }
  if (typeof value === "object" && value !== null) {
    return Array.isArray(value) ? "an array" : "an object";
  }
  const text = JSON.stringify(value) ?? typeof value;
  return text.length <= 60 ? text : `${text.slice(0, 57)}…`;
}

/** Error map for one schema: says what is allowed and what was found. */
export const allowed =
  (what: string) =>
  (issue: { readonly input?: unknown }): string =>
    issue.input === undefined
      ? `is missing; it must be ${what}`
      : `must be ${what}, but is ${describe(issue.input)}`;

const strict =
  (what: string) => (issue: { readonly code?: string | undefined; readonly input?: unknown }) =>
    issue.code === "unrecognized_keys" ? undefined : allowed(what)(issue);

const METHOD_RULE = `"*" or one of ${HOOK_METHODS.join(", ")}, or an array of 1 to 7 different methods ("*" only on its own, never in an array)`;

const METHOD_IN_ARRAY_RULE = `one of ${HOOK_METHODS.join(", ")}`;

const methodSchema = z.union(
  [
    z.string().regex(METHOD_OR_ANY, { error: allowed(METHOD_RULE) }),
    z
      .array(z.string().regex(ONE_METHOD, { error: allowed(METHOD_IN_ARRAY_RULE) }))
      .min(1)
      .max(HOOK_METHODS.length)
      .refine((list) => new Set(list.map((method) => method.toUpperCase())).size === list.length),
  ],
  { error: allowed(METHOD_RULE) },
);

const PATH_RULE =
  '"*", or "/" and up to 256 of the characters A-Z a-z 0-9 . _ - / * (a star is one segment, a final star any rest)';
const matchPathSchema = z
  .string({ error: allowed(PATH_RULE) })
  .regex(MATCH_PATH, { error: allowed(PATH_RULE) });

const headersSchema = z
  .record(z.string(), z.string({ error: "must be a string, the exact value" }), {
    error: allowed("an object of header names and exact values"),
  })
  .superRefine((headers, context) => {
    const seen = new Set<string>();
    for (const name of Object.keys(headers)) {
      if (!FIELD_NAME.test(name)) {
        context.addIssue({ code: "custom", path: [name], message: "is not a valid header name" });
      } else if (seen.has(name.toLowerCase())) {
        context.addIssue({
          code: "custom",
          path: [name],
          message: "differs from another name only in upper and lower case",
        });
      }
      seen.add(name.toLowerCase());
    }
  });

const matchSchema = z.strictObject(
  {
    method: methodSchema.optional(),
    path: matchPathSchema.optional(),
    headers: headersSchema.optional(),
  },
  { error: strict("an object with method, path and headers; {} fits every request but OPTIONS") },
);

const SCRIPT_PATH_RULE =
  '"/" and up to 256 of the characters A-Z a-z 0-9 . _ - /, without "." or ".." segments and without "//"';
const scriptPathSchema = z
  .string({ error: allowed(SCRIPT_PATH_RULE) })
  .regex(SCRIPT_PATH, { error: allowed(SCRIPT_PATH_RULE) })
  .refine((path) => !path.includes("//") && !/\/\.{1,2}(?:\/|$)/.test(path), {
    error: allowed(SCRIPT_PATH_RULE),
  });

const SUBDOMAIN_RULE = "1 to 63 of the characters a-z 0-9";
const EXEC_ID_RULE = "1 to 64 of the characters a-z 0-9";
const scriptSchema = z.strictObject(
  {
    subdomain: z
      .string({ error: allowed(SUBDOMAIN_RULE) })
      .regex(/^[a-z0-9]{1,63}$/, { error: allowed(SUBDOMAIN_RULE) })
      .optional(),
    execId: z
      .string({ error: allowed(EXEC_ID_RULE) })
      .regex(/^[a-z0-9]{1,64}$/, { error: allowed(EXEC_ID_RULE) })
      .optional(),
    path: scriptPathSchema,
  },
  { error: strict("an object with path, and optionally subdomain and execId") },
);

const TIMEOUT_RULE = `a whole number of milliseconds from 1 to ${MAX_TIMEOUT_MS}`;
const timeoutSchema = z
  .int({ error: allowed(TIMEOUT_RULE) })
  .min(1, { error: allowed(TIMEOUT_RULE) })
  .max(MAX_TIMEOUT_MS, {
    error: allowed(TIMEOUT_RULE),
  });

const GROUP_RULE = "a group name: 1 to 50 of the characters A-Z a-z 0-9 _ -";
const groupsSchema = z.strictObject(
  {
    groups: z
      .array(
        z.string({ error: allowed(GROUP_RULE) }).regex(GROUP_NAME, { error: allowed(GROUP_RULE) }),
        {
          error: allowed("an array of group names"),
        },
      )
      .min(1, { error: allowed("an array of at least one group name") }),
  },
  { error: strict("an object with groups") },
);

/** A hook rule as clients write it, the members that only the server sets apart (edge-proxy.md 6.1). */
export const hookInputSchema = z.strictObject(
  {
    match: matchSchema,
    script: scriptSchema,
    timeout: timeoutSchema.optional(),
    applies_to: groupsSchema.optional(),
  },
  { error: strict("an object with match and script, and optionally timeout and applies_to") },
);

/** A rule without its id, in the form that is stored: methods upper case, header names lower case. */
export interface HookRuleBody {
  readonly match: {
    readonly method?: string | readonly string[];
    readonly path?: string;
    readonly headers?: Readonly<Record<string, string>>;
  };
  readonly script: { readonly subdomain?: string; readonly execId?: string; readonly path: string };
  readonly timeout?: number;
  readonly applies_to?: { readonly groups: readonly string[] };
}

/** A valid rule of a document. */
export interface HookRule extends HookRuleBody {
  readonly id: string;
}

/** A rule in a stored document: valid, or kept as it is with what is wrong with it. */
export type StoredRule =
  | { readonly kind: "valid"; readonly id: string; readonly rule: HookRule }
  | {
      readonly kind: "invalid";
      /** null when even the id cannot be used: the rule then goes only with the whole service. */
      readonly id: string | null;
      readonly raw: unknown;
      readonly reason: string;
      readonly parts: MatchParts;
    };

/** What can still be read of a broken rule; null stands for a part that is broken itself. */
export interface MatchParts {
  readonly method: string | readonly string[] | null;
  readonly path: string | null;
  readonly headers: Readonly<Record<string, string>> | null;
  /** null: every caller. */
  readonly groups: readonly string[] | null;
}

/** Which group names a rule may filter by. */
export interface GroupSet {
  has(name: string): boolean;
}

/** A decoded value, or every problem with its place. */
export type Decoded<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly issues: readonly Issue[] };

/**
 * Decodes a written rule. `id` and `position` are taken off first (decision 35). Every problem is reported,
 * unknown keys too, since a misspelt `applies_to` would widen the rule.
 *
 * @param groups names that the container's own permissions define.
 */
export function decodeHookInput(body: unknown, groups: GroupSet): Decoded<HookRuleBody> {
  const parsed = hookInputSchema.safeParse(isJsonObject(body) ? withoutServerMembers(body) : body, {
    reportInput: true,
  });
  const issues = parsed.success ? [] : toIssues(parsed.error);
  issues.push(...unknownGroups(body, groups));
  if (!parsed.success || issues.length > 0) {
    return { ok: false, issues };
  }
  return { ok: true, value: normalise(parsed.data) };
}

/** Decodes a rule of a stored document; never throws. */
export function decodeStoredRule(raw: unknown, groups: GroupSet): StoredRule {
  const decoded = decodeHookInput(raw, groups);
  const id =
    isJsonObject(raw) && typeof raw["id"] === "string" && HOOK_ID.test(raw["id"])
      ? raw["id"]
      : null;
  if (decoded.ok && id !== null) {
    return { kind: "valid", id, rule: { id, ...decoded.value } };
  }
  const issues = decoded.ok ? [] : [...decoded.issues];
  if (id === null) {
    issues.push({ path: "/id", message: "is not the id of a rule" });
  }
  return brokenRule(raw, id, formatIssues(issues), groups);
}

/** A rule that is kept, but counts as broken for `reason`. */
export function brokenRule(
  raw: unknown,
  id: string | null,
  reason: string,
  groups: GroupSet,
): StoredRule {
  return { kind: "invalid", id, raw, reason, parts: matchParts(raw, groups) };
}

/** The JSON of a rule as it is stored. */
export function ruleJson(rule: StoredRule): unknown {
  return rule.kind === "valid" ? rule.rule : rule.raw;
}

function withoutServerMembers(body: Record<string, unknown>): Record<string, unknown> {
  const { id: _id, position: _position, ...rest } = body;
  return rest;
}

function unknownGroups(body: unknown, groups: GroupSet): Issue[] {
  const parsed = isJsonObject(body) ? groupsSchema.safeParse(body["applies_to"]) : null;
  return (parsed?.success ? parsed.data.groups : []).flatMap((name, index) =>
    groups.has(name)
      ? []
      : [
          {
            path: `/applies_to/groups/${index}`,
            message: `${describe(name)} is not a valid group of this container's permissions`,
          },
        ],
  );
}

function normalise(input: z.infer<typeof hookInputSchema>): HookRuleBody {
  const { match, script } = input;
  return {
    match: {
      ...(match.method === undefined ? {} : { method: upperCase(match.method) }),
      ...(match.path === undefined ? {} : { path: match.path }),
      ...(match.headers === undefined ? {} : { headers: lowerCaseNames(match.headers) }),
    },
    script: {
      ...(script.subdomain === undefined || script.subdomain === "default"
        ? {}
        : { subdomain: script.subdomain }),
      ...(script.execId === undefined ? {} : { execId: script.execId }),
      path: script.path,
    },
    ...(input.timeout === undefined ? {} : { timeout: input.timeout }),
    ...(input.applies_to === undefined
      ? {}
      : { applies_to: { groups: [...new Set(input.applies_to.groups)] } }),
  };
}

function upperCase(method: string | readonly string[]): string | string[] {
  return typeof method === "string" ? method.toUpperCase() : method.map((one) => one.toUpperCase());
}

function lowerCaseNames(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}

/** Reads what a broken rule still says. An unknown key in `match` may have narrowed it, which changes nothing here. */
function matchParts(raw: unknown, groups: GroupSet): MatchParts {
  const rule = isJsonObject(raw) ? raw : {};
  const match = isJsonObject(rule["match"]) ? rule["match"] : null;
  if (match === null) {
    return { method: null, path: null, headers: null, groups: matchGroups(rule, groups) };
  }
  const method = methodSchema.safeParse(match["method"] ?? "*");
  const path = matchPathSchema.safeParse(match["path"] ?? "*");
  const headers = headersSchema.safeParse(match["headers"] ?? {});
  return {
    method: method.success ? upperCase(method.data) : null,
    path: path.success ? path.data : null,
    headers: headers.success ? lowerCaseNames(headers.data) : null,
    groups: matchGroups(rule, groups),
  };
}

/** A group filter that cannot be trusted keeps nobody out: the rule then refuses every caller it fits. */
function matchGroups(rule: Record<string, unknown>, groups: GroupSet): readonly string[] | null {
  const parsed = groupsSchema.safeParse(rule["applies_to"]);
  return parsed.success && parsed.data.groups.every((name) => groups.has(name))
    ? parsed.data.groups
    : null;
}
