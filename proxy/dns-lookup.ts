import { CANCELLED, CONNREFUSED, Resolver, TIMEOUT } from "node:dns/promises";

/** What the resolver says about the CNAME record of one name. */
export type CnameAnswer =
  | { readonly kind: "cname"; readonly target: string }
  /** It answered, and there is none: no such name, no such record, or it will not or cannot say. */
  | { readonly kind: "none" }
  /** No answer came: the resolver itself is in doubt. */
  | { readonly kind: "silent" };

/**
 * Asks for the CNAME record of one name; never rejects. Ends at once, as `silent`, when `signal` aborts.
 *
 * @param name a valid DNS name without final dot
 */
export type DnsLookup = (name: string, signal: AbortSignal) => Promise<CnameAnswer>;

const NO_ANSWER: ReadonlySet<unknown> = new Set([
  TIMEOUT,
  CONNREFUSED,
  CANCELLED,
  // The machine has no sockets or memory left: says nothing about the name either.
  "EFILE",
  "ENOMEM",
]);

/**
 * The only door to the DNS. Names of services go through the operating system instead, as a connection opens.
 *
 * Every query has a resolver of its own: it can be cancelled alone, and it sends from a fresh port, so that whoever wants
 * to forge an answer has to guess port and id anew each time (RFC 5452 4.5).
 *
 * @param options.resolvers `address:port` each; null for the system's
 * @param options.timeoutMs after which one query counts as unanswered
 */
export function createDnsLookup({
  resolvers,
  timeoutMs,
}: {
  readonly resolvers: readonly string[] | null;
  readonly timeoutMs: number;
}): DnsLookup {
  return async (name, signal) => {
    if (signal.aborted) {
      return { kind: "silent" };
    }
    let resolver: Resolver | null = null;
    const cancel = () => resolver?.cancel();
    try {
      resolver = new Resolver({ timeout: timeoutMs, tries: 1 });
      if (resolvers !== null) {
        resolver.setServers(resolvers);
      }
      signal.addEventListener("abort", cancel);
      const [target] = await resolver.resolveCname(name);
      return target === undefined ? { kind: "none" } : { kind: "cname", target };
    } catch (cause) {
      const code = (cause as { code?: unknown } | null)?.code;
      return { kind: NO_ANSWER.has(code) ? "silent" : "none" };
    } finally {
      signal.removeEventListener("abort", cancel);
    }
  };
}
