import { createReadStream } from "node:fs";
import { open, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** One log file as listed. */
export interface LogFile {
  readonly name: string;
  readonly size: number;
  /** RFC 3339. */
  readonly modified: string;
}

/** One line that a search found. */
export interface LogHit {
  readonly file: string;
  /** 1-based. */
  readonly line: number;
  readonly text: string;
}

/** Names of log files: `scripts.log`, `access/access.log`, and what was put aside from them. */
const NAME = /^(?:access\/)?[a-z]{1,32}(?:\.\d{10,16})?\.log$/;
const MAX_LINE = 16_384;
/** How much of a file's end a request may make us read. */
const MAX_READ_BYTES = 33_554_432;

/** Whether a name given by a caller can be a log file. */
export function isLogName(name: string): boolean {
  return NAME.test(name);
}

/** All log files below a folder, newest first; empty when there is no folder yet. */
export async function listLogs(folder: string): Promise<LogFile[]> {
  const files: (LogFile & { readonly at: number })[] = [];
  for (const prefix of ["", "access/"]) {
    const names = await readdir(join(folder, prefix)).catch(() => []);
    for (const entry of names) {
      const name = prefix + entry;
      const info = isLogName(name) ? await stat(join(folder, name)).catch(() => null) : null;
      if (info?.isFile()) {
        files.push({ name, size: info.size, modified: info.mtime.toISOString(), at: info.mtimeMs });
      }
    }
  }
  files.sort((a, b) => b.at - a.at);
  return files.map(({ name, size, modified }) => ({ name, size, modified }));
}

/** The lines of a file, from at most its last 32 MiB. A file that vanished has none. */
export async function* readLines(folder: string, name: string): AsyncGenerator<string> {
  const path = join(folder, name);
  const info = await stat(path).catch(() => null);
  if (!info?.isFile()) {
    return;
  }
  const start = Math.max(0, info.size - MAX_READ_BYTES);
  const stream = createReadStream(path, { start, encoding: "utf8" });
  let isFirst = start > 0;
  try {
    for await (const line of createInterface({
      input: stream,
      crlfDelay: Number.POSITIVE_INFINITY,
    })) {
      if (isFirst) {
        isFirst = false; // the cut may have gone through it
        continue;
      }
      yield line.length > MAX_LINE ? line.slice(0, MAX_LINE) : line;
    }
  } finally {
    stream.destroy();
  }
}

/**
 * Lines of files that pass `keep`: the last `count` of all, or with `tail` false the first.
 */
export async function pickLines(
  folder: string,
  names: readonly string[],
  keep: (line: string) => boolean,
  count: number,
  tail: boolean,
): Promise<string[]> {
  const picked: string[] = [];
  for (const name of names) {
    for await (const line of readLines(folder, name)) {
      if (!keep(line)) {
        continue;
      }
      picked.push(line);
      if (!tail && picked.length === count) {
        return picked;
      }
      if (picked.length > 2 * count) {
        picked.splice(0, picked.length - count);
      }
    }
  }
  return tail ? picked.slice(-count) : picked;
}

/** Hits in files, up to `limit`. */
export async function searchLogs(
  folder: string,
  names: readonly string[],
  fits: (line: string) => boolean,
  limit: number,
): Promise<{ hits: LogHit[]; truncated: boolean }> {
  const hits: LogHit[] = [];
  for (const name of names) {
    let number = 0;
    for await (const text of readLines(folder, name)) {
      number++;
      if (!fits(text)) {
        continue;
      }
      if (hits.length === limit) {
        return { hits, truncated: true };
      }
      hits.push({ file: name, line: number, text });
    }
  }
  return { hits, truncated: false };
}

/** What was appended to a file since the last look; starts over when the file was put aside for a new one. */
export function createTail(folder: string, name: string, from: "start" | "end") {
  const path = join(folder, name);
  let at = from === "start" ? 0 : -1;
  let inode = -1;
  let rest = "";
  return {
    async next(): Promise<string[]> {
      const info = await stat(path).catch(() => null);
      if (!info?.isFile()) {
        return [];
      }
      if (at === -1) {
        at = info.size;
      } else if (inode !== -1 && (info.ino !== inode || info.size < at)) {
        at = 0;
        rest = "";
      }
      inode = info.ino;
      if (info.size <= at) {
        return [];
      }
      const length = Math.min(info.size - at, 1_048_576);
      const file = await open(path, "r");
      try {
        const { bytesRead, buffer } = await file.read(Buffer.alloc(length), 0, length, at);
        at += bytesRead;
        const parts = (rest + buffer.toString("utf8", 0, bytesRead)).split("\n");
        rest = (parts.pop() ?? "").slice(0, MAX_LINE);
        return parts;
      } finally {
        await file.close();
      }
    },
  };
}
