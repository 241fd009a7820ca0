import { describe, test } from "vitest";
import { createCustomDomains, isCustomDomain } from "../../proxy/custom-domains.ts";
import type { CnameAnswer } from "../../proxy/dns-lookup.ts";
import { fakeClock } from "../support/auth-clock.ts";

const SPACE = { node: "local", domain: "containers.localhost" };
const ALIAS = { kind: "cname", target: "door.local.containers.localhost" } as const;

/** Domains over a name server of the test's own; `pending` ones answer when their signal aborts or the test says so. */
function setUp(maxPerSecond = 20) {
  const clock = fakeClock();
  const asked: string[] = [];
  const warnings: unknown[] = [];
  const answers = new Map<string, CnameAnswer | "pending">();
  const pending = new Map<string, (answer: CnameAnswer) => void>();
  const domains = createCustomDomains(
    {
      clock,
      log: { warn: (...line: unknown[]) => void warnings.push(line) },
      lookup: (name, signal) => {
        asked.push(name);
        const answer = answers.get(name) ?? { kind: "none" };
        if (answer !== "pending") {
          return Promise.resolve(answer);
        }
        return new Promise((resolve) => {
          pending.set(name, resolve);
          signal.addEventListener("abort", () => resolve({ kind: "silent" }));
        });
      },
    },
    { space: SPACE, timeoutMs: 500, maxPerSecond },
  );
  return { clock, asked, warnings, answers, pending, domains };
}

