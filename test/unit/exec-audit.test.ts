import { expect, test } from "vitest";
import {
  createAudit,
  type Audit,
  type AuditRecord,
  type AuditSink,
  type OpenRecord,
} from "../../dispatcher/audit.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics } from "../../policy/kernel/metrics.ts";

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

function setUp(sink: AuditSink, maxQueue = 4) {
  const metrics = createMetrics();
  const audit = createAudit({ sink, clock: systemClock, metrics, log: silentLog() }, { maxQueue });
  const dropped = async () => (await metrics.auditDropped.get()).values[0]?.value ?? 0;
  return { audit, dropped };
}

function begun(audit: Audit): OpenRecord {
  const record = audit.begin(START);
  if (record === null) {
    throw new Error("no room for a record");
  }
  return record;
}

test("begin() and finish() make one whole record", async () => {
  const records: AuditRecord[] = [];
  const { audit } = setUp({ append: async (batch) => void records.push(...batch) });
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
  expect(audit.begin(START)).not.toBeNull();
});

test("a store that fails loses its records, is counted, and stops nothing", async () => {
  let fail = true;
  const records: AuditRecord[] = [];
  const { audit, dropped } = setUp({
    async append(batch) {
      if (fail) {
        throw new Error("disk full");
      }
      records.push(...batch);
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
