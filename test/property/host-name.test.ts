import fc from "fast-check";
import { describe, test } from "vitest";
import { SERVICES } from "../../policy/documents/services.ts";
import { formatHost, parseHost } from "../../proxy/hostname.ts";
import type { NamedHost } from "../../proxy/hostname.ts";

const space = { node: "n1", domain: "containers.example" };
const letters = (unit: string, min: number, max: number) =>
  fc.string({ unit: fc.constantFrom(...unit.split("")), minLength: min, maxLength: max });
const id = letters("0123456789abcdef", 24, 24);
const alnum = "abcdefghijklmnopqrstuvwxyz0123456789";

const service = fc
  .constantFrom(...SERVICES.filter(({ name }) => name !== "exec"))
  .chain(({ name, minIndex, maxIndex }) =>
    fc.record({
      kind: fc.constant("service" as const),
      project: id,
      container: id,
      service: fc.constant(name),
      index: fc.integer({ min: minIndex, max: maxIndex }),
    }),
  )
  // An address has labels of 63 characters at most.
  .filter((wanted) => formatHost(wanted, space).indexOf(".") <= 63);
const route: fc.Arbitrary<NamedHost> = fc.oneof(
  service,
  fc.record({
    kind: fc.constant("exec" as const),
    project: id,
    container: id,
    subdomain: fc.option(
      letters(alnum, 1, 63).filter((label) => label !== "default"),
      { nil: null },
    ),
    execId: fc.option(letters(alnum, 1, 8), { nil: null }),
  }),
  fc.record({
    kind: fc.constant("port" as const),
    project: id,
    container: id,
    scheme: fc.constantFrom("http" as const, "https" as const),
    port: fc.integer({ min: 1, max: 65535 }),
  }),
  fc.record({ kind: fc.constant("ssh" as const), project: id, container: id }),
  fc.record({ kind: fc.constant("alias" as const), name: letters(alnum, 3, 61) }),
  fc.record({
    kind: fc.constant("custom" as const),
    host: fc.constantFrom("app.example", "[::1]", "10.0.0.1", "x.containers.example"),
  }),
);

describe("parseHost() and formatHost()", () => {
  test("are inverses on every route with an address", () => {
    fc.assert(
      fc.property(route, (wanted) => {
        const host = formatHost(wanted, space);
        const found = parseHost(host, space);
        return JSON.stringify(found) === JSON.stringify(wanted);
      }),
    );
  });

  test("give one route to every equal spelling of a host", () => {
    const spelling = fc.record({
      upper: fc.infiniteStream(fc.boolean()),
      dot: fc.constantFrom("", "."),
      port: fc.constantFrom("", ":", ":80", ":443", ":65535"),
    });
    fc.assert(
      fc.property(route, spelling, (wanted, { upper, dot, port }) => {
        const host = formatHost(wanted, space);
        const mixed = host
          .split("")
          .map((char) => (upper.next().value === true ? char.toUpperCase() : char));
        // A bracketed address has no final dot.
        const spelled = mixed.join("") + (host.startsWith("[") ? "" : dot) + port;
        return JSON.stringify(parseHost(spelled, space)) === JSON.stringify(wanted);
      }),
    );
  });

  test("never throw and never name a container that is not in the host", ({ expect }) => {
    const noise = fc.oneof(
      fc.string({ maxLength: 80 }),
      fc.string({ unit: "binary", maxLength: 80 }),
      fc.tuple(letters(`${alnum}-.`, 0, 80)).map(([left]) => `${left}.n1.containers.example`),
    );
    fc.assert(
      fc.property(noise, (host) => {
        const found = parseHost(host, space);
        if ("container" in found) {
          expect(host.toLowerCase()).toContain(`${found.project}-${found.container}`);
        }
      }),
    );
  });
});
