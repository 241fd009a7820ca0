import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { MAX_RECORD_TEXT, type ExecutionRecord } from "../../exec-host/execution-records.ts";
import { readLines } from "../../exec-host/manage/log-files.ts";
import { createLogStore, DEFAULT_LOG_OPTIONS } from "../../exec-host/manage/log-store.ts";
import { createLineReader, decodeWorkerMessage } from "../../exec-host/protocol.ts";
import { createExecutionBatch } from "../../exec-host/worker/execution-batch.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { tempDir } from "../support/exec-pool.ts";

const runs = { numRuns: Number(process.env["PROPERTY_RUNS"] ?? 300) };

/** Texts of all kinds: usual ones, quotes and control characters, line separators, halves of pairs. */
const text = (maxLength: number): fc.Arbitrary<string> =>
  fc.oneof(
    fc.string({ maxLength }),
    fc.string({ maxLength: Math.floor(maxLength / 2), unit: "binary" }),
    fc
      .array(fc.constantFrom("\n", "\r", '"', "\\", "\u2028", "\u2029", "\ud800", "\udc00", "é"))
      .map((parts) => parts.join("").slice(0, maxLength)),
  );
const labels = fc.record({
  kind: fc.constantFrom("hook" as const, "ordinary" as const),
  subdomain: text(MAX_RECORD_TEXT.name),
  execId: text(MAX_RECORD_TEXT.name),
  script: text(MAX_RECORD_TEXT.script),
  method: text(MAX_RECORD_TEXT.name),
  status: fc.nat(599),
  outcome: text(MAX_RECORD_TEXT.outcome),
});
const record: fc.Arbitrary<ExecutionRecord> = fc.record({
  executionId: text(MAX_RECORD_TEXT.id),
  auditId: fc.option(text(MAX_RECORD_TEXT.id).filter((id) => id !== "")),
  path: text(MAX_RECORD_TEXT.path),
  startedAt: fc.integer({ min: 0, max: 8.64e15 }),
  durationMs: fc.nat(2 ** 31 - 1).map((micros) => micros / 1000),
  labels,
});

test("createExecutionBatch() and decodeWorkerMessage() give back every record, in any company", () => {
  fc.assert(
    fc.property(
      // Few kinds of labels for many records, as it is in life.
      fc.array(labels, { minLength: 1, maxLength: 12 }),
      fc.array(fc.tuple(record, fc.nat(11)), { maxLength: 30 }),
      fc.nat(),
      (kinds, drawn, dropped) => {
        const records = drawn.map(([one, kind]) => ({
          ...one,
          labels: kinds[kind] ?? one.labels,
        }));
        const told: ExecutionRecord[] = [];
        const reader = createLineReader((line) => {
          const message = decodeWorkerMessage(line);
          expect(message).toMatchObject({ type: "executions", dropped });
          told.push(...(message?.type === "executions" ? message.entries : []));
        });
        const batch = createExecutionBatch();
        for (const one of records) {
          batch.add(one);
          if (batch.isFull) {
            expect(reader.push(Buffer.from(batch.take(dropped)))).toBe(true);
            expect(batch.isEmpty).toBe(true);
          }
        }
        expect(reader.push(Buffer.from(batch.take(dropped)))).toBe(true);
        expect(told).toEqual(records);
      },
    ),
    runs,
  );
});

/** Values where numbers or texts are expected. */
const odd = fc.oneof(
  fc.jsonValue(),
  fc.double({ noNaN: true }),
  fc.constantFrom("length", "__proto__", "0", -0, 1e308, 9e15, 0.0004, 4096.0005, -1, null),
);
const mostly = <T>(usual: fc.Arbitrary<T>): fc.Arbitrary<unknown> =>
  fc.oneof({ weight: 40, arbitrary: usual }, { weight: 1, arbitrary: odd });
const anyNumber = fc.oneof(
  fc.nat(),
  fc.double({ min: 0, noNaN: true, noDefaultInfinity: true }),
  fc.constantFrom(0, 9e15, 1e300, 0.5),
);
const row = fc.tuple(
  mostly(fc.constantFrom("hook", "ordinary")),
  mostly(text(80)),
  mostly(text(80)),
  mostly(text(600)),
  mostly(text(80)),
  mostly(anyNumber),
  mostly(text(40)),
);
const entry = fc.tuple(
  mostly(text(80)),
  mostly(text(80)),
  mostly(text(5000)),
  mostly(fc.oneof(fc.integer(), anyNumber)),
  mostly(anyNumber),
  mostly(fc.nat(1)),
);
const message = fc.record({
  type: fc.constant("executions"),
  dropped: mostly(fc.nat()),
  since: mostly(anyNumber),
  labels: mostly(fc.array(mostly(row), { minLength: 2, maxLength: 3 })),
  entries: mostly(fc.array(entry, { maxLength: 4 }).map((cells) => cells.flat())),
});

const MEMBERS =
  "ts executionId auditId kind subdomain execId script method path status outcome durationMs";

test("whatever a worker says of its calls is refused, or one valid line for each call", async () => {
  const folder = await tempDir();
  const store = createLogStore(
    { clock: systemClock, log: silentLog(), folder: () => folder },
    { ...DEFAULT_LOG_OPTIONS, burstBytes: 1e12, maxFileBytes: 1e12 },
  );
  let accepted = 0;
  let refused = 0;
  const told: ExecutionRecord[] = [];
  fc.assert(
    fc.property(message, (given) => {
      const decoded = decodeWorkerMessage(JSON.stringify(given));
      if (decoded?.type !== "executions") {
        refused++;
        return;
      }
      accepted++;
      for (const { executionId, auditId, path, labels: shared } of decoded.entries) {
        expect(Math.max(executionId.length, auditId?.length ?? 0)).toBeLessThanOrEqual(64);
        expect(path.length).toBeLessThanOrEqual(4096);
        expect(Object.keys(shared).length).toBe(7);
        expect(shared.script.length).toBeLessThanOrEqual(512);
      }
      store.executions("a", decoded.entries, 0);
      told.push(...decoded.entries);
    }),
    runs,
  );
  await store.close();
  let at = 0;
  for await (const line of readLines(folder, join("access", "access.log"))) {
    const value = JSON.parse(line) as Record<string, unknown>;
    expect(Object.keys(value).join(" ")).toBe(MEMBERS);
    const { path, executionId, durationMs, startedAt } = told[at++]!;
    expect(value).toMatchObject({ path, executionId });
    expect(Math.abs(Number(value["durationMs"]) - durationMs)).toBeLessThanOrEqual(
      0.0006 + durationMs * 1e-9,
    );
    const ts = new Date(startedAt <= 8.64e15 ? startedAt : 0).toISOString();
    expect(value["ts"]).toBe(ts);
  }
  expect(at).toBe(told.length);
  expect(accepted).toBeGreaterThan(20);
  expect(refused).toBeGreaterThan(20);
});
