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
