import { createAudit } from "../dispatcher/audit.ts";
import { createDispatcher } from "../dispatcher/dispatch.ts";
import { createExecHostClient } from "../dispatcher/exec-host-client.ts";
import { createExecTargets } from "../dispatcher/exec-target.ts";
import { createExecHost } from "../exec-host/host.ts";
import { createManageApi } from "../exec-host/manage/api.ts";
import { type PartState, createControlApi, listenControl } from "../policy/api/server.ts";
import { type Clock, delay } from "../policy/kernel/clock.ts";
import { createHttp1Client } from "../policy/kernel/http1/client.ts";
import type { Log } from "../policy/kernel/log.ts";
import { createMetrics } from "../policy/kernel/metrics.ts";
import { createAliases } from "../policy/store/aliases.ts";
import { createAuditStore } from "../policy/store/audit-store.ts";
import { createPolicyCache } from "../policy/store/cache.ts";
import { createFileStore } from "../policy/store/file-store.ts";
import { containerInfos, execPlace, manageEndpoint, manageMode } from "./config-views.ts";
import type { Config, ListenAddress } from "./config.ts";
import { createFinisher } from "./finish.ts";
import { createGeneration } from "./generation.ts";
import { limitsInfo } from "./limits-info.ts";
import { formatAddress, listen } from "./listen.ts";
import { createPipeline } from "./pipeline.ts";
import { createRequestBudget } from "./request-budget.ts";
import { createRouter } from "./router.ts";
import { createHttp1Server } from "./wire/node-http/server.ts";

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

/** Composition root of the edge process: builds the parts in dependency order, starts them, and owns their end. */
export async function startEdge(
  initial: Config,
  { clock, log, token }: { clock: Clock; log: Log; token: string },
): Promise<RunningEdge> {
  const { dataDir } = initial;
  const metrics = createMetrics();
  const store = createFileStore({ clock }, { dataDir });
  const policies = createPolicyCache({ store, clock, log, metrics });
  const aliases = createAliases({ store, clock, log });
  const auditStore = createAuditStore({ clock, log }, { dataDir });
  const audit = createAudit({ sink: auditStore, clock, metrics, log });

  let draining = false;
  let generation = createGeneration(initial, { clock, log, aliases: aliases.lookup }, null);
  const config = () => generation.config;

  const client = createHttp1Client({ clock });
  const execHost = await createExecHost({
    clock,
    log,
    metrics,
    dataDir,
    containers: () => generation.embeddedExecs,
  });
  const dispatcher = createDispatcher({
    targets: createExecTargets(execHost, (container) => execPlace(config(), container)),
    client: createExecHostClient(client),
    audit,
    clock,
    metrics,
    log,
  });
  const budget = createRequestBudget(clock, () => config().limits.requestBudgetMs);
  const finisher = createFinisher({ clock, log, metrics, budget });
  const router = createRouter({
    config,
    client,
    dispatcher,
    agents: { endpoint: () => Promise.reject(new Error("no agent gateway")), sign: () => [] },
    management: createManageApi({
      client,
      log,
      token,
      mode: (container) => manageMode(config(), container),
      endpoint: (container) => manageEndpoint(config(), container, execHost),
    }),
    finisher,
    budget,
    clock,
    log,
    metrics,
  });
  const pipeline = createPipeline({
    clock,
    hosts: { resolve: (host, target) => generation.hosts.resolve(host, target) },
    policies,
    authenticator: {
      authenticate: (access, request) => generation.authenticator.authenticate(access, request),
    },
    clientAddress: (exchange) => generation.clientAddress(exchange),
    router,
    budget,
    finisher,
  });
  const server = createHttp1Server({
    limits: initial.limits,
    onExchange: pipeline,
    log,
    clock,
    metrics,
  });
  const app = createControlApi({
    store,
    cache: policies,
    aliases,
    audit: auditStore,
    metrics,
    log,
    clock,
    token,
    node: initial.node,
    aliasUrl: (alias) =>
      `${initial.listen.https === null ? "http" : "https"}://${alias}.${initial.node}.${initial.domain}`,
    containers: () => containerInfos(config()),
    readiness: () => ({
      edge: draining ? { ok: false, reason: "draining" } : { ok: true },
      "identity keys": generation.keys.ready
        ? { ok: true }
        : { ok: false, reason: "the issuer's keys were not fetched yet" },
      "exec hosts": toPartState(execHost.readiness()),
    }),
    limits: () => limitsInfo(config()),
    publicKeys: () => generation.keys.list(),
  });

  await aliases.ready();
  const http =
    initial.listen.http === null ? null : await listen(server.server, initial.listen.http);
  const control = await listenControl(app, initial.control.listen);
  const addresses = { http, https: null, control: { host: control.host, port: control.port } };
  log.info(
    { http: http && formatAddress(http), https: null, control: formatAddress(addresses.control) },
    "ready",
  );

  async function close(): Promise<void> {
    server.drain();
    server.destroy();
    await control.close();
    await audit.flush();
    await auditStore.close();
    await execHost.close();
    client.close();
    budget.close();
    generation.keys.close();
    aliases.close();
    policies.close();
    await store.close();
  }

  return {
    addresses,
    get config() {
      return generation.config;
    },
    async reload(next) {
      const before = generation;
      generation = createGeneration(next, { clock, log, aliases: aliases.lookup }, before);
      if (generation.keys !== before.keys) {
        before.keys.close();
      }
      execHost.reconcile();
    },
    async drain() {
      const { drainMs } = config().limits;
      draining = true;
      log.info({ drainMs }, "draining");
      const closed = new Promise<void>((done) => server.server.once("close", done));
      server.drain();
      await Promise.race([closed, delay(clock, drainMs)]);
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
