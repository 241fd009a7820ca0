import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { UpstreamFailure } from "../../policy/kernel/http1/types.ts";
import { decodeCall, encodeCall, splitFields } from "../../dispatcher/call-frame.ts";
import {
  DEPTH_FIELD,
  withDepth,
  type Envelope,
  type HookEnvelope,
  type OrdinaryEnvelope,
} from "../../dispatcher/envelope.ts";
import { MAX_FRAME_BYTES } from "../../dispatcher/frames.ts";
import {
  decodeOrder,
  decodeOrderFailure,
  decodeOrderHead,
  encodeOrder,
  encodeOrderFailure,
  encodeOrderHead,
  type ForwardOrder,
} from "../../dispatcher/order.ts";

const runs = { numRuns: Number(process.env["PROPERTY_RUNS"] ?? 300) };
const TOKEN = "!#$%&'*+-.^_`|~09azAZ";

/** Text of the given characters. */
function textOf(characters: string, minLength: number, maxLength = 20): fc.Arbitrary<string> {
  return fc.string({ unit: fc.constantFrom(...characters.split("")), minLength, maxLength });
}

function bytes(from: number, minLength: number, not: readonly number[] = []): fc.Arbitrary<string> {
  return fc
    .uint8Array({ min: from, minLength, maxLength: 40 })
    .map((list) => String.fromCharCode(...list.filter((byte) => !not.includes(byte))))
    .filter((text) => text.length >= minLength);
}

const token = textOf(TOKEN, 1);
const value = bytes(1, 0, [10, 13]);
const word = bytes(1, 1, [10, 13]);
const target = bytes(0x21, 1, [0x7f]);
const path = bytes(0, 1);
const fields = fc
  .array(fc.tuple(fc.oneof(token, fc.constantFrom("Host", "Cookie", "X-A")), value))
  .map((lines) => lines.flat());
const methods = fc.oneof(fc.constantFrom("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"), token);
const nameOrNone = fc.option(word);
const ordinary: fc.Arbitrary<OrdinaryEnvelope> = fc.record({
  kind: fc.constant("ordinary" as const),
  subdomain: nameOrNone,
  execId: nameOrNone,
  clientAddress: word,
  manage: fc.boolean(),
});
const hook: fc.Arbitrary<HookEnvelope> = fc.record(
  {
    kind: fc.constant("hook" as const),
    auditId: word,
    method: methods,
    path,
    service: word,
    upstreamHost: word,
    upstreamPort: fc.integer({ min: 1, max: 65_535 }),
    upstreamToken: word,
    subdomain: nameOrNone,
    execId: nameOrNone,
    scriptPath: path,
    timeoutMs: fc.integer({ min: 1, max: 30_000 }),
    clientAddress: word,
  },
  {
    requiredKeys: [
      ...([
        "kind",
        "auditId",
        "method",
        "path",
        "service",
        "upstreamHost",
        "upstreamPort",
      ] as const),
      ...(["subdomain", "execId", "scriptPath", "timeoutMs", "clientAddress"] as const),
    ],
  },
);
const envelopes: fc.Arbitrary<Envelope> = fc.oneof(hook, ordinary);
const bodies = fc.oneof(fc.constantFrom(null, undefined), fc.nat());
/** One character that no line may hold, somewhere in a text. */
const unsendable = fc
  .tuple(
    bytes(0x21, 0, [0x7f]),
    fc.oneof(
      fc.constantFrom("\r", "\n", "\0", "\r\n", "\u010a", "\u0100", "\u210d", "\ud83d\ude00"),
      fc.integer({ min: 0x100, max: 0xffff }).map((code) => String.fromCharCode(code)),
    ),
    bytes(0x21, 0, [0x7f]),
  )
  .map((parts) => parts.join(""));

/** The framing that a script sees behind the fields. */
function framing(method: string, length: number | null | undefined): string[] {
  if (length === null) {
    return ["Transfer-Encoding", "chunked"];
  }
  if (length === undefined && !["POST", "PUT", "PATCH"].includes(method)) {
    return [];
  }
  return ["Content-Length", String(length ?? 0)];
}

