import type { Clock } from "../policy/kernel/clock.ts";

/** One running request with its moment of expiry (monotonic ms), and its neighbours in the order of arrival. */
export interface Budgeted {
  readonly startedAt: number;
  /** Kept by the budget alone; null outside it. */
  older: Budgeted | null;
  newer: Budgeted | null;
  expire(): void;
}

/** Ends requests that take longer than they may. */
export interface RequestBudget {
  /** Once per request. */
  enter(request: Budgeted): void;
  leave(request: Budgeted): void;
  close(): void;
}

/**
 * Ends requests that run longer than their budget. All have the same budget, so the oldest is always first in
 * order of arrival: one timer for the process instead of one per request, exact to a quarter of a second.
 *
 * The order is kept in the requests themselves, and links are cut when one leaves. A Set does not do: it is rebuilt
 * as requests come and go, each dead table keeps its successor and its entries, and so finished requests
 * outlive every quick collection.
 *
 * @param budgetMs read at every check, so that a reload changes it.
 */
export function createRequestBudget(clock: Clock, budgetMs: () => number): RequestBudget {
  let oldest: Budgeted | null = null;
  let newest: Budgeted | null = null;

  function leave(request: Budgeted): void {
    const { older, newer } = request;
    if (older !== null) {
      older.newer = newer;
    } else if (oldest === request) {
      oldest = newer;
    }
    if (newer !== null) {
      newer.older = older;
    } else if (newest === request) {
      newest = older;
    }
    request.older = null;
    request.newer = null;
  }

  const timer = clock.every(250, () => {
    const expired = clock.monotonic() - budgetMs();
    while (oldest !== null && oldest.startedAt <= expired) {
      const request = oldest;
      leave(request);
      request.expire();
    }
  });
  return {
    enter(request) {
      request.older = newest;
      if (newest === null) {
        oldest = request;
      } else {
        newest.newer = request;
      }
      newest = request;
    },
    leave,
    close: () => timer.cancel(),
  };
}
