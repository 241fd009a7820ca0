import { readdirSync, realpathSync, statSync } from "node:fs";
import { join, relative, sep } from "node:path";
import {
  DEFAULT_EXEC_ID,
  DEFAULT_SUBDOMAIN,
  isExecId,
  isReservedName,
  isSubdomain,
} from "./coordinates.ts";

/** The names the route types have in answers of the management API, in the order of their priority. */
export type RouteKind = "static" | "dynamic" | "catchall" | "optional-catchall";

/** What `[name]` and `[...name]` stand for in a path. */
export type RouteParameters = Readonly<Record<string, string | readonly string[]>>;

/** The file that a path hits. */
export interface ResolvedScript {
  /** Absolute, free of links. */
  readonly file: string;
  /** Path below the scripts root with `/`, as it is shown in logs. */
  readonly name: string;
  readonly kind: RouteKind;
  /** Own properties only; the object has no prototype, since names come from file names. */
  readonly parameters: RouteParameters;
  /** The same name with the other extension lies beside it and is not used. */
  readonly shadowed: string | null;
}

/** The script that serves a path, if any. */
export interface Resolution {
  readonly script: ResolvedScript | null;
  /** Directories that were looked into, below the root, in order. */
  readonly triedDirectories: readonly string[];
}

/** A path to find the file for. */
export interface ResolveRequest {
  readonly subdomain: string | null;
  readonly execId: string | null;
  /** Path as received, without query. */
  readonly path: string;
  /** A hook's target may carry its extension. */
  readonly withExtension: boolean;
}

const EXTENSIONS = [".ts", ".js"] as const;
const MAX_SEGMENTS = 64;
/** `[id]`, `[...slug]`, `[[...path]]`. */
const DYNAMIC = /^\[([A-Za-z_][A-Za-z0-9_-]*)\]$/;
const CATCH_ALL = /^\[\.\.\.([A-Za-z_][A-Za-z0-9_-]*)\]$/;
const OPTIONAL_CATCH_ALL = /^\[\[\.\.\.([A-Za-z_][A-Za-z0-9_-]*)\]\]$/;

/**
 * Finds the script of a path: the look-up chain `S/E`, `S`, `E`, root, and in each directory static files, then
 * dynamic ones, then catch-alls (exec-host.md 1.2, 1.3). A file whose real path leaves the root is absent, and so
 * is one in the directory of another deployment (decision 47). Never throws: what cannot be read is not there.
 *
 * @param root scripts root, absolute and free of links.
 */
export function resolveScript(root: string, request: ResolveRequest): Resolution {
  const subdomain = request.subdomain ?? DEFAULT_SUBDOMAIN;
  const execId = request.execId ?? DEFAULT_EXEC_ID;
  const triedDirectories: string[] = [];
  const segments = decodeSegments(request.path);
  if (segments === null || !isSubdomain(subdomain) || !isExecId(execId)) {
    return { script: null, triedDirectories };
  }
  const bases = [[subdomain, execId], [subdomain], [execId], []];
  for (const [index, base] of bases.entries()) {
    if (index === 2 && execId === subdomain) {
      continue; // the same directory again
    }
    triedDirectories.push(base.join("/"));
    const search: Search = {
      root,
      subdomain,
      execId,
      withExtension: request.withExtension,
      segments,
    };
    const script = descend(search, base, 0, []);
    if (script !== null) {
      return { script, triedDirectories };
    }
  }
  return { script: null, triedDirectories };
}

/** A Markdown file that an ordinary call asks for, and the script beside it whose token guards it. */
export interface ResolvedMarkdown {
  readonly file: string;
  readonly script: string | null;
}

/**
 * Finds `<name>.md` along the look-up chain. Prompt files (`_system.md`, `<name>.system.md`) are never served.
 *
 * @param root scripts root, absolute and free of links.
 */
