import { test } from "vitest";
import { dangerousShapeOf } from "../../exec-host/agent/dangerous-shapes.ts";
import { judgeShell } from "../../exec-host/agent/shell/judge.ts";

const scope = {
  cwd: "/nowhere/home/project",
  home: "/nowhere/home",
  dirScope: "home" as const,
  protectedDirs: [],
};
const SIZE = 65_000;
const full = (piece: string): string => piece.repeat(Math.floor(SIZE / piece.length));

test("a line that keeps the parser busy for ever is not understood, and those behind it are answered", async ({
  expect,
}) => {
  const startedAt = Date.now();
  const [stuck, behind] = await Promise.all([
    judgeShell("echo $(($'", scope, scope.cwd),
    judgeShell("ls", scope, scope.cwd),
  ]);
  expect(stuck).toMatchObject({ mutating: "the line cannot be parsed", risk: { risk: "unknown" } });
  expect(behind).toEqual({ mutating: null, denied: null, risk: null });
  expect(Date.now() - startedAt).toBeLessThan(30_000);
}, 60_000);

test.for([
  "[[",
  "{a,",
  "(",
  "$(",
  "$((",
  "`",
  "'",
  '"$(',
  "a|",
  "curl|",
  "git ",
  "eval ",
  "env ",
  "sudo ",
  "xargs ",
  "sh -c ",
  "rm ",
  "/a ",
  "~/a ",
  "*/",
  "a;",
  "ls\n",
  "ls&&",
  "<<a ",
  "${a:-",
  "f(){ ",
  "case a in ",
  "a=(",
])(
  "64 KiB of %j neither stop the gate nor pass it",
  { timeout: 60_000 },
  async (piece, { expect }) => {
    const line = full(piece);
    const startedAt = Date.now();
    dangerousShapeOf(line);
    expect(Date.now() - startedAt).toBeLessThan(5000);
    const judged = await judgeShell(line, scope, scope.cwd);
    expect(judged.mutating !== null || judged.denied !== null).toBe(true);
    expect(Date.now() - startedAt).toBeLessThan(30_000);
  },
);
