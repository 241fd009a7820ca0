import { expect, test } from "vitest";
import {
  createAudit,
  type Audit,
  type AuditRecord,
  type AuditSink,
  type AuditStart,
  type OpenRecord,
} from "../../dispatcher/audit.ts";
import { addLine, createBatch } from "../../dispatcher/audit-batch.ts";
import { type Clock, systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics } from "../../policy/kernel/metrics.ts";
import { fakeClock } from "../support/auth-clock.ts";
import { recordsOf } from "../support/exec-edge.ts";

const START = {
  project: "p",
  container: "c",
  service: "files",
  hookId: "h",
  method: "GET",
  path: "/x",
  clientIp: "192.0.2.1",
  matchedGroups: ["g"],
  script: "default/1/a.js",
};

function setUp(sink: AuditSink, maxQueue = 4, clock: Clock = systemClock) {
  const metrics = createMetrics();
  const audit = createAudit({ sink, clock, metrics, log: silentLog() }, { maxQueue });
  const dropped = async () => (await metrics.auditDropped.get()).values[0]?.value ?? 0;
  return { audit, dropped };
}

function begun(audit: Audit, start: Partial<AuditStart> = {}): OpenRecord {
  const record = audit.begin({ ...START, ...start });
  if (record === null) {
    throw new Error("no room for a record");
  }
  return record;
}

test("begin() and finish() make one whole record", async () => {
  const records: AuditRecord[] = [];
  const { audit } = setUp({
    append: async (_, lines) => void records.push(...recordsOf(lines)),
  });
  const record = begun(audit);
  audit.finish(record, { outcome: "answered", status: 200, durationMs: 12.6, upstreamMs: null });
  await audit.flush();
  expect(records).toEqual([
    {
      audit_id: record.id,
      ts: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
      project: "p",
      container: "c",
      service: "files",
      hook_id: "h",
      method: "GET",
      path: "/x",
      client_ip: "192.0.2.1",
      matched_groups: ["g"],
      script: "default/1/a.js",
      outcome: "answered",
      status: 200,
      duration_ms: 13,
      upstream_ms: null,
    },
  ]);
});

test("begin() says null when the queue is full, and has room again when records are written", async () => {
  let release: () => void = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  const { audit, dropped } = setUp({ append: () => held });
  const open = Array.from({ length: 4 }, () => begun(audit));
  expect(audit.begin(START)).toBeNull();
  for (const record of open) {
    audit.finish(record, { outcome: "answered", status: 200, durationMs: 1, upstreamMs: null });
  }
  await Promise.resolve();
  expect(audit.begin(START)).toBeNull(); // finished, but the store has not taken them
  expect(await dropped()).toBe(2);
  release();
  await audit.flush();
  expect(open.map(() => audit.begin(START))).not.toContain(null);
  expect(audit.begin(START)).toBeNull();
});

test("a store that fails loses its records, is counted, and stops nothing", async () => {
  let fail = true;
  const records: AuditRecord[] = [];
  const { audit, dropped } = setUp({
    async append(_, lines) {
      if (fail) {
        throw new Error("disk full");
      }
      records.push(...recordsOf(lines));
    },
  });
  audit.finish(begun(audit), {
    outcome: "crashed",
    status: 500,
    durationMs: 1,
    upstreamMs: null,
  });
  await audit.flush();
  expect(await dropped()).toBe(1);
  fail = false;
  audit.finish(begun(audit), {
    outcome: "answered",
    status: 200,
    durationMs: 1,
    upstreamMs: null,
  });
  await audit.flush();
  expect(records).toHaveLength(1);
});

const END = { outcome: "answered", status: 200, durationMs: 1, upstreamMs: 0.4 } as const;

