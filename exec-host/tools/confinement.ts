import { lstat, readlink } from "node:fs/promises";
import { dirname, isAbsolute, join, normalize, resolve } from "node:path";
import type { DirScope } from "../agent/seams.ts";

/** Where the tools of one session may reach. All paths are absolute and physical (links resolved). */
export interface FileScope {
  readonly cwd: string;
  readonly home: string;
  readonly dirScope: DirScope;
  /** Folders no tool touches besides the credential files: the config-dir override, the gateway's own data. */
  readonly protectedDirs: readonly string[];
}

/** What a path is to a scope, for one kind of use. */
export type Placement = "allowed" | "needs_confirmation" | "outside" | "credential";

const MAX_LINKS = 40;
const CREDENTIAL_DIRS: readonly (readonly string[])[] = [
  [".hoody"],
  [".ssh"],
  [".gnupg"],
  [".aws"],
  [".config", "gcloud"],
];
const CREDENTIAL_FILES: readonly (readonly string[])[] = [
  [".kube", "config"],
  [".docker", "config.json"],
  [".netrc"],
  [".npmrc"],
  [".pypirc"],
  [".git-credentials"],
];

/** Processes show their environment, memory and open files here. */
const PROCESS_FILES = /^\/proc\/(?:self|thread-self|\d+)(?:\/|$)/;

/** True when `path` is `root` or lies below it, by whole segments. Both absolute and normal. */
export function isWithin(root: string, path: string): boolean {
  return path === root || path.startsWith(root.endsWith("/") ? root : `${root}/`);
}

/** True for what decision 58 calls credential files, anywhere in the tree, and for what lies in a credential folder. */
export function isCredentialPath(path: string): boolean {
  const segments = path.split("/");
  return (
    CREDENTIAL_DIRS.some((wanted) => occurs(segments, wanted, false)) ||
    CREDENTIAL_FILES.some((wanted) => occurs(segments, wanted, true))
  );
}

function occurs(segments: readonly string[], wanted: readonly string[], atEnd: boolean): boolean {
  const last = segments.length - wanted.length;
  for (let start = atEnd ? Math.max(0, last) : 0; start <= last; start++) {
    if (wanted.every((name, i) => segments[start + i] === name)) {
      return true;
    }
  }
  return false;
}

/**
 * A path as a tool's caller wrote it, made absolute: `~` is the home, anything relative starts at the cwd.
 *
 * @returns null for text that is no path (empty, NUL inside, too long).
 */
function toAbsolute(scope: Pick<FileScope, "cwd" | "home">, path: string): string | null {
  if (path === "" || path.includes("\0") || path.length > 4096) {
    return null;
  }
  if (path === "~" || path.startsWith("~/")) {
    return join(scope.home, path.slice(1));
  }
  return isAbsolute(path) ? path : `${scope.cwd}/${path}`;
}

/**
 * The physical path that opening `path` would reach, computed link by link the way the kernel does (`..` after a link
 * leaves the link's target). Works for paths that do not exist: the part after the last existing folder is kept.
 *
 * @returns null when links form a loop or a component cannot be read.
 */
async function resolveLinks(path: string): Promise<string | null> {
  let pending = path.split("/").filter((segment) => segment !== "" && segment !== ".");
  let at = "/";
  let links = 0;
  for (let segment = pending.shift(); segment !== undefined; segment = pending.shift()) {
    if (segment === "..") {
      at = dirname(at);
      continue;
    }
    const next = join(at, segment);
    let target: string | null;
    try {
      target = (await lstat(next)).isSymbolicLink() ? await readlink(next) : null;
    } catch (error) {
      if (
        error instanceof Error &&
        "code" in error &&
        (error.code === "ENOENT" || error.code === "ENOTDIR")
      ) {
        target = null; // a missing part has no links below it
      } else {
        return null;
      }
    }
    if (target === null) {
      at = next;
      continue;
    }
    links += 1;
    if (links > MAX_LINKS) {
      return null;
    }
    pending = [...target.split("/").filter((part) => part !== "" && part !== "."), ...pending];
    at = isAbsolute(target) ? "/" : at;
  }
  return at;
}

/** Places a physical path (section 13.2). `lexical` is the path as written: a credential name hidden by a link still counts. */
export function placePath(
  scope: FileScope,
  physical: string,
  lexical: string,
  use: "read" | "write",
): Placement {
  const written = normalize(lexical);
  if (
    isCredentialPath(physical) ||
    isCredentialPath(written) ||
    PROCESS_FILES.test(physical) ||
    scope.protectedDirs.some((dir) => isWithin(dir, physical))
  ) {
    return "credential";
  }
  if (isWithin(scope.cwd, physical)) {
    return "allowed";
  }
  if (use === "write") {
    return "needs_confirmation";
  }
  return scope.dirScope === "full" || isWithin(scope.home, physical) ? "allowed" : "outside";
}

/** A caller's path with everything the gate needs to know about it. */
export interface PlacedPath {
  /** Absolute, as written. */
  readonly lexical: string;
  readonly physical: string;
  readonly placement: Placement;
}

/** Resolves and places a caller's path; what cannot be resolved counts as outside. */
export async function placeCallerPath(
  scope: FileScope,
  path: string,
  use: "read" | "write",
): Promise<PlacedPath> {
  const lexical = toAbsolute(scope, path);
  const physical = lexical === null ? null : await resolveLinks(lexical);
  if (lexical === null || physical === null) {
    return {
      lexical: lexical ?? resolve(scope.cwd),
      physical: physical ?? "/",
      placement: "outside",
    };
  }
  return { lexical, physical, placement: placePath(scope, physical, lexical, use) };
}