export function resolveMarkdown(
  root: string,
  subdomain: string | null,
  execId: string | null,
  path: string,
): ResolvedMarkdown | null {
  const segments = decodeSegments(path);
  const last = segments?.at(-1) ?? "";
  const isServed =
    segments !== null &&
    segments.every(isStaticName) &&
    last.endsWith(".md") &&
    !last.endsWith(".system.md");
  const s = subdomain ?? DEFAULT_SUBDOMAIN;
  const e = execId ?? DEFAULT_EXEC_ID;
  if (!isServed || !isSubdomain(s) || !isExecId(e)) {
    return null;
  }
  const search: Search = { root, subdomain: s, execId: e, withExtension: false, segments };
  for (const base of [[s, e], [s], [e], []]) {
    const dirs = [...base, ...segments.slice(0, -1)];
    const path_ = join(root, ...dirs, last);
    const file = !isForeign(search, dirs) && isFile(path_) ? realPathInside(root, path_) : null;
    if (file !== null) {
      const sibling = findFile(search, dirs, last.slice(0, -3), "static", []);
      return { file, script: sibling?.file ?? null };
    }
  }
  return null;
}

interface Search {
  readonly root: string;
  readonly subdomain: string;
  readonly execId: string;
  readonly withExtension: boolean;
  readonly segments: readonly string[];
}

type Binding = readonly [name: string, value: string | readonly string[]];

/** Percent-decodes each segment once; null when a path cannot name a file. */
function decodeSegments(path: string): string[] | null {
  if (!path.startsWith("/")) {
    return null;
  }
  const raw = path.slice(1).split("/");
  if (raw.at(-1) === "") {
    raw.pop(); // `/dir/` is `/dir`, `/` is the root
  }
  if (raw.length > MAX_SEGMENTS) {
    return null;
  }
  const segments: string[] = [];
  for (const part of raw) {
    let segment: string;
    try {
      segment = part.includes("%") ? decodeURIComponent(part) : part;
    } catch {
      return null; // a broken escape names no file
    }
    if (segment === "" || segment === "." || segment === ".." || /[/\\\0]/.test(segment)) {
      return null;
    }
    segments.push(segment);
  }
  return segments;
}

/** Looks for `segments[from…]` in a directory, best kind of route first, going back where a branch ends. */
function descend(
  search: Search,
  dirs: readonly string[],
  from: number,
  bindings: readonly Binding[],
): ResolvedScript | null {
  if (isForeign(search, dirs)) {
    return null;
  }
  const segment = search.segments[from];
  const isDynamic = bindings.length > 0;
  if (segment === undefined) {
    return (
      findFile(search, dirs, "index", isDynamic ? "dynamic" : "static", bindings) ??
      findOptional(search, dirs, [], bindings)
    );
  }
  const isLast = from === search.segments.length - 1;
  if (isLast) {
    const file = findStatic(search, dirs, segment, isDynamic ? "dynamic" : "static", bindings);
    if (file !== null) {
      return file;
    }
  }
  if (isStaticName(segment) && isDirectory(join(search.root, ...dirs, segment))) {
    const below = descend(search, [...dirs, segment], from + 1, bindings);
    if (below !== null) {
      return below;
    }
  }
  return findDynamic(search, dirs, from, segment, isLast, bindings);
}

function findStatic(
  search: Search,
  dirs: readonly string[],
  segment: string,
  kind: RouteKind,
  bindings: readonly Binding[],
): ResolvedScript | null {
  if (search.withExtension && /.\.(?:js|ts)$/.test(segment)) {
    const stem = segment.slice(0, -3);
    return isRoutable(stem) ? openFile(search, dirs, segment, kind, bindings) : null;
  }
  return isRoutable(segment) ? findFile(search, dirs, segment, kind, bindings) : null;
}

/** The branches for a directory whose entries have to be listed. */
function findDynamic(
  search: Search,
  dirs: readonly string[],
  from: number,
  segment: string,
  isLast: boolean,
  bindings: readonly Binding[],
): ResolvedScript | null {
  const names = listDirectory(join(search.root, ...dirs));
  const stems = new Set(
    names.filter((name) => /\.(?:js|ts)$/.test(name)).map((name) => name.slice(0, -3)),
  );
  if (isLast) {
    for (const stem of stems) {
      const name = DYNAMIC.exec(stem)?.[1];
      const found =
        name === undefined
          ? null
          : findFile(search, dirs, stem, "dynamic", [...bindings, [name, segment]]);
      if (found !== null) {
        return found;
      }
    }
  }
  for (const entry of names) {
    const name = DYNAMIC.exec(entry)?.[1];
    if (name !== undefined && isDirectory(join(search.root, ...dirs, entry))) {
      const found = descend(search, [...dirs, entry], from + 1, [...bindings, [name, segment]]);
      if (found !== null) {
        return found;
      }
    }
  }
  const rest = search.segments.slice(from);
  for (const stem of stems) {
    const name = CATCH_ALL.exec(stem)?.[1];
    const found =
      name === undefined
        ? null
        : findFile(search, dirs, stem, "catchall", [...bindings, [name, rest]]);
    if (found !== null) {
      return found;
    }
  }
  return findOptional(search, dirs, rest, bindings, stems);
}

