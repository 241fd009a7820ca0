import { readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../kernel/clock.ts";

/** The file that new records of a container go to. */
export interface CurrentFile {
  readonly name: string;
  /** null for one that is not there yet. */
  readonly inode: number | null;
}

/** The files below `audit/`: `<container>/<date>.<number>.jsonl`. */
export interface AuditFiles {
  readonly maxFileBytes: number;
  folder(container: string): string;
  path(container: string, name: string): string;
  /** Names of a container's files, oldest first. */
  list(container: string): Promise<string[]>;
  /** The file to append to: a new one for a new day or when the last one is full. Makes room for that. */
  current(container: string): Promise<CurrentFile>;
  /** Removes files of days that are too old. */
  sweep(): Promise<void>;
}

/** How much is kept. */
export interface AuditBounds {
  readonly retentionMs: number;
  readonly maxFileBytes: number;
  readonly maxFiles: number;
}

export const DAY_MS = 86_400_000;
const FILE = /^(\d{4}-\d{2}-\d{2})\.(\d{6})\.jsonl$/;

export function createAuditFiles(clock: Clock, root: string, bounds: AuditBounds): AuditFiles {
  const { retentionMs, maxFileBytes, maxFiles } = bounds;
  const folder = (container: string): string => join(root, container);
  const path = (container: string, name: string): string => join(root, container, name);

  const list = async (container: string): Promise<string[]> => {
    const names = await readdir(folder(container)).catch((cause: NodeJS.ErrnoException) => {
      if (cause.code === "ENOENT") {
        return [];
      }
      throw cause;
    });
    return names.filter((name) => FILE.test(name)).toSorted();
  };

  return {
    maxFileBytes,
    folder,
    path,
    list,
    async current(container) {
      const today = dayOf(clock.now());
      const files = await list(container);
      const last = files.at(-1);
      const [, date = "", number = "0"] = FILE.exec(last ?? "") ?? [];
      if (last !== undefined && date >= today) {
        const { size, ino } = await stat(path(container, last));
        if (size < maxFileBytes) {
          return { name: last, inode: ino };
        }
      }
      for (const old of files.slice(0, Math.max(0, files.length + 1 - maxFiles))) {
        await rm(path(container, old), { force: true }).catch(() => {}); // tried again with the next file
      }
      // Never behind a date that is used already: a clock that went back must not reorder the records.
      const day = date > today ? date : today;
      const next = day === date ? Number(number) + 1 : 0;
      return { name: `${day}.${String(next).padStart(6, "0")}.jsonl`, inode: null };
    },
    async sweep() {
      const oldest = dayOf(clock.now() - retentionMs);
      const entries = await readdir(root, { withFileTypes: true });
      for (const { name: container } of entries.filter((entry) => entry.isDirectory())) {
        for (const file of await list(container)) {
          if (file.slice(0, 10) < oldest) {
            await rm(path(container, file), { force: true }); // another process may be quicker
          }
        }
      }
    },
  };
}

/** The first moment behind the day of a file, in ms since the epoch. */
export function endOfDay(name: string): number {
  return Date.parse(name.slice(0, 10)) + DAY_MS;
}

function dayOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}
