/**
 * Finished calls as a worker tells them to its parent: what they are, how they are packed, and the decoder. Whoever
 * sends them may be hostile, so nothing is taken that is not of the right shape and size.
 */

/** What many calls of a worker have in common. */
export interface ExecutionLabels {
  readonly kind: "hook" | "ordinary";
  readonly subdomain: string;
  readonly execId: string;
  readonly script: string;
  readonly method: string;
  /** 0 when the answer was cut before a head. */
  readonly status: number;
  readonly outcome: string;
}

/** One finished request, for the access log. */
export interface ExecutionRecord {
  readonly executionId: string;
  readonly auditId: string | null;
  /** Without query. */
  readonly path: string;
  /** ms since the epoch. */
  readonly startedAt: number;
  /** To the microsecond. */
  readonly durationMs: number;
  /** Calls of one message that have the same share the object. */
  readonly labels: ExecutionLabels;
}

/**
 * Calls that ended since the last such message. There is an entry for every call, so they travel packed (written by
 * `worker/execution-batch.ts`): `labels` has a row of seven values for each combination, `entries` six values for each
 * call, one call after the other: execution id, audit id or "", path, ms since `since`, duration in whole
 * microseconds, number of its row.
 */
export interface ExecutionsMessage {
  readonly type: "executions";
  readonly entries: readonly ExecutionRecord[];
  /** Calls the worker did not describe, since its last such message. */
  readonly dropped: number;
}

/** Most entries of one `logs` or `executions` message. */
export const MAX_BATCH = 200;

/**
 * What a container's logs may take on disk, in bytes: in a second in the long run, and at once. The receiver holds
 * it; a worker knows it so that it makes no records that would only be thrown away.
 */
export const LOG_ALLOWANCE = { bytesPerSecond: 1_048_576, burstBytes: 4_194_304 } as const;

/** Longest texts of a record, in UTF-16 units; longer ones are cut by the sender and again by the receiver. */
export const MAX_RECORD_TEXT = { id: 64, name: 64, script: 512, path: 4096, outcome: 32 } as const;

/** About how many bytes a record takes in the access log: its texts as they are, and what is around them. */
export function lineBytes({ executionId, auditId, path, labels }: ExecutionRecord): number {
  const ids = executionId.length + (auditId?.length ?? 0);
  const names = labels.subdomain.length + labels.execId.length + labels.method.length;
  const shownPath = Math.min(path.length, MAX_RECORD_TEXT.path);
  return ids + names + shownPath + labels.script.length + labels.outcome.length + LINE_FRAME_BYTES;
}

/** Member names, times and marks of such a line. */
const LINE_FRAME_BYTES = 190;

/** Values of a call in `entries`. */
const ENTRY_CELLS = 6;

/** A message `executions` of a worker, or null when it is none. */
export function decodeExecutions(value: Record<string, unknown>): ExecutionsMessage | null {
  const { since, dropped, labels: rows, entries: cells } = value;
  if (
    !isCount(since) ||
    !isCount(dropped) ||
    !isList(rows, MAX_BATCH) ||
    !isList(cells, ENTRY_CELLS * MAX_BATCH) ||
    cells.length % ENTRY_CELLS !== 0
  ) {
    return null;
  }
  const labels: ExecutionLabels[] = [];
  for (const row of rows) {
    const decoded = decodeLabels(row);
    if (decoded === null) {
      return null;
    }
    labels.push(decoded);
  }
  const entries: ExecutionRecord[] = [];
  for (let at = 0; at < cells.length; at += ENTRY_CELLS) {
    const executionId = cells[at];
    const audit = cells[at + 1];
    const path = cells[at + 2];
    const after = cells[at + 3];
    const micros = cells[at + 4];
    const row = cells[at + 5];
    const shared = typeof row === "number" ? labels[row] : undefined;
    if (
      typeof executionId !== "string" ||
      typeof audit !== "string" ||
      typeof path !== "string" ||
      typeof after !== "number" ||
      !isCount(since + after) ||
      !isCount(micros) ||
      shared === undefined
    ) {
      return null;
    }
    entries.push({
      executionId: cut(executionId, MAX_RECORD_TEXT.id),
      auditId: audit === "" ? null : cut(audit, MAX_RECORD_TEXT.id),
      path: cut(path, MAX_RECORD_TEXT.path),
      startedAt: since + after,
      durationMs: micros / 1000,
      labels: shared,
    });
  }
  return { type: "executions", entries, dropped };
}

function decodeLabels(row: unknown): ExecutionLabels | null {
  if (!isList(row, 7) || row.length !== 7) {
    return null;
  }
  const [kind, subdomain, execId, script, method, status, outcome] = row;
  if (
    (kind !== "hook" && kind !== "ordinary") ||
    typeof subdomain !== "string" ||
    typeof execId !== "string" ||
    typeof script !== "string" ||
    typeof method !== "string" ||
    !isCount(status) ||
    typeof outcome !== "string"
  ) {
    return null;
  }
  return {
    kind,
    subdomain: cut(subdomain, MAX_RECORD_TEXT.name),
    execId: cut(execId, MAX_RECORD_TEXT.name),
    script: cut(script, MAX_RECORD_TEXT.script),
    method: cut(method, MAX_RECORD_TEXT.name),
    status,
    outcome: cut(outcome, MAX_RECORD_TEXT.outcome),
  };
}

/** An array of at most so many members, whatever they are. */
export function isList(value: unknown, maxLength: number): value is unknown[] {
  return Array.isArray(value) && value.length <= maxLength;
}

/** Finite and not negative; fractions are fine (durations). */
export function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

/** At most so many UTF-16 units of a text. */
export function cut(value: string, max: number): string {
  return value.length > max ? value.slice(0, max) : value;
}
