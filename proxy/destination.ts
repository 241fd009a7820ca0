import { type Service, SERVICES, serviceByName } from "../policy/documents/services.ts";
import type { ErrorCode } from "../policy/kernel/errors.ts";
import type { Config, ContainerConfig } from "./config.ts";
import type { HostRoute, NamedHost } from "./hostname.ts";

/** What answers requests for a destination. */
export type Endpoint =
  | { readonly kind: "tcp" | "tls"; readonly port: number }
  | { readonly kind: "exec"; readonly subdomain: string | null; readonly execId: string | null }
  | { readonly kind: "agent" };

/** A container's service as one host names it: what permissions, hooks, selectors and forwarding all look at. */
export interface Destination {
  readonly container: ContainerConfig;
  /** Row of access rules: a canonical service name, or `http`/`https` for a port that no service owns. */
  readonly program: string;
  /** null for a port that no service owns: no hooks, no selectors. */
  readonly service: Service | null;
  /** Index of the service, or the port. */
  readonly instance: number;
  readonly endpoint: Endpoint;
}

/** Where a request goes, or why it goes nowhere. */
export type Resolution =
  | { readonly kind: "found"; readonly destination: Destination }
  | { readonly kind: "refused"; readonly code: ErrorCode };

type Addressed = Exclude<NamedHost, { kind: "alias" } | { kind: "custom" }>;

/**
 * Finds what a host that names a container leads to. Unknown containers, and known ones under another project,
 * are 404; stopped ones 503 (decision 21).
 */
export function resolveDestination(
  route: Exclude<HostRoute, { kind: "alias" | "custom" }>,
  config: Config,
): Resolution {
  if (route.kind === "unknown") {
    return refused("UNKNOWN_HOST");
  }
  const container = config.containers.get(route.container);
  if (container === undefined || container.project !== route.project) {
    return refused("UNKNOWN_HOST");
  }
  if (container.state === "stopped") {
    return refused("CONTAINER_UNAVAILABLE");
  }
  return resolveIn(container, route);
}

function resolveIn(container: ContainerConfig, route: Addressed): Resolution {
  switch (route.kind) {
    case "ssh":
      return refused("UNKNOWN_HOST"); // a TCP endpoint; there is nothing to say to it in HTTP
    case "exec":
      return toExec(container, route.subdomain, route.execId);
    case "service":
      return toService(container, route.service, route.index);
    case "port": {
      const owner = portOwner(container, route.port);
      if (owner !== null) {
        return overTls(toService(container, owner.name, 1), route.scheme === "https");
      }
      return found({
        container,
        program: route.scheme,
        service: null,
        instance: route.port,
        endpoint: { kind: route.scheme === "https" ? "tls" : "tcp", port: route.port },
      });
    }
  }
}

/** `https-<port>` speaks TLS to the port whoever owns it; what the owner's rules say is the same. */
function overTls(resolution: Resolution, tls: boolean): Resolution {
  if (!tls || resolution.kind === "refused" || resolution.destination.endpoint.kind !== "tcp") {
    return resolution;
  }
  const { destination } = resolution;
  return found({
    ...destination,
    endpoint: { ...destination.endpoint, kind: "tls" },
  } as Destination);
}

function toService(container: ContainerConfig, name: string, index: number): Resolution {
  const service = serviceByName(name);
  if (service === undefined) {
    return refused("UNKNOWN_HOST");
  }
  if (service.name === "exec") {
    return toExec(container, null, null);
  }
  if (service.name === "agent" && container.agent.kind === "none") {
    return refused("SERVICE_UNAVAILABLE");
  }
  return found({
    container,
    program: service.name,
    service,
    instance: index,
    endpoint:
      service.name === "agent"
        ? { kind: "agent" }
        : { kind: "tcp", port: portOf(container, service) },
  });
}

function toExec(
  container: ContainerConfig,
  subdomain: string | null,
  execId: string | null,
): Resolution {
  if (container.exec.kind === "none") {
    return refused("SERVICE_UNAVAILABLE");
  }
  return found({
    container,
    program: "exec",
    service: serviceByName("exec") as Service,
    instance: 1,
    endpoint: { kind: "exec", subdomain, execId },
  });
}

/** Port of a service in a container. `desktop` is served by the terminal kit unless it has a port of its own (decision 27). */
export function portOf(container: Pick<ContainerConfig, "ports">, service: Service): number {
  const own = container.ports.get(service.name);
  if (own !== undefined) {
    return own;
  }
  return service.name === "desktop"
    ? (container.ports.get("terminal") ?? service.port)
    : service.port;
}

/** The service that owns a port of a container: the first in the service table (decision 27). */
function portOwner(container: Pick<ContainerConfig, "ports">, port: number): Service | null {
  return SERVICES.find((service) => portOf(container, service) === port) ?? null;
}

function found(destination: Destination): Resolution {
  return { kind: "found", destination };
}

function refused(code: ErrorCode): Resolution {
  return { kind: "refused", code };
}
