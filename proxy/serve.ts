import type { AddressInfo, Server } from "node:net";
import { createAudit } from "../dispatcher/audit.ts";
import { createDispatcher } from "../dispatcher/dispatch.ts";
import { createExecHostClient } from "../dispatcher/exec-host-client.ts";
import { createExecTargets } from "../dispatcher/exec-target.ts";
import { createExecPool } from "../exec-host/pool/pool.ts";
import { createControlApi, listenControl } from "../policy/api/server.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import { createHttp1Client } from "../policy/kernel/http1/client.ts";
import type { Log } from "../policy/kernel/log.ts";
import { createMetrics } from "../policy/kernel/metrics.ts";
import { createPolicyCache } from "../policy/store/cache.ts";
import { createFileStore } from "../policy/store/file-store.ts";
import { createAuthenticator } from "./auth/authenticate.ts";
import { createIdentityKeys } from "./auth/identity-keys.ts";
import type { Config, ExecConfig, ListenAddress } from "./config.ts";
import { createFinisher } from "./finish.ts";
import { type HostResolver, createHostResolver } from "./host-resolver.ts";
import { limitsInfo } from "./limits-info.ts";
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
  let config = initial;
  let draining = false;
  const current = () => config;
  const metrics = createMetrics();
  const store = createFileStore({ clock }, { dataDir: initial.dataDir });
  const policies = createPolicyCache({ store, clock, log, metrics });
  const keys = createIdentityKeys({ clock, log, fetch }, initial.identity);
  const pool = await createExecPool({
    clock,
    log,
    metrics,
    dataDir: initial.dataDir,
    containers: () => embeddedExecs(config),
  });
  const client = createHttp1Client({ clock });
  const audit = createAudit({ sink: { append: async () => {} }, clock, metrics, log });
  const dispatcher = createDispatcher({
    targets: createExecTargets(pool, (container) => execPlace(config, container)),
    client: createExecHostClient(client),
    audit,
    clock,
    metrics,
    log,
  });
  const budget = createRequestBudget(clock, () => config.limits.requestBudgetMs);
  const finisher = createFinisher({ clock, log, metrics, budget });
  const router = createRouter({
    config: current,
    client,
    dispatcher,
    agents: { endpoint: () => Promise.reject(new Error("no agent gateway")), sign: () => [] },
    management: { owns: () => false, handle: () => Promise.resolve(0) },
    finisher,
    budget,
    clock,
    log,
    metrics,
  });
  let hosts: HostResolver = createHostResolver(config, () => null, clock);
  const pipeline = createPipeline({
    clock,
    hosts: { resolve: (host, target) => hosts.resolve(host, target) },
    policies,
    authenticator: createAuthenticator({ clock, keys }),
    clientAddress: (exchange) => exchange.peer.address,
    router,
    budget,
    finisher,
  });
  const server = createHttp1Server({
    limits: config.limits,
    onExchange: pipeline,
    log,
    clock,
    metrics,
  });

  const app = createControlApi({
    store,
    cache: policies,
    metrics,
    log,
    clock,
    token,
    node: initial.node,
    containers: () => containerInfos(config),
    readiness: () => ({
      edge: draining ? { ok: false, reason: "draining" } : { ok: true },
      ...(keys.ready
        ? {}
        : { "identity keys": { ok: false, reason: "the issuer's keys were not fetched yet" } }),
    }),
    limits: () => limitsInfo(config),
    publicKeys: () => keys.list(),
  });
  const http =
    initial.listen.http === null ? null : await listen(server.server, initial.listen.http);
  const control = await listenControl(app, initial.control.listen);
  const addresses = { http, https: null, control: { host: control.host, port: control.port } };
  log.info(
    {
      http: http && formatAddress(http),
      https: null,
      control: formatAddress(addresses.control),
    },
    "ready",
  );

  async function close(): Promise<void> {
    server.drain();
    server.destroy();
    await control.close();
    await audit.flush();
    await pool.close();
    client.close();
    budget.close();
    keys.close();
    policies.close();
    await store.close();
  }

  return {
    addresses,
    get config() {
      return config;
    },
    async reload(next) {
      config = next;
      hosts = createHostResolver(next, () => null, clock);
      pool.reconcile();
    },
    async drain() {
      draining = true;
      log.info({ drainMs: config.limits.drainMs }, "draining");
      const closed = new Promise<void>((done) => server.server.once("close", done));
      server.drain();
      await Promise.race([
        closed,
        new Promise<void>((done) => clock.after(config.limits.drainMs, done)),
      ]);
      await close();
      log.info("stopped");
    },
    close,
  };
}

function listen(server: Server, address: ListenAddress): Promise<ListenAddress> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => {
      const reason =
        cause.code === "EADDRINUSE"
          ? "something else listens there"
          : (cause.code ?? cause.message);
      reject(new Error(`Cannot listen on ${formatAddress(address)}: ${reason}.`, { cause }));
    });
    server.listen(address.port, address.host, () => {
      resolve({ host: address.host, port: (server.address() as AddressInfo).port });
    });
  });
}

function formatAddress({ host, port }: ListenAddress): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

function embeddedExecs(config: Config) {
  const found = new Map<string, Extract<ExecConfig, { kind: "embedded" }>>();
  for (const [id, { exec, state }] of config.containers) {
    if (exec.kind === "embedded" && state === "running") {
      found.set(id, exec);
    }
  }
  return found;
}

function execPlace(config: Config, id: string) {
  const container = config.containers.get(id);
  if (container === undefined) {
    return undefined;
  }
  const { exec, host } = container;
  return exec.kind === "remote"
    ? { kind: exec.kind, host, port: exec.port, secret: exec.secret }
    : { kind: exec.kind };
}

function containerInfos(config: Config) {
  const infos = new Map<string, { id: string; project: string; status: "running" | "stopped" }>();
  for (const [id, { project, state }] of config.containers) {
    infos.set(id, { id, project, status: state });
  }
  return infos;
}
