import { readFileSync } from "node:fs";
import { describe, test } from "vitest";
import { compileAccess } from "../../policy/compile/access.ts";
import type { StoredAccess } from "../../policy/compile/access.ts";
import { decide } from "../../policy/compile/grants.ts";

interface Case {
  source: string;
  what: string;
  container: StoredAccess | null;
  project: StoredAccess | null;
  service: string;
  index: number;
  satisfied: string[];
  credential: boolean;
  decision: { allow: string; granting: string[] } | { deny: number; basic: boolean };
}

const cases = JSON.parse(
  readFileSync(new URL("../cases/permissions.json", import.meta.url), "utf8"),
) as Case[];

describe("decide()", () => {
  test.for(cases)("$what: $service-$index ($source)", (row, { expect }) => {
    const access = compileAccess(row.container, row.project);
    const decision = decide(access, {
      service: row.service,
      index: row.index,
      satisfied: new Set(row.satisfied),
      presented: { credential: row.credential },
    });
    expect(
      decision.kind === "allow"
        ? { allow: decision.by, granting: [...decision.granting].sort() }
        : { deny: decision.status, basic: decision.challengeBasic },
    ).toEqual(row.decision);
    expect(decision.reasons.length).toBeGreaterThan(0);
  });
});

describe("compileAccess()", () => {
  test("names every problem with its pointer and repeats no secret", ({ expect }) => {
    const { problems } = compileAccess(
      {
        enable_proxy: 1,
        groups: {
          a: [
            { type: "ip", range: "10.0.0.0/8" },
            { type: "ip", range: "10.0.0.0" },
          ],
          b: {
            type: "jwt",
            secret: "-----BEGIN PUBLIC KEY-----hush",
            algorithm: "HS256",
            sources: ["header:X"],
          },
          "c d": { type: "ip", range: "10.0.0.0/8" },
          e: { type: "ip", range: "10.0.0.0/8", note: 1 },
        },
        permissions: { a: { terminal: "9-1", nothing: true }, gone: { files: true } },
      },
      { default: "open", groups: "x" },
    );
    expect(problems.map(({ path }) => path).sort()).toEqual([
      "/container/enable_proxy",
      "/container/groups/a/1/range",
      "/container/groups/b/secret",
      "/container/groups/c d",
      "/container/groups/e/note",
      "/container/permissions/a/nothing",
      "/container/permissions/a/terminal",
      "/container/permissions/gone",
      "/project/default",
      "/project/groups",
    ]);
    expect(JSON.stringify(problems)).not.toContain("hush");
  });

  test("reads a document without problems when it has none", ({ expect }) => {
    const { problems, closedPrograms } = compileAccess(
      {
        groups: { office: { type: "ip", range: "10.0.0.0/8" } },
        permissions: { office: { terminal: true } },
      },
      null,
    );
    expect(problems).toEqual([]);
    expect(closedPrograms.size).toBe(0);
  });

  test("bounds the signature checks that one request can cost", ({ expect }) => {
    const jwt = { type: "jwt", algorithm: "HS256", secret: "k", sources: ["header:X"] };
    const groups = Object.fromEntries(
      [30, 30, 5, 1].map((count, position) => [`g${position}`, Array<object>(count).fill(jwt)]),
    );
    const access = compileAccess({ groups }, null);
    expect([...access.groups.values()].map(({ length }) => length)).toEqual([30, 30, 0, 0]);
    expect(access.problems.map(({ path }) => path)).toEqual([
      "/container/groups/g2",
      "/container/groups/g3",
    ]);
  });

  test("hashes a password that a hand edit left in plain text", ({ expect }) => {
    const { groups } = compileAccess(
      { groups: { web: { type: "password", username: "u", password: "plain", salt: "s" } } },
      null,
    );
    expect(groups.get("web")).toEqual([
      {
        type: "password",
        username: "u",
        password: "56e26f633305cc6bc63899e0f968cea8c2ac1009e0b0ae8cceb9989b60c93bec",
        salt: "s",
      },
    ]);
  });
});
