import fc from "fast-check";
import { expect, test } from "vitest";
import { escape, quote } from "../../policy/kernel/json-text.ts";
import { type AuditRow, formatAuditLine, parseAuditLine } from "../../policy/store/audit-row.ts";

const runs = { numRuns: Number(process.env["PROPERTY_RUNS"] ?? 300) };

/** Any UTF-16 units at all, the ones that JSON must escape or that lines trip over more often. */
const unit = fc.oneof(
  fc.integer({ min: 0, max: 0xffff }),
  fc.integer({ min: 0, max: 0x7f }),
  fc.constantFrom(0x0a, 0x0d, 0x22, 0x5c, 0x7f, 0x80, 0xd800, 0xdbff, 0xdc00, 0xdfff, 0x2028),
);
const odd = fc.array(unit, { maxLength: 20 }).map((units) => String.fromCharCode(...units));
const text = fc.oneof(odd, fc.string(), fc.webPath(), fc.uuid());
// Few values, so that a record often has these in common with the one before, wholly or in part.
const common = fc.oneof({ weight: 4, arbitrary: fc.constantFrom("", "a", "b", '"') }, text);
const number = fc.oneof(fc.nat(), fc.integer(), fc.double());

const row: fc.Arbitrary<AuditRow> = fc
  .record({
    audit_id: text,
    ts: text,
    project: common,
    container: common,
    service: common,
    hook_id: common,
    method: text,
    path: text,
    client_ip: text,
    matched_groups: fc.array(text, { maxLength: 3 }),
    script: text,
    outcome: text,
    status: number,
    duration_ms: number,
  })
  .chain((members) =>
    fc
      .constantFrom("absent", "undefined", "null", "number")
      .chain((kind): fc.Arbitrary<AuditRow> =>
        kind === "absent"
          ? fc.constant(members)
          : kind === "null"
            ? fc.constant({ ...members, upstream_ms: null })
            : kind === "number"
              ? number.map((upstream_ms) => ({ ...members, upstream_ms }))
              : fc.constant({ ...members, upstream_ms: undefined } as unknown as AuditRow),
      ),
  );

test("formatAuditLine() writes what JSON.stringify() says of any record", () => {
  fc.assert(
    fc.property(fc.array(row, { minLength: 1, maxLength: 4 }), (rows) => {
      for (const each of rows) {
        const line = formatAuditLine(each);
        expect(line).toBe(`${JSON.stringify(each)}\n`);
        expect(line.indexOf("\n")).toBe(line.length - 1);
        expect(parseAuditLine(line.trimEnd())).toEqual(JSON.parse(JSON.stringify(each)));
        expect(Buffer.from(line).toString()).toBe(line); // nothing that UTF-8 cannot carry
      }
    }),
    runs,
  );
});

test("quote() and escape() write texts as JSON.stringify() does", () => {
  fc.assert(
    fc.property(text, (any) => {
      expect(quote(any)).toBe(JSON.stringify(any));
      expect(`"${escape(any)}"`).toBe(JSON.stringify(any));
    }),
    runs,
  );
});
