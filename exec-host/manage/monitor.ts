import { readLines } from "./log-files.ts";

/** Counters of one script, from the access log. */
export interface ScriptCounters {
  /** Path below the scripts root. */
  readonly name: string;
  readonly script: string;
  readonly requests: number;
  readonly errors: number;
  readonly hooks: number;
  /** ms. */
  readonly averageMs: number;
  readonly p50: number;
  readonly p95: number;
  readonly maxMs: number;
  /** RFC 3339. */
  readonly lastActivity: string;
  readonly ws_active: number;
}

/** What the counters of scripts can be sorted by. */
export const SORTS = ["lastActivity", "requests", "errors", "p95", "ws_active"] as const;
/** One of those orders. */
export type Sort = (typeof SORTS)[number];

const MAX_SCRIPTS = 5_000;
/** Durations kept per script for the percentiles: the latest ones. */
const MAX_SAMPLES = 1_000;

interface Gathered {
  requests: number;
  errors: number;
  hooks: number;
  total: number;
  max: number;
  last: string;
  readonly samples: number[];
}

/**
 * Reads counters out of the access log. They therefore survive restarts, and cover what the log still holds.
 *
 * @param names log files, oldest first.
 */
export async function countScripts(
  folder: string,
  names: readonly string[],
  sort: Sort,
  limit: number,
): Promise<ScriptCounters[]> {
  const scripts = new Map<string, Gathered>();
  for (const name of names) {
    for await (const line of readLines(folder, name)) {
      gather(scripts, line);
    }
  }
  const counters = [...scripts].map(([script, seen]) => toCounters(script, seen));
  counters.sort((a, b) =>
    sort === "lastActivity"
      ? compare(b.lastActivity, a.lastActivity)
      : b[sort] - a[sort] || compare(a.script, b.script),
  );
  return counters.slice(0, limit);
}

function gather(scripts: Map<string, Gathered>, line: string): void {
  let entry: Record<string, unknown>;
  try {
    entry = JSON.parse(line) as Record<string, unknown>;
  } catch {
    return; // a line that was cut
  }
  const { script, status, durationMs, ts, kind } = entry;
  if (typeof script !== "string" || script === "" || typeof durationMs !== "number") {
    return;
  }
  let seen = scripts.get(script);
  if (seen === undefined) {
    if (scripts.size >= MAX_SCRIPTS) {
      return;
    }
    seen = { requests: 0, errors: 0, hooks: 0, total: 0, max: 0, last: "", samples: [] };
    scripts.set(script, seen);
  }
  seen.requests++;
  seen.errors += typeof status === "number" && (status >= 500 || status === 0) ? 1 : 0;
  seen.hooks += kind === "hook" ? 1 : 0;
  seen.total += durationMs;
  seen.max = Math.max(seen.max, durationMs);
  seen.last = typeof ts === "string" && ts > seen.last ? ts : seen.last;
  seen.samples[(seen.requests - 1) % MAX_SAMPLES] = durationMs;
}

function toCounters(script: string, seen: Gathered): ScriptCounters {
  const sorted = seen.samples.toSorted((a, b) => a - b);
  const at = (share: number): number =>
    round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0);
  return {
    name: script,
    script,
    requests: seen.requests,
    errors: seen.errors,
    hooks: seen.hooks,
    averageMs: round(seen.total / seen.requests),
    p50: at(0.5),
    p95: at(0.95),
    maxMs: round(seen.max),
    lastActivity: seen.last,
    ws_active: 0,
  };
}

function round(ms: number): number {
  return Math.round(ms * 100) / 100;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