describe("encodeCall() and decodeCall()", () => {
  test("are inverses for every call that can be sent", () => {
    fc.assert(
      fc.property(
        envelopes,
        methods,
        target,
        fields,
        bodies,
        fc.record({ takesOrders: fc.boolean(), depth: fc.integer({ min: 0, max: 999 }) }),
        (envelope, method, to, lines, length, { takesOrders, depth }) => {
          const given = withDepth(lines, depth);
          expect(decodeCall(encodeCall(envelope, method, to, given, length, takesOrders))).toEqual({
            envelope,
            method,
            target: to,
            fields: [...lines, ...framing(method, length)].join("\n"),
            hasBody: length !== undefined,
            takesOrders,
            depth,
          });
        },
      ),
      runs,
    );
  });

  test("say the depth once, and take nothing for it that is none", () => {
    fc.assert(
      fc.property(ordinary, value, (envelope, depth) => {
        const lines = ["X-A", "1", DEPTH_FIELD, depth, "X-B", "2"];
        const read = decodeCall(encodeCall(envelope, "GET", "/", lines, undefined, false));
        expect(splitFields(read?.fields ?? "")).toEqual(["X-A", "1", "X-B", "2"]);
        expect(read?.depth).toBe(/^\d{1,3}$/.test(depth) ? Number(depth) : 0);
      }),
      runs,
    );
  });

  test.each(["method", "target", "name", "value"] as const)(
    "refuse a %s that would change the frame",
    (place) => {
      fc.assert(
        fc.property(envelopes, unsendable, (envelope, text) => {
          const parts = { method: "GET", target: "/", name: "X-A", value: "1", [place]: text };
          const lines = ["Host", "a", parts.name, parts.value, "X-B", "2"];
          expect(() =>
            encodeCall(envelope, parts.method, parts.target, lines, undefined, true),
          ).toThrow(TypeError);
        }),
        runs,
      );
    },
  );

  test.each([
    "clientAddress",
    "subdomain",
    "execId",
    "auditId",
    "method",
    "service",
    "upstreamHost",
    "upstreamToken",
  ] as const)("refuse an envelope whose %s would change the frame", (member) => {
    fc.assert(
      fc.property(hook, unsendable, (envelope, text) => {
        const broken = { ...envelope, [member]: text };
        expect(() => encodeCall(broken, "GET", "/", ["Host", "a"], undefined, true)).toThrow(
          TypeError,
        );
      }),
      runs,
    );
  });

  test("carry any path and script path as one line each", () => {
    fc.assert(
      fc.property(hook, unsendable, unsendable, (envelope, odd, script) => {
        const broken = { ...envelope, path: odd, scriptPath: script };
        const payload = encodeCall(broken, "GET", "/x", ["Host", "a"], undefined, true);
        expect(payload).toMatch(/^[\0-\xff]*$/);
        const read = decodeCall(payload);
        expect(read).toMatchObject({ method: "GET", target: "/x", fields: "Host\na" });
        const { path: _path, scriptPath: _script, ...others } = envelope;
        expect(read?.envelope).toMatchObject({ ...others });
      }),
      runs,
    );
  });

  test("refuse what is longer than a frame", () => {
    const envelope = fc.sample(ordinary, { numRuns: 1, seed: 1 })[0]!;
    const encode = (size: number): string =>
      encodeCall(envelope, "GET", "/", ["X-A", "x".repeat(size)], undefined, false);
    const most = MAX_FRAME_BYTES - encode(0).length;
    expect(encode(most)).toHaveLength(MAX_FRAME_BYTES);
    expect(() => encode(most + 1)).toThrow(TypeError);
  });

  test("take any text, and take impossible envelopes for none", () => {
    const line = fc.oneof(
      fc.constantFrom("hook", "ordinary", "", "b", "bo", "1", "GET", "/", "80", "500", "%0A", "%"),
      fc.string({ unit: "binary", maxLength: 5 }),
    );
    const text = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.array(line, { maxLength: 24 }).map((lines) => lines.join("\n")),
    );
    fc.assert(
      fc.property(text, (payload) => {
        const read = decodeCall(payload);
        if (read === null) {
          return;
        }
        expect(read.method).not.toBe("");
        expect(read.target).not.toBe("");
        expect(splitFields(read.fields).length % 2).toBe(0);
        expect(Number.isInteger(read.depth) && read.depth >= 0 && read.depth < 1000).toBe(true);
        if (read.envelope.kind === "hook") {
          const { upstreamPort, timeoutMs } = read.envelope;
          expect(upstreamPort >= 1 && upstreamPort <= 65_535).toBe(true);
          expect(timeoutMs >= 1 && timeoutMs <= 30_000).toBe(true);
        }
      }),
      { numRuns: runs.numRuns * 4 },
    );
  });

  test("know a call by its lines: one more or less is none", () => {
    fc.assert(
      fc.property(envelopes, fields, fc.nat(), (envelope, lines, at) => {
        const payload = encodeCall(envelope, "GET", "/", lines, undefined, false);
        const all = payload.split("\n");
        expect(decodeCall(`${payload}\n`)).toBeNull();
        all.splice(at % all.length, 1);
        expect(decodeCall(all.join("\n"))).toBeNull();
      }),
      runs,
    );
  });
});

