import { LRUCache } from "lru-cache";
import type { Clock } from "../policy/kernel/clock.ts";
import type { Log } from "../policy/kernel/log.ts";
import type { DnsLookup } from "./dns-lookup.ts";
import { type HostSpace, parseHost } from "./hostname.ts";

/**
 * Custom domains (edge-proxy.md 4.4): names outside our own whose CNAME leads to an alias host. Strangers choose the
 * names and may own the DNS zones behind them, so an answer can do no more than pick an alias, which anybody could have
 * named in Host anyway, and everything that a look-up costs has an end: names kept, look-ups a second and at a time,
 * steps and time of each. Whatever cannot be found out counts as "not ours".
 */
export interface CustomDomains {
  /**
   * The alias that a name leads to; null for none, and when nobody can say at the moment. Only a look-up gives a
   * promise, which never rejects.
   *
   * @param name lower case, without port and final dot
   */
  alias(name: string): string | null | Promise<string | null>;
  /** Ends running look-ups; whoever waits for them gets null. */
  close(): void;
}

export interface CustomDomainsDeps {
  readonly lookup: DnsLookup;
  readonly clock: Clock;
  readonly log: Pick<Log, "warn">;
}

export interface CustomDomainsOptions {
  readonly space: HostSpace;
  /** Longest wait for one name, all steps together. */
  readonly timeoutMs: number;
  /** Queries a second over all names, and as many at once after a pause. */
  readonly maxPerSecond: number;
}

const FOUND_MS = 60_000;
const NOT_FOUND_MS = 30_000;
const MAX_NAMES = 10_000;
const MAX_RUNNING = 32;
/** CNAME records followed. */
const MAX_STEPS = 3;
/** So many unanswered queries in a row, and none is sent for a while. */
const MAX_SILENT = 5;
const PAUSE_MS = 10_000;

/** RFC 1035 2.3.4, without the final dot. */
const MAX_NAME = 253;
/** Host names (RFC 1123 2.1) of two labels or more. The last one begins with a letter, so no IPv4 spelling is one. */
const DOMAIN = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
/** Top labels that never belong into the DNS (RFC 6761 6.3 and 6.4, RFC 7686). */
const NOT_IN_DNS: ReadonlySet<string> = new Set(["localhost", "invalid", "onion"]);

type Found = string | null;

interface Known {
  readonly label: Found;
  /** Monotonic ms. */
  readonly until: number;
}

/**
 * Whether the DNS may be asked about a name: a host name, and none below the edge's domain, where other nodes' names
 * are and no customer's.
 *
 * @param name lower case, without port and final dot
 */
export function isCustomDomain(name: string, { domain }: HostSpace): boolean {
  return (
    name.length <= MAX_NAME &&
    DOMAIN.test(name) &&
    name !== domain &&
    !name.endsWith(`.${domain}`) &&
    !NOT_IN_DNS.has(name.slice(name.lastIndexOf(".") + 1))
  );
}

export function createCustomDomains(
  { lookup, clock, log }: CustomDomainsDeps,
  { space, timeoutMs, maxPerSecond }: CustomDomainsOptions,
): CustomDomains {
  const known = new LRUCache<string, Known>({ max: MAX_NAMES });
  /** One look-up per name, however many requests wait for it. */
  const running = new Map<string, { result: Promise<Found>; stop: AbortController }>();
  const take = createBucket(clock, maxPerSecond);
  let silentInRow = 0;
  let pausedUntil = 0;
  let closed = false;

  /** One query, and what it says about the resolver. */
  async function ask(name: string, signal: AbortSignal) {
    const answer = await lookup(name, signal);
    if (answer.kind !== "silent") {
      silentInRow = 0;
    } else if (!closed && ++silentInRow >= MAX_SILENT) {
      silentInRow = 0;
      pausedUntil = clock.monotonic() + PAUSE_MS;
      log.warn(
        { pauseMs: PAUSE_MS },
        "the DNS resolver does not answer: new custom domains are 404 until it is asked again",
      );
    }
    return answer;
  }

  async function follow(name: string, signal: AbortSignal): Promise<Found> {
    let at = name;
    for (let step = 1; ; step++) {
      const answer = await ask(at, signal);
      if (answer.kind !== "cname") {
        return null;
      }
      const target = answer.target.toLowerCase().replace(/\.$/, "");
      // A name on the wire may hold any byte, also a colon; what is no host name is not looked at more closely.
      const route = DOMAIN.test(target) ? parseHost(target, space) : null;
      if (route?.kind === "alias") {
        return route.name;
      }
      if (step === MAX_STEPS || !isCustomDomain(target, space) || target === at || !take(true)) {
        return null;
      }
      at = target;
    }
  }

  async function find(name: string, stop: AbortController): Promise<Found> {
    const timer = clock.after(timeoutMs, () => stop.abort());
    let label: Found = null;
    try {
      label = await follow(name, stop.signal);
    } finally {
      timer.cancel();
      running.delete(name);
      const until = clock.monotonic() + (label === null ? NOT_FOUND_MS : FOUND_MS);
      known.set(name, { label, until });
    }
    return label;
  }

  return {
    alias(name) {
      const now = clock.monotonic();
      const kept = known.get(name);
      if (kept !== undefined && now < kept.until) {
        return kept.label;
      }
      const same = running.get(name);
      if (same !== undefined) {
        return same.result;
      }
      const renewal = kept !== undefined && kept.label !== null;
      if (closed || now < pausedUntil || running.size >= MAX_RUNNING || !take(renewal)) {
        return null; // not kept: the next request may ask again
      }
      const stop = new AbortController();
      const result = find(name, stop);
      running.set(name, { result, stop });
      return result;
    },
    close() {
      closed = true;
      for (const { stop } of running.values()) {
        stop.abort();
      }
    },
  };
}

/**
 * A token bucket of `perSecond` tokens. The last quarter is for those who have a claim on it (names that led to an alias
 * before, later steps of a look-up), so that a flood of made-up names does not end domains that work.
 */
function createBucket(clock: Clock, perSecond: number): (claim: boolean) => boolean {
  const kept = Math.floor(perSecond / 4);
  let tokens = perSecond;
  let filledAt = clock.monotonic();
  return (claim) => {
    const now = clock.monotonic();
    tokens = Math.min(perSecond, tokens + ((now - filledAt) / 1000) * perSecond);
    filledAt = now;
    if (tokens < (claim ? 1 : 1 + kept)) {
      return false;
    }
    tokens -= 1;
    return true;
  };
}
