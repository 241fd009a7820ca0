import { statSync } from "node:fs";

/** What tells one content of a file from another without reading it. */
export interface Stamp {
  readonly mtimeMs: number;
  readonly ctimeMs: number;
  readonly size: number;
  readonly inode: number;
}

/** Null when there is no such regular file. */
export function readStamp(file: string): Stamp | null {
  try {
    const stat = statSync(file, { throwIfNoEntry: false });
    return stat === undefined || !stat.isFile()
      ? null
      : { mtimeMs: stat.mtimeMs, ctimeMs: stat.ctimeMs, size: stat.size, inode: stat.ino };
  } catch {
    return null; // vanished or closed to us
  }
}

let looks: Map<string, unknown> | null = null;

/**
 * Within `task` each path is looked at once by {@link look}. For calls that one read brought: all of them were sent before
 * the first of them is begun, so what the first finds holds for the others.
 */
export function withOneLook<T>(task: () => T): T {
  looks = new Map();
  try {
    return task();
  } finally {
    looks = null;
  }
}

/** `read(path)`, or what it gave earlier within {@link withOneLook}; a path is always to be read in the same way. */
export function look<T>(path: string, read: (path: string) => T): T {
  if (looks === null) {
    return read(path);
  }
  let found = looks.get(path) as T | undefined;
  if (found === undefined) {
    found = read(path);
    looks.set(path, found);
  }
  return found;
}

/** Whether a file is unchanged between two looks; an absent file is like an absent one. */
export function isSameStamp(one: Stamp | null, other: Stamp | null): boolean {
  if (one === null || other === null) {
    return one === other;
  }
  return (
    one.mtimeMs === other.mtimeMs &&
    one.ctimeMs === other.ctimeMs &&
    one.size === other.size &&
    one.inode === other.inode
  );
}
