import { LRUCache } from "lru-cache";
import type { Clock } from "../policy/kernel/clock.ts";
import type { ErrorCode } from "../policy/kernel/errors.ts";
import type { TargetParts } from "../policy/kernel/target.ts";
import { type AliasTarget, routeAlias, upstreamHost } from "./alias-route.ts";
import type { Config } from "./config.ts";
import { type CustomDomains, isCustomDomain } from "./custom-domains.ts";
import { type Destination, type Resolution, resolveDestination } from "./destination.ts";
import { type HostRoute, type InvalidHost, parseHost } from "./hostname.ts";

/** Where one request goes: a destination, and what an alias makes of its target. */
export interface Route {
  readonly destination: Destination;
  /** What the service gets, before forced pairs. */
  readonly target: TargetParts;
  /** What a script gets, before its selector: always the client's own path. */
  readonly hookTarget: TargetParts;
  /** Paths that rules look at, the client's first. */
  readonly testPaths: readonly string[];
  /** Host to send instead of the client's spelling; null keeps it (decision 23). */
  readonly host: string | null;
}

/** What a host names, or why it names nothing. */
export type RouteResolution =
  | { readonly kind: "found"; readonly route: Route }
  | { readonly kind: "refused"; readonly code: ErrorCode };

/** Finds what a host leads to. */
export interface HostResolver {
  /**
   * A promise only for a custom domain that has to be looked up.
   *
   * @param host the Host field as received.
   */
  resolve(host: string, target: TargetParts): RouteResolution | Promise<RouteResolution>;
  /** Ends what is being looked up. */
  close(): void;
}

/** The alias of a label, or null; synchronous, because every request of an unknown label asks. */
export type AliasLookup = (label: string) => AliasTarget | null;

/** Spellings of hosts kept; strangers choose them, so there is an end. */
const MAX_HOSTS = 10_000;
/** No name is longer (RFC 1035 2.3.4); a longer spelling is refused anew each time instead of being kept. */
const MAX_KEPT_HOST = 255;

/** What a Host spelling means, independent of the rest of the request. */
type Known =
  | Resolution
  | { readonly kind: "alias"; readonly name: string }
  | { readonly kind: "domain"; readonly domains: CustomDomains; readonly name: string };

const NOT_OURS = { kind: "refused", code: "UNKNOWN_HOST" } as const;

/** What the resolver builds on. */
export interface HostResolverDeps {
  readonly aliases: AliasLookup;
  /** null: the configuration does not want them. */
  readonly domains: CustomDomains | null;
  readonly clock: Clock;
}

/** Resolves hosts against one configuration. A reload makes a new resolver, so nothing stale is kept. */
export function createHostResolver(
  config: Config,
  { aliases, domains, clock }: HostResolverDeps,
): HostResolver {
  const known = new LRUCache<string, Known>({ max: MAX_HOSTS });

  function read(name: HostRoute | InvalidHost): Known {
    switch (name.kind) {
      case "invalid":
        return { kind: "refused", code: "BAD_HOST" };
      case "custom":
        return domains !== null && isCustomDomain(name.host, config)
          ? { kind: "domain", domains, name: name.host }
          : NOT_OURS;
      case "alias":
        return { kind: "alias", name: name.name };
      default:
        return resolveDestination(name, config);
    }
  }

  function throughAlias(label: string, host: string, target: TargetParts): RouteResolution {
    const alias = aliases(label);
    const routing = alias === null ? null : routeAlias(alias, target, clock.now());
    if (routing === null || routing.kind === "refused") {
      return { kind: "refused", code: routing?.code ?? "UNKNOWN_HOST" };
    }
    const resolution = resolveDestination(routing.route, config);
    if (resolution.kind === "refused") {
      return resolution;
    }
    const { destination } = resolution;
    const { target: sent, hookTarget, testPaths } = routing;
    const sentHost = upstreamHost(destination, host, config);
    return {
      kind: "found",
      route: {
        destination,
        target: sent,
        hookTarget,
        testPaths,
        host: sentHost === host ? null : sentHost,
      },
    };
  }

  /** The alias's record is read after the look-up, so a change of it counts for domains as fast as for itself. */
  function throughDomain(label: string | null, host: string, target: TargetParts): RouteResolution {
    return label === null ? NOT_OURS : throughAlias(label, host, target);
  }

  return {
    close: () => domains?.close(),
    resolve(host, target) {
      let found = known.get(host);
      if (found === undefined) {
        found = read(parseHost(host, config));
        if (host.length <= MAX_KEPT_HOST) {
          known.set(host, found);
        }
      }
      if (found.kind === "alias") {
        return throughAlias(found.name, host, target);
      }
      if (found.kind === "domain") {
        const alias = found.domains.alias(found.name);
        return alias instanceof Promise
          ? alias.then((label) => throughDomain(label, host, target))
          : throughDomain(alias, host, target);
      }
      if (found.kind === "refused") {
        return found;
      }
      const { destination } = found;
      const testPaths = [target.path];
      return {
        kind: "found",
        route: { destination, target, hookTarget: target, testPaths, host: null },
      };
    },
  };
}
