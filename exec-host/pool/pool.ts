import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ExecEndpoint } from "../../dispatcher/envelope.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import { newHex } from "../../policy/kernel/ids.ts";
import type { Log } from "../../policy/kernel/log.ts";
import type { Metrics } from "../../policy/kernel/metrics.ts";
import type { ExecutionRecord, LogLine, WorkerLimits } from "../protocol.ts";
import { probeProgram } from "./child.ts";
import { detectConfinement, type Confinement } from "./confinement.ts";
import type { ChildRole } from "./program.ts";
import { startWorker, type EndReason, type ExecContainer, type Worker } from "./worker.ts";

/** Where reports of workers go; calls must not block. */
export interface ReportSink {
  logs(containerId: string, lines: readonly LogLine[], dropped: number): void;
  executions(containerId: string, entries: readonly ExecutionRecord[]): void;
  /** A line that the process wrote to its own output, not through a script's console. */
  output(containerId: string, line: string): void;
}

export interface ExecPoolDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly dataDir: string;
  /** Containers with an embedded exec host, as configured now. Entries are compared to find changes. */
  readonly containers: () => ReadonlyMap<string, ExecContainer>;
  readonly reports?: ReportSink;
}

export interface ExecPoolOptions {
  readonly role: ChildRole;
  /** From spawn to ready. */
  readonly startMs: number;
  /** A worker without requests for so long is stopped. */
  readonly idleMs: number;
  /** Running requests of a worker that is being replaced get so long. */
  readonly drainMs: number;
  /** Worker processes alive at once, spares included. */
  readonly maxWorkers: number;
  /** Workers starting at once. */
  readonly maxStarting: number;
  readonly env: Readonly<Record<string, string>>;
  readonly limits: WorkerLimits;
  /** What keeps workers apart; found out by trying when absent. */
  readonly confinement?: Confinement;
  /** Another program instead of the worker's, for tests. */
  readonly entry?: string;
}

export const DEFAULT_POOL_OPTIONS: ExecPoolOptions = {
  role: "scripts",
  startMs: 10_000,
  idleMs: 600_000,
  drainMs: 5_000,
  maxWorkers: 256,
  maxStarting: 4,
  env: {},
  limits: {
    maxBufferedBodyBytes: 33_554_432,
    ordinaryTimeoutMs: 3_600_000,
    upstreamConnectMs: 3_000,
    upstreamIdleMs: 300_000,
    maxHeaderBytes: 32_768,
    maxDeployments: 1_000,
  },
};

/** No worker can be had for this container; the request is answered 502 or 503, never passed on. */
export class ExecUnavailable extends Error {
  override readonly name = "ExecUnavailable";
}

export interface WorkerStatus {
  readonly container: string;
  readonly state: "starting" | "ready" | "late" | "ending";
  readonly generation: number;
  readonly pid: number | null;
  readonly rssBytes: number;
  readonly active: number;
}

export interface ExecPoolStatus {
  readonly confinement: Confinement;
  readonly workers: readonly WorkerStatus[];
  /** Containers whose last start failed, with the reason. */
  readonly failing: readonly { readonly container: string; readonly detail: string }[];
}

export interface ExecPool {
  /**
   * Where to send a request for a container now. A promise only while a worker has to be started or replaced;
   * a deadline starts after it.
   *
   * @throws ExecUnavailable (or rejects with it) when no worker can be had.
   */
  endpoint(containerId: string): ExecEndpoint | Promise<ExecEndpoint>;
  /**
   * A request to that worker failed. `connect`: its socket refused, so it is replaced; `reset`: a connection broke,
   * so its process may be gone; `silent`: it did not answer in time.
   */
  reportSuspect(
    containerId: string,
    generation: number,
    kind: "connect" | "reset" | "silent",
  ): void;
  /** Starts a worker ahead of requests. Never rejects. */
  warm(containerId: string): Promise<void>;
  /** Whether that generation's process has ended or is being ended. */
  isGone(containerId: string, generation: number): boolean;
  /** How the worker said a dispatch ended whose answer was cut; forgotten after it was asked. */
  takeEnded(containerId: string, auditId: string): string | undefined;
  /** Applies a changed set of containers: removed ones stop, changed ones are replaced without a cut. */
  reconcile(): void;
  /** Replaces a container's worker without cutting its running requests. */
  redeploy(containerId: string): void;
  status(): ExecPoolStatus;
  /** Ends every worker and waits for them. */
  close(): Promise<void>;
}

