import cluster, { type Worker } from "node:cluster";
import { join } from "node:path";
import { AggregatorRegistry, Registry } from "prom-client";
import type { ExecEndpoint } from "../dispatcher/envelope.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import type { Log } from "../policy/kernel/log.ts";
import type { FromEdge, HostKind, ToEdge } from "./cluster-messages.ts";
import type { Config, ListenAddress } from "./config.ts";
import type { EmbeddedHosts } from "./hosts.ts";

/** The edge processes that share one port, seen from the primary. */
export interface EdgeCluster {
  readonly addresses: { readonly http: ListenAddress | null; readonly https: ListenAddress | null };
  reload(config: Config): void;
  /** Asks every process to finish and waits until all have ended. */
  drain(ms: number): Promise<void>;
  close(): Promise<void>;
  /** Metrics of every process that answers within a second. */
  scrape(): Promise<object[][]>;
  /** How many processes are listening, of how many. */
  readonly listening: number;
  readonly wanted: number;
}

const RESTART_MS = 500;

/** Starts `count` edge processes and replaces those that end. Rejects when the first one cannot listen. */
export async function startCluster(
  count: number,
  initial: Config,
  deps: { clock: Clock; log: Log; token: string; hosts: EmbeddedHosts },
): Promise<EdgeCluster> {
  const { clock, log, hosts } = deps;
  const extension = import.meta.filename.endsWith(".ts") ? "ts" : "js";
  cluster.setupPrimary({
    exec: join(import.meta.dirname, `edge-process.${extension}`),
    args: [],
    serialization: "advanced",
  });
  let config = initial;
  let closing = false;
  /** Processes that have not ended; `cluster.workers` still lists ended ones until their channel is closed too. */
  const alive = new Set<Worker>();
  const listening = new Set<Worker>();
  const scrapes = new Map<number, (metrics: object[]) => void>();
  let lastScrape = 0;

  function launch(): Promise<Extract<FromEdge, { type: "listening" }>> {
    const worker = cluster.fork();
    alive.add(worker);
    const post = (message: ToEdge) => tell(worker, message);
    const ready = Promise.withResolvers<Extract<FromEdge, { type: "listening" }>>();
    worker.on("message", (message: FromEdge) => {
      switch (message.type) {
        case "listening":
          listening.add(worker);
          ready.resolve(message);
          return;
        case "failed":
          ready.reject(new Error(message.message));
          return;
        case "ask":
          void answer(message, post);
          return;
        case "scraped":
          scrapes.get(message.id)?.(message.metrics);
          return;
        case "suspect":
          hosts.reportSuspect(message.container, message.generation, message.kind);
      }
    });
    worker.on("exit", (code, signal) => {
      alive.delete(worker);
      listening.delete(worker);
      ready.reject(new Error("An edge process ended before it listened."));
      if (!closing) {
        log.error(
          { pid: worker.process.pid, code, signal },
          "an edge process ended and is replaced",
        );
        clock.after(RESTART_MS, () => {
          if (!closing) {
            launch().catch((cause: unknown) =>
              log.error({ err: cause }, "an edge process cannot be replaced"),
            );
          }
        });
      }
    });
    post({ type: "start", config, token: deps.token });
    return ready.promise;
  }

  async function answer(
    { id, kind, container }: Extract<FromEdge, { type: "ask" }>,
    post: (message: ToEdge) => void,
  ): Promise<void> {
    try {
      post({ type: "answer", id, value: await endpointOf(kind, container), problem: null });
    } catch (cause) {
      const problem = cause instanceof Error ? cause.message : String(cause);
      post({ type: "answer", id, value: null, problem });
    }
  }

  async function endpointOf(kind: HostKind, container: string): Promise<ExecEndpoint> {
    switch (kind) {
      case "exec":
        return hosts.endpoint(container);
      case "manage":
        return hosts.manageEndpoint(container);
      case "agent":
        return { ...(await hosts.agentEndpoint(container)), generation: 0 };
    }
  }

  async function drain(ms: number): Promise<void> {
    closing = true;
    const ended = [...alive].map(
      (worker) => new Promise<void>((done) => worker.once("exit", () => done())),
    );
    for (const worker of alive) {
      tell(worker, { type: "drain", ms });
    }
    const late = clock.after(ms + 2000, () => {
      for (const worker of alive) {
        worker.process.kill("SIGKILL");
      }
    });
    await Promise.all(ended);
    late.cancel();
  }

  function scrapeOne(worker: Worker): Promise<object[] | null> {
    const id = ++lastScrape;
    const { promise, resolve } = Promise.withResolvers<object[] | null>();
    const late = clock.after(1000, () => resolve(null));
    scrapes.set(id, resolve);
    tell(worker, { type: "scrape", id });
    return promise.finally(() => {
      late.cancel();
      scrapes.delete(id);
    });
  }

  const [first] = await Promise.all(Array.from({ length: count }, launch)).catch(
    async (cause: unknown) => {
      await drain(0);
      throw cause;
    },
  );
  return {
    addresses: { http: first?.http ?? null, https: first?.https ?? null },
    reload(next) {
      config = next;
      for (const worker of alive) {
        tell(worker, { type: "reload", config: next });
      }
    },
    drain,
    close: () => drain(0),
    async scrape() {
      const answers = await Promise.all([...listening].map(scrapeOne));
      return answers.filter((metrics) => metrics !== null);
    },
    get listening() {
      return listening.size;
    },
    wanted: count,
  };
}

/** Sends to an edge process that may have ended just now: its exit says so, and a failed write is no failure of ours. */
function tell(worker: Worker, message: ToEdge): void {
  if (worker.isConnected()) {
    worker.send(message, () => {});
  }
}

/** The primary's own metrics and those of every edge process, added up at each scrape. */
export class ClusterRegistry extends Registry {
  readonly #own: Registry;
  readonly #edges: () => Promise<object[][]>;

  constructor(own: Registry, edges: () => Promise<object[][]>) {
    super();
    this.#own = own;
    this.#edges = edges;
  }

  override async metrics(): Promise<string> {
    const all = [await this.#own.getMetricsAsJSON(), ...(await this.#edges())];
    return AggregatorRegistry.aggregate(all).metrics();
  }
}
