import { chownSync, mkdirSync } from "node:fs";
import { appendFile, readdir, rename, stat, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { Log } from "../../policy/kernel/log.ts";
import { LOG_ALLOWANCE, lineBytes, type ExecutionRecord } from "../execution-records.ts";
import type { LogLine } from "../protocol.ts";
import { createAccessFormatter, formatLogLine, formatOutput } from "./log-lines.ts";

/**
 * Logs of one container's scripts on disk (exec-host.md 6), written by the process that owns the workers:
 * `scripts.log` holds what scripts say, `access/access.log` one line per request, `worker.log` what the processes
 * themselves print. JSON lines throughout. A flood costs its own container lines, never anybody time.
 */
export interface LogStore {
  logs(containerId: string, lines: readonly LogLine[], dropped: number): void;
  /** @param dropped calls that the worker did not describe. */
  executions(containerId: string, entries: readonly ExecutionRecord[], dropped: number): void;
  output(containerId: string, line: string): void;
  /** Writes what is waiting, and stops. */
  close(): Promise<void>;
}

export interface LogStoreOptions {
  /** A file is put aside when it is longer. */
  readonly maxFileBytes: number;
  /** All files of a container together; the oldest go first. */
  readonly maxTotalBytes: number;
  readonly maxAgeMs: number;
  /** What a container may write per second in the long run, and at once. */
  readonly bytesPerSecond: number;
  readonly burstBytes: number;
}

export const DEFAULT_LOG_OPTIONS: LogStoreOptions = {
  maxFileBytes: 8_388_608,
  maxTotalBytes: 268_435_456,
  maxAgeMs: 7 * 86_400_000,
  ...LOG_ALLOWANCE,
};

const FLUSH_MS = 100;
const SWEEP_MS = 3_600_000;
/** About what a line has around its text. */
const LINE_FRAME_BYTES = 100;
/** Put-aside files carry the time of their end in the name: `scripts.1767225600000.log`. */
const ROTATED = /^([a-z]+)\.(\d{10,16})\.log$/;

interface Journal {
  readonly path: string;
  /** Whole lines, encoded. */
  waiting: Buffer[];
}

interface ContainerLogs {
  readonly folder: string;
  readonly scripts: Journal;
  readonly access: Journal;
  readonly worker: Journal;
  /** Bytes that may still be written now. */
  tokens: number;
  refilledAt: number;
  dropped: number;
  swept: number;
}

export interface LogStoreDeps {
  readonly clock: Clock;
  readonly log: Log;
  /** Folder of a container's logs. */
  readonly folder: (containerId: string) => string;
  /** Owner for the files, when the management process runs as another user. */
  readonly groupOf?: (containerId: string) => number | null;
}

export function createLogStore(
  deps: LogStoreDeps,
  options: LogStoreOptions = DEFAULT_LOG_OPTIONS,
): LogStore {
  const { clock, log } = deps;
  const containers = new Map<string, ContainerLogs>();
  let writing: Promise<void> = Promise.resolve();
  let isWriting = false;

  const open = (id: string): ContainerLogs => {
    let logs = containers.get(id);
    if (logs === undefined) {
      const folder = deps.folder(id);
      const journal = (name: string): Journal => ({
        path: join(folder, name),
        waiting: [],
      });
      logs = {
        folder,
        scripts: journal("scripts.log"),
        access: journal("access/access.log"),
        worker: journal("worker.log"),
        tokens: options.burstBytes,
        refilledAt: clock.monotonic(),
        dropped: 0,
        swept: clock.monotonic() - SWEEP_MS,
      };
      containers.set(id, logs);
      prepare(folder, deps.groupOf?.(id) ?? null);
    }
    return logs;
  };

  const prepare = (folder: string, group: number | null): void => {
    for (const path of [folder, join(folder, "access")]) {
      try {
        mkdirSync(path, { recursive: true, mode: 0o750 });
        if (group !== null) {
          chownSync(path, -1, group);
        }
      } catch (cause) {
        log.error({ err: cause }, "script logs cannot be kept");
      }
    }
  };

  /** Takes whole lines that room was found for; where they are longer than they seemed, later ones lack it. */
  const put = (logs: ContainerLogs, journal: Journal, lines: string): void => {
    logs.tokens -= add(journal, lines);
  };

  /** Asked before a line is made, so that a flood costs no more than being counted. */
  const hasRoom = (logs: ContainerLogs, bytes: number): boolean => {
    if (logs.tokens >= bytes) {
      return true;
    }
    logs.dropped++;
    return false;
  };

  const tick = (): void => {
    const now = clock.monotonic();
    for (const logs of containers.values()) {
      const gained = ((now - logs.refilledAt) / 1000) * options.bytesPerSecond;
      logs.refilledAt = now;
      logs.tokens = Math.min(options.burstBytes, logs.tokens + gained);
    }
    if (!isWriting) {
      isWriting = true;
      writing = flush().finally(() => (isWriting = false));
    }
  };

  const flush = async (): Promise<void> => {
    for (const [id, logs] of containers) {
      if (logs.dropped > 0) {
        // Said in the log itself, past the allowance: whoever reads it must know that it has gaps.
        const line: LogLine = {
          ts: clock.now(),
          level: "warn",
          executionId: "",
          script: "",
          auditId: null,
          msg: `${logs.dropped} log lines were dropped: more than may be kept`,
        };
        logs.dropped = 0;
        add(logs.scripts, `${formatLogLine(line)}\n`);
      }
      try {
        for (const journal of [logs.scripts, logs.access, logs.worker]) {
          await write(journal, deps.groupOf?.(id) ?? null);
        }
        if (clock.monotonic() - logs.swept >= SWEEP_MS) {
          await sweep(logs);
        }
      } catch (cause) {
        log.error({ err: cause, container: id }, "script logs cannot be written");
      }
    }
  };

  const write = async (journal: Journal, group: number | null): Promise<void> => {
    if (journal.waiting.length === 0) {
      return;
    }
    const bytes = Buffer.concat(journal.waiting);
    journal.waiting = [];
    await appendFile(journal.path, bytes, { mode: 0o640 });
    if (group !== null) {
      chownSync(journal.path, -1, group);
    }
    const { size } = await stat(journal.path);
    if (size >= options.maxFileBytes) {
      await rename(journal.path, journal.path.replace(/\.log$/, `.${clock.now()}.log`));
      for (const logs of containers.values()) {
        if (dirname(journal.path).startsWith(logs.folder)) {
          logs.swept = clock.monotonic() - SWEEP_MS; // a file more: see whether the oldest must go
        }
      }
    }
  };

  /** Removes what is too old, then the oldest of what is too much. */
  const sweep = async (logs: ContainerLogs): Promise<void> => {
    logs.swept = clock.monotonic();
    const files: { path: string; endedAt: number; size: number }[] = [];
    let total = 0;
    for (const folder of [logs.folder, join(logs.folder, "access")]) {
      for (const name of await readdir(folder)) {
        const path = join(folder, name);
        const info = await stat(path);
        if (info.isFile()) {
          total += info.size;
          const endedAt = Number(ROTATED.exec(name)?.[2]);
          if (endedAt > 0) {
            files.push({ path, endedAt, size: info.size });
          }
        }
      }
    }
    files.sort((a, b) => a.endedAt - b.endedAt);
    for (const file of files) {
      const isOld = clock.now() - file.endedAt > options.maxAgeMs;
      if (isOld || total > options.maxTotalBytes) {
        await unlink(file.path);
        total -= file.size;
      }
    }
  };

  const ticker = clock.every(FLUSH_MS, tick);

  return {
    logs(containerId, lines, dropped) {
      const logs = open(containerId);
      logs.dropped += dropped;
      for (const line of lines) {
        if (hasRoom(logs, line.msg.length + line.script.length + LINE_FRAME_BYTES)) {
          put(logs, logs.scripts, `${formatLogLine(line)}\n`);
        }
      }
    },
    executions(containerId, entries, dropped) {
      const logs = open(containerId);
      logs.dropped += dropped;
      const format = createAccessFormatter();
      let room = logs.tokens;
      let lines = "";
      for (const entry of entries) {
        const bytes = lineBytes(entry);
        if (bytes > room) {
          logs.dropped++;
        } else {
          room -= bytes;
          lines += `${format(entry)}\n`;
        }
      }
      if (lines !== "") {
        put(logs, logs.access, lines);
      }
    },
    output(containerId, line) {
      const logs = open(containerId);
      if (hasRoom(logs, line.length + LINE_FRAME_BYTES)) {
        put(logs, logs.worker, `${formatOutput(clock.now(), line)}\n`);
      }
    },
    async close() {
      ticker.cancel();
      await writing;
      await flush();
    },
  };
}

/** Returns the bytes that were added. */
function add(journal: Journal, lines: string): number {
  const bytes = Buffer.from(withoutBreaks(lines));
  journal.waiting.push(bytes);
  return bytes.length;
}

/** Readers of lines also break them at two marks that JSON leaves as they are. */
function withoutBreaks(lines: string): string {
  return lines.includes("\u2028") || lines.includes("\u2029")
    ? lines.replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029")
    : lines;
}
