import type { ExecEndpoint } from "../../dispatcher/envelope.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { Log } from "../../policy/kernel/log.ts";
import {
  ExecUnavailable,
  type ExecPoolOptions,
  type ReportSink,
  type WorkerStatus,
} from "./options.ts";
import type { EndReason, ExecContainer, Worker, WorkerEvents } from "./worker.ts";

/** What a container's slot needs of the pool around it. */
export interface SlotDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly options: ExecPoolOptions;
  readonly reports: ReportSink | undefined;
  readonly isClosed: () => boolean;
  /** Waits for a turn to start a worker; the result gives the turn back. Throws when there is no place. */
  readonly takeTurn: () => Promise<() => void>;
  readonly launch: (id: string, container: ExecContainer, events: WorkerEvents) => Worker;
  /** A worker ended. */
  readonly ended: (reason: EndReason) => void;
  /** A worker began or ceased to be in service. */
  readonly changed: () => void;
}

/** The workers of one container: the one in service, a spare while that one is late, and those that finish. */
export interface Slot {
  readonly id: string;
  readonly lastUsed: number;
  /** Why the last start failed; null when it did not. */
  readonly failed: string | null;
  readonly isServing: boolean;
  /** Settings as configured now; a change replaces the worker without a cut. */
  apply(container: ExecContainer): void;
  /** The worker to use at once; null when one must be waited for. */
  pick(): Worker | null;
  /** @throws ExecUnavailable */
  wait(): Promise<ExecEndpoint>;
  suspect(generation: number, kind: "connect" | "reset" | "silent"): void;
  isGone(generation: number): boolean;
  takeEnded(auditId: string): string | undefined;
  /** Looks at the workers' health. `quiet`: only at what waits for an answer. */
  tick(now: number, quiet: boolean): void;
  /** Leaves out a time in which this process itself did not run. */
  excuse(ms: number): void;
  /** Whether its worker could make room for another container's. */
  isEvictable(now: number): boolean;
  evict(): void;
  status(): WorkerStatus[];
  end(reason: EndReason, detail: string): Promise<void>;
}

/** How often the pool looks at its workers. */
export const TICK_MS = 100;
/** Longest wait for a heartbeat before a spare is started. */
const LATE_MS = 150;
/** CPU time without a look at its messages that makes it late; a worker that was not let run has less. */
const LATE_BUSY_MS = 50;
/** A spare that was not needed is kept so long after the last late heartbeat. */
const SPARE_KEEP_MS = 30_000;
/** A worker that lived so long starts its successor without back-off. */
const STABLE_MS = 10_000;
const MAX_BACKOFF_MS = 1_000;
const MAX_ENDED = 1_000;
const EVICTABLE_MS = 1_000;

