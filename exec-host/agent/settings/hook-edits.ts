import { AgentError } from "../errors.ts";
import type { HookEvent } from "../hooks/events.ts";
import { normalMatcher } from "../hooks/matcher.ts";
import { isObject, ownMember } from "./canonical-json.ts";
import { MAX_HOOKS_PER_FILE } from "./document.ts";

/** What a hook is told apart by. */
export interface HookTriple {
  readonly event: HookEvent;
  /** Normal spelling (`normalMatcher`). */
  readonly matcher: string;
  readonly command: string;
}

/** Fields of a hook besides its identity; undefined keeps what is stored. */
export interface HookFields {
  readonly name?: string | undefined;
  readonly description?: string | undefined;
  readonly timeout?: number | undefined;
}

type Entry = Record<string, unknown>;
type Group = Record<string, unknown>;

/**
 * Creates or updates a hook in the value of a file's `hooks`. Pure: the input is not touched. Members that the call does not
 * name are kept. Every entry of that triple is updated, so that no twin goes on with the old fields.
 *
 * @throws AgentError `bad_request` when a new hook has no name or description, or the file has another shape.
 */
export function upsertHook(
  value: unknown,
  triple: HookTriple,
  fields: HookFields,
): { readonly hooks: unknown; readonly created: boolean } {
  const hooks = cloneHooks(value);
  const groups = groupsOf(hooks, triple.event);
  const found = entriesOf(groups, triple.matcher).filter((entry) =>
    isCommandEntry(entry, triple.command),
  );
  for (const entry of found) {
    assignFields(entry, fields);
  }
  if (found.length > 0) {
    return { hooks, created: false };
  }
  for (const field of ["name", "description"] as const) {
    if ((fields[field] ?? "").trim() === "") {
      throw new AgentError("bad_request", `A new hook needs a ${field}.`, { field });
    }
  }
  if (countHooks(hooks) >= MAX_HOOKS_PER_FILE) {
    throw new AgentError("bad_request", `A file holds at most ${MAX_HOOKS_PER_FILE} hooks.`);
  }
  const entry: Entry = { type: "command", command: triple.command };
  assignFields(entry, fields);
  const home = groups.find(
    (group) => matcherOf(group) === triple.matcher && Array.isArray(group["hooks"]),
  );
  if (home === undefined) {
    groups.push({
      ...(triple.matcher === "*" ? {} : { matcher: triple.matcher }),
      hooks: [entry],
    });
  } else {
    (home["hooks"] as unknown[]).push(entry);
  }
  hooks[triple.event] = groups;
  return { hooks, created: true };
}

/**
 * Removes a hook, or every command of an event and matcher. Emptied groups, events and an emptied `hooks` go too.
 *
 * @param command undefined: the whole group.
 * @returns `hooks` undefined when nothing is left.
 * @throws AgentError `not_found` when nothing matched.
 */
export function deleteHook(
  value: unknown,
  event: HookEvent,
  matcher: string,
  command: string | undefined,
): { readonly hooks: unknown; readonly removed: number } {
  const hooks = cloneHooks(value);
  const groups = groupsOf(hooks, event);
  let removed = 0;
  const kept = groups.filter((group) => {
    if (matcherOf(group) !== matcher || !Array.isArray(group["hooks"])) {
      return true;
    }
    const entries = group["hooks"] as unknown[];
    const rest = entries.filter(
      (entry) => command !== undefined && !isCommandEntry(entry, command),
    );
    removed += entries.length - rest.length;
    group["hooks"] = rest;
    return rest.length > 0;
  });
  if (removed === 0) {
    throw noHookFound();
  }
  if (kept.length > 0) {
    hooks[event] = kept;
  } else {
    delete hooks[event];
  }
  return { hooks: Object.keys(hooks).length > 0 ? hooks : undefined, removed };
}

/**
 * Switches a hook on or off; everything else of the entry stays.
 *
 * @throws AgentError `not_found` when there is none: a toggle never makes a hook.
 */
export function toggleHook(value: unknown, triple: HookTriple, disabled: boolean): unknown {
  const hooks = cloneHooks(value);
  const found = entriesOf(groupsOf(hooks, triple.event), triple.matcher).filter((entry) =>
    isCommandEntry(entry, triple.command),
  );
  if (found.length === 0) {
    throw noHookFound();
  }
  for (const entry of found) {
    if (disabled) {
      entry["disabled"] = true;
    } else {
      delete entry["disabled"];
    }
  }
  return hooks;
}

/** Records a catalogue hook as on, or takes it out so that the catalogue's default (off) holds. */
export function toggleShipped(value: unknown, id: string, enabled: boolean): unknown {
  if (value !== undefined && !isObject(value)) {
    throw otherShape("shipped_hooks");
  }
  const entries = Object.entries(value ?? {}).filter(([key]) => key !== id);
  if (enabled) {
    entries.push([id, true]);
  }
  return entries.length > 0 ? Object.fromEntries(entries) : undefined;
}

function cloneHooks(value: unknown): Record<string, unknown> {
  if (value !== undefined && !isObject(value)) {
    throw otherShape("hooks");
  }
  return structuredClone(value ?? {});
}

function groupsOf(hooks: Record<string, unknown>, event: HookEvent): Group[] {
  const groups = ownMember(hooks, event) ?? [];
  if (!Array.isArray(groups) || !groups.every(isObject)) {
    throw otherShape(`hooks.${event}`);
  }
  return groups;
}

function matcherOf(group: Group): string | null {
  const matcher = ownMember(group, "matcher");
  return matcher === undefined || typeof matcher === "string" ? normalMatcher(matcher) : null;
}

function entriesOf(groups: readonly Group[], matcher: string): Entry[] {
  return groups
    .filter((group) => matcherOf(group) === matcher && Array.isArray(group["hooks"]))
    .flatMap((group) => (group["hooks"] as unknown[]).filter(isObject));
}

function isCommandEntry(entry: unknown, command: string): boolean {
  return isObject(entry) && ownMember(entry, "command") === command;
}

function assignFields(entry: Entry, fields: HookFields): void {
  for (const key of ["timeout", "name", "description"] as const) {
    if (fields[key] !== undefined) {
      entry[key] = fields[key];
    }
  }
}

function countHooks(hooks: Record<string, unknown>): number {
  return Object.values(hooks)
    .flatMap((groups) => (Array.isArray(groups) ? (groups as unknown[]) : []))
    .flatMap((group) => (isObject(group) && Array.isArray(group["hooks"]) ? group["hooks"] : []))
    .length;
}

function noHookFound(): AgentError {
  return new AgentError("not_found", "no hook found");
}

function otherShape(key: string): AgentError {
  return new AgentError("bad_request", `The file's ${key} has another shape; it is not written.`, {
    field: "scope",
    reason: "shape",
  });
}
