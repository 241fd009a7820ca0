import { statSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Clock } from "../../policy/kernel/clock.ts";
import { realPathInside } from "../scripts/resolve.ts";
import { readStamp } from "../scripts/stamp.ts";

/** The middleware files of a folder; null where there is none. */
export interface Middleware {
  readonly pre: string | null;
  readonly post: string | null;
}

interface Known extends Middleware {
  readonly mtimeMs: number;
  readonly ctimeMs: number;
  readonly isSettled: boolean;
}

const MAX_FOLDERS = 2000;
/** A folder that changed this recently may change again within the same tick of its clock. */
const SETTLE_MS = 50;
const NONE: Middleware = { pre: null, post: null };

/**
 * Finds `pre` and `post` beside a script (exec-host.md 4.2). One `stat` of the folder tells that nothing was
 * added or removed since the last look.
 *
 * @param root scripts root, free of links.
 */
export function createMiddlewareFinder(clock: Clock, root: string): (file: string) => Middleware {
  const known = new Map<string, Known>();
  return (file) => {
    const folder = dirname(file);
    let stat;
    try {
      stat = statSync(folder, { throwIfNoEntry: false });
    } catch {
      return NONE; // closed to us: the script itself cannot be read either
    }
    if (stat === undefined) {
      return NONE;
    }
    const { mtimeMs, ctimeMs } = stat;
    const found = known.get(folder);
    if (found?.isSettled === true && found.mtimeMs === mtimeMs && found.ctimeMs === ctimeMs) {
      return found;
    }
    const fresh: Known = {
      pre: find(root, folder, "pre"),
      post: find(root, folder, "post"),
      mtimeMs,
      ctimeMs,
      isSettled: clock.now() - ctimeMs >= SETTLE_MS,
    };
    if (known.size >= MAX_FOLDERS) {
      known.clear();
    }
    known.set(folder, fresh);
    return fresh;
  };
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
