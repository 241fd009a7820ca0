import { statSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Clock } from "../../policy/kernel/clock.ts";
import { DEFAULT_EXEC_ID, DEFAULT_SUBDOMAIN } from "../scripts/coordinates.ts";
import {
  realPathInside,
  resolveScript,
  type ResolvedScript,
  type ResolveRequest,
} from "../scripts/resolve.ts";
import { look, readStamp } from "../scripts/stamp.ts";

/** The script of a path and the middleware of its folder (exec-host.md 4.2); null where there is none. */
export interface Location {
  readonly script: ResolvedScript;
  readonly pre: string | null;
  readonly post: string | null;
}

export type LocateScript = (request: ResolveRequest) => Location | null;

interface FolderStamp {
  readonly mtimeMs: number;
  readonly ctimeMs: number;
  readonly inode: number;
}

interface Known {
  readonly location: Location;
  readonly folder: string;
  readonly stamp: FolderStamp;
}

const MAX_KNOWN = 5000;
/** A folder that changed this recently may change again within the same tick of its clock. */
const SETTLE_MS = 50;

/**
 * Finds scripts; asked again for a path, one `stat` of the folder tells whether the answer is still right. That
 * holds for a static file in the first directory of the look-up chain: nothing but a change of its own folder can put
 * another file in its place. Everything else is looked for anew each time.
 *
 * @param root scripts root, free of links.
 */
export function createScriptLocator(clock: Clock, root: string): LocateScript {
  const known = new Map<string, Known>();

  return (request) => {
    const key = `${request.subdomain ?? ""}/${request.execId ?? ""}/${request.withExtension ? 1 : 0}${request.path}`;
    const found = known.get(key);
    if (found !== undefined) {
      if (isSame(found.stamp, look(found.folder, stampOf))) {
        return found.location;
      }
      known.delete(key);
    }
    const { script } = resolveScript(root, request);
    if (script === null) {
      return null;
    }
    const folder = dirname(join(root, script.name));
    const stamp = stampOf(folder);
    const own = dirname(script.file);
    const location: Location = {
      script,
      pre: find(root, own, "pre"),
      post: find(root, own, "post"),
    };
    const isFirst = script.name.startsWith(
      `${request.subdomain ?? DEFAULT_SUBDOMAIN}/${request.execId ?? DEFAULT_EXEC_ID}/`,
    );
    const isStable = stamp !== null && clock.now() - stamp.ctimeMs >= SETTLE_MS;
    if (isFirst && isStable && script.kind === "static" && own === folder) {
      if (known.size >= MAX_KNOWN) {
        known.clear();
      }
      known.set(key, { location, folder, stamp });
    }
    return location;
  };
}

function stampOf(folder: string): FolderStamp | null {
  try {
    const stat = statSync(folder, { throwIfNoEntry: false });
    return stat === undefined
      ? null
      : { mtimeMs: stat.mtimeMs, ctimeMs: stat.ctimeMs, inode: stat.ino };
  } catch {
    return null; // closed to us, or a loop of links
  }
}

function isSame(one: FolderStamp, other: FolderStamp | null): boolean {
  return (
    other !== null &&
    one.mtimeMs === other.mtimeMs &&
    one.ctimeMs === other.ctimeMs &&
    one.inode === other.inode
  );
}

function find(root: string, folder: string, stem: string): string | null {
  for (const extension of [".ts", ".js"]) {
    const path = join(folder, stem + extension);
    if (readStamp(path) !== null) {
      return realPathInside(root, path);
    }
  }
  return null;
}
