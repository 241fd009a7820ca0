import { toolEnvironment } from "../exec-host/agent/standalone.ts";
import { createAgentSupervisor } from "../exec-host/agent/supervisor.ts";
import { createExecHost } from "../exec-host/host.ts";
import { DEFAULT_POOL_OPTIONS } from "../exec-host/pool/options.ts";
import { type PartState, createControlApi, listenControl } from "../policy/api/server.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import { createHttp1Client } from "../policy/kernel/http1/client.ts";
import type { Log } from "../policy/kernel/log.ts";
import { createMetrics } from "../policy/kernel/metrics.ts";
import { createAliases } from "../policy/store/aliases.ts";
import { createAuditStore } from "../policy/store/audit-store.ts";
import { createPolicyCache } from "../policy/store/cache.ts";
import { createFileStore } from "../policy/store/file-store.ts";
import { containerInfos } from "./config-views.ts";
import { upstreamLimits } from "./config-views.ts";
import type { Config, ListenAddress } from "./config.ts";
import type { EmbeddedHosts } from "./hosts.ts";
import { limitsInfo } from "./limits-info.ts";
import { formatAddress } from "./listen.ts";
import { createOwnAddresses } from "./own-addresses.ts";
import { createTraffic } from "./traffic.ts";

/** A running edge with its control API and embedded hosts. */
export interface RunningEdge {
  readonly addresses: {
    readonly http: ListenAddress | null;
    readonly https: ListenAddress | null;
    readonly control: ListenAddress;
  };
  /** The configuration in force. */
  readonly config: Config;
  /** Swaps the configuration; touches no socket (decision 17). */
  reload(config: Config): Promise<void>;
  /** Stops taking requests, gives running ones `drainMs`, then ends everything. */
  drain(): Promise<void>;
  /** Ends everything at once. */
  close(): Promise<void>;
}

/** What an edge is given from outside. */
export interface EdgeDeps {
  readonly clock: Clock;
  readonly log: Log;
  /** The control API's token. */
  readonly token: string;
  /** Of this process; a few harmless names of it reach the agents' tools. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Composition root of the edge process: builds the parts in dependency order, starts them, and owns their end. */
export async function startEdge(
  initial: Config,
  { clock, log, token, env }: EdgeDeps,
): Promise<RunningEdge> {
  const { dataDir } = initial;
  const metrics = createMetrics();
  const store = createFileStore({ clock }, { dataDir });
  const policies = createPolicyCache({ store, clock, log, metrics });
  const aliases = createAliases({ store, clock, log });
  const auditStore = createAuditStore({ clock, log }, { dataDir });
  const client = createHttp1Client({ clock });
  let draining = false;

  const { maxBufferedBodyBytes, upstreamConnectMs, upstreamIdleMs } = initial.limits;
  const execHost = await createExecHost(
    { clock, log, metrics, dataDir, containers: () => traffic.generation.embeddedExecs },
    {
      pool: {
        limits: {
          ...DEFAULT_POOL_OPTIONS.limits,
          maxBufferedBodyBytes,
          upstreamConnectMs,
          upstreamIdleMs,
          // The same for a worker as for the edge, which forwards in its place.
          maxHeaderBytes: upstreamLimits(initial).maxHeaderBytes,
        },
      },
    },
  );
  const agents = createAgentSupervisor(
    { clock, log, metrics, dataDir, containers: () => traffic.generation.embeddedAgents },
    { env: toolEnvironment(env), logLevel: initial.log.level },
  );
  const hosts: EmbeddedHosts = { ...execHost, agentEndpoint: agents.access };
  const own = createOwnAddresses();
  const traffic = createTraffic(initial, {
    clock,
    log,
    token,
    metrics,
    client,
    policies,
    aliases: aliases.lookup,
    auditStore,
    hosts,
    own,
  });
  const config = () => traffic.generation.config;
  const app = createControlApi({
    store,
    cache: policies,
    aliases,
    audit: auditStore,
    metrics: { ...metrics, registry: traffic.registry },
    log,
    clock,
    token,
    node: initial.node,
    aliasUrl: (alias) =>
      `${initial.listen.https === null ? "http" : "https"}://${alias}.${initial.node}.${initial.domain}`,
    containers: () => containerInfos(config()),
    readiness: () => ({
      edge: draining ? { ok: false, reason: "draining" } : traffic.readiness(),
      "identity keys": traffic.generation.keys.ready
        ? { ok: true }
        : { ok: false, reason: "the issuer's keys were not fetched yet" },
      "exec hosts": toPartState(execHost.readiness()),
      "agent gateways": toPartState(agents.readiness()),
    }),
    limits: () => limitsInfo(config()),
    publicKeys: () => traffic.generation.keys.list(),
  });

  await aliases.ready();
  const bound = await traffic.listen();
  const control = await listenControl(app, initial.control.listen);
  own.add({ host: control.host, port: control.port });
  const addresses = { ...bound, control: { host: control.host, port: control.port } };
  log.info(
    {
      http: bound.http && formatAddress(bound.http),
      https: bound.https && formatAddress(bound.https),
      control: formatAddress(addresses.control),
    },
    "ready",
  );

  async function close(): Promise<void> {
    await traffic.close();
    await control.close();
    await auditStore.close();
    await Promise.all([execHost.close(), agents.close()]);
    client.close();
    aliases.close();
    policies.close();
    await store.close();
  }

  return {
    addresses,
    get config() {
      return config();
    },
    async reload(next) {
      traffic.reload(next);
      execHost.reconcile();
      agents.reconcile();
    },
    async drain() {
      const { drainMs } = config().limits;
      draining = true;
      log.info({ drainMs }, "draining");
      await traffic.drain(drainMs);
      await close();
      log.info("stopped");
    },
    close,
  };
}

/** What stays open on this platform is told even when all is well. */
function toPartState({ ok, detail }: { ok: boolean; detail: readonly string[] }): PartState {
  return detail.length === 0 ? { ok } : { ok, reason: detail.join("; ") };
}
