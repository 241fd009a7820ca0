import {
  accessRuleSchema,
  defaultSchema,
  groupConfigSchema,
  MAX_JWT_CONFIGS,
  isGroupName,
  parseRange,
  programBySpelling,
  sealGroup,
} from "../documents/access.ts";
import type { AccessRule, GroupConfig } from "../documents/access.ts";
import { PROTOCOLS, SERVICES, serviceByName } from "../documents/services.ts";
import type { Issue } from "../kernel/issues.ts";
import { toIssues, toPointer } from "../kernel/issues.ts";
import type { AccessTest, CompiledAccess } from "./compiled-policy.ts";

/** The permission members of a stored document. Unknown values: files are edited by hand. */
export interface StoredAccess {
  readonly enable_proxy?: unknown;
  readonly default?: unknown;
  readonly groups?: unknown;
  readonly permissions?: unknown;
}

/** A compiled access with what was wrong in the documents; pointers start with `/container` or `/project`. */
export interface AccessCompilation extends CompiledAccess {
  readonly closedPrograms: ReadonlySet<string>;
  readonly problems: readonly Issue[];
}

type Layer = "container" | "project";

const GRANTS_ALL: AccessTest = () => true;
const GRANTS_NONE: AccessTest = () => false;
const PROGRAMS: readonly string[] = [...SERVICES.map(({ name }) => name), ...PROTOCOLS];

/**
 * Merges a container's permissions with its project's (edge-proxy.md 2.4) and compiles them. Never throws. What cannot
 * be read closes exactly what it concerns: a bad group never matches, a bad cell never grants, and where a group
 * with a rule for a program cannot be evaluated, the default does not admit to that program either.
 *
 * @param container the container document's part, null without a document
 * @param project the project document's part, null without a document
 */
export function compileAccess(
  container: StoredAccess | null,
  project: StoredAccess | null,
): AccessCompilation {
  const problems: Issue[] = [];
  const layers: readonly (readonly [Layer, StoredAccess])[] = [
    ["project", project ?? {}],
    ["container", container ?? {}],
  ];
  let enableProxy = true;
  let defaultAllow = true;
  let readable = true;
  const groups = new Map<string, readonly GroupConfig[]>();
  const broken = new Set<string>();
  const permissions = new Map<string, Map<string, AccessTest>>();
  const namedIn = new Map<string, Layer>();

  // The container comes second: each of its entries replaces the project's whole entry, valid or not.
  for (const [layer, part] of layers) {
    if (part.enable_proxy !== undefined) {
      enableProxy = part.enable_proxy === true;
      if (typeof part.enable_proxy !== "boolean") {
        problems.push({ path: `/${layer}/enable_proxy`, message: "expected true or false" });
      }
    }
    if (part.default !== undefined) {
      const parsed = defaultSchema.safeParse(part.default);
      defaultAllow = parsed.success && parsed.data === "allow";
      if (!parsed.success) {
        problems.push({ path: `/${layer}/default`, message: 'expected "allow" or "deny"' });
      }
    }
    for (const [name, value] of entriesOf(part.groups)) {
      const compiled = compileGroup(value, [layer, "groups", name], problems);
      groups.set(name, compiled.configs);
      broken.delete(name);
      if (!compiled.whole || !isGroupName(name)) {
        broken.add(name);
      }
      if (!isGroupName(name)) {
        groups.set(name, []);
        problems.push({ path: toPointer([layer, "groups", name]), message: "not a group name" });
      }
    }
    for (const [name, cells] of entriesOf(part.permissions)) {
      namedIn.set(name, layer);
      let merged = permissions.get(name);
      if (merged === undefined) {
        merged = new Map();
        permissions.set(name, merged);
      }
      compileCells(cells, [layer, "permissions", name], merged, problems);
    }
    for (const member of ["groups", "permissions"] as const) {
      if (part[member] !== undefined && !isObject(part[member])) {
        problems.push({ path: `/${layer}/${member}`, message: "expected an object" });
        readable = false;
      }
    }
  }

  let tokens = 0;
  for (const [name, configs] of groups) {
    tokens += configs.filter(({ type }) => type === "jwt").length;
    if (tokens > MAX_JWT_CONFIGS) {
      groups.set(name, []);
      broken.add(name);
      const message = `at most ${MAX_JWT_CONFIGS} jwt configurations`;
      problems.push({ path: toPointer(["container", "groups", name]), message });
    }
  }

  const closedPrograms = new Set<string>();
  for (const [name, cells] of permissions) {
    if (groups.has(name) && !broken.has(name)) {
      continue;
    }
    if (!groups.has(name)) {
      problems.push({
        path: toPointer([namedIn.get(name) ?? "container", "permissions", name]),
        message: "no group has this name",
      });
    }
    for (const program of cells.keys()) {
      closedPrograms.add(program);
    }
  }
  return {
    enableProxy,
    // Without the list of groups or cells nobody can tell which programs are concerned: all of them are.
    defaultAllow: defaultAllow && readable,
    groups,
    permissions,
    closedPrograms,
    problems,
  };
}

