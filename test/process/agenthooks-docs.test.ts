import { spawn } from "node:child_process";
import { mkdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { expect, test } from "vitest";
import { decodeSettings, parseSettings } from "../../exec-host/agent/settings/document.ts";
import { startTestEdge } from "../support/edge.ts";

const PAGE = resolve(import.meta.dirname, "../../docs/agent-hooks.md");

async function blocks(language: string): Promise<string[]> {
  const text = await readFile(PAGE, "utf8");
  return [...text.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)]
    .filter((match) => match[1] === language)
    .map((match) => match[2] ?? "");
}

/** Runs all blocks in one shell; the answer to each block is what it printed. */
async function runBlocks(
  scripts: readonly string[],
  env: Record<string, string>,
): Promise<string[]> {
  const script = scripts.join("\necho; echo ---\n");
  const child = spawn("bash", ["--norc", "--noprofile", "-euo", "pipefail", "-c", script], {
    env: { PATH: process.env["PATH"] ?? "", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const text: string[] = [];
  const errors: string[] = [];
  child.stdout.on("data", (chunk: Buffer) => text.push(chunk.toString("utf8")));
  child.stderr.on("data", (chunk: Buffer) => errors.push(chunk.toString("utf8")));
  const code = await new Promise((done) => child.once("close", done));
  expect(errors.join("")).toBe("");
  expect(code).toBe(0);
  return text.join("").split("---\n");
}

test("the shell examples of the hooks page run as printed against an edge", async () => {
  const edge = await startTestEdge({ container: { agent: { kind: "embedded" } } });
  const project = join(edge.folder, "project");
  await mkdir(project);
  const [written, trusted, tested, rules] = await runBlocks(await blocks("sh"), {
    AGENT: `http://${edge.host("agent-1")}:${edge.port}`,
    PROJECT: project,
  });
  expect(JSON.parse(written ?? "")).toMatchObject({ ok: true, created: true, scope: "project" });
  expect(trusted).toContain('"ack_at"');
  expect(trusted).toContain('"is_error":true');
  expect(tested).toContain('\\"hook_test\\":true');
  expect(tested).toContain('"would_dispatch":true');
  expect(rules).toContain('"revision":"r1:');
  expect(rules).toContain('"applies_as":"checked"');
  expect(rules).toContain('"rules_complete":true');
  expect(rules).toContain('"count":1');
}, 60_000);

test("the settings example of the hooks page is read without a warning", async () => {
  const [example] = await blocks("json");
  const parsed = parseSettings(example ?? "");
  const document = parsed.ok ? decodeSettings(parsed.value, "example") : null;
  expect(document).toMatchObject({
    warnings: [],
    hooks: [{ command: "./check.sh" }],
    rules: [{ id: "no-prod" }],
  });
});
