import type { Stats } from "node:fs";
import { mkdir, open, type FileHandle } from "node:fs/promises";
import type { Clock } from "../kernel/clock.ts";
import { endOfDay, type AuditFiles } from "./audit-files.ts";

/** Appends to the files of many containers. Calls must not overlap. */
export interface AuditAppender {
  /** Writes whole lines behind those of before. Rejects when that failed; the next call then starts afresh. */
  append(container: string, lines: Uint8Array): Promise<void>;
  /** Closes files that nothing was written to for a while. */
  closeIdle(): Promise<void>;
  /** Closes all; a record that comes later still leaves no file open. */
  close(): Promise<void>;
}

/** What an appender may keep open. */
export interface AppenderOptions {
  readonly maxOpen: number;
  readonly idleMs: number;
  /** How long a file counts as the current one before the folder is looked at again, in ms. */
  readonly trustMs: number;
}

export const DEFAULT_APPENDER_OPTIONS: AppenderOptions = {
  maxOpen: 64,
  idleMs: 5000,
  trustMs: 1000,
};

interface OpenFile {
  readonly handle: FileHandle;
  /** ms since the epoch; from then on records belong into another file. */
  readonly until: number;
  /** Size behind our last write. With any other one somebody else wrote, and the end must be looked at. */
  size: number;
  /** When the folder said that this is the current file; monotonic. */
  seenAt: number;
  usedAt: number;
}

/**
 * Keeps the current file of each container open, so that a write costs two file operations: its size and the write
 * itself. The size tells of what other processes do with the file; a full one is full for all of them at once.
 */
export function createAuditAppender(
  clock: Clock,
  files: AuditFiles,
  options: AppenderOptions = DEFAULT_APPENDER_OPTIONS,
): AuditAppender {
  /** Least recently used first. */
  const opened = new Map<string, OpenFile>();
  let maxOpen = options.maxOpen;

  const begin = async (container: string, name: string): Promise<OpenFile> => {
    await mkdir(files.folder(container), { recursive: true, mode: 0o700 });
    const handle = await open(files.path(container, name), "a+", 0o600);
    return { handle, until: endOfDay(name), size: 0, seenAt: 0, usedAt: 0 };
  };

  /** Whether the folder must say which file is the current one. */
  const isDoubtful = ({ until, seenAt }: OpenFile, { size, nlink }: Stats): boolean =>
    size >= files.maxFileBytes ||
    nlink === 0 || // removed under us
    clock.now() >= until ||
    clock.monotonic() - seenAt >= options.trustMs;

  return {
    async append(container, lines) {
      let file = opened.get(container);
      opened.delete(container); // put back when all went well
      try {
        let stats = await file?.handle.stat();
        if (file === undefined || stats === undefined || isDoubtful(file, stats)) {
          const { name, inode } = await files.current(container);
          if (file === undefined || stats?.ino !== inode) {
            await close(file);
            file = undefined;
            file = await begin(container, name);
            stats = await file.handle.stat();
          }
          file.seenAt = clock.monotonic();
        }
        const { size } = stats;
        const torn = size !== file.size && (await endsTorn(file.handle, size));
        const bytes = torn ? Buffer.concat([LINE_FEED, lines]) : lines;
        await writeAll(file.handle, bytes);
        file.size = size + bytes.length;
        file.usedAt = clock.monotonic();
        opened.set(container, file);
      } catch (cause) {
        await close(file);
        throw cause;
      }
      await closeWhile(() => opened.size > maxOpen);
    },
    async closeIdle() {
      const since = clock.monotonic() - options.idleMs;
      await closeWhile(({ usedAt }) => usedAt <= since);
    },
    async close() {
      maxOpen = 0;
      await closeWhile(() => true);
    },
  };

  /** Closes files from the least recently used one on, as long as `test` says so. */
  async function closeWhile(test: (file: OpenFile) => boolean): Promise<void> {
    for (const [container, file] of opened) {
      if (!test(file)) {
        return;
      }
      opened.delete(container);
      await close(file);
    }
  }
}

async function close(file: OpenFile | undefined): Promise<void> {
  await file?.handle.close().catch(() => {}); // what was written through it is written
}

const LINE_FEED = Buffer.from("\n");

/** Whether the last line of a file is unfinished, so that the next record would be lost with it. */
async function endsTorn(handle: FileHandle, size: number): Promise<boolean> {
  if (size === 0) {
    return false;
  }
  const { bytesRead, buffer } = await handle.read(Buffer.alloc(1), 0, 1, size - 1);
  return bytesRead === 1 && buffer[0] !== 0x0a;
}

/** One write, save on a disk that is about to be full. */
async function writeAll(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let written = 0; written < bytes.length;) {
    written += (await handle.write(bytes, written)).bytesWritten;
  }
}
