import type { Clock } from "../../policy/kernel/clock.ts";
import { newUlid } from "../../policy/kernel/ids.ts";
import { AgentError } from "./errors.ts";
import type { JsonObject } from "./seams.ts";

/** One background job; `result` and `error` only at the end. */
export interface Job {
  readonly id: string;
  readonly kind: "tool.run_gated";
  readonly sessionId: string | null;
  readonly status: "pending" | "running" | "succeeded" | "failed" | "canceled";
  readonly result: JsonObject | null;
  readonly error: string;
  readonly createdAt: number;
  readonly updatedAt: number;
}

/** How the work of a job ended. */
export type JobEnd =
  | { readonly kind: "succeeded"; readonly result: JsonObject }
  | { readonly kind: "failed"; readonly error: string };

/** Background jobs: a bounded number alive, a bounded number remembered. */
export interface Jobs {
  /**
   * Accepts work; it starts when a place is free.
   *
   * @param bytes what the work holds on to until it ends.
   * @throws AgentError `service_unavailable` when too many jobs are alive.
   */
  submit(work: (signal: AbortSignal) => Promise<JobEnd>, bytes: number): Job;
  get(id: string): Job | undefined;
  /** Cancels a job that is not at its end, forgets one that is; null for an unknown id. */
  remove(id: string): "canceled" | "deleted" | null;
  alive(): number;
  close(): void;
}

const MAX_ALIVE = 256;
const MAX_RUNNING = 16;
/** Request bytes of all living jobs together. */
const MAX_ALIVE_BYTES = 64 * 1024 * 1024;
const MAX_FINISHED = 1000;
const KEEP_MS = 60 * 60_000;
/** Result text of all finished jobs together; the oldest results go first. */
const MAX_RESULT_CHARS = 64 * 1024 * 1024;

interface Entry {
  job: Job;
  readonly abort: AbortController;
  /** null once the job is over: finished records must not hold on to their request. */
  work: ((signal: AbortSignal) => Promise<JobEnd>) | null;
  /** Request bytes. */
  readonly held: number;
  /** Result characters. */
  size: number;
}

/** An empty job store. */
export function createJobs(clock: Clock): Jobs {
  const entries = new Map<string, Entry>();
  const finished: Entry[] = [];
  const waiting: Entry[] = [];
  let alive = 0;
  let aliveBytes = 0;
  let running = 0;
  let resultChars = 0;

  const update = (entry: Entry, change: Partial<Job>): void => {
    entry.job = { ...entry.job, ...change, updatedAt: clock.now() };
  };

  const forget = (entry: Entry): void => {
    entries.delete(entry.job.id);
    const at = finished.indexOf(entry);
    if (at !== -1) {
      finished.splice(at, 1);
      resultChars -= entry.size;
    }
  };

  const finish = (entry: Entry, change: Partial<Job>): void => {
    if (isOver(entry.job)) {
      return; // a late finisher never overwrites `canceled`
    }
    update(entry, change);
    entry.work = null;
    alive -= 1;
    aliveBytes -= entry.held;
    entry.size = JSON.stringify(entry.job.result)?.length ?? 0;
    resultChars += entry.size;
    finished.push(entry);
    const cutoff = clock.now() - KEEP_MS;
    for (let oldest = finished[0]; oldest !== undefined; oldest = finished[0]) {
      if (
        finished.length <= MAX_FINISHED &&
        resultChars <= MAX_RESULT_CHARS &&
        oldest.job.updatedAt >= cutoff
      ) {
        break;
      }
      forget(oldest);
    }
  };

  const pump = (): void => {
    while (running < MAX_RUNNING) {
      const entry = waiting.shift();
      if (entry === undefined) {
        return;
      }
      const { work } = entry;
      if (work === null) {
        continue;
      }
      running += 1;
      update(entry, { status: "running" });
      void work(entry.abort.signal)
        .then(
          (end) =>
            finish(
              entry,
              end.kind === "succeeded"
                ? { status: "succeeded", result: end.result }
                : { status: "failed", error: end.error },
            ),
          () =>
            finish(entry, {
              status: "failed",
              error: "internal_error: The gateway failed on this job.",
            }),
        )
        .finally(() => {
          running -= 1;
          pump();
        });
    }
  };

  const sweeper = clock.every(60_000, () => {
    const cutoff = clock.now() - KEEP_MS;
    for (const entry of finished.filter((one) => one.job.updatedAt < cutoff)) {
      forget(entry);
    }
  });

  return {
    submit(work, bytes) {
      if (alive >= MAX_ALIVE || aliveBytes + bytes > MAX_ALIVE_BYTES) {
        throw new AgentError("service_unavailable", "Too many jobs are waiting or running.");
      }
      const now = clock.now();
      const job: Job = {
        id: `job_${newUlid(now)}`,
        kind: "tool.run_gated",
        sessionId: null,
        status: "pending",
        result: null,
        error: "",
        createdAt: now,
        updatedAt: now,
      };
      const entry: Entry = { job, abort: new AbortController(), work, held: bytes, size: 0 };
      entries.set(job.id, entry);
      alive += 1;
      aliveBytes += bytes;
      waiting.push(entry);
      // the caller gets its id before the work begins
      setImmediate(pump);
      return job;
    },
    get: (id) => entries.get(id)?.job,
    remove(id) {
      const entry = entries.get(id);
      if (entry === undefined) {
        return null;
      }
      if (isOver(entry.job)) {
        forget(entry);
        return "deleted";
      }
      finish(entry, { status: "canceled" });
      entry.abort.abort();
      const at = waiting.indexOf(entry);
      if (at !== -1) {
        waiting.splice(at, 1);
      }
      return "canceled";
    },
    alive: () => alive,
    close() {
      sweeper.cancel();
      for (const entry of entries.values()) {
        if (!isOver(entry.job)) {
          finish(entry, { status: "canceled" });
          entry.abort.abort();
        }
      }
    },
  };
}

function isOver(job: Job): boolean {
  return job.status === "succeeded" || job.status === "failed" || job.status === "canceled";
}

/** A job as `GET /jobs/{id}` shows it. */
export function describeJob(job: Job): JsonObject {
  return {
    job_id: job.id,
    kind: job.kind,
    ...(job.sessionId === null ? {} : { session_id: job.sessionId }),
    run_id: null,
    status: job.status,
    ...(job.error === "" ? {} : { error: job.error }),
    ...(job.result === null ? {} : { result: job.result }),
    created_at: new Date(job.createdAt).toISOString(),
    updated_at: new Date(job.updatedAt).toISOString(),
  };
}
