import { closeSync, constants, fstatSync, openSync, readFileSync, readdirSync } from "node:fs";
import type { Dirent } from "node:fs";
import { isCredentialPath, isWithin } from "./confinement.ts";
import { compileGlob, matchesGlob, matchesName } from "./glob-match.ts";
import type { Glob } from "./glob-match.ts";

const DIR_FLAGS = 0o10000000 /* O_PATH */ | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const FILE_FLAGS =
  constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;
const MAX_IGNORE_BYTES = 262_144;
const MAX_DEPTH = 64;

/** How to walk a tree. */
export interface WalkOptions {
  /** Enter and report names that begin with a dot. */
  readonly hidden: boolean;
  /** Obey `.gitignore` files at and below the root. */
  readonly ignoreFiles: boolean;
  /** Physical path of the root, for placing what is found. */
  readonly rootPath: string;
  /** Physical folders that are skipped. */
  readonly protectedDirs: readonly string[];
  /** Entries looked at before the walk gives up. */
  readonly maxEntries: number;
}

/** One entry of a walk. */
export interface WalkEntry {
  /** Relative to the root, `/` between segments. */
  readonly path: string;
  readonly isDirectory: boolean;
  /** False for links, fifos, sockets and devices as well as for folders. */
  readonly isFile: boolean;
  /** Opens a regular file as the very entry that was listed; null when it is something else by now. The taker closes it. */
  open(): number | null;
}

interface IgnoreRule {
  readonly base: string;
  readonly negated: boolean;
  readonly dirOnly: boolean;
  readonly anchored: Glob | null;
  readonly name: string | null;
}

/**
 * Walks a tree without following any link, in name order. Folders are opened through their parent's descriptor, so that
 * a name swapped for a link is not entered.
 *
 * @param at path of the root by descriptor (`/proc/self/fd/N`).
 * @returns false when `maxEntries` ended it early.
 */
export function* walkTree(at: string, options: WalkOptions): Generator<WalkEntry, boolean> {
  const budget = { left: options.maxEntries };
  yield* walkDir(at, "", [], options, budget, 0);
  return budget.left > 0;
}

function* walkDir(
  at: string,
  prefix: string,
  inherited: readonly IgnoreRule[],
  options: WalkOptions,
  budget: { left: number },
  depth: number,
): Generator<WalkEntry> {
  let entries: Dirent[];
  try {
    entries = readdirSync(at, { withFileTypes: true });
  } catch {
    return; // unreadable folders are left out, as find and ripgrep do
  }
  const rules = options.ignoreFiles ? [...inherited, ...readIgnoreFile(at, prefix)] : inherited;
  entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of entries) {
    budget.left -= 1;
    if (budget.left <= 0) {
      return;
    }
    const path = prefix + entry.name;
    const physical = `${options.rootPath === "/" ? "" : options.rootPath}/${path}`;
    const isDirectory = entry.isDirectory();
    if (
      (!options.hidden && entry.name.startsWith(".")) ||
      isCredentialPath(physical) ||
      options.protectedDirs.some((dir) => isWithin(dir, physical)) ||
      isIgnored(rules, path, entry.name, isDirectory)
    ) {
      continue;
    }
    yield {
      path,
      isDirectory,
      isFile: entry.isFile(),
      open: () => openRegular(`${at}/${entry.name}`),
    };
    if (!isDirectory || depth >= MAX_DEPTH) {
      continue;
    }
    let fd: number;
    try {
      fd = openSync(`${at}/${entry.name}`, DIR_FLAGS);
    } catch {
      continue;
    }
    try {
      yield* walkDir(`/proc/self/fd/${fd}`, `${path}/`, rules, options, budget, depth + 1);
    } finally {
      closeSync(fd);
    }
  }
}

function openRegular(path: string): number | null {
  let fd: number;
  try {
    fd = openSync(path, FILE_FLAGS);
  } catch {
    return null;
  }
  if (fstatSync(fd).isFile()) {
    return fd;
  }
  closeSync(fd);
  return null;
}

function readIgnoreFile(at: string, prefix: string): IgnoreRule[] {
  const fd = openRegular(`${at}/.gitignore`);
  if (fd === null) {
    return [];
  }
  try {
    if (fstatSync(fd).size > MAX_IGNORE_BYTES) {
      return [];
    }
    return readFileSync(fd, "utf8")
      .split("\n")
      .flatMap((line) => toIgnoreRule(line, prefix));
  } finally {
    closeSync(fd);
  }
}

function toIgnoreRule(line: string, base: string): IgnoreRule[] {
  let pattern = line.replace(/\r$/, "").replace(/(?<!\\)\s+$/, "");
  if (pattern === "" || pattern.startsWith("#")) {
    return [];
  }
  const negated = pattern.startsWith("!");
  pattern = negated ? pattern.slice(1) : pattern;
  const dirOnly = pattern.endsWith("/");
  pattern = dirOnly ? pattern.slice(0, -1) : pattern;
  if (!pattern.includes("/")) {
    return [{ base, negated, dirOnly, anchored: null, name: pattern }];
  }
  // braces are ordinary characters in ignore files
  const glob = compileGlob(pattern.replace(/^\//, "").replaceAll("{", "[{]"));
  return glob === null ? [] : [{ base, negated, dirOnly, anchored: glob, name: null }];
}

function isIgnored(
  rules: readonly IgnoreRule[],
  path: string,
  name: string,
  isDirectory: boolean,
): boolean {
  for (let i = rules.length - 1; i >= 0; i--) {
    const rule = rules[i];
    if (rule === undefined || (rule.dirOnly && !isDirectory)) {
      continue;
    }
    const fits =
      rule.anchored === null
        ? matchesName(rule.name ?? "", name)
        : matchesGlob(rule.anchored, path.slice(rule.base.length));
    if (fits) {
      return !rule.negated;
    }
  }
  return false;
}
