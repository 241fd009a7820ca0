import type { Command } from "commander";
import type { AuditRecord, InterposeClient } from "../../client/client.ts";
import { ApiError, ConnectionError } from "../../client/errors.ts";
import { delay } from "../../policy/kernel/clock.ts";
import { action, addCommand, containerOption, type Invocation } from "./command-kit.ts";
import { parseInteger } from "./flags.ts";
import { UsageError, type CommandIo } from "./io.ts";
import { formatCell, formatJsonLine, formatYaml } from "./output.ts";
import { safeText } from "./safe-text.ts";

interface TailFlags {
  readonly container: string;
  readonly lines: number;
  readonly follow: boolean;
}

const ID = "890abcdef12345678901cdef";

/** Waits between tries to connect again, in ms; the last one repeats. */
const RECONNECT_MS = [500, 1000, 2000, 5000, 10_000];
/** A stream that sent heartbeats and then nothing for this long is taken for dead. */
const SILENCE_MS = 60_000;
/** Records that a gap is filled with at most; a longer gap is said. */
const MAX_CATCH_UP = 1000;
const PAGE = 100;
/** Ids that are remembered so that no record is shown twice. */
const MAX_SEEN = 4096;

/** `tail -c ID`: the dispatch audit of a container, live. */
export function registerTailCommand(program: Command, io: CommandIo): void {
  addCommand(program, {
    usage: "tail",
    summary: "follow the hook dispatches of a container, one line each",
    examples: [`tail -c ${ID}`, `tail -c ${ID} --lines 100 --no-follow -o json`],
  })
    .addOption(containerOption())
    .option("-n, --lines <n>", "show this many earlier records first", parseInteger, 10)
    .option("--no-follow", "end after the earlier records")
    .action(action<TailFlags>(io, tail));
}

async function tail(call: Invocation<TailFlags>): Promise<void> {
  const { io, client, options } = call;
  if (options.lines < 0 || options.lines > MAX_CATCH_UP) {
    throw new UsageError(`--lines takes a number from 0 to ${MAX_CATCH_UP}`);
  }
  const container = options.container;
  const seen = createSeen(MAX_SEEN);
  const print = (record: AuditRecord) => {
    if (seen.add(record.audit_id)) {
      io.stdout.write(formatRecord(record, options.output ?? "table"));
    }
  };
  if (!options.follow) {
    const { records } = await latest(client, container, options.lines, null, io.signal);
    records.forEach(print);
    return;
  }

  // Connect first, then fetch what came before: whatever happens in between arrives on both ways and is shown once.
  for (let failures = 0, last: string | null = null, connected = false; ;) {
    const attempt = new AbortController();
    const stop = () => attempt.abort(io.signal?.reason);
    io.signal?.addEventListener("abort", stop, { once: true });
    const silence = watchSilence(io, () => attempt.abort(new Error("the stream fell silent")));
    try {
      const events = await client.api.proxy.audit.stream(container, {
        signal: attempt.signal,
        onHeartbeat: silence.beat,
      });
      const earlier = await latest(
        client,
        container,
        last === null ? (connected ? 0 : options.lines) : MAX_CATCH_UP,
        last,
        attempt.signal,
      );
      if (connected && failures > 0) {
        note(
          call,
          earlier.complete ? "connected again" : "connected again; some records are left out",
        );
      }
      connected = true;
      for (const record of earlier.records) {
        print(record);
        last = record.audit_id;
      }
      for await (const event of events) {
        failures = 0;
        silence.touch();
        print(event.record);
        last = event.record.audit_id;
      }
      note(call, "the server closed the stream");
    } catch (cause) {
      if (io.signal?.aborted === true) {
        return;
      }
      // What cannot get better by waiting ends the command, and so does a first try that fails.
      if (!connected || (cause instanceof ApiError && cause.status < 500 && cause.status !== 429)) {
        throw cause;
      }
      const silent = attempt.signal.aborted && !(cause instanceof ApiError);
      if (!silent && !(cause instanceof ApiError) && !(cause instanceof ConnectionError)) {
        throw cause;
      }
      note(call, cause instanceof Error ? cause.message : "the stream broke off");
    } finally {
      silence.end();
      io.signal?.removeEventListener("abort", stop);
      attempt.abort();
    }
    const wait = RECONNECT_MS[Math.min(failures, RECONNECT_MS.length - 1)] ?? 10_000;
    failures++;
    await delay(io.clock, wait);
    if (io.signal?.aborted === true) {
      return;
    }
  }
}

function note(call: Invocation<TailFlags>, text: string): void {
  if (call.options.quiet !== true) {
    call.io.stderr.write(`(${safeText(text)})\n`);
  }
}

/**
 * The newest `count` records, oldest first; with `until` only those newer than that one. `complete` is false when
 * `until` was not reached within `count`.
 */
async function latest(
  client: InterposeClient,
  container: string,
  count: number,
  until: string | null,
  signal: AbortSignal | undefined,
): Promise<{ records: AuditRecord[]; complete: boolean }> {
  const records: AuditRecord[] = [];
  let after: string | undefined;
  while (records.length < count) {
    const { data } = await client.api.proxy.audit.list(container, {
      limit: Math.min(PAGE, count - records.length),
      ...(after === undefined ? {} : { after }),
      ...(signal === undefined ? {} : { signal }),
    });
    for (const record of data.records) {
      if (record.audit_id === until) {
        return { records: records.reverse(), complete: true };
      }
      records.push(record);
    }
    if (data.records.length === 0 || typeof data.next !== "string") {
      return { records: records.reverse(), complete: until === null };
    }
    after = data.next;
  }
  return { records: records.reverse(), complete: until === null };
}

/** Ends a stream that has shown that it sends heartbeats and then sends nothing at all. */
function watchSilence(io: CommandIo, onSilence: () => void) {
  let timer = { cancel: () => {} };
  let beating = false;
  const touch = () => {
    if (beating) {
      timer.cancel();
      timer = io.clock.after(SILENCE_MS, onSilence);
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

/** One record: a line for people, a line of JSON, or a YAML document. */
function formatRecord(record: AuditRecord, format: "table" | "json" | "yaml"): string {
  if (format === "json") {
    return formatJsonLine(record);
  }
  if (format === "yaml") {
    return `---\n${formatYaml(record)}`;
  }
  const parts = [
    record.ts,
    record.outcome,
    record.status ?? "-",
    milliseconds(record.duration_ms),
    `${record.method} ${record.path}`,
    record.service,
    `rule=${formatCell(record.hook_id)}`,
    `script=${formatCell(record.script)}`,
    `from=${formatCell(record.client_ip)}`,
    `audit=${formatCell(record.audit_id)}`,
  ];
  return `${parts.map((part) => formatCell(part)).join("  ")}\n`;
}

function milliseconds(value: number | null): string {
  return typeof value === "number" && Number.isFinite(value)
    ? `${Math.round(value * 10) / 10}ms`
    : "-";
}
