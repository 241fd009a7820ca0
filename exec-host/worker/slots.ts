import type { Call } from "./call.ts";

/** Limits how many calls of one thing run at a time; the others wait in order. */
export interface Slots {
  /** Resolves with how to give the slot back, or null when the wait is over for nothing. */
  take(call: Call, cap: number): Promise<(() => void) | null>;
}

/** More waiting calls than this are not kept: they could not be served in time anyway. */
const MAX_WAITING = 10_000;

export function createSlots(): Slots {
  let running = 0;
  const waiting = new Set<() => void>();

  function release(): void {
    running--;
    const next = waiting.values().next().value;
    if (next !== undefined) {
      waiting.delete(next);
      next();
    }
  }

  function once(): () => void {
    let isHeld = true;
    return () => {
      if (isHeld) {
        isHeld = false;
        release();
      }
    };
  }

  return {
    take(call, cap) {
      if (running < cap) {
        running++;
        return Promise.resolve(once());
      }
      if (waiting.size >= MAX_WAITING) {
        return Promise.resolve(null);
      }
      return new Promise((resolve) => {
        const start = (): void => {
          running++;
          resolve(once());
        };
        waiting.add(start);
        // Answered by its deadline, or left: it must not take a turn any more.
        call.onClose(() => {
          if (waiting.delete(start)) {
            resolve(null);
          }
        });
      });
    },
  };
}
