import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CallNumbers, CallTable } from "../../dispatcher/call-table.ts";
import { FRAME, FrameWriter, MAX_FRAME_BYTES, readNumber } from "../../dispatcher/frames.ts";
import { fakeClock } from "../support/auth-clock.ts";
import { fakeTarget, joined, PIECEWISE, readFrames, type Frame } from "../support/frame-stream.ts";

const runs = { numRuns: Number(process.env["PROPERTY_RUNS"] ?? 200) };

/** How a frame was given to the writer. */
type Way = "text" | "later" | "bytes" | "number";
type Given = Frame & { readonly way: Way };

const call = fc.oneof(
  fc.integer({ min: 0, max: 5 }),
  fc.constantFrom(0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x0d0a_0d0a),
);
const small = fc.uint8Array({ maxLength: 60 }).map(latin1);
const large = fc
  .record({ size: fc.integer({ min: 16_000, max: 150_000 }), seed: fc.nat(250) })
  .map(({ size, seed }) =>
    latin1(Uint8Array.from({ length: size }, (_, at) => (at * 7 + seed) & 255)),
  );
const given: fc.Arbitrary<Given> = fc
  .record({
    type: fc.constantFrom(...Object.values(FRAME)),
    call,
    payload: fc.oneof({ weight: 8, arbitrary: small }, { weight: 1, arbitrary: large }),
    way: fc.constantFrom<Way[]>("text", "later", "bytes", "number"),
    value: fc.integer({ min: 0, max: 0xffff_ffff }),
  })
  .map(({ value, ...frame }) =>
    frame.way === "number" ? { ...frame, payload: word(value) } : frame,
  );

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("latin1");
}

function word(value: number): string {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes.toString("latin1");
}

function give(writer: FrameWriter, { way, type, call: id, payload }: Given): void {
  switch (way) {
    case "text":
      return writer.text(type, id, payload);
    case "later":
      return writer.later(type, id, payload);
    case "bytes":
      return writer.bytes(type, id, Buffer.from(payload, "latin1"));
    case "number":
      return writer.number(type, id, Buffer.from(payload, "latin1").readUInt32BE());
  }
}

function immediate(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

describe("frames", () => {
  test("come out as they went in, in order, however they were given, gathered and cut", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof({ weight: 6, arbitrary: given }, fc.constantFrom("turn", "1 ms"))),
        fc.array(fc.nat(400_000), { maxLength: 40 }),
        async (steps, cuts) => {
          const clock = fakeClock();
          const { target, bytes, corks } = fakeTarget();
          const writer = new FrameWriter(target, clock);
          for (const step of steps) {
            if (step === "turn") {
              await immediate();
            } else if (step === "1 ms") {
              clock.advance(1);
            } else {
              give(writer, step as Given);
            }
          }
          await immediate();
          clock.advance(1);
          expect(corks()).toBe(0);
          const frames = steps.filter((step) => typeof step === "object");
          const { frames: told, isKept } = readFrames(bytes(), cuts);
          expect(isKept).toBe(true);
          expect(told.length).toBe(joined(frames).length);
          expect(told).toEqual(joined(frames));
        },
      ),
      runs,
    );
  });

  test("are read the same one byte at a time", () => {
    fc.assert(
      fc.property(fc.array(given, { maxLength: 6 }), (frames) => {
        const { target, bytes } = fakeTarget();
        const writer = new FrameWriter(target, fakeClock());
        const few = frames.filter(({ payload }) => payload.length < 1000);
        few.forEach((frame) => give(writer, frame));
        writer.flush();
        const stream = bytes();
        const every = Array.from({ length: stream.length }, (_, at) => at);
        expect(readFrames(stream, every).frames).toEqual(joined(few));
      }),
      runs,
    );
  });

  test("that are too long are refused, and nothing that comes is ever thrown", () => {
    fc.assert(
      fc.property(
        fc.array(given, { maxLength: 3 }),
        fc.constantFrom(...Object.values(FRAME), 0, 15, 255),
        fc.integer({ min: MAX_FRAME_BYTES + 1, max: 0xffff_ffff }),
        fc.array(fc.nat(200_000), { maxLength: 10 }),
        (frames, type, length, cuts) => {
          const { target, bytes } = fakeTarget();
          const writer = new FrameWriter(target, fakeClock());
          frames.forEach((frame) => give(writer, frame));
          writer.flush();
          const tooLong = Buffer.alloc(12);
          tooLong.writeUInt32BE(length);
          tooLong[8] = type;
          const { frames: told, isKept } = readFrames(Buffer.concat([bytes(), tooLong]), cuts);
          expect(isKept).toBe(PIECEWISE.includes(type));
          const whole = joined(frames);
          expect(told.slice(0, Math.max(0, whole.length - 1))).toEqual(whole.slice(0, -1));
        },
      ),
      runs,
    );
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.array(fc.nat(300)), (noise, cuts) => {
        expect(typeof readFrames(Buffer.from(noise), cuts).isKept).toBe("boolean");
      }),
      runs,
    );
  });

  test("of the longest kind that is read whole are read", () => {
    const payload = "x".repeat(MAX_FRAME_BYTES);
    const { target, bytes } = fakeTarget();
    const writer = new FrameWriter(target, fakeClock());
    writer.text(FRAME.order, 7, payload);
    writer.flush();
    const { frames, isKept } = readFrames(bytes(), [4, 70_000, 600_000]);
    expect(isKept).toBe(true);
    expect(frames.map((frame) => [frame.type, frame.call, frame.payload.length])).toEqual([
      [FRAME.order, 7, MAX_FRAME_BYTES],
    ]);
  });
});

