import { mkdir, mkdtemp, readdir, realpath, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runCommand } from "../../exec-host/agent/process.ts";
import { judgeShell } from "../../exec-host/agent/shell/judge.ts";
import { READ_ONLY_COMMANDS } from "../../exec-host/agent/shell/read-only.ts";
import type { FileScope } from "../../exec-host/tools/confinement.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import cases from "../cases/shell-lines.json" with { type: "json" };

const RUNS = Number(process.env["PROPERTY_RUNS"] ?? 150);
/** A slow machine does fewer runs rather than fail. */
const LIMIT = { interruptAfterTimeLimit: 12_000 };
let scope: FileScope;
let root: string;

beforeAll(async () => {
  root = await realpath(await mkdtemp(join(tmpdir(), "agent-shell-")));
  const home = join(root, "home");
  const cwd = join(home, "project");
  await mkdir(join(cwd, "src"), { recursive: true });
  for (const file of ["README.md", "src/a.ts", "-o", "--output=x"]) {
    await writeFile(join(cwd, file), "x\n");
  }
  scope = { cwd, home, dirScope: "home", protectedDirs: [] };
});

afterAll(() => rm(root, { recursive: true, force: true }));

async function gateOf(line: string): Promise<"allow" | "confirm" | "deny"> {
  const judged = await judgeShell(line, scope, scope.cwd);
  return judged.denied !== null
    ? "deny"
    : judged.mutating !== null || judged.risk !== null
      ? "confirm"
      : "allow";
}

const quoted = (line: string): string => `'${line.replaceAll("'", String.raw`'\''`)}'`;

/** Ways to dress a line up; none may make more of it allowed. */
const DRESSES: readonly ((line: string) => string)[] = [
  (line) => `ls; ${line}`,
  (line) => `${line}\nls`,
  (line) => `ls\n${line}`,
  (line) => `ls && ${line}`,
  (line) => `ls || ${line}`,
  (line) => `ls | ${line}`,
  (line) => `  \t${line}`,
  (line) => `\n\n${line}\n\n`,
  (line) => `! ${line}`,
  (line) => `time ${line}`,
  (line) => `(${line}\n)`,
  (line) => `{ ${line}\n}`,
  (line) => `if true; then ${line}\nfi`,
  (line) => `for i in 1; do ${line}\ndone`,
  (line) => `echo "$(${line}\n)"`,
  (line) => `cat <(${line}\n)`,
  (line) => `A=1 ${line}`,
  (line) => `env ${line}`,
  (line) => `timeout 5 ${line}`,
  (line) => `nice -n 3 ${line}`,
  (line) => `nohup ${line}`,
  (line) => `xargs ${line}`,
  (line) => `sudo ${line}`,
  (line) => `sh -c ${quoted(line)}`,
  (line) => `bash -lc ${quoted(line)}`,
  (line) => `eval ${quoted(line)}`,
  (line) => `echo ${quoted(line)} | bash`,
  (line) => `find . -exec sh -c ${quoted(line)} +`,
];

// a line that only lacks its end can be completed by what follows it, and is then another line
const confirmed = cases.filter(
  (one) => one.gate === "confirm" && !one.reason.startsWith("what cannot be parsed"),
);
const destructive = cases.filter((one) => one.risk === "destructive" && !one.cmd.includes("<<"));

test("dressing a line up never turns a confirmation into an allowance", async () => {
  const anyLine = fc.constantFrom(...confirmed.map((one) => one.cmd));
  const dresses = fc.array(fc.constantFrom(...DRESSES), { minLength: 1, maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(anyLine, dresses, async (line, chosen) => {
      const dressed = chosen.reduce((inner, dress) => dress(inner), line);
      expect(await gateOf(dressed), dressed).not.toBe("allow");
    }),
    { numRuns: RUNS * 3, ...LIMIT },
  );
});

test("a dangerous line stays one to be asked about in every dress", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...destructive.map((one) => one.cmd)),
      fc.constantFrom(...DRESSES),
      async (line, dress) => {
        const judged = await judgeShell(dress(line), scope, scope.cwd);
        expect(judged.risk, dress(line)).not.toBeNull();
      },
    ),
    { numRuns: RUNS * 2, ...LIMIT },
  );
});

test("quoting pieces of a command's name changes nothing", async () => {
  const names = fc.constantFrom("touch", "rm", "mkdir", "tee", "python3", "cp");
  const marks = fc.array(fc.constantFrom("", "'", '"', "\\"), { minLength: 8, maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(names, marks, async (name, quotes) => {
      const spelled = name.split("").map((char, i) => {
        const mark = quotes[i] ?? "";
        return mark === "\\" ? `\\${char}` : `${mark}${char}${mark}`;
      });
      expect(await gateOf(`${spelled.join("")} x`)).not.toBe("allow");
    }),
    { numRuns: RUNS, ...LIMIT },
  );
});

const PIECES = [
  [
    "ls",
    "cat",
    "echo",
    "sort",
    "find",
    "test",
    "printf",
    "touch new",
    "rm README.md",
    "tee out",
    "README.md",
    "src",
    ".",
    "-o",
    "-la",
  ],
  [
    " ",
    " ",
    " ",
    "\n",
    ";",
    "&&",
    "||",
    "|",
    "&",
    "'",
    '"',
    "\\",
    "$",
    "`",
    "$(",
    ")",
    "(",
    "{",
    "}",
    "<",
    ">",
    ">>",
    "2>",
    "2>&1",
    "2>/dev/null",
  ],
  [
    "*",
    "?",
    "[a]",
    "~",
    "#",
    "!",
    "=",
    "A=1",
    "x",
    "%n",
    "-v",
    "--output",
    "-delete",
    "-exec",
    "\t",
    "$'",
    '$"',
    "<<EOF\n",
    "EOF\n",
  ],
].flat();

test("whatever is allowed has only listed commands and changes nothing when it runs", async () => {
  const before = await snapshot();
  const soup = fc
    .array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 12 })
    .map((pieces) => pieces.join(""));
  const spaced = fc
    .array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 10 })
    .map((pieces) => pieces.join(" "));
  let allowed = 0;
  await fc.assert(
    fc.asyncProperty(fc.oneof(soup, spaced), async (line) => {
      if ((await gateOf(line)) !== "allow") {
        return;
      }
      allowed += 1;
      if (allowed <= 60) {
        await run(line);
        expect(await snapshot(), line).toEqual(before);
      }
      const first = /^\s*(\S+)/.exec(line.replaceAll(/['"\\]/g, ""))?.[1] ?? "";
      expect(
        READ_ONLY_COMMANDS.some((name) => first.startsWith(name)),
        line,
      ).toBe(true);
    }),
    { numRuns: RUNS * 20, ...LIMIT },
  );
  expect(allowed).toBeGreaterThan(0);
}, 120_000);

async function run(line: string): Promise<void> {
  await runCommand(
    {
      command: line,
      cwd: scope.cwd,
      env: { PATH: process.env["PATH"] ?? "", HOME: scope.home },
      stdin: null,
      timeoutMs: 5000,
      killGraceMs: 0,
      maxOutputBytes: 4096,
      keep: "head",
      mergeOutput: true,
      globstar: true,
    },
    systemClock,
    new AbortController().signal,
  );
}

async function snapshot(): Promise<string[]> {
  const names = await readdir(scope.cwd, { recursive: true });
  const lines = await Promise.all(
    names.map(async (name) => {
      const found = await stat(join(scope.cwd, name));
      return `${name} ${found.size} ${found.mtimeMs}`;
    }),
  );
  return lines.toSorted((a, b) => (a < b ? -1 : 1));
}
