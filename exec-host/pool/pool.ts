import { rmSync } from "node:fs";
import type { ExecEndpoint, ExecHosts } from "../../dispatcher/envelope.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { Log } from "../../policy/kernel/log.ts";
import type { Metrics } from "../../policy/kernel/metrics.ts";
import { probeProgram } from "./child.ts";
import { detectConfinement } from "./confinement.ts";
import {
  DEFAULT_POOL_OPTIONS,
  ExecUnavailable,
  type ExecPoolOptions,
  type ExecPoolStatus,
  type ReportSink,
} from "./options.ts";
import { makeRunDir } from "./run-dir.ts";
import { createSlot, TICK_MS, type Slot, type SlotDeps } from "./slot.ts";
import { startWorker, type ExecContainer } from "./worker.ts";

/** What {@link createExecPool} builds on. */
export interface ExecPoolDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly dataDir: string;
  /** Containers with an embedded exec host, as configured now. Entries are compared to find changes. */
  readonly containers: () => ReadonlyMap<string, ExecContainer>;
  readonly reports?: ReportSink;
}

/** The workers of all containers; `endpoint` fails with {@link ExecUnavailable}. */
export interface ExecPool extends ExecHosts {
  /** Starts a worker ahead of requests. Never rejects. */
  warm(containerId: string): Promise<void>;
  /** Applies a changed set of containers: removed ones stop, changed ones are replaced without a cut. */
  reconcile(): void;
  status(): ExecPoolStatus;
  /** Ends every worker and waits for them. */
  close(): Promise<void>;
}

/** A container that no request used for this long is looked at every fifth tick only. */
const QUIET_MS = 5_000;

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
  const startQueue: (() => void)[] = [];
  let generation = 0;
  let starting = 0;
  let alive = 0;
  let closed = false;

  const takeTurn = async (): Promise<() => void> => {
    if (starting >= options.maxStarting) {
      await new Promise<void>((resolve) => startQueue.push(resolve));
    }
    try {
      makeRoom();
    } catch (cause) {
      startQueue.shift()?.(); // the turn goes to the next one in line, or nobody would ever wake them
      throw cause;
    }
    starting++;
    return () => {
      starting--;
      startQueue.shift()?.();
    };
  };

  const makeRoom = (): void => {
    if (alive < options.maxWorkers) {
      return;
    }
    const now = clock.monotonic();
    let oldest: Slot | null = null;
    for (const slot of slots.values()) {
      if (slot.isEvictable(now) && (oldest === null || slot.lastUsed < oldest.lastUsed)) {
        oldest = slot;
      }
    }
    if (oldest === null) {
      throw new ExecUnavailable("all script workers are busy");
    }
    oldest.evict();
  };

  const gauge = (): void => {
    const counts = { starting: 0, ready: 0, late: 0, ending: 0 };
    for (const slot of slots.values()) {
      for (const { state } of slot.status()) {
        counts[state]++;
      }
    }
    for (const [state, count] of Object.entries(counts)) {
      metrics.execWorkers.set({ state }, count);
    }
  };

  const slotDeps: SlotDeps = {
    clock,
    log,
    options,
    reports: deps.reports,
    isClosed: () => closed,
    takeTurn,
    launch(id, container, events) {
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
        id,
        container,
        ++generation,
        events,
      );
      alive++;
      return worker;
    },
    ended(reason) {
      alive--;
      metrics.execRestarts.inc({ reason });
    },
    changed: gauge,
  };

  const slotOf = (id: string): Slot => {
    const container = deps.containers().get(id);
    if (container === undefined || closed) {
      throw new ExecUnavailable("this container has no embedded exec host");
    }
    let slot = slots.get(id);
    if (slot === undefined) {
      slot = createSlot(slotDeps, id, container);
      slots.set(id, slot);
    } else {
      slot.apply(container);
    }
    return slot;
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
        slot.excuse(stall);
      }
      slot.tick(now, now - slot.lastUsed > QUIET_MS && ticks % 5 !== 0);
    }
  });

  const endpoint = (containerId: string): ExecEndpoint | Promise<ExecEndpoint> => {
    const slot = slotOf(containerId);
    return slot.pick()?.endpoint ?? slot.wait();
  };

  return {
    endpoint,
    reportSuspect: (id, suspect, kind) => slots.get(id)?.suspect(suspect, kind),
    async warm(containerId) {
      try {
        await endpoint(containerId);
      } catch {
        // logged where it failed, and told by status()
      }
    },
    isGone: (id, asked) => slots.get(id)?.isGone(asked) ?? true,
    takeEnded: (id, auditId) => slots.get(id)?.takeEnded(auditId),
    reconcile() {
      const wanted = deps.containers();
      for (const slot of slots.values()) {
        const container = wanted.get(slot.id);
        if (container === undefined) {
          slots.delete(slot.id);
          void slot.end("deploy", "container removed");
        } else {
          slot.apply(container);
        }
      }
    },
    status() {
      const all = [...slots.values()];
      return {
        confinement,
        workers: all.flatMap((slot) => slot.status()),
        failing: all.flatMap((slot) =>
          slot.failed === null || slot.isServing
            ? []
            : [{ container: slot.id, detail: slot.failed }],
        ),
      };
    },
    async close() {
      closed = true;
      ticker.cancel();
      const ending = [...slots.values()].map((slot) => slot.end("idle", "shutting down"));
      for (const resume of startQueue.splice(0)) {
        resume();
      }
      await Promise.all(ending);
      slots.clear();
      rmSync(runDir, { recursive: true, force: true });
    },
  };
}
