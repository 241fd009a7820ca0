import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { judgeShell } from "../../exec-host/agent/shell/judge.ts";
import type { FileScope } from "../../exec-host/tools/confinement.ts";
import cases from "../cases/shell-lines.json" with { type: "json" };

let scope: FileScope;
let root: string;

beforeAll(async () => {
  root = await realpath(await mkdtemp(join(tmpdir(), "agent-shell-")));
  const home = join(root, "home");
  const cwd = join(home, "project");
  await mkdir(join(cwd, "src"), { recursive: true });
  await mkdir(join(home, ".ssh"));
  await mkdir(join(root, "outside"));
  for (const file of ["README.md", "src/a.ts", "src/b.ts", "marker", "a file", "list"]) {
    await writeFile(join(cwd, file), "x\n");
  }
  await symlink(join(root, "outside"), join(cwd, "link-outside"));
  await symlink("README.md", join(cwd, "link-inside"));
  await symlink(join(root, "outside"), join(cwd, String.raw`\odd`));
  await symlink(join(home, ".ssh"), join(cwd, "link-ssh"));
  scope = { cwd, home, dirScope: "home", protectedDirs: [] };
});

afterAll(() => rm(root, { recursive: true, force: true }));

test("the corpus has at least 300 different lines, each with its reason", () => {
  expect(new Set(cases.map((one) => one.cmd)).size).toBeGreaterThanOrEqual(300);
  expect(cases.filter((one) => one.reason === "")).toEqual([]);
});

test.for(cases)("judgeShell() says $gate to $cmd ($reason)", async ({ cmd, gate, risk }) => {
  const judged = await judgeShell(cmd, scope, scope.cwd);
  const verdict =
    judged.denied !== null
      ? "deny"
      : judged.mutating !== null || judged.risk !== null
        ? "confirm"
        : "allow";
  expect(
    { gate: verdict, ...(risk === undefined ? {} : { risk: judged.risk?.risk }) },
    JSON.stringify(judged),
  ).toEqual({
    gate,
    ...(risk === undefined ? {} : { risk }),
  });
});
