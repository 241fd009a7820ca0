import type { Service } from "../policy/documents/services.ts";
import { removeQueryKey, setQueryPair } from "../policy/kernel/target.ts";

/**
 * What the request is for: `plain` goes to the service, `hook` to a script, which gets the instance selector and
 * nothing else (edge-proxy.md 6.7, decision 28).
 */
export type QueryPurpose = "plain" | "hook";

/** A key that the edge decides on: its one value, or null when no value may arrive. */
export interface ForcedPair {
  readonly key: string;
  readonly value: string | null;
}

const NONE: readonly ForcedPair[] = [];

/**
 * The query pairs that name the instance which the permission check ran on (edge-proxy.md 1.3). Index 0 is the host
 * without a session: what would name one is taken out and nothing put in its place (decision 28).
 *
 * @param service null for a port that no service owns
 */
export function forcedPairs(
  service: Service | null,
  index: number,
  purpose: QueryPurpose,
): readonly ForcedPair[] {
  if (service?.selector === undefined) {
    return NONE;
  }
  const pairs = [toPair(service.selector, service.selectorBase ?? 0, index)];
  if (purpose === "plain") {
    for (const [key, argument] of Object.entries(service.forced ?? {})) {
      pairs.push(toPair(key, argument, index));
    }
  }
  return pairs;
}

function toPair(key: string, argument: string | number, index: number): ForcedPair {
  if (index === 0) {
    return { key, value: null };
  }
  return { key, value: typeof argument === "number" ? String(argument + index) : argument };
}

/** Pairs by service and instance: the same few for nearly all requests, and instances come from checked hosts. */
const known = new WeakMap<Service, Map<string, readonly ForcedPair[]>>();
const MAX_KNOWN = 1000;

function knownPairs(
  service: Service | null,
  index: number,
  purpose: QueryPurpose,
): readonly ForcedPair[] {
  if (service?.selector === undefined) {
    return NONE;
  }
  let byInstance = known.get(service);
  if (byInstance === undefined) {
    byInstance = new Map();
    known.set(service, byInstance);
  }
  const instance = purpose === "plain" ? `p${index}` : `h${index}`;
  let pairs = byInstance.get(instance);
  if (pairs === undefined) {
    pairs = forcedPairs(service, index, purpose);
    if (byInstance.size < MAX_KNOWN) {
      byInstance.set(instance, pairs);
    }
  }
  return pairs;
}

/** A query with the forced pairs of its instance, on raw bytes; null when nothing is left of it. */
export function forceQuery(
  query: string | null,
  service: Service | null,
  index: number,
  purpose: QueryPurpose,
): string | null {
  let forced = query;
  for (const { key, value } of knownPairs(service, index, purpose)) {
    forced = value === null ? removeQueryKey(forced, key) : setQueryPair(forced, key, value);
  }
  return forced;
}