describe("FrameWriter", () => {
  test("sends frames that nobody waits for by themselves, and never before earlier ones", () => {
    fc.assert(
      fc.property(fc.array(given.filter(({ way }) => way === "later")), (frames) => {
        const clock = fakeClock();
        const { target, bytes, writes } = fakeTarget();
        const writer = new FrameWriter(target, clock);
        frames.forEach((frame) => give(writer, frame));
        expect(writes()).toBe(0);
        clock.advance(1);
        expect(readFrames(bytes(), []).frames).toEqual(joined(frames));
        const before = writes();
        clock.advance(1000);
        expect(writes()).toBe(before);
      }),
      runs,
    );
  });

  test("gathers small frames of a turn into one write, and asks for the last word before it", async () => {
    const { target, bytes, writes } = fakeTarget();
    const writer = new FrameWriter(target, fakeClock());
    let flushes = 0;
    writer.onFlush = () => {
      flushes++;
      if (flushes === 1) {
        writer.text(FRAME.order, 3, "last");
      }
    };
    writer.later(FRAME.orderDone, 1, "");
    writer.text(FRAME.answer, 2, "a");
    writer.bytes(FRAME.answer, 2, Buffer.from("b"));
    await immediate();
    await immediate();
    expect(writes()).toBe(1);
    expect(readFrames(bytes(), []).frames).toEqual([
      { type: FRAME.orderDone, call: 1, payload: "" },
      { type: FRAME.answer, call: 2, payload: "ab" },
      { type: FRAME.order, call: 3, payload: "last" },
    ]);
  });

  test("tells that a turn is out, once, after its bytes, also when there are none", async () => {
    const told: string[] = [];
    const { target, finishWrites } = fakeTarget();
    const writer = new FrameWriter(target, fakeClock());
    writer.text(FRAME.answer, 1, "a");
    writer.after(() => told.push("first"));
    writer.bytes(FRAME.answer, 1, Buffer.alloc(70_000));
    writer.after(() => told.push("second"));
    await immediate();
    expect(told).toEqual([]);
    finishWrites();
    expect(told).toEqual(["first", "second"]);
    writer.after(() => told.push("third"));
    await immediate();
    finishWrites();
    await immediate();
    finishWrites();
    expect(told).toEqual(["first", "second", "third"]);
  });

  test("says when the connection is full, and is silent on one that is destroyed", async () => {
    const full = fakeTarget(false);
    const writer = new FrameWriter(full.target, fakeClock());
    expect(writer.isFull).toBe(false);
    writer.text(FRAME.answer, 1, "a");
    await immediate();
    expect(writer.isFull).toBe(true);
    const gone = fakeTarget();
    gone.target.destroyed = true;
    const late = new FrameWriter(gone.target, fakeClock());
    late.text(FRAME.answer, 1, "a");
    late.bytes(FRAME.answer, 1, Buffer.alloc(200_000));
    await immediate();
    expect(gone.writes()).toBe(0);
  });
});

