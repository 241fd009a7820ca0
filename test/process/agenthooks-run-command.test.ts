import { spawnSync } from "node:child_process";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runCommand } from "../../exec-host/agent/hooks/run-command.ts";
import type { HookCommand } from "../../exec-host/agent/hooks/run-command.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { tempFolder } from "../support/agenthooks-gateway.ts";

async function run(command: string, fields: Partial<HookCommand> = {}) {
  return runCommand(
    { clock: systemClock },
    {
      command,
      cwd: fields.cwd ?? (await tempFolder()),
      env: { PATH: process.env["PATH"] ?? "" },
      stdin: "{}",
      timeoutMs: 15_000,
      signal: new AbortController().signal,
      ...fields,
    },
  );
}

/** True while a process with that text in its command line lives. */
function lives(text: string): boolean {
  return spawnSync("bash", ["-c", `grep -las -- "$1" /proc/[0-9]*/cmdline`, "x", text], {
    encoding: "utf8",
  })
    .stdout.split("\n")
    .some((path) => path !== "" && !path.includes(`/${process.pid}/`) && isSleep(path));
}

function isSleep(path: string): boolean {
  const cmdline = spawnSync("cat", [path], { encoding: "utf8" }).stdout;
  return cmdline.startsWith("sleep\0");
}

test("runCommand() gives the hook real pipes on all three streams", async () => {
  const result = await run(
    'test -p /dev/stdin && test -p /dev/stdout && test -p /dev/stderr; echo "pipes $?"; echo no > /dev/stderr; cat /dev/stdin > /dev/stdout',
    { stdin: '{"a":1}' },
  );
  expect(result).toMatchObject({
    end: "exited",
    exitCode: 0,
    stdout: 'pipes 0\n{"a":1}',
    stderr: "no\n",
  });
});

test("runCommand() hands over a large input whole, and does not mind a hook that ignores it", async () => {
  const stdin = JSON.stringify({ text: "x".repeat(3_000_000) });
  const counted = await run("wc -c", { stdin });
  expect(counted.stdout.trim()).toBe(String(stdin.length));
  const ignored = await run("exit 2", { stdin });
  expect(ignored).toMatchObject({ end: "exited", exitCode: 2 });
});

test("runCommand() reads 100 MiB of output with bounded memory and keeps both ends", async () => {
  const before = process.memoryUsage().rss;
  const result = await run(
    "echo first; head -c 104857600 /dev/zero | tr '\\0' x; echo; echo '{\"last\":1}'",
    {
      timeoutMs: 60_000,
    },
  );
  expect(result).toMatchObject({ end: "exited", exitCode: 0 });
  expect(result.stdout.startsWith("first\n")).toBe(true);
  expect(result.stdout.endsWith('{"last":1}\n')).toBe(true);
  expect(result.stdout.length).toBeLessThan(70_000);
  expect(result.stdout).toContain("bytes left out");
  expect(process.memoryUsage().rss - before).toBeLessThan(80 * 1024 * 1024);
}, 70_000);

test("runCommand() ends a hook that floods its output for ever when its time is up", async () => {
  const result = await run("exec yes", { timeoutMs: 500 });
  expect(result).toMatchObject({ end: "timed_out", exitCode: null });
  expect(result.durationMs).toBeLessThan(10_000);
});

test("runCommand() kills a hook that ignores SIGTERM two seconds later", async () => {
  const result = await run("trap '' TERM; echo ready; while :; do sleep 0.31713; done", {
    timeoutMs: 500,
  });
  expect(result).toMatchObject({ end: "timed_out", stdout: "ready\n" });
  expect(result.durationMs).toBeGreaterThanOrEqual(2400);
  expect(result.durationMs).toBeLessThan(10_000);
  expect(lives("0.31713")).toBe(false);
});

test("runCommand() gives a hook the chance to clean up on SIGTERM", async () => {
  const result = await run("trap 'echo cleaned; exit 0' TERM; while :; do sleep 0.05; done", {
    timeoutMs: 500,
  });
  expect(result).toMatchObject({ end: "timed_out", stdout: "cleaned\n" });
});

test("runCommand() returns when the process ends, not when a background child closes the pipe, and kills the child", async () => {
  const result = await run("sleep 61.4711 & echo ok");
  expect(result).toMatchObject({ end: "exited", exitCode: 0, stdout: "ok\n" });
  expect(result.durationMs).toBeLessThan(10_000);
  expect(lives("61.4711")).toBe(false);
});

test("runCommand() finds a child that left the process group", async () => {
  const result = await run("setsid sleep 61.4722 & echo ok; sleep 0.3");
  expect(result).toMatchObject({ end: "exited", stdout: "ok\n" });
  expect(lives("61.4722")).toBe(false);
});

test("runCommand() tells a command that the shell cannot start by its exit code", async () => {
  const cwd = await tempFolder();
  const script = join(cwd, "check.sh");
  await writeFile(script, "#!/bin/sh\nexit 0\n");
  await chmod(script, 0o644);
  expect(await run("./check.sh", { cwd })).toMatchObject({ end: "exited", exitCode: 126 });
  expect(await run("./missing.sh", { cwd })).toMatchObject({ end: "exited", exitCode: 127 });
});

test("runCommand() reports a working directory that is gone as not launched", async () => {
  const result = await run("exit 0", { cwd: "/nowhere/at/all" });
  expect(result).toMatchObject({ end: "not_launched", exitCode: null });
});

test("runCommand() stops a hook whose call is aborted, and starts none after that", async () => {
  const abort = new AbortController();
  const cwd = await tempFolder();
  const running = run("sleep 61.4733; touch late", { cwd, signal: abort.signal });
  systemClock.after(300, () => abort.abort());
  expect(await running).toMatchObject({ end: "aborted", exitCode: null });
  expect(lives("61.4733")).toBe(false);
  const after = await run("touch late", { cwd, signal: abort.signal });
  expect(after.end).toBe("aborted");
  await expect(readFile(join(cwd, "late"))).rejects.toThrow("ENOENT");
});

test("runCommand() still runs a guard when the temporary folder cannot be used", async () => {
  const cwd = await tempFolder();
  const before = process.env["TMPDIR"];
  process.env["TMPDIR"] = "/nowhere/at/all";
  try {
    const result = await run("cat /dev/stdin; echo no >&2; exit 2", { cwd, stdin: '{"a":1}' });
    expect(result).toMatchObject({ end: "exited", exitCode: 2, stdout: '{"a":1}', stderr: "no\n" });
  } finally {
    if (before === undefined) {
      delete process.env["TMPDIR"];
    } else {
      process.env["TMPDIR"] = before;
    }
  }
});

test("runCommand() leaves no descriptors behind", async () => {
  const count = () =>
    spawnSync("ls", [`/proc/${process.pid}/fd`], { encoding: "utf8" }).stdout.split("\n").length;
  await run("exit 0");
  const before = count();
  await Promise.all(Array.from({ length: 20 }, () => run("echo x")));
  await Promise.all(Array.from({ length: 5 }, () => run("x", { cwd: "/nowhere" })));
  // closing is the event loop's; what stays open after a while would stay for ever
  await expect.poll(count, { timeout: 10_000 }).toBeLessThanOrEqual(before + 5);
});
