import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { onTestFinished, test } from "vitest";
import { runCli, words } from "../support/cli-run.ts";
import { startEcho } from "../support/client-echo.ts";

const ROOT = resolve(import.meta.dirname, "../..");

/** The code blocks of a page in one language. */
function blocks(page: string, language: string): string[] {
  const text = readFileSync(join(ROOT, "docs", page), "utf8");
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\`$`, "gm"))].map(
    (match) => match[1] ?? "",
  );
}

test("the command lines of docs/command-line.md are accepted", async ({ expect }) => {
  const { baseURL } = await startEcho();
  const lines = blocks("command-line.md", "sh")
    .flatMap((block) => block.replaceAll(/\\\n\s*/g, "").split("\n"))
    .filter((line) => line.startsWith("interpose ") && !line.includes(">"));
  expect(lines.length).toBeGreaterThan(25);
  const env = {
    INTERPOSE_BASE_URL: baseURL,
    INTERPOSE_STAGING_BASE_URL: baseURL,
  };
  for (const line of lines) {
    const result = await runCli(words(line).slice(1), { env });
    expect(result.code, `${line}: ${result.stderr}`).not.toBe(2);
  }
});

test("the programs of docs/client.md compile against the client", ({ expect }) => {
  const folder = mkdtempSync(join(tmpdir(), "interpose-docs-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const programs = blocks("client.md", "ts");
  expect(programs.length).toBeGreaterThan(2);
  const files = programs.map((program, at) => {
    const text = program.replaceAll('"interpose/client"', `"${join(ROOT, "client/client.ts")}"`);
    writeFileSync(join(folder, `program-${at}.mts`), text);
    return `program-${at}.mts`;
  });
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({
      extends: join(ROOT, "test/tsconfig.json"),
      compilerOptions: { rootDir: "/", typeRoots: [join(ROOT, "node_modules/@types")] },
      include: [],
      files,
    }),
  );
  const run = spawnSync(join(ROOT, "node_modules/.bin/tsc"), ["-p", folder], { encoding: "utf8" });
  expect(run.stdout).toBe("");
  expect(run.status).toBe(0);
}, 60_000);
