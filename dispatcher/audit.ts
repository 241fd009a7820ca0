import type { Clock, Timer } from "../policy/kernel/clock.ts";
import { newUuid } from "../policy/kernel/ids.ts";
import type { Log } from "../policy/kernel/log.ts";
import type { Metrics } from "../policy/kernel/metrics.ts";
import { type AuditRow, formatAuditLine } from "../policy/store/audit-row.ts";
import { type AuditBatch, addLine, createBatch } from "./audit-batch.ts";
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

/** Where records go. A rejection loses what was handed over and is counted; it is never tried twice. */
export interface AuditSink {
  /** @param lines records of one container as JSON lines in UTF-8; they change again when this has settled. */
  append(container: string, lines: Uint8Array): Promise<void>;
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

/** Records of about half a kilobyte each. */
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

/** Records are gathered for this long: one append per record would cost more than the dispatch itself. */
const GATHER_MS = 50;
/** So many bytes are enough for one go, however few records they are. */
const ENOUGH_BYTES = 1024 * 1024;

export function createAudit(deps: AuditDeps, options: AuditOptions = DEFAULT_AUDIT_OPTIONS): Audit {
  const { sink, clock, metrics, log } = deps;
  const timeText = createTimeText();
  let open = 0;
  let waiting = createBatch();
  let next = createBatch();
  let writing: Promise<void> | null = null;
  let gathering: Timer | null = null;
  let inBatch = 0;
  let failing = false;

  /** Whether to wait no longer: half of the room that open records leave is taken. */
  const isEnough = (): boolean =>
    waiting.count > 0 &&
    (waiting.count >= (options.maxQueue - open) / 2 || waiting.bytes >= ENOUGH_BYTES);

  const write = async (batch: AuditBatch): Promise<void> => {
    let failed = false;
    for (const [container, { buffer, length, count }] of batch.lines) {
      try {
        await sink.append(container, buffer.subarray(0, length));
      } catch (cause) {
        metrics.auditDropped.inc(count);
        if (!failing) {
          failing = true; // once per outage, not once per batch
          log.error({ err: cause }, "audit records cannot be written");
        }
        failed = true;
      }
      inBatch -= count;
    }
    failing = failed;
  };

  const startWriting = (): void => {
    gathering?.cancel();
    gathering = null;
    if (writing === null) {
      const batch = waiting;
      waiting = next;
      inBatch = batch.count;
      writing = write(batch).then(() => {
        next = createBatch(batch);
        writing = null;
        goOn();
      });
    }
  };

  /** What waits goes at once when it is enough, else with what comes in a little while. */
  const goOn = (): void => {
    if (writing === null && isEnough()) {
      startWriting();
    } else if (writing === null && waiting.count > 0) {
      gathering ??= clock.after(GATHER_MS, startWriting);
    }
  };

  return {
    begin(start) {
      if (open + waiting.count + inBatch >= options.maxQueue) {
        metrics.auditDropped.inc();
        return null;
      }
      open++;
      return { id: newUuid(), start, at: clock.now() };
    },
    finish({ id, start, at }, { outcome, status, durationMs, upstreamMs }) {
      open--;
      const record: AuditRecord = {
        audit_id: id,
        ts: timeText(at),
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
      };
      addLine(waiting, start.container, formatAuditLine(record));
      goOn();
    },
    async flush() {
      while (writing !== null || waiting.count > 0) {
        startWriting();
        await writing;
      }
    },
  };
}

/** Writes times as RFC 3339 does. Busy edges begin several records per millisecond, which share one text. */
function createTimeText(): (ms: number) => string {
  let last = Number.NaN;
  let text = "";
  return (ms) => {
    if (ms !== last) {
      text = new Date(ms).toISOString();
      last = ms;
    }
    return text;
  };
}