test("readNumber() takes four bytes and nothing else", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 0xffff_ffff }), fc.uint8Array(), (value, noise) => {
      expect(readNumber(Buffer.from(word(value), "latin1"))).toBe(value);
      expect(readNumber(Buffer.from(noise)) === null).toBe(noise.length !== 4);
    }),
    runs,
  );
});

describe("CallNumbers and CallTable", () => {
  /** More calls than this may come between two uses of one number. */
  const ROUNDS = 4095;

  test("keep open calls apart, find none by a number that is over, and use places again", () => {
    const step = fc.oneof(
      fc.constant({ kind: "open" as const }),
      fc.record({ kind: fc.constant("close" as const), which: fc.nat() }),
      fc.record({ kind: fc.constant("stale" as const), which: fc.nat() }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
        const numbers = new CallNumbers();
        const table = new CallTable<{ number: number }>();
        const open = new Map<number, { number: number }>();
        const over: number[] = [];
        let most = 0;
        for (const action of steps) {
          if (action.kind === "open") {
            const number = numbers.next();
            expect(Number.isInteger(number) && number > 0 && number <= 0xffff_ffff).toBe(true);
            expect(open.has(number)).toBe(false);
            expect(over).not.toContain(number);
            const entry = { number };
            expect(table.put(number, entry)).toBe(true);
            expect(table.put(number, { number })).toBe(false);
            open.set(number, entry);
            most = Math.max(most, open.size);
            expect(number % 2 ** 20).toBeLessThan(most);
          } else if (action.kind === "close" && open.size > 0) {
            const number = [...open.keys()][action.which % open.size]!;
            expect(table.remove(number)).toBe(true);
            expect(table.remove(number)).toBe(false);
            numbers.release(number);
            open.delete(number);
            over.push(number);
          } else if (action.kind === "stale" && over.length > 0) {
            const number = over[action.which % over.length]!;
            expect(table.get(number)).toBeNull();
            expect(table.remove(number)).toBe(false);
          }
          expect(table.size).toBe(open.size);
          expect(new Set(table.all())).toEqual(new Set(open.values()));
          for (const [number, entry] of open) {
            expect(table.get(number)).toBe(entry);
          }
        }
      }),
      runs,
    );
  });

  test("find nothing by numbers that no call of theirs has", () => {
    const number = fc
      .tuple(fc.integer({ min: 1, max: ROUNDS }), fc.integer({ min: 0, max: 50 }))
      .map(([round, place]) => round * 2 ** 20 + place);
    const other = fc.oneof(number, fc.integer({ min: 0, max: 0xffff_ffff }), fc.constant(0));
    fc.assert(
      fc.property(number, other, (mine, stranger) => {
        fc.pre(mine !== stranger);
        const table = new CallTable<string>();
        table.put(mine, "mine");
        expect(table.get(stranger)).toBeNull();
        expect(table.remove(stranger)).toBe(false);
        expect([table.get(mine), table.size]).toEqual(["mine", 1]);
      }),
      runs,
    );
  });

  test("use a place for thousands of calls before a number of it comes again", () => {
    const numbers = new CallNumbers();
    const seen = new Set<number>();
    for (let at = 0; at < ROUNDS; at++) {
      const number = numbers.next();
      expect(number % 2 ** 20).toBe(0);
      seen.add(number);
      numbers.release(number);
    }
    expect(seen.size).toBe(ROUNDS);
  });
});