/** A sink that keeps what it gets and takes it when told to. */
function slowSink() {
  const appends: { readonly container: string; readonly records: AuditRecord[] }[] = [];
  const waiting: (() => void)[] = [];
  const sink: AuditSink = {
    append(container, lines) {
      appends.push({ container, records: recordsOf(lines) });
      return new Promise((resolve) => waiting.push(resolve));
    },
  };
  /** Lets an append end, and what follows from that happen. */
  const take = async (): Promise<void> => {
    waiting.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { sink, appends, take };
}

test("records are gathered and go in one append per container, in order", async () => {
  const { sink, appends, take } = slowSink();
  const clock = fakeClock();
  const { audit } = setUp(sink, 1024, clock);
  const ids = { c: [] as string[], d: [] as string[] };
  for (let n = 0; n < 400; n++) {
    const container = n % 3 === 0 ? "d" : "c";
    const record = begun(audit, { container, path: `/${n}` });
    ids[container].push(record.id);
    audit.finish(record, END);
  }
  clock.advance(49);
  expect(appends).toEqual([]);
  clock.advance(1);
  await take();
  await take();
  expect(appends.map(({ container }) => container)).toEqual(["d", "c"]);
  expect(appends[0]?.records.map((record) => record.audit_id)).toEqual(ids.d);
  expect(appends[1]?.records.map((record) => record.audit_id)).toEqual(ids.c);
  expect(appends[1]?.records.at(-1)?.path).toBe("/398");
});

test("half of the free room is enough to write at once; what comes meanwhile is gathered again", async () => {
  const { sink, appends, take } = slowSink();
  const clock = fakeClock();
  const { audit } = setUp(sink, 10, clock);
  begun(audit);
  begun(audit); // these two go on
  const finishOne = (): void => audit.finish(begun(audit), END);
  finishOne();
  finishOne();
  finishOne();
  expect(appends).toHaveLength(0);
  finishOne();
  expect(appends).toHaveLength(1);
  finishOne();
  await take();
  expect(appends.map(({ records }) => records.length)).toEqual([4]);
  clock.advance(50);
  expect(appends.map(({ records }) => records.length)).toEqual([4, 1]);
  for (let n = 0; n < 4; n++) {
    finishOne();
  }
  await take(); // enough is waiting, so it goes without a pause
  expect(appends.map(({ records }) => records.length)).toEqual([4, 1, 4]);
});

test("a mebibyte of records waits for no company", () => {
  const { sink, appends } = slowSink();
  const { audit } = setUp(sink, 1024, fakeClock());
  audit.finish(begun(audit, { path: `/${"x".repeat(1_000_000)}` }), END);
  expect(appends).toEqual([]);
  audit.finish(begun(audit, { path: `/${"x".repeat(50_000)}` }), END);
  expect(appends.map(({ records }) => records.length)).toEqual([2]);
});

test("records are written as they were, whatever their size, signs and company", async () => {
  const { sink, appends, take } = slowSink();
  const { audit } = setUp(sink, 1024, fakeClock());
  for (const times of [0, 2, 1, 8]) {
    const paths = Array.from({ length: 40 }, (_, n) => `/${'\u00e4\u2028"\\x'.repeat(n * times)}`);
    for (const path of paths) {
      audit.finish(begun(audit, { container: "c", path }), END);
      audit.finish(begun(audit, { container: "d", path: `/d${path}` }), END);
    }
    const flushed = audit.flush();
    await take();
    await take();
    await flushed;
    const [c, d] = appends.splice(0).map(({ records }) => records.map(({ path }) => path));
    expect(c).toEqual(paths);
    expect(d).toEqual(paths.map((path) => `/d${path}`));
  }
});

test("a container whose records cannot be written costs no other's", async () => {
  const records: AuditRecord[] = [];
  const { audit, dropped } = setUp(
    {
      async append(container, lines) {
        if (container === "bad") {
          throw new Error("in the way");
        }
        records.push(...recordsOf(lines));
      },
    },
    1024,
  );
  for (const container of ["bad", "c", "bad", "d"]) {
    audit.finish(begun(audit, { container }), END);
  }
  await audit.flush();
  expect(records.map(({ container }) => container)).toEqual(["c", "d"]);
  expect(await dropped()).toBe(2);
});

test("records have the time at which their dispatches began", async () => {
  const { sink, appends, take } = slowSink();
  const clock = fakeClock(Date.parse("2026-06-01T10:20:30.456Z"));
  const { audit } = setUp(sink, 1024, clock);
  const first = begun(audit);
  clock.advance(1);
  const second = begun(audit);
  for (const record of [second, first, begun(audit)]) {
    audit.finish(record, END);
  }
  clock.advance(50);
  await take();
  expect(appends[0]?.records.map(({ ts }) => ts)).toEqual([
    "2026-06-01T10:20:30.457Z",
    "2026-06-01T10:20:30.456Z",
    "2026-06-01T10:20:30.457Z",
  ]);
});

test("addLine() keeps lines whole in the room of a batch before, whatever they take as UTF-8", () => {
  for (const sign of ["x", "\u00e4", "\u20ac", "\ud83d\ude00"]) {
    let batch = createBatch();
    for (const size of [900, 40_000, 0, 5000, 2047, 682, 3]) {
      batch = createBatch(batch);
      const texts = new Map<string, string>();
      for (let n = 0; n < 9; n++) {
        const container = n % 2 === 0 ? "c" : "d";
        const line = `${sign.repeat(size + n * 37)}${n}\n`;
        addLine(batch, container, line);
        texts.set(container, (texts.get(container) ?? "") + line);
      }
      const kept = [...batch.lines].map(
        ([container, { buffer, length }]) =>
          [container, buffer.toString("utf8", 0, length)] as const,
      );
      expect(kept.map(([container, text]) => text === texts.get(container))).toEqual([true, true]);
      expect(batch.count).toBe(9);
      expect(batch.bytes).toBe(Buffer.byteLength([...texts.values()].join("")));
    }
  }
});
