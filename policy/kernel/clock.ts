/** A pending timer; `cancel` after it fired does nothing. */
export interface Timer {
  cancel(): void;
}

/** The only door to time: everything that waits or stamps takes one of these. */
export interface Clock {
  /** Wall clock, ms since the epoch. */
  now(): number;
  /** Monotonic, ms with fractions; only differences mean something. */
  monotonic(): number;
  /** Runs `task` once after `ms`. A timer does not keep the process alive. */
  after(ms: number, task: () => void): Timer;
  /** Runs `task` every `ms` until cancelled. */
  every(ms: number, task: () => void): Timer;
}

/** The machine's clock; everything but mains gets it handed in. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms, task) {
    const handle = setTimeout(task, ms);
    handle.unref();
    return { cancel: () => clearTimeout(handle) };
  },
  every(ms, task) {
    const handle = setInterval(task, ms);
    handle.unref();
    return { cancel: () => clearInterval(handle) };
  },
};

/** The system's time with timers that keep the process alive: for commands that wait in the foreground. */
export const foregroundClock: Clock = {
  now: systemClock.now,
  monotonic: systemClock.monotonic,
  after(ms, task) {
    const handle = setTimeout(task, ms);
    return { cancel: () => clearTimeout(handle) };
  },
  every(ms, task) {
    const handle = setInterval(task, ms);
    return { cancel: () => clearInterval(handle) };
  },
};

/** Resolves after `ms` by `clock`, whose timers say whether that keeps the process alive. */
export function delay(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.after(ms, resolve));
}
