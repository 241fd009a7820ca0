import type { Clock, Timer } from "../../policy/kernel/clock.ts";
import { LOG_ALLOWANCE, lineBytes, MAX_BATCH, type ExecutionRecord } from "../execution-records.ts";
import { MAX_LOG_TEXT, type EndedMessage, type LogLevel, type LogLine } from "../protocol.ts";
import type { Channel } from "./channel.ts";
import { createExecutionBatch } from "./execution-batch.ts";

/** Whom a log line is about. */
export interface LogSubject {
  readonly executionId: string;
  readonly auditId: string | null;
  readonly script: string;
  /** Levels below it are left out; `none` leaves out everything (`@log-level`). */
  readonly logLevel: "none" | "minimal" | "standard" | "full" | "debug";
}

/** What the worker tells its parent about calls: log lines, finished executions, late outcomes. */
export interface Journal {
  log(subject: LogSubject, level: LogLevel, text: string): void;
  /** A line about the worker itself or a file, outside any call. */
  logHost(level: LogLevel, script: string, text: string): void;
  /** @param describe is not called when the record would not be kept. */
  executed(describe: () => ExecutionRecord): void;
  ended(message: EndedMessage): void;
  /** Sends what is held, at once. */
  flush(): void;
}

/** How long lines behind the first wait for company: a batch costs one write and one parse instead of many. */
const GATHER_MS = 20;
/** Lines per second a worker may log; a script that logs more loses the rest, and the log says how many. */
const LINES_PER_SECOND = 2000;
/** Bytes of text held for one message; well below the channel's longest line even when every byte is escaped. */
const MAX_BATCH_BYTES = 30_000;

/** While so much waits for the parent to read it, calls are counted and not described. */
const MAX_WAITING = 262_144;

const LEVEL_ORDER = { debug: 0, info: 1, warn: 2, error: 3 } as const;
/** Lowest level that is kept, by the script's `@log-level`. */
const KEPT_FROM = { none: 9, minimal: 2, standard: 1, full: 0, debug: 0 } as const;

/**
 * Gathers lines and sends them in batches. A flood is cut here, in the process that makes it: the parent never
 * sees more than `LINES_PER_SECOND` lines of a second, nor more calls than their container's log has room for.
 */
export function createJournal(
  clock: Clock,
  channel: Pick<Channel, "send" | "sendLine" | "waiting">,
): Journal {
  let lines: LogLine[] = [];
  let bytes = 0;
  let dropped = 0;
  const calls = createExecutionBatch();
  let untold = 0;
  /** Bytes of the log that calls may still fill, as of `countedAt`. */
  let room: number = LOG_ALLOWANCE.burstBytes;
  let countedAt = clock.monotonic();
  let isBehind = false;
  let timer: Timer | null = null;
  let windowStart = clock.monotonic();
  let windowLines = 0;

  function flush(): void {
    timer?.cancel();
    timer = null;
    if (lines.length > 0 || dropped > 0) {
      channel.send({ type: "logs", lines, dropped });
      lines = [];
      bytes = 0;
      dropped = 0;
    }
    takeStock();
    if (!calls.isEmpty || (untold > 0 && !isBehind)) {
      channel.sendLine(calls.take(untold));
      untold = 0;
    }
  }

  function takeStock(): void {
    const now = clock.monotonic();
    const gained = ((now - countedAt) / 1000) * LOG_ALLOWANCE.bytesPerSecond;
    room = Math.min(LOG_ALLOWANCE.burstBytes, room + gained);
    countedAt = now;
    isBehind = channel.waiting > MAX_WAITING;
  }

  /** The first line after a pause goes out at once: a script may block the process right behind it. */
  function schedule(): void {
    if (timer === null) {
      flush();
      timer = clock.after(GATHER_MS, flush);
    }
  }

  function push(line: LogLine): void {
    const now = clock.monotonic();
    if (now - windowStart >= 1000) {
      windowStart = now;
      windowLines = 0;
    }
    windowLines++;
    if (windowLines > LINES_PER_SECOND) {
      dropped++;
      schedule();
      return;
    }
    if (lines.length >= MAX_BATCH || bytes + line.msg.length > MAX_BATCH_BYTES) {
      flush();
    }
    lines.push(line);
    bytes += line.msg.length;
    schedule();
  }

  return {
    log(subject, level, text) {
      if (LEVEL_ORDER[level] >= KEPT_FROM[subject.logLevel]) {
        const { executionId, auditId, script } = subject;
        push({ ts: clock.now(), level, executionId, script, auditId, msg: cut(text) });
      }
    },
    logHost(level, script, text) {
      push({ ts: clock.now(), level, executionId: "", script, auditId: null, msg: cut(text) });
    },
    executed(describe) {
      if (timer === null) {
        takeStock();
        timer = clock.after(GATHER_MS, flush); // the call is over: unlike a line, this can wait
      }
      if (room <= 0 || isBehind) {
        untold++;
        return;
      }
      const record = describe();
      room -= lineBytes(record);
      calls.add(record);
      if (calls.isFull) {
        flush();
      }
    },
    ended(message) {
      channel.send(message);
    },
    flush,
  };
}

function cut(text: string): string {
  return text.length > MAX_LOG_TEXT ? `${text.slice(0, MAX_LOG_TEXT - 1)}…` : text;
}