describe("orders", () => {
  const orders: fc.Arbitrary<ForwardOrder> = fc.record({
    target,
    fields: fc.option(fields),
    staged: fields,
    waitedMs: fc.option(fc.double({ min: 0, max: 1e9, maxExcluded: true, noNaN: true })),
  });

  test("are read as they were given", () => {
    fc.assert(
      fc.property(orders, (order) => {
        const { waitedMs, ...rest } = order;
        const read = decodeOrder(encodeOrder(order));
        expect({ target: read?.target, fields: read?.fields, staged: read?.staged }).toEqual(rest);
        expect(read?.waitedMs ?? null).toBe(waitedMs === null ? null : waitedMs + 0);
      }),
      runs,
    );
  });

  test("are none when the text is another", () => {
    const line = fc.oneof(
      fc.constantFrom("same", "own", "", "/", "1", "-1", "NaN", "Infinity", "1e9", "X-A"),
      fc.string({ unit: "binary", maxLength: 5 }),
    );
    const text = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.array(line, { maxLength: 8 }).map((lines) => lines.join("\n")),
    );
    fc.assert(
      fc.property(text, (payload) => {
        const read = decodeOrder(payload);
        if (read !== null) {
          expect((read.fields?.length ?? 0) % 2).toBe(0);
          expect(read.waitedMs === null || (read.waitedMs >= 0 && read.waitedMs < 1e9)).toBe(true);
        }
      }),
      { numRuns: runs.numRuns * 4 },
    );
  });

  test("are reported in words that come back", () => {
    const kinds = fc.constantFrom("connect", "reset", "timeout", "protocol", "body" as const);
    fc.assert(
      fc.property(
        fc.integer({ min: 200, max: 999 }),
        value,
        fc.double({ min: 0, max: 1e6, noNaN: true }),
        kinds,
        fc.string({ unit: "binary", maxLength: 800 }),
        (status, reason, ms, kind, message) => {
          const head = decodeOrderHead(encodeOrderHead(status, reason, ms));
          expect(head).toMatchObject({ status, reason });
          expect(Math.abs(head.ms - ms)).toBeLessThanOrEqual(0.0501);
          const payload = encodeOrderFailure(new UpstreamFailure(kind, message));
          expect(payload).toMatch(/^[\n\x20-\x7e]*$/);
          const failure = decodeOrderFailure(payload);
          expect(failure.kind).toBe(kind);
          expect(failure.message).toBe(message.replaceAll(/[^\x20-\x7e]/g, "?").slice(0, 500));
        },
      ),
      runs,
    );
    for (const text of ["", "x", "\n", "\n\n\n"]) {
      expect(() => [decodeOrderHead(text), decodeOrderFailure(text)]).not.toThrow();
    }
  });
});
