import type { AuditRecord, InterposeClient } from "../../client/client.ts";
import { ApiError, ConnectionError } from "../../client/errors.ts";
import { delay, type Clock } from "../../policy/kernel/clock.ts";

/** Records that are fetched at most, at the start or to fill a gap. */
export const MAX_RECORDS = 1000;

/** Waits between tries to connect again, in ms; the last one repeats. */
const RECONNECT_MS = [500, 1000, 2000, 5000, 10_000] as const;
/** A connection that lasted this long counts as a good one: the next wait is the shortest again. */
const STEADY_MS = 10_000;
/** A stream that sent heartbeats and then nothing for this long is taken for dead. */
const SILENCE_MS = 60_000;
const PAGE = 100;
/** Ids that are remembered so that no record is given twice. */
const MAX_SEEN = 4096;

/** Whose records to follow, and until when. */
export interface AuditSource {
  readonly client: InterposeClient;
  readonly container: string;
  readonly clock: Clock;
  /** Ends what runs; nothing is thrown for it. */
  readonly signal: AbortSignal | undefined;
}

/** What a follower hears. */
export interface AuditListener {
  readonly record: (record: AuditRecord) => void;
  /** Something about the connection. */
  readonly note: (text: string) => void;
}

/**
 * The newest records, oldest first; with `until` only those newer than that one. `complete` is false when `until`
 * was not reached within `count`.
 */
export async function latestRecords(
  { client, container, signal }: Omit<AuditSource, "clock">,
  count: number,
  until: string | null = null,
): Promise<{ readonly records: readonly AuditRecord[]; readonly complete: boolean }> {
  const records: AuditRecord[] = [];
  let after: string | null = null;
  while (records.length < count) {
    const { data } = await client.api.proxy.audit.list(container, {
      limit: Math.min(PAGE, count - records.length),
      ...(after === null ? {} : { after }),
      ...(signal === undefined ? {} : { signal }),
    });
    for (const record of data.records) {
      if (record.audit_id === until) {
        return { records: records.toReversed(), complete: true };
      }
      records.push(record);
    }
    after = data.next;
    if (after === null || data.records.length === 0) {
      break;
    }
  }
  return { records: records.toReversed(), complete: until === null };
}

/**
 * Follows a container's dispatches until the signal: `lines` earlier records, then live ones, each once. Connects
 * again after a break and fetches what was missed.
 *
 * @throws ApiError, ConnectionError when the first connection fails, or when one fails as waiting cannot mend.
 */
export async function followAudit(
  source: AuditSource,
  lines: number,
  listener: AuditListener,
): Promise<void> {
  const { clock, signal } = source;
  const progress: Progress = { connected: false, last: null, seen: createSeen(MAX_SEEN) };
  for (let failures = 0; ; failures++) {
    const startedAt = clock.monotonic();
    try {
      await followOnce(source, lines, listener, progress);
      listener.note("the server closed the stream");
    } catch (cause) {
      if (signal?.aborted === true) {
        return;
      }
      if (!progress.connected || !mayPass(cause)) {
        throw cause;
      }
      listener.note(cause.message);
    }
    if (clock.monotonic() - startedAt > STEADY_MS) {
      failures = 0;
    }
    await delay(clock, RECONNECT_MS[failures] ?? RECONNECT_MS[RECONNECT_MS.length - 1] ?? 0);
    if (signal?.aborted === true) {
      return;
    }
  }
}

interface Progress {
  connected: boolean;
  /** The newest record that was given; null before the first. */
  last: string | null;
  readonly seen: { add(id: string): boolean };
}

async function followOnce(
  source: AuditSource,
  lines: number,
  listener: AuditListener,
  progress: Progress,
): Promise<void> {
  const { client, container, clock } = source;
  const attempt = new AbortController();
  const stop = () => attempt.abort(source.signal?.reason);
  source.signal?.addEventListener("abort", stop, { once: true });
  const silence = watchSilence(clock, () =>
    attempt.abort(
      new ConnectionError({ method: "GET", path: "audit/stream" }, "the stream fell silent"),
    ),
  );
  const give = (record: AuditRecord) => {
    progress.last = record.audit_id;
    if (progress.seen.add(record.audit_id)) {
      listener.record(record);
    }
  };
  try {
    // Connect first, then fetch what came before: what happens in between arrives on both ways, and counts once.
    const events = await client.api.proxy.audit.stream(container, {
      signal: attempt.signal,
      onHeartbeat: silence.beat,
    });
    const first = !progress.connected;
    const count = first ? lines : MAX_RECORDS;
    const earlier = await latestRecords(
      { ...source, signal: attempt.signal },
      count,
      progress.last,
    );
    if (!first) {
      listener.note(
        earlier.complete ? "connected again" : "connected again; older records are left out",
      );
    }
    progress.connected = true;
    earlier.records.forEach(give);
    for await (const event of events) {
      silence.touch();
      give(event.record);
    }
  } finally {
    silence.end();
    source.signal?.removeEventListener("abort", stop);
    attempt.abort();
  }
}

/** Whether a failure can be over after a while. */
function mayPass(cause: unknown): cause is ApiError | ConnectionError {
  return (
    cause instanceof ConnectionError ||
    (cause instanceof ApiError && (cause.status >= 500 || cause.status === 429))
  );
}

/** Ends a stream that has shown that it sends heartbeats and then sends nothing at all. */
function watchSilence(clock: Clock, onSilence: () => void) {
  let timer = { cancel: () => {} };
  let beating = false;
  const touch = () => {
    if (beating) {
      timer.cancel();
      timer = clock.after(SILENCE_MS, onSilence);
    }
  };
  return {
    beat: () => {
      beating = true;
      touch();
    },
    touch,
    end: () => timer.cancel(),
  };
}

/** A bounded set of ids; `add` tells whether the id is new. Forgets the oldest first. */
function createSeen(max: number) {
  const ids = new Set<string>();
  return {
    add(id: string): boolean {
      if (ids.has(id)) {
        return false;
      }
      ids.add(id);
      const oldest = ids.values().next();
      if (ids.size > max && oldest.done !== true) {
        ids.delete(oldest.value);
      }
      return true;
    },
  };
}
