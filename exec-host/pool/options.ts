import type { ExecutionRecord } from "../execution-records.ts";
import type { LogLine, WorkerLimits } from "../protocol.ts";
import type { Confinement } from "./confinement.ts";
import type { ChildRole } from "./program.ts";

/** Where reports of workers go; calls must not block. */
export interface ReportSink {
  logs(containerId: string, lines: readonly LogLine[], dropped: number): void;
  /** @param dropped calls that the worker did not describe. */
  executions(containerId: string, entries: readonly ExecutionRecord[], dropped: number): void;
  /** A line that the process wrote to its own output, not through a script's console. */
  output(containerId: string, line: string): void;
}

/** Times and bounds of worker processes. */
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

/** What every exec host uses unless told otherwise. */
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

/** One worker at this moment. */
export interface WorkerStatus {
  readonly container: string;
  readonly state: "starting" | "ready" | "late" | "ending";
  readonly generation: number;
  readonly pid: number | null;
  readonly rssBytes: number;
  readonly active: number;
}

/** The workers of a pool at this moment. */
export interface ExecPoolStatus {
  readonly confinement: Confinement;
  readonly workers: readonly WorkerStatus[];
  /** Containers whose last start failed, with the reason. */
  readonly failing: readonly { readonly container: string; readonly detail: string }[];
}
