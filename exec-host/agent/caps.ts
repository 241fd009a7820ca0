import { LRUCache } from "lru-cache";
import type { Clock } from "../../policy/kernel/clock.ts";

/** Requests that one client may make: a steady rate and a burst above it. */
export interface RateLimit {
  readonly perSecond: number;
  readonly burst: number;
}

/** A token bucket per client. */
export interface RateLimiter {
  /** 0 when the request may pass, otherwise whole seconds until the next may. */
  take(client: string): number;
}

/**
 * Token buckets keyed by client address; at most 10,000 clients are remembered, the quietest forgotten first.
 *
 * @param limit null: everything passes.
 */
export function createRateLimiter(clock: Clock, limit: RateLimit | null): RateLimiter {
  if (limit === null) {
    return { take: () => 0 };
  }
  const buckets = new LRUCache<string, { tokens: number; at: number }>({ max: 10_000 });
  return {
    take(client) {
      const now = clock.monotonic();
      const bucket = buckets.get(client) ?? { tokens: limit.burst, at: now };
      const tokens = Math.min(
        limit.burst,
        bucket.tokens + ((now - bucket.at) / 1000) * limit.perSecond,
      );
      const passes = tokens >= 1;
      buckets.set(client, { tokens: passes ? tokens - 1 : tokens, at: now });
      return passes ? 0 : Math.max(1, Math.ceil((1 - tokens) / limit.perSecond));
    },
  };
}

/** Counted places, in all or per key. */
export interface Cap {
  /** Takes a place; null when none is free. Give it back by calling the result, once or more often. */
  take(key?: string): (() => void) | null;
  inUse(): number;
}

/** A cap of `max` places per key; the key space is bounded by the places in use. */
export function createCap(max: number): Cap {
  const used = new Map<string, number>();
  let total = 0;
  return {
    take(key = "") {
      const count = used.get(key) ?? 0;
      if (count >= max) {
        return null;
      }
      used.set(key, count + 1);
      total += 1;
      let given = false;
      return () => {
        if (given) {
          return;
        }
        given = true;
        total -= 1;
        const left = (used.get(key) ?? 1) - 1;
        if (left === 0) {
          used.delete(key);
        } else {
          used.set(key, left);
        }
      };
    },
    inUse: () => total,
  };
}
