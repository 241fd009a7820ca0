import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { describe, onTestFinished, test } from "vitest";
import { runCommand } from "../../exec-host/agent/process.ts";
import type { CommandSpec } from "../../exec-host/agent/process.ts";
import { systemClock } from "../../policy/kernel/clock.ts";

async function start(
  command: string,
  change: Partial<CommandSpec> = {},
  signal = new AbortController().signal,
) {
  const cwd = await mkdtemp(join(tmpdir(), "agent-proc-"));
  onTestFinished(() => rm(cwd, { recursive: true, force: true }));
  const startedAt = Date.now();
  const outcome = await runCommand(
    {
      command,
      cwd,
      env: { PATH: process.env["PATH"] ?? "" },
      stdin: null,
      timeoutMs: 20_000,
      killGraceMs: 0,
      maxOutputBytes: 65_536,
      keep: "tail",
      mergeOutput: true,
      ...change,
    },
    systemClock,
    signal,
  );
  return { outcome, cwd, tookMs: Date.now() - startedAt };
}

async function gone(pid: number): Promise<boolean> {
  for (let i = 0; i < 200; i++) {
    try {
      process.kill(pid, 0);
      if (readFileSync(`/proc/${pid}/stat`, "latin1").includes(") Z ")) {
        return true;
      }
    } catch {
      return true;
    }
    await wait(10);
  }
  return false;
}

describe("runCommand()", () => {
  test("returns when the process ends, not when a pipe closes, and what it left behind is gone", async ({
    expect,
  }) => {
    const { outcome, tookMs } = await start("sleep 60 & echo $!; echo done");
    const [pid = "", done] = outcome.stdout.trim().split("\n");
    expect(outcome).toMatchObject({ kind: "exited", exitCode: 0 });
    expect(done).toBe("done");
    expect(tookMs).toBeLessThan(10_000);
    expect(await gone(Number(pid))).toBe(true);
  });

  test.for([
    "setsid sleep 60 & echo $!",
    "(setsid sh -c 'sleep 60 & echo $! >&2; wait' 2>&1 & sleep 0.3)",
    "nohup sleep 60 >/dev/null & echo $!",
  ])("what leaves the group is ended too: %s", async (command, { expect }) => {
    const { outcome } = await start(command);
    const pid = Number(outcome.stdout.trim().split("\n").at(-1));
    expect(pid).toBeGreaterThan(0);
    expect(await gone(pid)).toBe(true);
  });

  test("ends at its time, also when it ignores SIGTERM", async ({ expect }) => {
    const { outcome, tookMs } = await start("trap '' TERM; echo $$; while :; do sleep 0.1; done", {
      timeoutMs: 300,
      killGraceMs: 200,
    });
    expect(outcome).toMatchObject({ kind: "timed_out", exitCode: null });
    expect(tookMs).toBeLessThan(10_000);
    expect(await gone(Number(outcome.stdout.trim()))).toBe(true);
  });

  test("ends at cancel, and does not start when it is cancelled already", async ({ expect }) => {
    const abort = new AbortController();
    setTimeout(() => abort.abort(), 100);
    const { outcome } = await start("sleep 60", {}, abort.signal);
    expect(outcome).toMatchObject({ kind: "cancelled", exitCode: null });
    expect((await start("echo no", {}, abort.signal)).outcome).toMatchObject({
      kind: "cancelled",
      stdout: "",
    });
  });

  test("keeps the end or the beginning of much output, and memory stays small", async ({
    expect,
  }) => {
    const command = "echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last";
    const tail = await start(command, { maxOutputBytes: 1000 });
    expect(tail.outcome.stdout).toHaveLength(1000);
    expect(tail.outcome.stdout.endsWith("last\n")).toBe(true);
    expect(tail.outcome.truncated).toBe(true);
    const head = await start(command, { maxOutputBytes: 1000, keep: "head" });
    expect(head.outcome.stdout.startsWith("first\n")).toBe(true);
    expect(head.outcome).toMatchObject({ truncated: true });
  }, 60_000);

  test("standard input is a pipe or the null device, and both outputs can be told apart", async ({
    expect,
  }) => {
    const piped = await start("[ -p /dev/stdin ] && echo pipe; cat", { stdin: "text" });
    expect(piped.outcome.stdout).toBe("pipe\ntext");
    const none = await start("readlink /proc/self/fd/0");
    expect(none.outcome.stdout).toBe("/dev/null\n");
    const apart = await start("echo out; echo err >&2; exit 3", { mergeOutput: false });
    expect(apart.outcome).toMatchObject({ exitCode: 3, stdout: "out\n", stderr: "err\n" });
    const together = await start("echo 1; echo 2 >&2; echo 3");
    expect(together.outcome.stdout).toBe("1\n2\n3\n");
    const ignored = await start("exit 0", { stdin: "x".repeat(1_000_000) });
    expect(ignored.outcome).toMatchObject({ kind: "exited", exitCode: 0 });
  });

  test("both outputs can be opened by their names, together and apart", async ({ expect }) => {
    const command = "echo out > /dev/stdout; echo err > /dev/stderr";
    const together = await start(command);
    expect(together.outcome).toMatchObject({ exitCode: 0, stdout: "out\nerr\n" });
    const apart = await start(command, { mergeOutput: false });
    expect(apart.outcome).toMatchObject({ exitCode: 0, stdout: "out\n", stderr: "err\n" });
  });

  test("** reaches into subfolders where that is asked for", async ({ expect }) => {
    const command = "mkdir -p a/b; touch a/1 a/b/2; echo a/**/[0-9]";
    expect((await start(command, { globstar: true })).outcome.stdout).toBe("a/1 a/b/2\n");
    expect((await start(command)).outcome.stdout).toBe("a/b/2\n");
  });

  test("nothing of our environment reaches the command, nor do start-up files", async ({
    expect,
  }) => {
    const { outcome } = await start(
      "env | cut -d= -f1 | sort | tr '\\n' ' '; echo; alias; declare -F",
    );
    expect(
      outcome.stdout
        .trim()
        .split(" ")
        .toSorted((a, b) => (a < b ? -1 : 1)),
    ).toEqual(["INTERPOSE_RUN", "PATH", "PWD", "SHLVL", "_"]);
  });

  test("what cannot be launched says so", async ({ expect }) => {
    const { outcome } = await start("true", { cwd: "/nowhere/at/all" });
    expect(outcome).toMatchObject({ kind: "not_launched", cause: "ENOENT" });
  });
});
