import { createAudit } from "../dispatcher/audit.ts";
import { createDispatcher } from "../dispatcher/dispatch.ts";
import { createExecHostClient } from "../dispatcher/exec-host-client.ts";
import type { ExecHosts } from "../dispatcher/envelope.ts";
import { createExecTargets } from "../dispatcher/exec-target.ts";
import { type Clock, delay } from "../policy/kernel/clock.ts";
import type { Exchange } from "../policy/kernel/exchange.ts";
import type { Http1Client } from "../policy/kernel/http1/types.ts";
import type { Log } from "../policy/kernel/log.ts";
import type { Metrics } from "../policy/kernel/metrics.ts";
import type { AuditStore } from "../policy/store/audit-store.ts";
import type { PolicyCache } from "../policy/store/cache.ts";
import { execPlace, upstreamLimits } from "./config-views.ts";
import type { Config, ListenAddress } from "./config.ts";
import { createFinisher } from "./finish.ts";
import { type Generation, createGeneration } from "./generation.ts";
import type { AliasLookup } from "./host-resolver.ts";
import { createInnerService } from "./inner-service.ts";
import { listen } from "./listen.ts";
import type { OwnAddresses } from "./own-addresses.ts";
import { createPipeline } from "./pipeline.ts";
import { createRequestBudget } from "./request-budget.ts";
import { type AgentGateway, type ScriptManagement, createRouter } from "./router.ts";
import type { WireLimits } from "./wire/limits.ts";
import { createListener } from "./wire/listener.ts";
import { createCertificates } from "./wire/tls.ts";

/** What the traffic side of an edge process needs from the rest of it. */
export interface DataPlaneDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly client: Http1Client;
  readonly policies: PolicyCache;
  readonly aliases: AliasLookup;
  readonly auditStore: Pick<AuditStore, "append">;
  /** Embedded exec hosts: in this process, or asked for from the process that has them. */
  readonly execHosts: ExecHosts;
  readonly agents: AgentGateway;
  readonly management: (config: () => Config) => ScriptManagement;
  /** Gets the addresses that `listen` binds. */
  readonly own: OwnAddresses;
}

/** Listeners and the pipeline behind them: everything that carries requests, in one process. */
export interface DataPlane {
  readonly generation: Generation;
  /** What every listener hands its exchanges to. */
  readonly pipeline: (exchange: Exchange) => void;
  listen(): Promise<{ readonly http: ListenAddress | null; readonly https: ListenAddress | null }>;
  /** Builds a new generation aside and swaps it in. Throws, and changes nothing, when a certificate is not usable. */
  reload(config: Config): void;
  /** Stops listening and waits for running requests, at most `ms`. */
  drain(ms: number): Promise<void>;
  /** Cuts what is left. */
  close(): Promise<void>;
}

/** Builds listeners and pipeline; nothing listens before `listen()`. */
export function createDataPlane(initial: Config, deps: DataPlaneDeps): DataPlane {
  const { clock, log, metrics, client, policies } = deps;
  let generation = createGeneration(initial, deps, null);
  const config = () => generation.config;

  const audit = createAudit({ sink: deps.auditStore, clock, metrics, log });
  const execClient = createExecHostClient(client, clock);
  const dispatcher = createDispatcher({
    targets: createExecTargets(deps.execHosts, (container) => execPlace(config(), container)),
    client: execClient,
    orders: { client, limits: () => upstreamLimits(config()) },
    audit,
    clock,
    metrics,
    log,
  });
  const budget = createRequestBudget(clock, () => config().limits.requestBudgetMs);
  const finisher = createFinisher({ clock, log, metrics, budget });
  const inner = createInnerService({
    clock,
    log,
    client,
    dispatcher,
    agents: deps.agents,
    limits: () => upstreamLimits(config()),
  });
  let innerAddress: ListenAddress = { host: "127.0.0.1", port: 0 };
  const router = createRouter({
    config,
    client,
    dispatcher,
    agents: deps.agents,
    management: deps.management(config),
    inner: { mint: inner.mint, address: () => innerAddress },
    own: deps.own,
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
  const limits = liveLimits(config);
  const wire = { limits, onExchange: pipeline, log, clock, metrics };
  const trusted = {
    has: (address: string) =>
      generation.config.proxyProtocol === "accept" && generation.trusted.has(address),
  };
  const { http, https } = initial.listen;
  const certificates = https === null ? null : createCertificates(initial.tls, { clock, log });
  const plain =
    http === null ? null : createListener(wire, { proxyProtocol: trusted, certificates: null });
  const secure =
    certificates === null ? null : createListener(wire, { proxyProtocol: trusted, certificates });
  const innerWire = { limits, onExchange: inner.handle, log, clock };
  const own = createListener(innerWire, { proxyProtocol: null, certificates: null });
  const listeners = [plain, secure, own].filter((listener) => listener !== null);

  return {
    get generation() {
      return generation;
    },
    pipeline,
    async listen() {
      innerAddress = await listen(own.server, innerAddress, true);
      const bound = {
        http: plain === null || http === null ? null : await listen(plain.server, http),
        https: secure === null || https === null ? null : await listen(secure.server, https),
      };
      for (const address of [innerAddress, bound.http, bound.https, initial.control.listen]) {
        if (address !== null) {
          deps.own.add(address);
        }
      }
      return bound;
    },
    reload(next) {
      certificates?.replace(next.tls); // throws before anything is swapped when a pair is not usable
      const before = generation;
      generation = createGeneration(next, deps, before);
      for (const listener of listeners) {
        listener.limitsChanged();
      }
      if (generation.keys !== before.keys) {
        before.keys.close();
      }
    },
    async drain(ms) {
      const closed = listeners.map(
        ({ server }) => new Promise<void>((done) => server.once("close", done)),
      );
      for (const listener of listeners) {
        listener.drain();
      }
      await Promise.race([Promise.all(closed), delay(clock, ms)]);
    },
    async close() {
      for (const listener of listeners) {
        listener.drain();
        listener.destroy();
      }
      execClient.close();
      certificates?.close();
      await audit.flush();
      budget.close();
      generation.hosts.close();
      generation.keys.close();
    },
  };
}

/** The limits in force, so that a reload counts for the next connection without a new listener. */
function liveLimits(config: () => Config): WireLimits {
  return {
    get headMs() {
      return config().limits.headMs;
    },
    get requestMs() {
      return config().limits.requestMs;
    },
    get keepAliveMs() {
      return config().limits.keepAliveMs;
    },
    get maxHeaderBytes() {
      return config().limits.maxHeaderBytes;
    },
    get maxHeaderLines() {
      return config().limits.maxHeaderLines;
    },
    get maxTargetBytes() {
      return config().limits.maxTargetBytes;
    },
    get maxConnections() {
      return config().limits.maxConnections;
    },
  };
}
