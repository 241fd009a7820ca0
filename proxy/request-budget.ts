import type { Clock } from "../policy/kernel/clock.ts";

/** One running request with its moment of expiry (monotonic ms). */
export interface Budgeted {
  readonly startedAt: number;
  expire(): void;
}

export interface RequestBudget {
  enter(request: Budgeted): void;
  leave(request: Budgeted): void;
  close(): void;
}

/**
 * Ends requests that run longer than their budget. All have the same budget, so the oldest is always first in
 * insertion order: one timer for the process instead of one per request, exact to a quarter of a second.
 *
 * @param budgetMs read at every check, so that a reload changes it.
 */
export function createRequestBudget(clock: Clock, budgetMs: () => number): RequestBudget {
  const running = new Set<Budgeted>();
  const timer = clock.every(250, () => {
    const oldest = clock.monotonic() - budgetMs();
    for (const request of running) {
      if (request.startedAt > oldest) {
        return;
      }
      running.delete(request);
      request.expire();
    }
  });
  return {
    enter: (request) => void running.add(request),
    leave: (request) => void running.delete(request),
    close: () => timer.cancel(),
  };
}
