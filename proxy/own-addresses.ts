import { networkInterfaces } from "node:os";
import { plainAddress } from "./client-address.ts";
import type { ListenAddress } from "./config.ts";

/**
 * The addresses that this edge listens on. They are no services: a container whose address is that of the edge's own
 * machine could otherwise be asked for `http-<port of the edge>`, which goes round in circles, or for the control
 * listener, which is meant for a private interface (K17).
 */
export interface OwnAddresses {
  add(address: ListenAddress): void;
  /** True when a connection to that host and port would reach this edge. */
  has(host: string, port: number): boolean;
}

/** Starts with no address; listeners add theirs. */
export function createOwnAddresses(): OwnAddresses {
  const byPort = new Map<number, Set<string>>();
  return {
    add({ host, port }) {
      const hosts = byPort.get(port) ?? new Set();
      byPort.set(port, hosts.add(plain(host)));
    },
    has(host, port) {
      const hosts = byPort.get(port);
      if (hosts === undefined) {
        return false; // every request but those for our own ports
      }
      const wanted = plain(host);
      return [...hosts].some((own) =>
        isAny(own) ? isOfThisMachine(wanted) : own === wanted || (isLoopback(own) && isAny(wanted)),
      );
    },
  };
}

/** One spelling per address; names for this machine itself as the loopback address. */
function plain(host: string): string {
  const lower = plainAddress(host.toLowerCase());
  return lower === "localhost" || lower.endsWith(".localhost") || lower === "::1"
    ? "127.0.0.1"
    : lower;
}

/** As a listener's address: every interface. As a destination: this machine. */
function isAny(host: string): boolean {
  return host === "0.0.0.0" || host === "::";
}

function isLoopback(host: string): boolean {
  return host.startsWith("127.");
}

function isOfThisMachine(host: string): boolean {
  return (
    isAny(host) ||
    isLoopback(host) ||
    Object.values(networkInterfaces()).some((list) =>
      list?.some(({ address }) => plainAddress(address) === host),
    )
  );
}
