import fc from "fast-check";
import { test } from "vitest";
import { readSse, type SseFrame } from "../../client/sse.ts";

async function* chunks(parts: readonly Uint8Array[]) {
  yield* parts;
}

async function read(parts: readonly Uint8Array[]): Promise<SseFrame[]> {
  const frames: SseFrame[] = [];
  for await (const frame of readSse(chunks(parts))) {
    frames.push(frame);
  }
  return frames;
}

/** Cuts bytes at the given places. */
function cut(bytes: Uint8Array, at: readonly number[]): Uint8Array[] {
  const places = [...new Set(at.map((n) => n % (bytes.length + 1)))].sort((a, b) => a - b);
  return [0, ...places].map((from, i) => bytes.subarray(from, places[i] ?? bytes.length));
}

const line = fc
  .string({ unit: "binary" })
  .map((text) => text.replaceAll(/[\r\n\0]/g, "·").toWellFormed());
const event = fc.record({
  event: fc.constantFrom("message", "start", "end"),
  id: fc.constantFrom("", "1", "a b"),
  data: fc.array(line, { minLength: 1, maxLength: 4 }),
});

test("readSse() gives the same events wherever the bytes are cut and however lines end", async ({
  expect,
}) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(event, { maxLength: 5 }),
      fc.constantFrom("\n", "\r\n", "\r"),
      fc.array(fc.nat(400)),
      async (events, eol, places) => {
        const text = events
          .map(({ event: name, id, data }) =>
            [
              `event: ${name}`,
              `id: ${id}`,
              ": comment",
              ...data.map((part) => `data: ${part}`),
              "",
              "",
            ].join(eol),
          )
          .join("");
        // A final lone CR could still be half of a CRLF; a following line settles it.
        const bytes = new TextEncoder().encode(`${text}: end${eol}${eol}`);
        expect(await read(cut(bytes, places))).toEqual(
          events.map(({ event: name, id, data }) => ({ event: name, id, data: data.join("\n") })),
        );
      },
    ),
    { numRuns: 200 },
  );
});

test("readSse() never fails on bytes of any kind", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 200 })), async (parts) => {
      await read(parts);
    }),
    { numRuns: 200 },
  );
});

test("readSse() gives up on an event that has no end", async ({ expect }) => {
  const part = new TextEncoder().encode(`data: ${"x".repeat(1_000_000)}\n`);
  await expect(read(Array.from({ length: 6 }, () => part))).rejects.toThrow("longer than 4 MiB");
  const unended = new TextEncoder().encode("x".repeat(1_000_000));
  await expect(read(Array.from({ length: 6 }, () => unended))).rejects.toThrow("longer than 4 MiB");
});

test("readSse() drops a first byte order mark and an unfinished last event", async ({ expect }) => {
  const bytes = new TextEncoder().encode("\uFEFFdata: a\n\ndata: b\n");
  expect(await read([bytes])).toEqual([{ event: "message", id: "", data: "a" }]);
});
