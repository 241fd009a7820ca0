import { mkdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { createAuditAppender, DEFAULT_APPENDER_OPTIONS } from "./audit-appender.ts";
import { createAuditFiles, DAY_MS } from "./audit-files.ts";
import { type AuditRow, parseAuditLine } from "./audit-row.ts";
import { type AuditTail, createAuditTail } from "./audit-tail.ts";

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
  /**
   * Writes records of one container, in order. Rejects when they could not be written.
   *
   * @param lines whole lines as `formatAuditLine` makes them, UTF-8; not to be changed before this settles.
   */
  append(container: string, lines: Uint8Array): Promise<void>;
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
  mkdirSync(root, { recursive: true, mode: 0o700 });
  const files = createAuditFiles(clock, root, {
    retentionMs: (options.retentionDays ?? 30) * DAY_MS,
    maxFileBytes: options.maxFileBytes ?? 8 * 1024 * 1024,
    maxFiles: options.maxFiles ?? 8,
  });
  const appender = createAuditAppender(clock, files);
  const tails = new Map<string, AuditTail>();
  let queue: Promise<unknown> = Promise.resolve();

  const sweep = (): void => {
    queue = queue
      .then(files.sweep)
      .catch((cause: unknown) => log.warn({ err: cause }, "old audit records not removed"));
  };
  const closeIdle = (): void => {
    queue = queue.then(appender.closeIdle);
  };
  sweep();
  const timers = [
    clock.every(DAY_MS / 24, sweep),
    clock.every(DEFAULT_APPENDER_OPTIONS.idleMs, closeIdle),
  ];

  return {
    append(container, lines) {
      const written = queue.then(() => appender.append(container, lines));
      queue = written.then(
        () => tails.get(container)?.wake(),
        () => {}, // whoever appended hears of it
      );
      return written;
    },
    async query({ container, limit, after }) {
      const records: AuditRow[] = [];
      let found = after === null;
      for (const file of (await files.list(container)).toReversed()) {
        const text = await readFile(files.path(container, file), "utf8").catch(() => ""); // rotated away just now
        for (const line of text.split("\n").toReversed()) {
          const record = found || line.includes(after ?? "") ? parseAuditLine(line) : null;
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
        tail = createAuditTail(files, container, clock);
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
      timers.forEach((timer) => timer.cancel());
      for (const tail of tails.values()) {
        tail.stop();
      }
      tails.clear();
      await queue;
      await appender.close();
    },
  };
}
