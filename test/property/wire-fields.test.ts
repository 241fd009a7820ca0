import fc from "fast-check";
import { expect, test } from "vitest";
import {
  isReserved,
  sweepRequest,
  sweepResponse,
  sweepTrailers,
} from "../../policy/kernel/fields.ts";
import {
  canonicalForms,
  removeQueryKey,
  setQueryPair,
  splitTarget,
} from "../../policy/kernel/target.ts";
import { toOutgoingFields } from "../../proxy/outgoing-fields.ts";

const runs = { numRuns: Number(process.env["PROPERTY_RUNS"] ?? 300) };

const reserved = fc.constantFrom(
  "x-hoody-hook-auth",
  "x-hoody-hook-",
  "x-hoody-identity-user-id",
  "x-hoody-identity-claim",
  "x-hoody-edge-auth",
  "forwarded",
  "x-forwarded-for",
  "x-forwarded-proto",
  "x-forwarded-host",
  "x-forwarded-",
  "x-real-ip",
);
const hop = fc.constantFrom(
  "connection",
  "keep-alive",
  "te",
  "trailer",
  "upgrade",
  "transfer-encoding",
  "content-length",
  "proxy-connection",
  "proxy-authorization",
  "expect",
);
const plain = fc.constantFrom(
  "host",
  "accept",
  "cookie",
  "x-hoody",
  "x-real-ipx",
  "forwardedx",
  "x-hop",
  "xx-forwarded-for",
  "x",
);
/** Any case, and `_` for some of the `-`. */
const spelled = (name: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc.tuple(name, fc.infiniteStream(fc.nat(3))).map(([text, dice]) =>
    text
      .split("")
      .map((char) => {
        const roll = dice.next().value ?? 0;
        return char === "-" ? (roll === 0 ? "_" : "-") : roll > 1 ? char.toUpperCase() : char;
      })
      .join(""),
  );
const name = fc.oneof(spelled(reserved), hop, spelled(plain));
const line = fc.oneof(
  fc.tuple(name, fc.constantFrom("1", "", "a, b", "close")),
  fc.tuple(
    fc.constantFrom("Connection", "connection", "CONNECTION"),
    fc.array(name, { maxLength: 4 }).map((names) => names.join(" ,")),
  ),
);
const fields = fc.array(line, { maxLength: 20 }).map((lines) => lines.flat());

const names = (lines: readonly string[]): string[] => lines.filter((_, index) => index % 2 === 0);

test("no reserved field survives any spelling or Connection trick", () => {
  fc.assert(
    fc.property(fields, (lines) => {
      for (const swept of [sweepRequest(lines), sweepTrailers(lines)]) {
        for (const kept of names(swept)) {
          const canonical = kept.toLowerCase().replaceAll("_", "-");
          expect(
            /^(x-hoody-(hook-|identity-|edge-auth$)|x-forwarded-|x-real-ip$|forwarded$)/.test(
              canonical,
            ),
          ).toBe(false);
        }
      }
    }),
    runs,
  );
});

test("the edge's own fields are there exactly once, last, whatever the client sent", () => {
  fc.assert(
    fc.property(fields, (lines) => {
      const out = toOutgoingFields(sweepRequest(lines), {
        clientAddress: "192.0.2.1",
        encrypted: true,
      });
      expect(out.slice(-6)).toEqual([
        "X-Real-IP",
        "192.0.2.1",
        "X-Forwarded-For",
        "192.0.2.1",
        "X-Forwarded-Proto",
        "https",
      ]);
      expect(names(out).filter((kept) => isReserved(kept))).toHaveLength(3);
    }),
    runs,
  );
});

test("sweeping is idempotent, keeps order and never takes Host", () => {
  fc.assert(
    fc.property(fields, (lines) => {
      for (const sweep of [sweepRequest, sweepResponse]) {
        const once = sweep(lines);
        expect(sweep(once)).toEqual(once);
        let at = 0;
        for (let i = 0; i < once.length; i += 2) {
          while (at < lines.length && !(lines[at] === once[i] && lines[at + 1] === once[i + 1])) {
            at += 2;
          }
          expect(at).toBeLessThan(lines.length);
          at += 2;
        }
        const hosts = names(lines).filter((kept) => kept.toLowerCase() === "host");
        expect(names(once).filter((kept) => kept.toLowerCase() === "host")).toEqual(hosts);
      }
    }),
    runs,
  );
});

const segment = fc.constantFrom(
  "a",
  "admin",
  ".",
  "..",
  "%2e",
  "%2E%2e",
  "%252e.",
  "%2f",
  "%5c",
  "\\",
  "",
  "x.y",
  "...",
  "%",
  "%zz",
  "#",
);
const path = fc.array(segment, { maxLength: 10 }).map((parts) => `/${parts.join("/")}`);

test("canonical forms never hold a dot segment, an empty segment or a decodable escape of one", () => {
  fc.assert(
    fc.property(path, (text) => {
      const [received, ...forms] = canonicalForms(text);
      expect(received).toBe(text);
      expect(new Set(forms).size).toBe(forms.length);
      for (const form of forms.filter((candidate) => candidate !== splitAtFragment(text))) {
        expect(form.startsWith("/")).toBe(true);
        expect(/\/\.{0,2}\/|\/\.{1,2}$/.test(form.replace(/^\/$/, ""))).toBe(false);
      }
    }),
    runs,
  );
});

function splitAtFragment(text: string): string {
  return text.split("#", 1)[0] ?? "";
}

const pair = fc.constantFrom(
  "id=1",
  "%69d=2",
  "id",
  "i%64",
  "a=1",
  "a",
  "",
  "b=%zz",
  "idx=1",
  "c==",
  "+id=1",
  "id+=1",
);
const query = fc.option(fc.array(pair, { maxLength: 8 }).map((pairs) => pairs.join("&")));

test("setQueryPair() leaves exactly one pair of the key, last, and the others byte for byte", () => {
  fc.assert(
    fc.property(query, (text) => {
      const set = setQueryPair(text, "id", "7");
      const pairs = set.split("&");
      expect(pairs.at(-1)).toBe("id=7");
      const others = pairs.slice(0, -1);
      expect(
        others.some(
          (other) => decodeURIComponent(other.split("=", 1)[0]!.replaceAll("%zz", "")) === "id",
        ),
      ).toBe(false);
      const expected = (text ?? "")
        .split("&")
        .filter((other) => !/^(id|%69d|i%64)(=|$)/.test(other));
      expect(others).toEqual(expected.join("&") === "" ? [] : expected);
      expect(removeQueryKey(set, "id") ?? "").toBe(expected.join("&"));
      expect(splitTarget(`/p?${set}`).query).toBe(set);
    }),
    runs,
  );
});
