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
/** Of those, for proven names only. */
const RESERVED_RUNNING = 8;
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

/** What a look-up came to. `untold`: cut short, so it says nothing about the name. */
type Outcome =
  | { readonly kind: "alias"; readonly label: string }
  | { readonly kind: "none" }
  | { readonly kind: "untold" };

const NONE: Outcome = { kind: "none" };
const UNTOLD: Outcome = { kind: "untold" };

interface Known {
  readonly label: Found;
  /** It led to an alias when the DNS last said anything of it. */
  readonly proven: boolean;
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
  const onPause = () =>
    log.warn({ pauseMs: PAUSE_MS }, "the DNS resolver does not answer and gets a pause");
  // Apart, because a stranger whose own name servers are slow can make the resolver look dead; domains that were served
  // before must not end with that.
  const pauses = { proven: createPause(clock, onPause), unproven: createPause(clock, onPause) };
  let closed = false;

  async function follow(name: string, pause: Pause, signal: AbortSignal): Promise<Outcome> {
    let at = name;
    for (let step = 1; ; step++) {
      const answer = await lookup(at, signal);
      if (closed) {
        return UNTOLD;
      }
      pause.note(answer.kind !== "silent");
      if (answer.kind !== "cname") {
        return answer.kind === "none" ? NONE : UNTOLD;
      }
      const target = answer.target.toLowerCase().replace(/\.$/, "");
      // A name on the wire may hold any byte, also a colon; what is no host name is not looked at more closely.
      const route = DOMAIN.test(target) ? parseHost(target, space) : null;
      if (route?.kind === "alias") {
        return { kind: "alias", label: route.name };
      }
      if (step === MAX_STEPS || !isCustomDomain(target, space) || target === at) {
        return NONE;
      }
      if (!take(true)) {
        return UNTOLD;
      }
      at = target;
    }
  }

  async function find(name: string, proven: boolean, stop: AbortController): Promise<Found> {
    const timer = clock.after(timeoutMs, () => stop.abort());
    let outcome: Outcome = UNTOLD;
    try {
      outcome = await follow(name, proven ? pauses.proven : pauses.unproven, stop.signal);
    } finally {
      timer.cancel();
      running.delete(name);
      const label = outcome.kind === "alias" ? outcome.label : null;
      known.set(name, {
        label,
        proven: outcome.kind === "untold" ? proven : label !== null,
        until: clock.monotonic() + (label === null ? NOT_FOUND_MS : FOUND_MS),
      });
    }
    return outcome.kind === "alias" ? outcome.label : null;
  }

  return {
    alias(name) {
      const kept = known.get(name);
      if (kept !== undefined && clock.monotonic() < kept.until) {
        return kept.label;
      }
      const same = running.get(name);
      if (same !== undefined) {
        return same.result;
      }
      const proven = kept?.proven === true;
      const room = running.size < (proven ? MAX_RUNNING : MAX_RUNNING - RESERVED_RUNNING);
      const paused = (proven ? pauses.proven : pauses.unproven).on();
      if (closed || paused || !room || !take(proven)) {
        return null; // not kept: the next request may ask again
      }
      const stop = new AbortController();
      const result = find(name, proven, stop);
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

interface Pause {
  on(): boolean;
  note(answered: boolean): void;
}

/** Stops queries for a while after `MAX_SILENT` unanswered ones in a row. */
function createPause(clock: Clock, onPause: () => void): Pause {
  let silentInRow = 0;
  let until = 0;
  return {
    on: () => clock.monotonic() < until,
    note(answered) {
      silentInRow = answered ? 0 : silentInRow + 1;
      if (silentInRow >= MAX_SILENT) {
        silentInRow = 0;
        until = clock.monotonic() + PAUSE_MS;
        onPause();
      }
    },
  };
}

/**
 * A token bucket of `perSecond` tokens. The last quarter is for those who have a claim on it (proven names, later
 * steps of a look-up), so that a flood of made-up names does not end domains that work.
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
