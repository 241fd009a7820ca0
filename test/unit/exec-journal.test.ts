import { expect, test } from "vitest";
import {
  LOG_ALLOWANCE,
  lineBytes,
  MAX_BATCH,
  type ExecutionRecord,
  type ExecutionsMessage,
} from "../../exec-host/execution-records.ts";
import { createLineReader, decodeWorkerMessage } from "../../exec-host/protocol.ts";
import { createJournal } from "../../exec-host/worker/journal.ts";
import { fakeClock } from "../support/auth-clock.ts";

const labels: ExecutionRecord["labels"] = {
  kind: "hook",
  subdomain: "default",
  execId: "1",
  script: "default/1/a.js",
  method: "GET",
  status: 200,
  outcome: "answered",
};

const record = (changes: Partial<ExecutionRecord> = {}): ExecutionRecord => ({
  executionId: "e1",
  auditId: "550e8400-e29b-41d4-a716-446655440000",
  path: "/x",
  startedAt: 1_767_225_600_000,
  durationMs: 3,
  labels,
  ...changes,
});

/** A journal, and what the parent reads of it. */
function setUp() {
  const clock = fakeClock();
  const channel = { send: () => true, sendLine, waiting: 0 };
  const messages: ExecutionsMessage[] = [];
  const reader = createLineReader((line) => {
    const message = decodeWorkerMessage(line);
    expect(message?.type).toBe("executions");
    messages.push(message as ExecutionsMessage);
  });
  function sendLine(line: string): void {
    expect(reader.push(Buffer.from(line))).toBe(true);
  }
  return {
    clock,
    channel,
    messages,
    journal: createJournal(clock, channel),
    entries: () => messages.flatMap((message) => message.entries),
    dropped: () => messages.reduce((sum, message) => sum + message.dropped, 0),
  };
}

test("createJournal() tells calls in batches, 20 ms after the first or when one is full", () => {
  const { clock, journal, messages } = setUp();
  journal.executed(() => record());
  journal.executed(() => record({ path: "/y", labels: { ...labels, status: 404 } }));
  expect(messages).toEqual([]);
  clock.advance(20);
  expect(messages).toEqual([
    {
      type: "executions",
      dropped: 0,
      entries: [record(), record({ path: "/y", labels: { ...labels, status: 404 } })],
    },
  ]);
  for (let i = 0; i < MAX_BATCH; i++) {
    journal.executed(() => record());
  }
  expect(messages[1]?.entries.length).toBe(MAX_BATCH);
});

test("createJournal() describes no more calls than the log has room for, and counts the rest", () => {
  const { clock, journal, entries, dropped } = setUp();
  let described = 0;
  let called = 0;
  const describe = (): ExecutionRecord => {
    described++;
    return record();
  };
  const run = (ms: number): void => {
    for (let at = 0; at < ms; at += 10) {
      for (let i = 0; i < 200; i++) {
        called++;
        journal.executed(describe);
      }
      clock.advance(10);
    }
  };
  run(5000);
  const bytes = described * lineBytes(record());
  const allowed = LOG_ALLOWANCE.burstBytes + 5 * LOG_ALLOWANCE.bytesPerSecond;
  expect(bytes).toBeLessThan(1.01 * allowed);
  expect(bytes).toBeGreaterThan(0.98 * allowed);
  clock.advance(20);
  expect(entries().length).toBe(described);
  expect(dropped()).toBe(called - described);
  clock.advance(10_000);
  const before = described;
  run(500);
  expect(described - before).toBe(10_000);
});

test("createJournal() describes nothing while the parent does not read, and then tells how much is missing", () => {
  const { clock, channel, journal, messages, entries, dropped } = setUp();
  channel.waiting = 1_000_000;
  for (let i = 0; i < 100; i++) {
    journal.executed(() => record());
    clock.advance(20);
  }
  expect(messages).toEqual([]);
  channel.waiting = 0;
  clock.advance(20);
  journal.executed(() => record());
  clock.advance(20);
  expect(entries().length).toBe(1);
  expect(dropped()).toBe(100);
});

test.for([
  ["long", "x".repeat(20_000)],
  ["long and of wide characters", "\u4e2d".repeat(20_000)],
  ["long and all escapes", "\u0001".repeat(20_000)],
] as const)("createJournal() keeps to the length of a line when texts are %s", ([, text]) => {
  const { clock, journal, entries } = setUp();
  for (let i = 0; i < 100; i++) {
    const script = `${i}${text}`;
    journal.executed(() => record({ path: text, labels: { ...labels, script } }));
    clock.advance(1);
  }
  clock.advance(20);
  const told = entries();
  expect(told.length).toBe(100);
  expect(told[7]?.path).toBe(text.slice(0, 4096));
  expect(told[7]?.labels.script).toBe(`7${text}`.slice(0, 512));
});

test("createJournal() tells a call whose numbers make no sense", () => {
  const { clock, journal, entries } = setUp();
  for (const odd of [Number.NaN, Number.POSITIVE_INFINITY, -1, 1e300, 1.5]) {
    journal.executed(() =>
      record({ startedAt: odd, durationMs: odd, labels: { ...labels, status: odd } }),
    );
  }
  journal.executed(() => record());
  clock.advance(20);
  expect(entries().length).toBe(6);
  expect(entries()[5]).toEqual(record());
});