const TICK_MS = 100;
/** Longest wait for a heartbeat before a spare is started. */
const LATE_MS = 150;
/** CPU time without a look at its messages that makes it late; a worker that was not let run has less. */
const LATE_BUSY_MS = 50;
/** A worker that no request used for this long is looked at every fifth tick only. */
const QUIET_MS = 5_000;
/** A spare that was not needed is kept so long after the last late heartbeat. */
const SPARE_KEEP_MS = 30_000;
/** A worker that lived so long starts its successor without back-off. */
const STABLE_MS = 10_000;
const MAX_BACKOFF_MS = 1_000;
const MAX_ENDED = 1_000;
/** Longest path a unix socket takes, less a margin (`sun_path` holds 108 bytes). */
const MAX_SOCKET_PATH = 100;

/** All that is known of one container. */
interface Slot {
  readonly id: string;
  container: ExecContainer;
  current: Worker | null;
  spare: Worker | null;
  /** Workers that finish what they have. */
  readonly draining: Set<Worker>;
  starting: Promise<Worker> | null;
  lastUsed: number;
  lateSince: number | null;
  failures: number;
  notBefore: number;
  failed: string | null;
  readonly ended: Map<string, string>;
}

/** The worker processes of all containers: one each, watched, replaced and capped. */
export async function createExecPool(
  deps: ExecPoolDeps,
  given: Partial<ExecPoolOptions> = {},
): Promise<ExecPool> {
  const options = { ...DEFAULT_POOL_OPTIONS, ...given };
  const { clock, metrics } = deps;
  const log = deps.log.child({ component: "exec" });
  const root = process.getuid?.() === 0;
  const confinement = options.confinement ?? (await detectConfinement(probeProgram, root));
  const runDir = makeRunDir(deps.dataDir);
  const slots = new Map<string, Slot>();
  let generation = 0;
  let starting = 0;
  let alive = 0;
  const startQueue: (() => void)[] = [];
  let closed = false;
  /** Starts that wait out their back-off; shutting down wakes them. */
  const backingOff = new Set<() => void>();

  const slotOf = (id: string): Slot => {
    const container = deps.containers().get(id);
    if (container === undefined || closed) {
      throw new ExecUnavailable("this container has no embedded exec host");
    }
    let slot = slots.get(id);
    if (slot === undefined) {
      slot = {
        id,
        container,
        current: null,
        spare: null,
        draining: new Set(),
        starting: null,
        lastUsed: clock.monotonic(),
        lateSince: null,
        failures: 0,
        notBefore: 0,
        failed: null,
        ended: new Map(),
      };
      slots.set(id, slot);
    } else if (slot.container !== container) {
      applyContainer(slot, container);
    }
    return slot;
  };

  const applyContainer = (slot: Slot, container: ExecContainer): void => {
    const changed = JSON.stringify(slot.container) !== JSON.stringify(container);
    slot.container = container;
    if (changed) {
      replace(slot, "deploy");
    }
  };

  /** Switches to a fresh worker as soon as it is ready; the old one finishes what it has. */
  const replace = (slot: Slot, reason: EndReason): void => {
    const old = slot.current;
    discardSpare(slot);
    if (old === null) {
      return;
    }
    startFor(slot).then(
      (fresh) => {
        if (slot.current === old || slot.current === null) {
          slot.current = fresh;
          drain(slot, old, reason);
        }
      },
      () => {}, // logged where it failed; the old worker stays in service
    );
  };

  const drain = (slot: Slot, worker: Worker, reason: EndReason): void => {
    if (worker.state === "gone") {
      return;
    }
    slot.draining.add(worker);
    const deadline = clock.monotonic() + options.drainMs;
    // A ping is answered with the number of running requests; two looks, so that one just sent is seen.
    const look = clock.every(2 * TICK_MS, () => {
      if (worker.active === 0 || clock.monotonic() >= deadline || worker.state === "gone") {
        look.cancel();
        worker.end(reason, "replaced");
      }
      worker.ping(clock.monotonic());
    });
  };

  const discardSpare = (slot: Slot): void => {
    const spare = slot.spare;
    slot.spare = null;
    spare?.end("idle", "spare not needed");
  };

  /** One start at a time per container; waits for back-off and for its turn among all starts. */
  const startFor = (slot: Slot): Promise<Worker> => {
    slot.starting ??= start(slot).finally(() => {
      slot.starting = null;
    });
    return slot.starting;
  };

  const start = async (slot: Slot): Promise<Worker> => {
    const wait = slot.notBefore - clock.monotonic();
    if (wait > 0) {
      await new Promise<void>((resolve) => {
        const go = (): void => {
          timer.cancel();
          backingOff.delete(go);
          resolve();
        };
        const timer = clock.after(wait, go);
        backingOff.add(go);
      });
    }
    if (starting >= options.maxStarting) {
      await new Promise<void>((resolve) => startQueue.push(resolve));
    }
    if (closed || slots.get(slot.id) !== slot) {
      throw new ExecUnavailable("the exec host is shutting down");
    }
    makeRoom();
    starting++;
    let worker: Worker | null = null;
    try {
      for (;;) {
        const { container } = slot;
        worker = launch(slot);
        await worker.ready;
        if (container === slot.container) {
          slot.failed = null;
          return worker;
        }
        worker.end("deploy", "configuration changed while it started");
      }
    } catch (cause) {
      const detail = cause instanceof Error ? cause.message : String(cause);
      slot.failed = detail;
      if (worker === null) {
        noteFailure(slot, 0);
        log.error({ container: slot.id, err: cause }, "script worker cannot be started");
      }
      throw new ExecUnavailable(detail, { cause });
    } finally {
      starting--;
      startQueue.shift()?.();
    }
  };

  const makeRoom = (): void => {
    if (alive < options.maxWorkers) {
      return;
    }
    let oldest: Slot | null = null;
    for (const slot of slots.values()) {
      if (
        slot.current?.state === "ready" &&
        slot.current.active === 0 &&
        clock.monotonic() - slot.lastUsed > 1000 &&
        (oldest === null || slot.lastUsed < oldest.lastUsed)
      ) {
        oldest = slot;
      }
    }
    if (oldest === null) {
      throw new ExecUnavailable("all script workers are busy");
    }
    discardSpare(oldest);
    oldest.current?.end("idle", "made room for another container");
    oldest.current = null;
  };

  const launch = (slot: Slot): Worker => {
    const worker = startWorker(
      {
        role: options.role,
        clock,
        confinement,
        dataDir: deps.dataDir,
        runDir,
        env: options.env,
        limits: options.limits,
        startMs: options.startMs,
        entry: options.entry,
      },
      slot.id,
      slot.container,
      ++generation,
      {
        message(message) {
          if (message.type === "logs") {
            deps.reports?.logs(slot.id, message.lines, message.dropped);
          } else if (message.type === "executions") {
            deps.reports?.executions(slot.id, message.entries);
          } else if (message.type === "ended") {
            noteEnded(slot, message.auditId, message.outcome);
          }
        },
        output: (line) => deps.reports?.output(slot.id, line),
        end: (reason, detail) => onEnd(slot, worker, reason, detail),
      },
    );
    alive++;
    return worker;
  };

  const noteEnded = (slot: Slot, auditId: string, outcome: string): void => {
    if (slot.ended.size >= MAX_ENDED) {
      const [first] = slot.ended.keys();
      slot.ended.delete(first ?? "");
    }
    slot.ended.set(auditId, outcome);
  };

  const noteFailure = (slot: Slot, livedMs: number): void => {
    slot.failures = livedMs >= STABLE_MS ? 0 : slot.failures + 1;
    // The first replacement is immediate; the ceiling keeps recovery within two seconds.
    const backoff = slot.failures <= 1 ? 0 : Math.min(MAX_BACKOFF_MS, 25 * 2 ** slot.failures);
    slot.notBefore = clock.monotonic() + backoff;
  };

  const onEnd = (slot: Slot, worker: Worker, reason: EndReason, detail: string): void => {
    alive--;
    slot.draining.delete(worker);
    metrics.execRestarts.inc({ reason });
    const planned = reason === "deploy" || reason === "idle";
    log[planned ? "info" : "warn"](
      { container: slot.id, generation: worker.generation, reason, detail },
      "script worker ended",
    );
    if (!planned) {
      noteFailure(slot, clock.monotonic() - worker.startedAt);
      deps.reports?.output(slot.id, `worker ended (${reason}): ${detail}`);
    }
    if (slot.spare === worker) {
      slot.spare = null;
    }
    if (slot.current === worker) {
      takeOver(slot);
    }
    gauge();
  };

  /** The current worker is lost: the spare takes its place, or a new one is started if the container is in use. */
  const takeOver = (slot: Slot): void => {
    if (slot.current !== null && slot.current.state !== "gone") {
      slot.draining.add(slot.current);
    }
    slot.current = slot.spare;
    slot.spare = null;
    slot.lateSince = null;
    if (slot.current === null && !closed && clock.monotonic() - slot.lastUsed < options.idleMs) {
      void adopt(slot);
    }
  };

  /** Starts a worker and makes it the current one. */
  const adopt = (slot: Slot): Promise<Worker> => {
    const promise = startFor(slot).then((worker) => {
      if (slot.current === null && worker.state === "ready") {
        slot.current = worker;
        gauge();
      } else if (slot.current !== worker && slot.spare !== worker) {
        worker.end("idle", "not needed");
      }
      return worker;
    });
    promise.catch(() => {}); // whoever waits hears it through their own branch
    return promise;
  };

  /** It does not come to its messages, and not for want of CPU time: new requests had better go elsewhere. */
  const isLate = (slot: Slot, worker: Worker, now: number): boolean => {
    const waiting = worker.waitingMs(now);
    return (
      waiting > Math.min(LATE_MS, Math.max(50, slot.container.cpuMs / 3)) &&
      (waiting >= slot.container.cpuMs || worker.busyMs(now) >= LATE_BUSY_MS)
    );
  };

  /** A worker that was hardly let run (a busy machine, or one that waits without computing) gets twice the time. */
  const isStuck = (slot: Slot, worker: Worker, now: number): boolean => {
    const waiting = worker.waitingMs(now);
    const { cpuMs } = slot.container;
    return waiting >= cpuMs && (waiting >= 2 * cpuMs || worker.busyMs(now) >= cpuMs / 4);
  };

  const tick = (slot: Slot, now: number, quiet: boolean): void => {
    const workers = [slot.current, slot.spare, ...slot.draining];
    for (const worker of workers) {
      if (worker === null || worker.state !== "ready") {
        continue;
      }
      if (isStuck(slot, worker, now)) {
        worker.end("cpu", `blocked for more than ${slot.container.cpuMs} ms`);
        continue;
      }
      if (!quiet || worker.waitingMs(now) > 0) {
        worker.inspect();
        worker.ping(now);
      }
    }
    const current = slot.current;
    if (current !== null && current.state !== "ready") {
      takeOver(slot); // being killed: nothing new goes there
    } else if (current !== null && isLate(slot, current, now)) {
      slot.lateSince = now;
      startSpare(slot);
    } else if (slot.spare && slot.lateSince !== null && now - slot.lateSince > SPARE_KEEP_MS) {
      discardSpare(slot);
    }
    if (
      current?.state === "ready" &&
      current.active === 0 &&
      now - slot.lastUsed > options.idleMs
    ) {
      slot.current = null;
      discardSpare(slot);
      current.end("idle", `no request for ${options.idleMs} ms`);
    }
  };

  const startSpare = (slot: Slot): void => {
    if (slot.spare !== null || slot.starting !== null) {
      return;
    }
    startFor(slot).then(
      (worker) => {
        if (worker.state !== "ready") {
          return;
        }
        if (slot.current === null) {
          slot.current = worker;
        } else if (slot.spare === null && slot.current !== worker) {
          slot.spare = worker;
        }
        gauge();
      },
      () => {}, // logged where it failed
    );
  };

  const gauge = (): void => {
    const counts = { starting, ready: 0, late: 0, ending: 0 };
    for (const worker of eachWorker()) {
      counts[worker.state]++;
    }
    for (const [state, count] of Object.entries(counts)) {
      metrics.execWorkers.set({ state }, count);
    }
  };

  const eachWorker = (): WorkerStatus[] => {
    const now = clock.monotonic();
    const list: WorkerStatus[] = [];
    for (const slot of slots.values()) {
      for (const worker of [slot.current, slot.spare, ...slot.draining]) {
        if (worker !== null && worker.state !== "gone") {
          const late = worker.state === "ready" && isLate(slot, worker, now);
          list.push({
            container: slot.id,
            state: late ? "late" : worker.state,
            generation: worker.generation,
            pid: worker.pid,
            rssBytes: worker.rssBytes,
            active: worker.active,
          });
        }
      }
    }
    return list;
  };

  let lastTick = clock.monotonic();
  let ticks = 0;
  const ticker = clock.every(TICK_MS, () => {
    const now = clock.monotonic();
    // When this process itself stood still, pongs may lie unread: that time is not held against the workers.
    const stall = now - lastTick - TICK_MS;
    lastTick = now;
    ticks++;
    for (const slot of slots.values()) {
      if (stall > TICK_MS / 2) {
        for (const worker of [slot.current, slot.spare, ...slot.draining]) {
          worker?.excuse(stall);
        }
      }
      tick(slot, now, now - slot.lastUsed > QUIET_MS && ticks % 5 !== 0);
    }
  });

  const pickNow = (slot: Slot): Worker | null => {
    const now = clock.monotonic();
    slot.lastUsed = now;
    const { current, spare } = slot;
    if (current?.state === "ready" && !isLate(slot, current, now)) {
      return current;
    }
    return spare?.state === "ready" && !isLate(slot, spare, now) ? spare : null;
  };

  const pickLater = async (slot: Slot): Promise<ExecEndpoint> => {
    // A late worker may recover, a spare may become ready, a start may fail and be tried once more.
    for (let attempt = 0; attempt < 3; attempt++) {
      if (slot.current !== null && slot.current.state === "ready") {
        startSpare(slot);
        await Promise.race([slot.starting ?? Promise.resolve(), slot.current.gone]).catch(() => {});
      } else {
        if (slot.current !== null) {
          takeOver(slot);
        }
        const worker = await adopt(slot).catch((cause: unknown) => {
          if (attempt === 2 || closed) {
            throw cause;
          }
          return null;
        });
        if (worker?.state === "ready") {
          return worker.endpoint;
        }
      }
      const worker = pickNow(slot);
      if (worker !== null) {
        return worker.endpoint;
      }
    }
    if (slot.current?.state === "ready") {
      return slot.current.endpoint; // late, and no other to be had: its deadline decides
    }
    throw new ExecUnavailable("the script worker does not respond");
  };

  const endAll = async (slot: Slot, reason: EndReason, detail: string): Promise<void> => {
    const workers = [slot.current, slot.spare, ...slot.draining].filter((w) => w !== null);
    slot.current = null;
    slot.spare = null;
    for (const worker of workers) {
      worker.end(reason, detail);
    }
    const pending = await slot.starting?.catch(() => null);
    pending?.end(reason, detail);
    await Promise.all([...workers, ...(pending ? [pending] : [])].map((worker) => worker.gone));
  };

  const endpoint = (containerId: string): ExecEndpoint | Promise<ExecEndpoint> => {
    const slot = slotOf(containerId);
    const worker = pickNow(slot);
    return worker === null ? pickLater(slot) : worker.endpoint;
  };

  return {
    endpoint,
    reportSuspect(containerId, suspect, kind) {
      const slot = slots.get(containerId);
      for (const worker of slot ? [slot.current, slot.spare] : []) {
        if (worker?.generation !== suspect || worker.state !== "ready") {
          continue;
        }
        if (!worker.checkAlive()) {
          if (slot?.current === worker) {
            takeOver(slot);
          }
        } else if (kind === "connect") {
          worker.end("crash", "does not accept connections");
        } else {
          worker.ping(clock.monotonic());
        }
      }
    },
    async warm(containerId) {
      try {
        await endpoint(containerId);
      } catch {
        // logged where it failed, and told by status()
      }
    },
    isGone(containerId, generation_) {
      const slot = slots.get(containerId);
      return ![slot?.current, slot?.spare, ...(slot?.draining ?? [])].some(
        (worker) => worker?.generation === generation_ && worker.state === "ready",
      );
    },
    takeEnded(containerId, auditId) {
      const slot = slots.get(containerId);
      const outcome = slot?.ended.get(auditId);
      slot?.ended.delete(auditId);
      return outcome;
    },
    reconcile() {
      const wanted = deps.containers();
      for (const slot of slots.values()) {
        const container = wanted.get(slot.id);
        if (container === undefined) {
          slots.delete(slot.id);
          void endAll(slot, "deploy", "container removed");
        } else if (container !== slot.container) {
          applyContainer(slot, container);
        }
      }
    },
    redeploy(containerId) {
      const slot = slots.get(containerId);
      if (slot !== undefined) {
        replace(slot, "deploy");
      }
    },
    status() {
      const failing: { container: string; detail: string }[] = [];
      for (const slot of slots.values()) {
        if (slot.failed !== null && slot.current?.state !== "ready") {
          failing.push({ container: slot.id, detail: slot.failed });
        }
      }
      return { confinement, workers: eachWorker(), failing };
    },
    async close() {
      closed = true;
      for (const go of backingOff) {
        go();
      }
      ticker.cancel();
      for (const resume of startQueue.splice(0)) {
        resume();
      }
      await Promise.all([...slots.values()].map((slot) => endAll(slot, "idle", "shutting down")));
      slots.clear();
      rmSync(runDir, { recursive: true, force: true });
    },
  };
}

/**
 * A private folder for sockets, below the data folder where the path is short enough for a socket address,
 * otherwise in the system's temporary folder. Folders that an ended process left behind are removed.
 */
function makeRunDir(dataDir: string): string {
  const base = join(dataDir, "run");
  mkdirSync(base, { recursive: true, mode: 0o700 });
  for (const name of readdirSync(base)) {
    const pid = Number(/^exec-(\d+)-[0-9a-f]+$/.exec(name)?.[1]);
    if (pid > 0 && pid !== process.pid && !isAlive(pid)) {
      rmSync(join(base, name), { recursive: true, force: true });
    }
  }
  const folder = join(base, `exec-${process.pid}-${newHex(3)}`);
  if (Buffer.byteLength(folder) + "/999999-12345678/s".length > MAX_SOCKET_PATH) {
    return mkdtempSync(join(tmpdir(), "interpose-"));
  }
  mkdirSync(folder, { mode: 0o700 });
  return folder;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === "EPERM";
  }
}
