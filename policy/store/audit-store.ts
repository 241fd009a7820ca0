import { mkdirSync } from "node:fs";
import { appendFile, mkdir, open, readdir, readFile, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import type { Clock, Timer } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";

/** One dispatch as stored (decision 40). `outcome` is one of the words of contract.md 5. */
export interface AuditRow {
  readonly audit_id: string;
  /** RFC 3339, when the dispatch began. */
  readonly ts: string;
  readonly project: string;
  readonly container: string;
  readonly service: string;
  readonly hook_id: string;
  readonly method: string;
  /** Without query. */
  readonly path: string;
  readonly client_ip: string;
  readonly matched_groups: readonly string[];
  readonly script: string;
  readonly outcome: string;
  readonly status: number;
  readonly duration_ms: number;
  /** ms that the script waited for heads of its services; null or absent when it asked none, or none answered. */
  readonly upstream_ms?: number | null;
}

/** Which page of a container's records is wanted. */
export interface AuditQuery {
  readonly container: string;
  readonly limit: number;
  /** Continue behind this record, that is with older ones; null from the newest. */
  readonly after: string | null;
}

/** One page of records. */
export interface AuditPage {
  /** Newest first. */
  readonly records: readonly AuditRow[];
  /** `after` of the next page; null when there is none. */
  readonly next: string | null;
}

/** Dispatch records of every container: append-only, bounded in age and size, apart from all other logs. */
export interface AuditStore {
  /** Writes records, in order. Rejects when they could not be written. */
  append(records: readonly AuditRow[]): Promise<void>;
  query(query: AuditQuery): Promise<AuditPage>;
  /** Calls `listener` for each record from now on, those of other processes too. Returns how to stop that. */
  subscribe(container: string, listener: (record: AuditRow) => void): () => void;
  close(): Promise<void>;
}

/** Where records are kept, how long and how many. */
export interface AuditStoreOptions {
  readonly dataDir: string;
  /** How long records are kept, in days. */
  readonly retentionDays?: number;
  /** Size at which a file is closed and the next one begun, in bytes. */
  readonly maxFileBytes?: number;
  /** Most files of one container; the oldest goes first. Whoever sends requests must not fill the disk. */
  readonly maxFiles?: number;
}

const DAY_MS = 86_400_000;
const FILE = /^(\d{4}-\d{2}-\d{2})\.(\d{6})\.jsonl$/;
/** How often the files of containers with subscribers are looked at for other processes' records, in ms. */
const TAIL_MS = 250;

/**
 * Keeps records as JSON lines in `<dataDir>/audit/<container>/<date>.<number>.jsonl`. Appending is one write of
 * whole lines, so processes may share a file; a line that a killed process left unfinished is skipped.
 */
export function createAuditStore(
  deps: { readonly clock: Clock; readonly log: Log },
  options: AuditStoreOptions,
): AuditStore {
  const { clock, log } = deps;
  const root = join(options.dataDir, "audit");
  const retentionMs = (options.retentionDays ?? 30) * DAY_MS;
  const maxFileBytes = options.maxFileBytes ?? 8 * 1024 * 1024;
  const maxFiles = options.maxFiles ?? 8;
  const tails = new Map<string, Tail>();
  let queue: Promise<unknown> = Promise.resolve();
  mkdirSync(root, { recursive: true, mode: 0o700 });

  const filesOf = async (container: string): Promise<string[]> => {
    const names = await readdir(join(root, container)).catch((cause: NodeJS.ErrnoException) => {
      if (cause.code === "ENOENT") {
        return [];
      }
      throw cause;
    });
    return names.filter((name) => FILE.test(name)).toSorted();
  };

  /** The file to append to; begins a new one for a new day or when the last one is full. */
  const currentFile = async (container: string): Promise<string> => {
    const today = new Date(clock.now()).toISOString().slice(0, 10);
    const files = await filesOf(container);
    const last = files.at(-1);
    const [, date = "", number = "0"] = FILE.exec(last ?? "") ?? [];
    if (
      last !== undefined &&
      date >= today &&
      (await stat(join(root, container, last))).size < maxFileBytes
    ) {
      return last;
    }
    for (const old of files.slice(0, Math.max(0, files.length + 1 - maxFiles))) {
      await unlink(join(root, container, old)).catch(() => {}); // another process was quicker
    }
    // Never behind a date that is used already: a clock that went back must not reorder the records.
    const day = date > today ? date : today;
    const next = day === date ? Number(number) + 1 : 0;
    return `${day}.${String(next).padStart(6, "0")}.jsonl`;
  };

  const appendTo = async (container: string, records: readonly AuditRow[]): Promise<void> => {
    await mkdir(join(root, container), { recursive: true, mode: 0o700 });
    const path = join(root, container, await currentFile(container));
    const lines = records.map((record) => `${JSON.stringify(record)}\n`).join("");
    const torn = await endsTorn(path);
    await appendFile(path, torn ? `\n${lines}` : lines, { mode: 0o600 });
    tails.get(container)?.wake();
  };

  const sweep = async (): Promise<void> => {
    const oldest = new Date(clock.now() - retentionMs).toISOString().slice(0, 10);
    const entries = await readdir(root, { withFileTypes: true });
    for (const container of entries
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name)) {
      for (const file of await filesOf(container)) {
        if (file.slice(0, 10) < oldest) {
          await unlink(join(root, container, file));
        }
      }
    }
  };
  const swept = (): void => {
    queue = queue
      .then(sweep)
      .catch((cause: unknown) => log.warn({ err: cause }, "old audit records not removed"));
  };
  swept();
  const timer: Timer = clock.every(DAY_MS / 24, swept);

  return {
    append(records) {
      const byContainer = Map.groupBy(records, (record) => record.container);
      const written = queue.then(async () => {
        for (const [container, rows] of byContainer) {
          await appendTo(container, rows);
        }
      });
      queue = written.catch(() => {}); // whoever appended hears of it
      return written;
    },
    async query({ container, limit, after }) {
      const records: AuditRow[] = [];
      let found = after === null;
      for (const file of (await filesOf(container)).toReversed()) {
        const text = await readFile(join(root, container, file), "utf8").catch(() => ""); // rotated away just now
        for (const line of text.split("\n").toReversed()) {
          const record = found || line.includes(after ?? "") ? parseRow(line) : null;
          if (record === null) {
            continue;
          }
          if (!found) {
            found = record.audit_id === after;
            continue;
          }
          if (records.length === limit) {
            return { records, next: records.at(-1)?.audit_id ?? null };
          }
          records.push(record);
        }
      }
      return { records, next: null };
    },
    subscribe(container, listener) {
      let tail = tails.get(container);
      if (tail === undefined) {
        tail = createTail(join(root, container), () => filesOf(container), clock);
        tails.set(container, tail);
      }
      const stop = tail.add(listener);
      return () => {
        if (stop() === 0) {
          tails.delete(container);
        }
      };
    },
    async close() {
      timer.cancel();
      for (const tail of tails.values()) {
        tail.stop();
      }
      tails.clear();
      await queue;
    },
  };
}