/** Keeps the workers of one container: starts, watches, replaces and stops them. */
export function createSlot(deps: SlotDeps, id: string, initial: ExecContainer): Slot {
  const { clock, log, options } = deps;
  let container = initial;
  let current: Worker | null = null;
  let spare: Worker | null = null;
  let starting: Promise<Worker> | null = null;
  /** The process of `starting`, once there is one. */
  let launched: Worker | null = null;
  const draining = new Set<Worker>();
  let lastUsed = clock.monotonic();
  let lateSince: number | null = null;
  let failures = 0;
  let notBefore = 0;
  let failed: string | null = null;
  let isOver = false;
  let wake: (() => void) | null = null;
  const endedDispatches = new Map<string, string>();

  const all = (): Worker[] => {
    const workers = [current, spare, launched, ...draining].filter((worker) => worker !== null);
    return [...new Set(workers)];
  };

  /** It does not come to its messages, and not for want of CPU time: new requests had better go elsewhere. */
  const isLate = (worker: Worker, now: number): boolean => {
    const waiting = worker.waitingMs(now);
    return (
      waiting > Math.min(LATE_MS, Math.max(50, container.cpuMs / 3)) &&
      (waiting >= container.cpuMs || worker.busyMs(now) >= LATE_BUSY_MS)
    );
  };

  /** A worker that was hardly let run (a busy machine, or one that waits without computing) gets twice the time. */
  const isStuck = (worker: Worker, now: number): boolean => {
    const waiting = worker.waitingMs(now);
    const { cpuMs } = container;
    return waiting >= cpuMs && (waiting >= 2 * cpuMs || worker.busyMs(now) >= cpuMs / 4);
  };

  /** One start at a time; waits for back-off and for its turn among all starts. */
  const startOne = (): Promise<Worker> => {
    starting ??= start().finally(() => {
      starting = null;
      launched = null;
    });
    return starting;
  };

  const start = async (): Promise<Worker> => {
    await backOff();
    const giveBack = await deps.takeTurn();
    try {
      for (;;) {
        if (isOver || deps.isClosed()) {
          throw new ExecUnavailable("the exec host is shutting down");
        }
        const settings = container;
        launched = launch();
        const worker = launched;
        deps.changed();
        await worker.ready;
        if (settings === container) {
          failed = null;
          return worker;
        }
        worker.end("deploy", "configuration changed while it started");
      }
    } catch (cause) {
      failed = cause instanceof Error ? cause.message : String(cause);
      if (launched === null && !isOver) {
        noteFailure(0);
        log.error({ container: id, err: cause }, "script worker cannot be started");
      }
      throw cause instanceof ExecUnavailable ? cause : new ExecUnavailable(failed, { cause });
    } finally {
      giveBack();
    }
  };

  const backOff = (): Promise<void> => {
    const ms = notBefore - clock.monotonic();
    if (ms <= 0) {
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const timer = clock.after(ms, () => wake?.());
      wake = () => {
        timer.cancel();
        wake = null;
        resolve();
      };
    });
  };

  const noteFailure = (livedMs: number): void => {
    failures = livedMs >= STABLE_MS ? 0 : failures + 1;
    // The first replacement is immediate; the ceiling keeps recovery within two seconds.
    const ms = failures <= 1 ? 0 : Math.min(MAX_BACKOFF_MS, 25 * 2 ** failures);
    notBefore = clock.monotonic() + ms;
  };

  const launch = (): Worker => {
    const worker = deps.launch(id, container, {
      message(message) {
        if (message.type === "logs") {
          deps.reports?.logs(id, message.lines, message.dropped);
        } else if (message.type === "executions") {
          deps.reports?.executions(id, message.entries, message.dropped);
        } else if (message.type === "ended") {
          noteEnded(message.auditId, message.outcome);
        }
      },
      output: (line) => deps.reports?.output(id, line),
      end: (reason, detail) => onEnd(worker, reason, detail),
    });
    return worker;
  };

  const noteEnded = (auditId: string, outcome: string): void => {
    if (endedDispatches.size >= MAX_ENDED) {
      const [first] = endedDispatches.keys();
      endedDispatches.delete(first ?? "");
    }
    endedDispatches.set(auditId, outcome);
  };

  const onEnd = (worker: Worker, reason: EndReason, detail: string): void => {
    draining.delete(worker);
    deps.ended(reason);
    const isPlanned = reason === "deploy" || reason === "idle";
    log[isPlanned ? "info" : "warn"](
      { container: id, generation: worker.generation, reason, detail },
      "script worker ended",
    );
    if (!isPlanned) {
      noteFailure(clock.monotonic() - worker.startedAt);
      deps.reports?.output(id, `worker ended (${reason}): ${detail}`);
    }
    if (spare === worker) {
      spare = null;
    }
    if (current === worker) {
      takeOver();
    }
    deps.changed();
  };

  /** The worker in service is lost: the spare takes its place, or a new one is started if the container is in use. */
  const takeOver = (): void => {
    if (current !== null && current.state !== "gone") {
      draining.add(current);
    }
    current = spare;
    spare = null;
    lateSince = null;
    const isInUse = clock.monotonic() - lastUsed < options.idleMs;
    if (current === null && isInUse && !isOver && !deps.isClosed()) {
      void adopt();
    }
  };

  /** Starts a worker and puts it in service. */
  const adopt = (): Promise<Worker> => {
    const promise = startOne().then((worker) => {
      if (current === null && worker.state === "ready") {
        current = worker;
      } else if (current !== worker && spare !== worker) {
        worker.end("idle", "not needed");
      }
      deps.changed();
      return worker;
    });
    promise.catch(() => {}); // whoever waits hears it through their own branch
    return promise;
  };

  const startSpare = (): void => {
    if (spare !== null || starting !== null) {
      return;
    }
    startOne().then(
      (worker) => {
        if (worker.state !== "ready") {
          return;
        }
        if (current === null) {
          current = worker;
        } else if (spare === null && current !== worker) {
          spare = worker;
        }
        deps.changed();
      },
      () => {}, // logged where it failed
    );
  };

  /** It may have taken requests while the other one was late; those are finished. */
  const discardSpare = (): void => {
    const unused = spare;
    spare = null;
    if (unused !== null) {
      drain(unused, "idle", "spare not needed");
    }
  };

  /** Switches to a fresh worker as soon as it is ready; the old one finishes what it has. */
  const replace = (): void => {
    const old = current;
    discardSpare();
    if (old === null) {
      return;
    }
    startOne().then(
      (fresh) => {
        if (current === old || current === null) {
          current = fresh;
          drain(old, "deploy", "replaced");
          deps.changed();
        }
      },
      () => {}, // logged where it failed; the old worker stays in service
    );
  };

  const drain = (worker: Worker, reason: EndReason, detail: string): void => {
    if (worker.state === "gone") {
      return;
    }
    draining.add(worker);
    const deadline = clock.monotonic() + options.drainMs;
    const { pongs } = worker;
    // A pong tells the number of running requests; the second one also counts what was sent just before the switch.
    const look = clock.every(TICK_MS, () => {
      const now = clock.monotonic();
      const isIdle = worker.active === 0 && worker.pongs >= pongs + 2;
      if (isIdle || now >= deadline || worker.state !== "ready") {
        look.cancel();
        worker.end(reason, detail);
      }
      worker.ping(now);
    });
  };

  const pick = (): Worker | null => {
    const now = clock.monotonic();
    lastUsed = now;
    if (current?.state === "ready" && !isLate(current, now)) {
      return current;
    }
    return spare?.state === "ready" && !isLate(spare, now) ? spare : null;
  };

  const wait = async (): Promise<ExecEndpoint> => {
    // A late worker may recover, a spare may become ready, a start may fail and be tried once more.
    for (let attempt = 0; attempt < 3; attempt++) {
      if (current?.state === "ready") {
        startSpare();
        await Promise.race([starting ?? Promise.resolve(), current.gone]).catch(() => {});
      } else {
        if (current !== null) {
          takeOver();
        }
        const worker = await adopt().catch((cause: unknown) => {
          if (attempt === 2 || isOver || deps.isClosed()) {
            throw cause;
          }
          return null;
        });
        if (worker?.state === "ready") {
          return worker.endpoint;
        }
      }
      const worker = pick();
      if (worker !== null) {
        return worker.endpoint;
      }
    }
    if (current?.state === "ready") {
      return current.endpoint; // late, and no other to be had: its deadline decides
    }
    throw new ExecUnavailable("the script worker does not respond");
  };

  const tick = (now: number, quiet: boolean): void => {
    for (const worker of all()) {
      if (worker.state !== "ready") {
        continue;
      }
      if (isStuck(worker, now)) {
        worker.end("cpu", `blocked for more than ${container.cpuMs} ms`);
      } else if (!quiet || worker.waitingMs(now) > 0) {
        worker.inspect();
        worker.ping(now);
      }
    }
    if (current === null) {
      return;
    }
    if (current.state !== "ready") {
      takeOver(); // being killed: nothing new goes there
    } else if (isLate(current, now)) {
      lateSince = now;
      startSpare();
    } else if (spare !== null && lateSince !== null && now - lateSince > SPARE_KEEP_MS) {
      discardSpare();
    } else if (current.active === 0 && now - lastUsed > options.idleMs) {
      retire(`no request for ${options.idleMs} ms`);
    }
  };

  const retire = (detail: string): void => {
    const old = current;
    current = null;
    discardSpare();
    old?.end("idle", detail);
  };

  return {
    id,
    get lastUsed() {
      return lastUsed;
    },
    get failed() {
      return failed;
    },
    get isServing() {
      return current?.state === "ready";
    },
    apply(next) {
      if (next === container) {
        return;
      }
      const isChanged = JSON.stringify(container) !== JSON.stringify(next);
      container = next;
      if (isChanged) {
        replace();
      }
    },
    pick,
    wait,
    suspect(generation, kind) {
      const worker = [current, spare].find((entry) => entry?.generation === generation);
      if (!worker || worker.state !== "ready") {
        return;
      }
      if (!worker.checkAlive()) {
        if (current === worker) {
          takeOver();
        }
      } else if (kind === "connect") {
        worker.end("crash", "does not accept connections");
      } else {
        worker.ping(clock.monotonic());
      }
    },
    isGone: (generation) =>
      !all().some((worker) => worker.generation === generation && worker.state === "ready"),
    takeEnded(auditId) {
      const outcome = endedDispatches.get(auditId);
      endedDispatches.delete(auditId);
      return outcome;
    },
    tick,
    excuse(ms) {
      for (const worker of all()) {
        worker.excuse(ms);
      }
    },
    isEvictable: (now) =>
      current?.state === "ready" && current.active === 0 && now - lastUsed > EVICTABLE_MS,
    evict: () => retire("made room for another container"),
    status() {
      const now = clock.monotonic();
      return all().flatMap((worker) =>
        worker.state === "gone"
          ? []
          : [
              {
                container: id,
                state: worker.state === "ready" && isLate(worker, now) ? "late" : worker.state,
                generation: worker.generation,
                pid: worker.pid,
                rssBytes: worker.rssBytes,
                active: worker.active,
              },
            ],
      );
    },
    async end(reason, detail) {
      isOver = true;
      wake?.();
      const workers = all();
      const pending = starting;
      current = null;
      spare = null;
      for (const worker of workers) {
        worker.end(reason, detail);
      }
      await pending?.catch(() => {});
      await Promise.all(workers.map((worker) => worker.gone));
    },
  };
}