function compileGroup(
  value: unknown,
  path: readonly string[],
  problems: Issue[],
): { configs: readonly GroupConfig[]; whole: boolean } {
  const alternatives: readonly unknown[] = Array.isArray(value) ? value : [value];
  const configs: GroupConfig[] = [];
  alternatives.forEach((alternative, position) => {
    const parsed = groupConfigSchema.safeParse(alternative);
    if (parsed.success) {
      configs.push(sealGroup(parsed.data));
      return;
    }
    const at = toPointer(Array.isArray(value) ? [...path, position] : path);
    for (const issue of toIssues(parsed.error)) {
      problems.push({ path: at + issue.path, message: issue.message });
    }
  });
  if (alternatives.length === 0) {
    problems.push({ path: toPointer(path), message: "at least one configuration is needed" });
  }
  return { configs, whole: configs.length === alternatives.length && configs.length > 0 };
}

function compileCells(
  cells: unknown,
  path: readonly string[],
  into: Map<string, AccessTest>,
  problems: Issue[],
): void {
  if (!isObject(cells)) {
    problems.push({ path: toPointer(path), message: "expected an object" });
    for (const program of PROGRAMS) {
      into.set(program, GRANTS_NONE);
    }
    return;
  }
  const seen = new Set<string>();
  for (const [spelling, value] of entriesOf(cells)) {
    const at = toPointer([...path, spelling]);
    const program = programBySpelling(spelling);
    if (program === undefined) {
      problems.push({ path: at, message: "Unknown program name" });
      continue;
    }
    if (seen.has(program)) {
      problems.push({ path: at, message: `${program} occurs twice` });
      into.set(program, GRANTS_NONE);
      continue;
    }
    seen.add(program);
    const parsed = accessRuleSchema(program).safeParse(value);
    into.set(program, parsed.success ? compileRule(program, parsed.data) : GRANTS_NONE);
    if (!parsed.success) {
      problems.push({ path: at, message: parsed.error.issues[0]?.message ?? "not an access rule" });
    }
  }
}

/** The test of a valid access rule: whether it grants an instance (edge-proxy.md 2.3). */
export function compileRule(program: string, rule: AccessRule): AccessTest {
  if (rule === true) {
    return GRANTS_ALL;
  }
  if (rule === "*") {
    return serviceByName(program)?.access === "strict" ? GRANTS_NONE : GRANTS_ALL;
  }
  if (typeof rule === "number") {
    return (instance) => instance === rule;
  }
  if (Array.isArray(rule)) {
    const instances = new Set(rule);
    return (instance) => instances.has(instance);
  }
  const range = typeof rule === "string" ? parseRange(rule) : null;
  return range === null
    ? GRANTS_NONE
    : (instance) => instance >= range.from && instance <= range.to;
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function entriesOf(value: unknown): [string, unknown][] {
  return isObject(value) ? Object.entries(value) : [];
}
