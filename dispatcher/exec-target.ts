import type { ExecEndpoint, ExecHosts } from "./envelope.ts";

/** Where a container's exec host is, as configured (contract.md 2). */
export type ExecPlace =
  | { readonly kind: "embedded" }
  | {
      readonly kind: "remote";
      readonly host: string;
      readonly port: number;
      readonly secret: string;
    }
  | { readonly kind: "none" };

/** Exec hosts of all containers, embedded or remote, behind one face. */
export interface ExecTargets extends Omit<ExecHosts, "endpoint"> {
  /** `null` when the container has no exec host. A promise only while a worker starts; it may reject. */
  endpoint(containerId: string): ExecEndpoint | null | Promise<ExecEndpoint>;
}

/** Generation of endpoints that are not ours to restart. */
const REMOTE = 0;

/**
 * Resolves containers to exec host addresses.
 *
 * @param hosts embedded hosts; null in a process without any.
 * @param place the configuration of a container, asked anew each time; undefined for an unknown one.
 */
export function createExecTargets(
  hosts: ExecHosts | null,
  place: (containerId: string) => ExecPlace | undefined,
): ExecTargets {
  return {
    endpoint(containerId) {
      const found = place(containerId);
      if (found?.kind === "remote") {
        const { host, port, secret } = found;
        return { origin: { kind: "tcp", host, port }, secret, generation: REMOTE };
      }
      return found?.kind === "embedded" && hosts !== null ? hosts.endpoint(containerId) : null;
    },
    reportSuspect(containerId, generation, kind) {
      if (generation !== REMOTE) {
        hosts?.reportSuspect(containerId, generation, kind);
      }
    },
    isGone: (containerId, generation) =>
      generation !== REMOTE && (hosts?.isGone(containerId, generation) ?? true),
    takeEnded: (containerId, auditId) => hosts?.takeEnded(containerId, auditId),
  };
}
