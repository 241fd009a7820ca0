import { write, writeSync } from "node:fs";
import { systemClock, type Timer } from "./clock.ts";

/** Takes finished log lines, each with its line end. */
export interface LogSink {
  /** A line that somebody may be waiting for: it leaves at the end of this turn of the event loop. */
  write(line: string): void;
  /** A line that may wait for company, at most `GATHER_MS`. */
  gather(line: string): void;
  /** Writes what is held before it returns. For the end of the process. */
  flushSync(): void;
}

const GATHER_MS = 50;
/** Held lines leave when there are so many characters of them. */
const BATCH = 65_536;
/** Characters held while whoever reads the log does not read; beyond this lines are left out and counted. */
const MAX_HELD = 8 * 1024 * 1024;
/** Until a descriptor that takes nothing at the moment is tried again. */
const RETRY_MS = 20;
/** How often a reader who does not read holds up the end of the process. */
const EXIT_TRIES = 50;

/**
 * Log lines into a descriptor, in order. One write per line costs as much as the request it tells of, so lines are
 * gathered; and a write happens beside the event loop, so that a reader who stops reading stops nothing else.
 */
export function createLogSink(fd: number, maxHeld = MAX_HELD): LogSink {
  let held = "";
  let left: Buffer | null = null;
  let writing = false;
  let closed = false;
  let dropped = 0;
  let isTurnMarked = false;
  /** Something asked for a write while one ran. */
  let isDue = false;
  let timer: Timer | null = null;

  function flush(): void {
    if (writing || closed) {
      isDue = true;
      return;
    }
    isDue = false;
    if (left === null) {
      if (held === "") {
        return;
      }
      left = Buffer.from(take());
    }
    writing = true;
    write(fd, left, 0, left.length, null, written);
  }

  function take(): string {
    const text = held;
    held = "";
    if (dropped === 0) {
      return text;
    }
    const time = new Date(systemClock.now()).toISOString();
    const remark = `{"level":"warn","time":"${time}","dropped":${dropped},"msg":"log lines left out, nobody read them"}\n`;
    dropped = 0;
    return text + remark;
  }

  function written(error: NodeJS.ErrnoException | null, size: number): void {
    writing = false;
    if (error?.code === "EAGAIN" || error?.code === "EBUSY") {
      systemClock.after(RETRY_MS, flush);
      return;
    }
    if (error !== null) {
      closed = true; // nobody reads any more: the log ends, the process does not
      held = "";
      left = null;
      return;
    }
    left = left === null || size >= left.length ? null : left.subarray(size);
    if (left !== null || isDue) {
      flush();
    }
  }

  function hold(line: string): boolean {
    if (closed) {
      return false;
    }
    if (held.length + line.length > maxHeld) {
      dropped++;
      return false;
    }
    held += line;
    return true;
  }

  function endOfTurn(): void {
    isTurnMarked = false;
    flush();
  }

  function timeOver(): void {
    timer = null;
    flush();
  }

  return {
    write(line) {
      if (hold(line) && !isTurnMarked) {
        isTurnMarked = true;
        setImmediate(endOfTurn);
      }
    },
    gather(line) {
      if (!hold(line)) {
        return;
      }
      if (held.length >= BATCH) {
        flush();
      }
      timer ??= systemClock.after(GATHER_MS, timeOver);
    },
    flushSync() {
      const rest = Buffer.concat([writing || left === null ? EMPTY : left, Buffer.from(take())]);
      let tries = EXIT_TRIES;
      for (let at = 0; at < rest.length && !closed;) {
        try {
          at += writeSync(fd, rest, at);
        } catch (cause) {
          if ((cause as NodeJS.ErrnoException).code !== "EAGAIN" || --tries === 0) {
            return; // the reader is gone, or sleeps
          }
          Atomics.wait(PAUSE, 0, 0, RETRY_MS);
        }
      }
    },
  };
}

const EMPTY = Buffer.alloc(0);
const PAUSE = new Int32Array(new SharedArrayBuffer(4));
