import type { ExecEndpoint } from "../dispatcher/envelope.ts";
import { systemClock } from "../policy/kernel/clock.ts";
import { createHttp1Client } from "../policy/kernel/http1/client.ts";
import { createLog } from "../policy/kernel/log.ts";
import { createMetrics } from "../policy/kernel/metrics.ts";
import { createAliases } from "../policy/store/aliases.ts";
import { createAuditStore } from "../policy/store/audit-store.ts";
import { createPolicyCache } from "../policy/store/cache.ts";
import { createFileStore } from "../policy/store/file-store.ts";
import { createAgentAccess } from "./agent-access.ts";
import type { FromEdge, HostKind, ToEdge } from "./cluster-messages.ts";
import type { Config } from "./config.ts";
import { type DataPlane, createDataPlane } from "./data-plane.ts";
import { createOwnAddresses } from "./own-addresses.ts";
import type { EmbeddedHosts } from "./hosts.ts";
import { createManagement } from "./traffic.ts";

/**
 * Entry of one edge process among several (`workers` above 1): carries traffic, reads policy from the store by itself,
 * and asks the primary for the hosts that run there. Started by `cluster.ts` alone.
 */
const clock = systemClock;
const asked = new Map<number, (answer: Extract<ToEdge, { type: "answer" }>) => void>();
let lastId = 0;
let running: { data: DataPlane; scrape(): Promise<object[]>; end(): Promise<void> } | null = null;

function send(message: FromEdge): void {
  process.send?.(message);
}

async function ask(kind: HostKind, container: string): Promise<ExecEndpoint> {
  const id = ++lastId;
  const answer = await new Promise<Extract<ToEdge, { type: "answer" }>>((resolve) => {
    asked.set(id, resolve);
    send({ type: "ask", id, kind, container });
  });
  if (answer.value === null) {
    throw new Error(answer.problem ?? "this container has no such host");
  }
  return answer.value;
}

const hosts: EmbeddedHosts = {
  endpoint: (container) => ask("exec", container),
  manageEndpoint: (container) => ask("manage", container),
  agentEndpoint: (container) => ask("agent", container),
  reportSuspect: (container, generation, kind) =>
    send({ type: "suspect", container, generation, kind }),
  // How a cut answer ended is known where the workers are; here the clock alone tells a deadline from a failure.
  isGone: () => false,
  takeEnded: () => undefined,
};

async function start(config: Config, token: string): Promise<void> {
  const log = createLog({ level: config.log.level, pretty: config.log.pretty === true });
  const metrics = createMetrics();
  const { dataDir } = config;
  const store = createFileStore({ clock }, { dataDir });
  const policies = createPolicyCache({ store, clock, log, metrics });
  const aliases = createAliases({ store, clock, log });
  const auditStore = createAuditStore({ clock, log }, { dataDir });
  const client = createHttp1Client({ clock });
  const data = createDataPlane(config, {
    clock,
    log,
    metrics,
    client,
    policies,
    aliases: aliases.lookup,
    auditStore,
    execHosts: hosts,
    agents: createAgentAccess(() => data.generation.config, hosts, clock),
    management: (current) => createManagement(current, { client, log, token, hosts }),
    own: createOwnAddresses(),
  });
  await aliases.ready();
  const addresses = await data.listen();
  running = {
    data,
    scrape: () => metrics.registry.getMetricsAsJSON(),
    async end() {
      await data.close();
      await auditStore.close();
      client.close();
      aliases.close();
      policies.close();
      await store.close();
    },
  };
  send({ type: "listening", ...addresses });
}

async function drain(ms: number): Promise<never> {
  await running?.data.drain(ms);
  await running?.end();
  process.exit(0);
}

process.on("message", (message: ToEdge) => {
  switch (message.type) {
    case "start":
      start(message.config, message.token).catch((cause: unknown) => {
        send({ type: "failed", message: cause instanceof Error ? cause.message : String(cause) });
        process.exitCode = 1;
      });
      return;
    case "reload":
      running?.data.reload(message.config);
      return;
    case "drain":
      void drain(message.ms);
      return;
    case "scrape":
      void running?.scrape().then((metrics) => send({ type: "scraped", id: message.id, metrics }));
      return;
    case "answer":
      asked.get(message.id)?.(message);
      asked.delete(message.id);
  }
});
// Signals of a terminal reach the whole group; the primary says when to stop.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => {});
process.on("disconnect", () => process.exit(1));
