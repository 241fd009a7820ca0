import { readFileSync } from "node:fs";
import { describe, test } from "vitest";
import { formatHost, normalizeHost, parseHost } from "../../proxy/hostname.ts";

interface Case {
  source: string;
  host: string;
  route: { kind: string };
}

const space = { node: "node-us", domain: "containers.example" };
const cases = JSON.parse(
  readFileSync(new URL("../cases/hostnames.json", import.meta.url), "utf8"),
) as Case[];

describe("parseHost()", () => {
  test.for(cases)("reads $host as the table says ($source)", ({ host, route }, { expect }) => {
    expect(parseHost(host, space)).toEqual(route);
  });
});

describe("formatHost()", () => {
  test("prints the slug of a service that has one", ({ expect }) => {
    const route = {
      kind: "service",
      project: "a".repeat(24),
      container: "b".repeat(24),
      service: "notifications",
      index: 3,
    } as const;
    expect(formatHost(route, space)).toBe(
      `${"a".repeat(24)}-${"b".repeat(24)}-n-3.node-us.containers.example`,
    );
  });
});

describe("normalizeHost()", () => {
  test("takes off one final dot only", ({ expect }) => {
    expect(normalizeHost("A.example.:80")).toBe("a.example");
    expect(normalizeHost("a.example..")).toBe("a.example.");
    expect(normalizeHost(".")).toBe(".");
  });
});
