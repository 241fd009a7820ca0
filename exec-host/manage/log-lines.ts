import { quote } from "../../policy/kernel/json-text.ts";
import type { ExecutionLabels, ExecutionRecord } from "../execution-records.ts";
import type { LogLine } from "../protocol.ts";

/** A line of `scripts.log`. */
export function formatLogLine({ ts, auditId, ...line }: LogLine): string {
  return JSON.stringify({
    ts: toTime(ts),
    level: line.level,
    executionId: line.executionId,
    script: line.script,
    ...(auditId === null ? {} : { auditId }),
    msg: line.msg,
  });
}

/** A line of `worker.log`. */
export function formatOutput(ts: number, text: string): string {
  return JSON.stringify({ ts: toTime(ts), msg: text });
}

/**
 * Makes the lines of `access.log`, for the records of one message: put together by hand, with the parts that many of
 * them have in common made once.
 */
export function createAccessFormatter(): (record: ExecutionRecord) => string {
  const known = new Map<ExecutionLabels, LabelParts>();
  let lastLabels: ExecutionLabels | null = null;
  let parts: LabelParts = { front: "", back: "" };
  let second = -1;
  let opening = "";
  return ({ executionId, auditId, path, startedAt, durationMs, labels }) => {
    if (labels !== lastLabels) {
      lastLabels = labels;
      const found = known.get(labels) ?? formatLabels(labels);
      known.set(labels, found);
      parts = found;
    }
    const ms = Math.floor(Math.min(startedAt, MAX_TIME) % 1000);
    if (startedAt - ms !== second) {
      second = startedAt - ms;
      opening = `{"ts":"${toTime(startedAt).slice(0, -4)}`;
    }
    return (
      `${opening}${THOUSANDTHS[ms]}Z","executionId":${quote(executionId)}` +
      `,"auditId":${auditId === null ? "null" : quote(auditId)}` +
      `${parts.front}${quote(path)}${parts.back}${formatMs(durationMs)}}`
    );
  };
}

/** What stands before the path of a line, and between it and the duration. */
interface LabelParts {
  readonly front: string;
  readonly back: string;
}

function formatLabels(labels: ExecutionLabels): LabelParts {
  const { kind, subdomain, execId, script, method, status, outcome } = labels;
  const front = JSON.stringify({ kind, subdomain, execId, script, method });
  const back = JSON.stringify({ status, outcome });
  return { front: `,${front.slice(1, -1)},"path":`, back: `,${back.slice(1, -1)},"durationMs":` };
}

const THOUSANDTHS = Array.from({ length: 1000 }, (_, i) => String(i).padStart(3, "0"));

/** Three decimals at most, from whole numbers: writing a fraction takes ten times as long. */
function formatMs(ms: number): string {
  const micros = Math.round(ms * 1000);
  if (micros > Number.MAX_SAFE_INTEGER) {
    return String(ms); // whole and rest would no longer be exact
  }
  const whole = Math.floor(micros / 1000);
  const rest = micros - whole * 1000;
  return rest === 0 ? `${whole}` : `${whole}.${THOUSANDTHS[rest]}`;
}

/** Farthest time a date can tell. */
const MAX_TIME = 8.64e15;

/** RFC 3339; a worker's clock is its own business, so an impossible time is the epoch rather than an exception. */
function toTime(ms: number): string {
  return new Date(Math.abs(ms) <= MAX_TIME ? ms : 0).toISOString();
}
