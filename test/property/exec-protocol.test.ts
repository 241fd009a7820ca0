import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MAX_BATCH } from "../../exec-host/execution-records.ts";
import {
  createLineReader,
  decodeParentMessage,
  decodeWorkerMessage,
  encodeMessage,
  LOG_LEVELS,
  MAX_LOG_TEXT,
  type PlainWorkerMessage,
  type StartMessage,
} from "../../exec-host/protocol.ts";

const count = fc.nat();
const text = (maxLength: number) => fc.string({ maxLength });
const auditId = fc.option(fc.uuid());

const workerMessage: fc.Arbitrary<PlainWorkerMessage> = fc.oneof(
  fc.record({ type: fc.constant("ready" as const), version: count }),
  fc.record({ type: fc.constant("failed" as const), message: text(200) }),
  fc.record({
    type: fc.constant("pong" as const),
    seq: count,
    active: count,
    heapUsedBytes: count,
  }),
  fc.record({
    type: fc.constant("logs" as const),
    dropped: count,
    lines: fc.array(
      fc.record({
        ts: count,
        level: fc.constantFrom(...LOG_LEVELS),
        executionId: text(64),
        script: text(200),
        auditId,
        msg: text(300),
      }),
      { maxLength: 5 },
    ),
  }),
  fc.record({ type: fc.constant("ended" as const), auditId: text(64), outcome: text(32) }),
);

describe("protocol", () => {
  test("decodeWorkerMessage() gives back what encodeMessage() wrote", () => {
    fc.assert(
      fc.property(workerMessage, (message) => {
        expect(decodeWorkerMessage(encodeMessage(message).trimEnd())).toEqual(message);
      }),
    );
  });

  test("decoders never throw and never pass a foreign shape", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.json(),
          fc.jsonValue().map((v) => JSON.stringify(v)),
        ),
        (line) => {
          const decoded = [decodeWorkerMessage(line), decodeParentMessage(line)];
          for (const message of decoded) {
            expect(message === null || typeof message.type === "string").toBe(true);
          }
        },
      ),
    );
  });

  test("createLineReader() finds the same lines however the bytes are cut", () => {
    fc.assert(
      fc.property(
        fc.array(text(50).filter((s) => !s.includes("\n"))),
        fc.array(fc.nat(40)),
        (lines, cuts) => {
          const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(""));
          const seen: string[] = [];
          const reader = createLineReader((line) => seen.push(line));
          let at = 0;
          for (const cut of cuts) {
            expect(reader.push(bytes.subarray(at, at + cut))).toBe(true);
            at = Math.min(bytes.length, at + cut);
          }
          reader.push(bytes.subarray(at));
          expect(seen).toEqual(lines.map((line) => Buffer.from(line).toString()));
        },
      ),
    );
  });

  test("createLineReader() refuses a line that is too long, whole or in pieces", () => {
    const whole = createLineReader(() => {}, 10);
    expect(whole.push(Buffer.from(`${"x".repeat(11)}\n`))).toBe(false);
    const pieces = createLineReader(() => {}, 10);
    expect(pieces.push(Buffer.from("x".repeat(10)))).toBe(true);
    expect(pieces.push(Buffer.from("x"))).toBe(false);
  });

  test("decodeWorkerMessage() cuts long texts and refuses long batches", () => {
    const line = {
      ts: 1,
      level: "info",
      executionId: "e",
      script: "s",
      auditId: null,
      msg: "x".repeat(9000),
    };
    const logs = (lines: unknown[]) => decodeWorkerMessage(JSON.stringify({ type: "logs", lines }));
    const cut = logs([line]);
    expect(cut?.type === "logs" ? cut.lines[0]?.msg.length : 0).toBe(MAX_LOG_TEXT);
    expect(logs(Array.from({ length: MAX_BATCH + 1 }, () => line))).toBeNull();
    expect(logs([{ ...line, level: "fatal" }])).toBeNull();
    expect(logs([{ ...line, ts: -1 }])).toBeNull();
    expect(decodeWorkerMessage('{"type":"pong","seq":1,"active":-1,"heapUsedBytes":0}')).toBeNull();
  });

  test("decodeParentMessage() takes a whole start message and nothing less", () => {
    const start: StartMessage = {
      type: "start",
      version: 1,
      containerId: "c",
      secret: "s",
      socketPath: "/s",
      scriptsRoot: "/r",
      dataDir: "/d",
      env: { A: "1" },
      limits: {
        maxBufferedBodyBytes: 1,
        ordinaryTimeoutMs: 1,
        upstreamConnectMs: 1,
        upstreamIdleMs: 1,
        maxHeaderBytes: 1,
        maxDeployments: 1,
      },
    };
    expect(decodeParentMessage(encodeMessage(start).trimEnd())).toEqual(start);
    for (const name of Object.keys(start)) {
      const { [name as keyof StartMessage]: _, ...rest } = start;
      expect(decodeParentMessage(JSON.stringify(rest)), name).toBeNull();
    }
    expect(decodeParentMessage(JSON.stringify({ ...start, env: { A: 1 } }))).toBeNull();
  });
});
