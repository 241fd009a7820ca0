import type { Clock, Timer } from "../policy/kernel/clock.ts";
import { newUuid } from "../policy/kernel/ids.ts";
import type { Log } from "../policy/kernel/log.ts";
import type { Metrics } from "../policy/kernel/metrics.ts";
import type { AuditRow } from "../policy/store/audit-store.ts";
import type { DispatchOutcomeName } from "./envelope.ts";

/** What is known of a dispatch when it begins. */
export interface AuditStart {
  readonly project: string;
  readonly container: string;
  readonly service: string;
  readonly hookId: string;
  readonly method: string;
  /** Without query. */
  readonly path: string;
  readonly clientIp: string;
  readonly matchedGroups: readonly string[];
  /** Coordinates of the script, `subdomain/execId/path`. */
  readonly script: string;
}

/** One dispatch as we store it. Rows that are read back may be older and know less. */
export interface AuditRecord extends AuditRow {
  readonly outcome: DispatchOutcomeName;
  readonly upstream_ms: number | null;
}

/** How a dispatch ended. */
export interface AuditEnd {
  readonly outcome: DispatchOutcomeName;
  /** 0 when nothing was sent. */
  readonly status: number;
  readonly durationMs: number;
  readonly upstreamMs: number | null;
}

/** A record that waits for the end of its dispatch. */
export interface OpenRecord {
  readonly id: string;
  readonly start: AuditStart;
  /** ms since the epoch. */
  readonly at: number;
}

/** Where records go. A rejection loses the batch and is counted; it is never tried twice. */
export interface AuditSink {
  append(records: readonly AuditRecord[]): Promise<void>;
}

/** What {@link createAudit} builds on. */
export interface AuditDeps {
  readonly sink: AuditSink;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
}

/** Bounds of the audit queue. */
export interface AuditOptions {
  /** Records that may be open or waiting to be written. */
  readonly maxQueue: number;
}

/** Records of about a kilobyte each: one MiB at most. */
export const DEFAULT_AUDIT_OPTIONS: AuditOptions = { maxQueue: 1024 };

/** Best-effort record of dispatches: nothing here makes a request wait (edge-proxy.md 7.2). */
export interface Audit {
  /** Opens a record; null when there is no room, and the dispatch goes on without one. */
  begin(start: AuditStart): OpenRecord | null;
  /** Closes it and hands it to the sink in the background; once per record. */
  finish(record: OpenRecord, end: AuditEnd): void;
  /** Waits until everything that was finished is written, or failed. */
  flush(): Promise<void>;
}

/** The id of a dispatch that has no record. */
export const NO_AUDIT = "none";

const BATCH = 256;
/** Records are gathered for this long: one append per record would cost more than the dispatch itself. */
const GATHER_MS = 50;

export function createAudit(deps: AuditDeps, options: AuditOptions = DEFAULT_AUDIT_OPTIONS): Audit {
  const { sink, clock, metrics, log } = deps;
  let open = 0;
  const waiting: AuditRecord[] = [];
  let writing: Promise<void> | null = null;
  let gathering: Timer | null = null;
  let inBatch = 0;
  let failing = false;

  const write = async (): Promise<void> => {
    while (waiting.length > 0) {
      const batch = waiting.splice(0, BATCH);
      inBatch = batch.length;
      try {
        await sink.append(batch);
        failing = false;
      } catch (cause) {
        metrics.auditDropped.inc(batch.length);
        if (!failing) {
          failing = true; // once per outage, not once per batch
          log.error({ err: cause }, "audit records cannot be written");
        }
      }
      inBatch = 0;
    }
    writing = null;
  };

  const startWriting = (): void => {
    gathering?.cancel();
    gathering = null;
    writing ??= write();
  };

  return {
    begin(start) {
      if (open + waiting.length + inBatch >= options.maxQueue) {
        metrics.auditDropped.inc();
        return null;
      }
      open++;
      return { id: newUuid(), start, at: clock.now() };
    },
    finish({ id, start, at }, { outcome, status, durationMs, upstreamMs }) {
      open--;
      waiting.push({
        audit_id: id,
        ts: new Date(at).toISOString(),
        project: start.project,
        container: start.container,
        service: start.service,
        hook_id: start.hookId,
        method: start.method,
        path: start.path,
        client_ip: start.clientIp,
        matched_groups: start.matchedGroups,
        script: start.script,
        outcome,
        status,
        duration_ms: Math.round(durationMs),
        upstream_ms: upstreamMs === null ? null : Math.round(upstreamMs),
      });
      if (writing === null && waiting.length >= BATCH) {
        startWriting();
      } else if (writing === null) {
        gathering ??= clock.after(GATHER_MS, startWriting);
      }
    },
    async flush() {
      if (writing === null && waiting.length > 0) {
        startWriting();
      }
      while (writing !== null) {
        await writing;
      }
    },
  };
}
