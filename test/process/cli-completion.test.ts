import { spawnSync } from "node:child_process";
import { test } from "vitest";
import { runCli } from "../support/cli-run.ts";

/** What bash would offer for the last word of a line. */
async function complete(line: readonly string[]): Promise<string[]> {
  const { stdout: script } = await runCli(["completion", "bash"]);
  const bash = spawnSync(
    "bash",
    [
      "--norc",
      "-c",
      'eval "$SCRIPT"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _interpose; printf "%s\\n" "${COMPREPLY[@]}"',
      "bash",
      ...line,
    ],
    { encoding: "utf8", env: { ...process.env, SCRIPT: script } },
  );
  if (bash.stderr !== "") {
    throw new Error(bash.stderr);
  }
  return bash.stdout.split("\n").filter((word) => word !== "");
}

test.for([
  [
    ["interpose", ""],
    ["containers", "projects", "proxy", "explain", "tail", "completion"],
  ],
  [["interpose", "con"], ["containers"]],
  [
    ["interpose", "containers", "proxy", "hooks", ""],
    ["create", "get", "list", "set", "move", "delete"],
  ],
  [
    ["interpose", "containers", "-o", "json", "proxy", "s"],
    ["services", "settings"],
  ],
  [["interpose", "containers", "proxy", "hooks", "create", "-c", "x", "term"], ["terminal"]],
  [
    ["interpose", "containers", "proxy", "hooks", "create", "terminal", "--script-s"],
    ["--script-subdomain"],
  ],
  [
    ["interpose", "completion", ""],
    ["bash", "zsh", "fish"],
  ],
  [["interpose", "nonsense", "$(touch x)", "zz"], []],
  [
    ["interpose", "containers", "list", "--output", ""],
    ["table", "json", "yaml"],
  ],
  [["interpose", "-o", "j"], ["json"]],
  [
    ["interpose", "--profile", "containers", "pro"],
    ["projects", "proxy"],
  ],
  [["interpose", "containers", "list", "--token-file", "x"], []],
] as const)("bash completes %j", async ([line, expected], { expect }) => {
  expect(await complete(line)).toEqual(expected);
});

test("the scripts hold plain words only, and every command", async ({ expect }) => {
  for (const shell of ["bash", "zsh", "fish"]) {
    const { stdout, code } = await runCli(["completion", shell]);
    expect(code).toBe(0);
    expect(stdout).toContain("containers proxy permissions group jwt");
    expect(stdout).toContain(shell === "fish" ? "-l match-method" : "--match-method");
    expect(stdout).not.toMatch(/undefined|\[object/);
  }
  expect(await runCli(["completion", "tcsh"])).toMatchObject({ code: 2, stdout: "" });
});
