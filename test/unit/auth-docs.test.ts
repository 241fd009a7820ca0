import { readFileSync } from "node:fs";
import { describe, test } from "vitest";
import { parse } from "yaml";
import { compileAccess } from "../../policy/compile/access.ts";
import type { StoredAccess } from "../../policy/compile/access.ts";
import { decide } from "../../policy/compile/grants.ts";
import { IDENTITY_FIELDS } from "../../proxy/auth/identity.ts";
import { isKeyId, toPublicKey } from "../../proxy/claim.ts";

const read = (name: string) => readFileSync(new URL(`../../docs/${name}`, import.meta.url), "utf8");
const blocks = (text: string, language: string) =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, "gm"))].map(
    ([, block = ""]) => block,
  );

describe("docs/permissions.md", () => {
  const documents = blocks(read("permissions.md"), "json").map(
    (block) => JSON.parse(block) as StoredAccess,
  );

  test("has examples that are valid documents", ({ expect }) => {
    expect(documents.length).toBeGreaterThan(1);
    for (const document of documents) {
      expect(compileAccess(document, null).problems).toEqual([]);
    }
  });

  test("says rightly what its first example opens", ({ expect }) => {
    const access = compileAccess(documents[0] ?? null, null);
    const admits = (group: string, service: string, index: number) =>
      decide(access, {
        service,
        index,
        satisfied: new Set([group]),
        presented: { credential: group === "web" },
      }).kind === "allow";
    expect(admits("office", "terminal", 7)).toBe(true);
    expect(admits("office", "http", 8100)).toBe(true);
    expect(admits("office", "files", 1)).toBe(false);
    expect(admits("web", "terminal", 2)).toBe(true);
    expect(admits("web", "terminal", 3)).toBe(false);
    expect(admits("web", "files", 1)).toBe(true);
  });
});

describe("docs/identity.md", () => {
  const text = read("identity.md");

  test("has a key that is one", ({ expect }) => {
    const [block = ""] = blocks(text, "yaml");
    const { identity } = parse(block) as {
      identity: { keys: { kid: string; publicKeyHex: string }[] };
    };
    for (const { kid, publicKeyHex } of identity.keys) {
      expect(isKeyId(kid)).toBe(true);
      expect(toPublicKey(publicKeyHex)).not.toBeNull();
    }
  });

  test("names every field that is injected", ({ expect }) => {
    for (const name of Object.values(IDENTITY_FIELDS)) {
      expect(text).toContain(`\`${name}\``);
    }
  });
});
