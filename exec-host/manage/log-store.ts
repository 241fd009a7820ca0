import { chownSync, mkdirSync } from "node:fs";
import { appendFile, readdir, rename, stat, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { Log } from "../../policy/kernel/log.ts";
import type { ExecutionRecord, LogLine } from "../protocol.ts";

/**
 * Logs of one container's scripts on disk (exec-host.md 6), written by the process that owns the workers:
 * `scripts.log` holds what scripts say, `access/access.log` one line per request, `worker.log` what the processes
 * themselves print. JSON lines throughout. A flood costs its own container lines, never anybody time.
 */
export interface LogStore {
  logs(containerId: string, lines: readonly LogLine[], dropped: number): void;
  executions(containerId: string, entries: readonly ExecutionRecord[]): void;
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
  bytesPerSecond: 1_048_576,
  burstBytes: 4_194_304,
};

const FLUSH_MS = 100;
const SWEEP_MS = 3_600_000;
/** Put-aside files carry the time of their end in the name: `scripts.1767225600000.log`. */
const ROTATED = /^([a-z]+)\.(\d{10,16})\.log$/;

interface Journal {
  readonly path: string;
  waiting: string[];
  bytes: number;
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
        bytes: 0,
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

  const put = (logs: ContainerLogs, journal: Journal, line: string): void => {
    const size = Buffer.byteLength(line) + 1;
    if (logs.tokens < size) {
      logs.dropped++;
      return;
    }
    logs.tokens -= size;
    journal.waiting.push(line);
    journal.bytes += size;
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
        const text = formatLine(line);
        logs.scripts.waiting.push(text);
        logs.scripts.bytes += text.length + 1;
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
    const text = `${journal.waiting.join("\n")}\n`;
    journal.waiting = [];
    journal.bytes = 0;
    await appendFile(journal.path, text, { mode: 0o640 });
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
        put(logs, logs.scripts, formatLine(line));
      }
    },
    executions(containerId, entries) {
      const logs = open(containerId);
      for (const entry of entries) {
        put(logs, logs.access, formatExecution(entry));
      }
    },
    output(containerId, line) {
      const logs = open(containerId);
      put(logs, logs.worker, JSON.stringify({ ts: toTime(clock.now()), msg: line }));
    },
    async close() {
      ticker.cancel();
      await writing;
      await flush();
    },
  };
}

/** Member by member: copying all but one costs more than writing them down, and there is a line for every call. */
function formatExecution(entry: ExecutionRecord): string {
  return JSON.stringify({
    ts: toTime(entry.startedAt),
    executionId: entry.executionId,
    auditId: entry.auditId,
    kind: entry.kind,
    subdomain: entry.subdomain,
    execId: entry.execId,
    script: entry.script,
    method: entry.method,
    path: entry.path,
    status: entry.status,
    outcome: entry.outcome,
    durationMs: entry.durationMs,
  });
}

function formatLine({ ts, auditId, ...line }: LogLine): string {
  return JSON.stringify({
    ts: toTime(ts),
    level: line.level,
    executionId: line.executionId,
    script: line.script,
    ...(auditId === null ? {} : { auditId }),
    msg: line.msg,
  });
}

/** RFC 3339; a worker's clock is its own business, so an impossible time is the epoch rather than an exception. */
function toTime(ms: number): string {
  return new Date(Math.abs(ms) <= 8.64e15 ? ms : 0).toISOString();
}