function parseRow(line: string): AuditRow | null {
  if (line === "") {
    return null;
  }
  try {
    return JSON.parse(line) as AuditRow;
  } catch {
    return null; // the unfinished line of a process that was killed
  }
}

/** Whether the last line of a file is unfinished, so that the next record would be lost with it. */
async function endsTorn(path: string): Promise<boolean> {
  let file;
  try {
    file = await open(path, "r");
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") {
      return false;
    }
    throw cause;
  }
  try {
    const { size } = await file.stat();
    if (size === 0) {
      return false;
    }
    const { buffer } = await file.read(Buffer.alloc(1), 0, 1, size - 1);
    return buffer[0] !== 0x0a;
  } finally {
    await file.close();
  }
}

interface Tail {
  /** Adds a listener; what is returned takes it away again and tells how many are left. */
  add(listener: (record: AuditRow) => void): () => number;
  /** There may be something new. */
  wake(): void;
  stop(): void;
}

/**
 * Follows the files of one container by their growth, which covers this process and all others in one way. What is
 * there at the beginning is not reported.
 */
function createTail(folder: string, files: () => Promise<string[]>, clock: Clock): Tail {
  const listeners = new Set<(record: AuditRow) => void>();
  let file: string | null = null;
  let offset = 0;
  let rest: Buffer = Buffer.alloc(0);
  let reading: Promise<void> = start().catch(() => {}); // a file rotated away just now; then all of the next one is new
  const timer = clock.every(TAIL_MS, wake);

  async function start(): Promise<void> {
    file = (await files()).at(-1) ?? null;
    offset = file === null ? 0 : (await stat(join(folder, file))).size;
  }

  async function follow(): Promise<void> {
    for (const name of await files()) {
      if (file !== null && name < file) {
        continue;
      }
      if (name !== file) {
        file = name;
        offset = 0;
        rest = Buffer.alloc(0);
      }
      await readOn(join(folder, name));
    }
  }

  async function readOn(path: string): Promise<void> {
    const handle = await open(path, "r");
    try {
      for (;;) {
        const { bytesRead, buffer } = await handle.read(Buffer.alloc(65_536), 0, 65_536, offset);
        if (bytesRead === 0) {
          return;
        }
        offset += bytesRead;
        const bytes = Buffer.concat([rest, buffer.subarray(0, bytesRead)]);
        const end = bytes.lastIndexOf(0x0a) + 1;
        rest = bytes.subarray(end);
        for (const line of bytes.toString("utf8", 0, end).split("\n")) {
          const record = parseRow(line);
          if (record !== null) {
            listeners.forEach((listener) => listener(record));
          }
        }
      }
    } finally {
      await handle.close();
    }
  }

  function wake(): void {
    reading = reading.then(follow).catch(() => {}); // a file that was rotated away; the next look goes on behind it
  }

  return {
    add(listener) {
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
        if (listeners.size === 0) {
          timer.cancel();
        }
        return listeners.size;
      };
    },
    wake,
    stop() {
      listeners.clear();
      timer.cancel();
    },
  };
}