function findOptional(
  search: Search,
  dirs: readonly string[],
  rest: readonly string[],
  bindings: readonly Binding[],
  stems: Iterable<string> = listDirectory(join(search.root, ...dirs)).map((name) =>
    name.replace(/\.(?:js|ts)$/, ""),
  ),
): ResolvedScript | null {
  for (const stem of stems) {
    const name = OPTIONAL_CATCH_ALL.exec(stem)?.[1];
    const found =
      name === undefined
        ? null
        : findFile(search, dirs, stem, "optional-catchall", [...bindings, [name, rest]]);
    if (found !== null) {
      return found;
    }
  }
  return null;
}

/** `stem.ts` before `stem.js`. */
function findFile(
  search: Search,
  dirs: readonly string[],
  stem: string,
  kind: RouteKind,
  bindings: readonly Binding[],
): ResolvedScript | null {
  for (const extension of EXTENSIONS) {
    const found = openFile(search, dirs, stem + extension, kind, bindings);
    if (found !== null) {
      const twin = `${stem}.js`;
      const hasTwin = extension === ".ts" && isFile(join(search.root, ...dirs, twin));
      return hasTwin ? { ...found, shadowed: [...dirs, twin].join("/") } : found;
    }
  }
  return null;
}

function openFile(
  search: Search,
  dirs: readonly string[],
  name: string,
  kind: RouteKind,
  bindings: readonly Binding[],
): ResolvedScript | null {
  const path = join(search.root, ...dirs, name);
  if (isForeign(search, dirs) || !isFile(path)) {
    return null;
  }
  const file = realPathInside(search.root, path);
  if (file === null) {
    return null;
  }
  const parameters: Record<string, string | readonly string[]> = Object.create(null) as Record<
    string,
    string | readonly string[]
  >;
  for (const [key, value] of bindings) {
    parameters[key] = value;
  }
  return { file, name: [...dirs, name].join("/"), kind, parameters, shadowed: null };
}

/**
 * Whether a directory belongs to another deployment than the addressed one. Every folder of the first level
 * whose name fits is a subdomain (or an exec id of the older layout), every folder in it an exec id.
 */
function isForeign(search: Search, dirs: readonly string[]): boolean {
  const [first, second] = dirs;
  if (first === undefined || !isSubdomain(first)) {
    return first !== undefined && isExecId(first) && first !== search.execId;
  }
  if (first !== search.subdomain && first !== search.execId) {
    return true;
  }
  return (
    second !== undefined &&
    isExecId(second) &&
    !(first === search.subdomain && second === search.execId)
  );
}

/** A name a URL may give to a folder. */
function isStaticName(segment: string): boolean {
  return !/^[._[]/.test(segment) && !isReservedName(segment);
}

/** A stem a URL may give to a script: middleware and private files are not addressed. */
function isRoutable(stem: string): boolean {
  return isStaticName(stem) && stem !== "pre" && stem !== "post";
}

function isFile(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
  } catch {
    return false; // a name too long, a loop of links, no permission: not a script
  }
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
  } catch {
    return false; // as above
  }
}

/** Sorted, so that two dynamic names in one directory have a fixed order. */
function listDirectory(path: string): string[] {
  try {
    return readdirSync(path).sort();
  } catch {
    return []; // vanished or closed to us: empty
  }
}

/** The real path of a file when it stays below `root`, else null. */
export function realPathInside(root: string, path: string): string | null {
  try {
    const real = realpathSync(path);
    const below = relative(root, real);
    return below === "" || below.startsWith(`..${sep}`) || below === ".." ? null : real;
  } catch {
    return null; // vanished in between, or a link that leads out of what we may read
  }
}
