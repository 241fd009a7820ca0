import type { Clock } from "../../policy/kernel/clock.ts";

export interface FakeClock extends Clock {
  /** Moves both clocks on and runs the timers that come due, in order. */
  advance(ms: number): void;
}

/** A clock that stands still until it is moved. */
export function fakeClock(start = Date.parse("2026-06-01T00:00:00Z")): FakeClock {
  let elapsed = 0;
  const timers = new Set<{ at: number; every: number | null; task: () => void }>();
  const add = (ms: number, every: number | null, task: () => void) => {
    const timer = { at: elapsed + ms, every, task };
    timers.add(timer);
    return { cancel: () => void timers.delete(timer) };
  };
  return {
    now: () => start + elapsed,
    monotonic: () => elapsed,
    after: (ms, task) => add(ms, null, task),
    every: (ms, task) => add(ms, ms, task),
    advance(ms) {
      const end = elapsed + ms;
      for (;;) {
        const due = [...timers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
        if (due === undefined) {
          break;
        }
        elapsed = due.at;
        if (due.every === null) {
          timers.delete(due);
        } else {
          due.at += due.every;
        }
        due.task();
      }
      elapsed = end;
    },
  };
}
