import { createManageApi } from "../exec-host/manage/api.ts";
import { availableParallelism } from "node:os";
import type { PartState } from "../policy/api/server.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import type { Http1Client } from "../policy/kernel/http1/types.ts";
import type { Log } from "../policy/kernel/log.ts";
import type { Metrics } from "../policy/kernel/metrics.ts";
import type { AuditStore } from "../policy/store/audit-store.ts";
import type { PolicyCache } from "../policy/store/cache.ts";
import { createAgentAccess } from "./agent-access.ts";
import { ClusterRegistry, startCluster } from "./cluster.ts";
import { manageEndpoint, manageMode } from "./config-views.ts";
import type { Config, ListenAddress } from "./config.ts";
import { createDataPlane } from "./data-plane.ts";
import { type Generation, createGeneration } from "./generation.ts";
import type { AliasLookup } from "./host-resolver.ts";
import type { EmbeddedHosts } from "./hosts.ts";
import type { OwnAddresses } from "./own-addresses.ts";

/** What {@link createTraffic} builds on. */
export interface TrafficDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly token: string;
  readonly metrics: Metrics;
  readonly client: Http1Client;
  readonly policies: PolicyCache;
  readonly aliases: AliasLookup;
  readonly auditStore: AuditStore;
  readonly hosts: EmbeddedHosts;
  readonly own: OwnAddresses;
}

/** The side of an edge that carries requests: in this process, or in several that share the port. */
export interface Traffic {
  readonly generation: Generation;
  /** Metrics of all processes. */
  readonly registry: Metrics["registry"];
  listen(): Promise<{ readonly http: ListenAddress | null; readonly https: ListenAddress | null }>;
  readiness(): PartState;
  reload(config: Config): void;
  drain(ms: number): Promise<void>;
  close(): Promise<void>;
}

/** How many edge processes a configuration asks for. */
function workerCount(config: Config): number {
  return config.workers === "auto" ? availableParallelism() : config.workers;
}

/** Runs the data plane in this process, or in several that share the ports. */
export function createTraffic(initial: Config, deps: TrafficDeps): Traffic {
  return workerCount(initial) > 1
    ? createSharedTraffic(initial, deps)
    : createOwnTraffic(initial, deps);
}

/** The management routes of scripts, wherever a container's exec host is. */
export function createManagement(
  config: () => Config,
  deps: { client: Http1Client; log: Log; token: string; hosts: EmbeddedHosts },
) {
  return createManageApi({
    client: deps.client,
    log: deps.log,
    token: deps.token,
    mode: (container) => manageMode(config(), container),
    endpoint: (container) => manageEndpoint(config(), container, deps.hosts),
  });
}

function createOwnTraffic(initial: Config, deps: TrafficDeps): Traffic {
  const data = createDataPlane(initial, {
    ...deps,
    execHosts: deps.hosts,
    agents: createAgentAccess(() => data.generation.config, deps.hosts, deps.clock),
    management: (config) => createManagement(config, deps),
  });
  return {
    get generation() {
      return data.generation;
    },
    registry: deps.metrics.registry,
    listen: () => data.listen(),
    readiness: () => ({ ok: true }),
    reload: (config) => data.reload(config),
    drain: (ms) => data.drain(ms),
    close: () => data.close(),
  };
}

function createSharedTraffic(initial: Config, deps: TrafficDeps): Traffic {
  let generation = createGeneration(initial, deps, null);
  let edges: Awaited<ReturnType<typeof startCluster>> | null = null;
  return {
    get generation() {
      return generation;
    },
    registry: new ClusterRegistry(deps.metrics.registry, async () => (await edges?.scrape()) ?? []),
    async listen() {
      edges = await startCluster(workerCount(initial), initial, deps);
      return edges.addresses;
    },
    readiness() {
      const up = edges?.listening ?? 0;
      const wanted = edges?.wanted ?? 0;
      return up === wanted
        ? { ok: true }
        : { ok: false, reason: `${up} of ${wanted} edge processes are listening` };
    },
    reload(config) {
      const before = generation;
      generation = createGeneration(config, deps, before);
      if (generation.keys !== before.keys) {
        before.keys.close();
      }
      edges?.reload(config);
    },
    drain: async (ms) => edges?.drain(ms),
    async close() {
      await edges?.close();
      generation.keys.close();
    },
  };
}
