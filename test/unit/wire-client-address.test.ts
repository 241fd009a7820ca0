import { describe, expect, test } from "vitest";
import { clientAddress, createTrustedProxies, plainAddress } from "../../proxy/client-address.ts";

describe("plainAddress()", () => {
  test.for([
    ["::ffff:192.0.2.1", "192.0.2.1"],
    ["::FFFF:192.0.2.1", "192.0.2.1"],
    ["::ffff:c000:201", "192.0.2.1"],
    ["192.0.2.1", "192.0.2.1"],
    ["2001:db8::1", "2001:db8::1"],
    ["::1", "::1"],
    ["::ffff:300.0.0.1", "::ffff:300.0.0.1"],
    ["", ""],
  ])("turns %s into %s", ([address, plain]) => {
    expect(plainAddress(address!)).toBe(plain);
  });
});

describe("createTrustedProxies()", () => {
  test("knows networks of both families, single addresses and mapped spellings", () => {
    const trusted = createTrustedProxies([
      "10.0.0.0/8",
      "192.0.2.7",
      "2001:db8::/32",
      "::ffff:198.51.100.0/120",
    ]);
    for (const address of [
      "10.1.2.3",
      "::ffff:10.1.2.3",
      "192.0.2.7",
      "2001:db8::5",
      "198.51.100.9",
    ]) {
      expect(trusted.has(address)).toBe(true);
    }
    for (const address of [
      "11.0.0.1",
      "192.0.2.8",
      "2001:db9::1",
      "198.51.101.1",
      "",
      "nonsense",
      "10.1.2.3:80",
    ]) {
      expect(trusted.has(address)).toBe(false);
    }
  });

  test("trusts nobody by default", () => {
    expect(createTrustedProxies([]).has("127.0.0.1")).toBe(false);
  });

  test.for([
    "10.0.0.0/33",
    "10.0.0.0/",
    "10.0.0.0/-1",
    "10.0.0/8",
    "2001:db8::/129",
    "example.org",
    "",
    "10.0.0.0/8/8",
  ])("refuses %s", (entry) => {
    expect(() => createTrustedProxies([entry])).toThrow(TypeError);
  });
});

describe("clientAddress()", () => {
  const trusted = createTrustedProxies(["10.0.0.0/8", "::1"]);
  const xff = (...values: string[]): string[] =>
    values.flatMap((value) => ["X-Forwarded-For", value]);

  test.for<[string, string, string[], string]>([
    ["the peer, when nothing was forwarded", "192.0.2.1", [], "192.0.2.1"],
    [
      "the peer, when it is not trusted, whatever it says",
      "192.0.2.1",
      xff("6.6.6.6"),
      "192.0.2.1",
    ],
    ["the last entry behind a trusted peer", "10.0.0.1", xff("6.6.6.6, 192.0.2.1"), "192.0.2.1"],
    [
      "the first one that is not trusted from the right",
      "10.0.0.1",
      xff("6.6.6.6, 192.0.2.1, 10.0.0.2"),
      "192.0.2.1",
    ],
    [
      "the last line's entries first",
      "10.0.0.1",
      xff("6.6.6.6", "192.0.2.1", "10.9.9.9"),
      "192.0.2.1",
    ],
    ["a trusted peer that forwards nothing", "10.0.0.1", [], "10.0.0.1"],
    ["the leftmost hop, when all are trusted", "10.0.0.1", xff("10.0.0.3, 10.0.0.2"), "10.0.0.3"],
    [
      "the last known hop before nonsense",
      "10.0.0.1",
      xff("192.0.2.1, unknown, 10.0.0.2"),
      "10.0.0.2",
    ],
    ["the peer before an empty entry", "10.0.0.1", xff("192.0.2.1, "), "10.0.0.1"],
    ["mapped addresses in plain form", "::ffff:10.0.0.1", xff("::ffff:192.0.2.1"), "192.0.2.1"],
    ["entries with ports", "10.0.0.1", xff("192.0.2.1:4711, 10.0.0.2:99"), "192.0.2.1"],
    ["IPv6 entries in brackets", "::1", xff("[2001:db8::1]:443"), "2001:db8::1"],
    [
      "no other forwarding field",
      "10.0.0.1",
      ["Forwarded", "for=6.6.6.6", "X-Real-IP", "6.6.6.6"],
      "10.0.0.1",
    ],
    ["the name in any case", "10.0.0.1", ["x-FORWARDED-for", "192.0.2.1"], "192.0.2.1"],
    ["not the underscore spelling", "10.0.0.1", ["X_Forwarded_For", "6.6.6.6"], "10.0.0.1"],
  ])("is %s", ([, peer, fields, expected]) => {
    expect(clientAddress(peer, fields, trusted)).toBe(expected);
  });
});