describe("createCustomDomains()", () => {
  test("keeps an alias for 60 s, and answers without a promise meanwhile", async ({ expect }) => {
    const { clock, asked, answers, domains } = setUp();
    answers.set("shop.example", ALIAS);
    expect(domains.alias("shop.example")).toBeInstanceOf(Promise);
    expect(await domains.alias("shop.example")).toBe("door");
    clock.advance(59_999);
    expect(domains.alias("shop.example")).toBe("door");
    expect(asked).toHaveLength(1);
    clock.advance(1);
    answers.delete("shop.example");
    expect(await domains.alias("shop.example")).toBeNull();
    expect(asked).toHaveLength(2);
  });

  test("keeps what is none for 30 s", async ({ expect }) => {
    const { clock, asked, answers, domains } = setUp();
    expect(await domains.alias("shop.example")).toBeNull();
    answers.set("shop.example", ALIAS);
    clock.advance(29_999);
    expect(domains.alias("shop.example")).toBeNull();
    expect(asked).toHaveLength(1);
    clock.advance(1);
    expect(await domains.alias("shop.example")).toBe("door");
  });

  test("forgets the name longest unused when 10,000 others came", async ({ expect }) => {
    const { asked, domains } = setUp(100_000);
    for (let i = 0; i <= 10_000; i++) {
      await domains.alias(`n${i}.example`);
    }
    expect(asked).toHaveLength(10_001);
    expect(domains.alias("n10000.example")).toBeNull();
    expect(domains.alias("n1.example")).toBeNull();
    expect(domains.alias("n0.example")).toBeInstanceOf(Promise);
  });

  test("spends no more than its budget, and a quarter of it on known names only", async ({
    expect,
  }) => {
    const { clock, asked, answers, domains } = setUp(20);
    answers.set("shop.example", ALIAS);
    expect(await domains.alias("shop.example")).toBe("door");
    clock.advance(60_000);
    for (let i = 0; i < 100; i++) {
      await domains.alias(`a${i}.example`);
    }
    expect(asked).toHaveLength(1 + 15);
    expect(await domains.alias("shop.example")).toBe("door");
    expect(asked).toHaveLength(1 + 15 + 1);
    // A name that was turned away is not kept as none.
    clock.advance(1000);
    answers.set("a99.example", ALIAS);
    expect(await domains.alias("a99.example")).toBe("door");
  });

  test("runs 24 look-ups of new names at most, one per name", async ({ expect }) => {
    const { asked, answers, pending, domains } = setUp(1000);
    const waiting: unknown[] = [];
    for (let i = 0; i < 40; i++) {
      answers.set(`n${i}.example`, "pending");
      waiting.push(domains.alias(`n${i}.example`));
    }
    expect(asked).toHaveLength(24);
    expect(waiting.slice(24)).toEqual(Array(16).fill(null));
    expect(domains.alias("n0.example")).toBe(waiting[0]);
    pending.get("n0.example")?.(ALIAS);
    expect(await waiting[0]).toBe("door");
    expect(domains.alias("n39.example")).toBeInstanceOf(Promise);
  });

  test("gives up after timeoutMs over all steps", async ({ expect }) => {
    const { clock, asked, answers, pending, domains } = setUp();
    answers.set("a.example", "pending");
    answers.set("b.example", "pending");
    const waiting = domains.alias("a.example");
    clock.advance(400);
    pending.get("a.example")?.({ kind: "cname", target: "B.example." });
    await Promise.resolve();
    await Promise.resolve();
    expect(asked).toEqual(["a.example", "b.example"]);
    clock.advance(100);
    expect(await waiting).toBeNull();
  });

  test("sends nothing for 10 s after five unanswered queries in a row", async ({ expect }) => {
    const { clock, asked, warnings, answers, domains } = setUp();
    const silent = async (name: string) => {
      answers.set(name, { kind: "silent" });
      expect(await domains.alias(name)).toBeNull();
    };
    for (const name of ["a1.example", "a2.example", "a3.example", "a4.example"]) {
      await silent(name);
    }
    await domains.alias("fine.example");
    for (const name of ["b1.example", "b2.example", "b3.example", "b4.example"]) {
      await silent(name);
    }
    expect(warnings).toHaveLength(0);
    await silent("b5.example");
    expect(warnings).toHaveLength(1);
    expect(asked).toHaveLength(10);
    answers.set("shop.example", ALIAS);
    clock.advance(9_999);
    expect(domains.alias("shop.example")).toBeNull();
    expect(asked).toHaveLength(10);
    clock.advance(1);
    expect(await domains.alias("shop.example")).toBe("door");
  });

  test("asks for served names on while others get no answers, until they get none either", async ({
    expect,
  }) => {
    const { clock, asked, answers, domains } = setUp(1000);
    const served = Array.from({ length: 40 }, (_, i) => `served${i}.example`);
    for (const name of served) {
      answers.set(name, ALIAS);
      expect(await domains.alias(name)).toBe("door");
    }
    clock.advance(60_000);
    for (let i = 0; i < 6; i++) {
      answers.set(`slow${i}.example`, { kind: "silent" });
      await domains.alias(`slow${i}.example`);
    }
    expect(asked).toHaveLength(45);
    // Room for 32 at a time, whoever else is looked up.
    for (const name of served) {
      answers.set(name, "pending");
    }
    const renewals = served.map((name) => domains.alias(name));
    expect(asked).toHaveLength(45 + 32);
    clock.advance(500);
    expect(await Promise.all(renewals.map((value) => Promise.resolve(value)))).toEqual(
      Array(40).fill(null),
    );
    clock.advance(9_999);
    expect(domains.alias("served39.example")).toBeNull();
    expect(asked).toHaveLength(45 + 32);
    // Silence is no word against a name: it is asked again as one that was served.
    clock.advance(20_001);
    answers.set("served0.example", ALIAS);
    expect(await domains.alias("served0.example")).toBe("door");
  });

  test("lets everybody go when it is closed, and asks no more", async ({ expect }) => {
    const { asked, answers, warnings, domains } = setUp();
    const waiting = Array.from({ length: 6 }, (_, i) => {
      answers.set(`n${i}.example`, "pending");
      return domains.alias(`n${i}.example`);
    });
    domains.close();
    const released = waiting.map((value) => Promise.resolve(value));
    expect(await Promise.all(released)).toEqual(Array(6).fill(null));
    expect(domains.alias("shop.example")).toBeNull();
    expect([asked.length, warnings.length]).toEqual([6, 0]);
  });
});

describe("isCustomDomain()", () => {
  test.for([
    ["shop.example", true],
    ["xn--bcher-kva.example", true],
    ["a.b.c.d.e.co", true],
    [`${"a.".repeat(123)}example`, true],
    [`${"a.".repeat(124)}example`, false],
    ["example", false],
    ["", false],
    ["10.0.0.1", false],
    ["0x7f.1", false],
    ["1.0x7f", false],
    ["[::1]", false],
    ["a.localhost", false],
    ["a.onion", false],
    ["containers.localhost", false],
    ["x.other.containers.localhost", false],
    ["shop.example.", false],
    ["shop-.example", false],
  ] as const)("%s: %s", ([name, expected], { expect }) => {
    expect(isCustomDomain(name, SPACE)).toBe(expected);
  });
});
