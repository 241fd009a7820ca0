import {
  cut,
  MAX_BATCH,
  MAX_RECORD_TEXT,
  type ExecutionLabels,
  type ExecutionRecord,
} from "../execution-records.ts";

/** Finished calls on their way to the parent, encoded one by one (`ExecutionsMessage` says how they are packed). */
export interface ExecutionBatch {
  add(record: ExecutionRecord): void;
  readonly isEmpty: boolean;
  /** No further record fits into the message. */
  readonly isFull: boolean;
  /** The line to send; the batch is empty after it. */
  take(dropped: number): string;
}

/** Text of one message, in UTF-16 units; below the channel's longest line even when every unit takes three bytes. */
const MAX_BATCH_TEXT = 40_000;
/** Rows of labels that a record is compared with, the latest ones; a row may well be there twice. */
const LOOK_BACK = 8;

/** An entry whose texts JSON shows as they are. */
const PLAIN_ENTRY =
  /^,?"[\x20\x21\x23-\x5b\x5d-\x7e]*","[\x20\x21\x23-\x5b\x5d-\x7e]*","[\x20\x21\x23-\x5b\x5d-\x7e]*",[-\d,]+$/;

/**
 * A record becomes text at once instead of being kept for the length of a batch: its texts are parts of a request's
 * head, which they would keep in memory whole.
 */
export function createExecutionBatch(): ExecutionBatch {
  let since = 0;
  let rows = "";
  let labels: ExecutionLabels[] = [];
  let entries = "";
  let count = 0;

  function rowOf(wanted: ExecutionLabels): number {
    for (let row = labels.length - 1; row >= 0 && row >= labels.length - LOOK_BACK; row--) {
      if (isSame(labels[row]!, wanted)) {
        return row;
      }
    }
    rows += `${labels.length === 0 ? "" : ","}${encodeLabels(wanted)}`;
    return labels.push(wanted) - 1;
  }

  return {
    add(record) {
      const startedAt = toCount(record.startedAt);
      if (count === 0) {
        since = startedAt;
      }
      const executionId = cut(record.executionId, MAX_RECORD_TEXT.id);
      const auditId = cut(record.auditId ?? "", MAX_RECORD_TEXT.id);
      const path = cut(record.path, MAX_RECORD_TEXT.path);
      const comma = count === 0 ? "" : ",";
      const micros = toCount(record.durationMs * 1000);
      const numbers = `${startedAt - since},${micros},${rowOf(record.labels)}`;
      // Looked at in one go, which also makes a flat copy of it that holds on to none of its parts.
      const entry = `${comma}"${executionId}","${auditId}","${path}",${numbers}`;
      entries += PLAIN_ENTRY.test(entry)
        ? entry
        : `${comma}${JSON.stringify([executionId, auditId, path]).slice(1, -1)},${numbers}`;
      count++;
    },
    get isEmpty() {
      return count === 0;
    },
    get isFull() {
      return count === MAX_BATCH || entries.length + rows.length > MAX_BATCH_TEXT;
    },
    take(dropped) {
      const line = `{"type":"executions","dropped":${dropped},"since":${since},"labels":[${rows}],"entries":[${entries}]}\n`;
      rows = entries = "";
      labels = [];
      since = count = 0;
      return line;
    },
  };
}

function encodeLabels(labels: ExecutionLabels): string {
  const { kind, subdomain, execId, script, method, status, outcome } = labels;
  return JSON.stringify([
    kind,
    cut(subdomain, MAX_RECORD_TEXT.name),
    cut(execId, MAX_RECORD_TEXT.name),
    cut(script, MAX_RECORD_TEXT.script),
    cut(method, MAX_RECORD_TEXT.name),
    toCount(status),
    cut(outcome, MAX_RECORD_TEXT.outcome),
  ]);
}

function isSame(a: ExecutionLabels, b: ExecutionLabels): boolean {
  return (
    a.script === b.script &&
    a.status === b.status &&
    a.outcome === b.outcome &&
    a.method === b.method &&
    a.kind === b.kind &&
    a.subdomain === b.subdomain &&
    a.execId === b.execId
  );
}

/** Scripts share this process and can change its clock: what is no number must not break the line. */
function toCount(value: number): number {
  return value >= 0 && value <= Number.MAX_SAFE_INTEGER ? Math.round(value) : 0;
}
