import { Command } from "commander";
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { registerHookRunCommand } from "../../exec-host/offline-command.ts";
import { runScriptOffline } from "../../exec-host/offline-run.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { startUpstream } from "../support/start-upstream.ts";

let folder: string;

beforeAll(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), "interpose-hook-run-")));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

async function file(path: string, text: string): Promise<string> {
  await mkdir(dirname(join(folder, path)), { recursive: true });
  await writeFile(join(folder, path), text);
  return join(folder, path);
}

async function command(...args: string[]): Promise<{ text: string; code: number }> {
  let text = "";
  let code = 0;
  const program = new Command("interpose").exitOverride().configureOutput({ writeErr: () => {} });
  registerHookRunCommand(program, {
    clock: systemClock,
    stdout: { write: (part: string) => (text += part) },
    setExitCode: (given) => (code = given),
  });
  await program.parseAsync(["hook", "run", ...args], { from: "user" });
  return { text, code };
}

test("hook run prints the request, what the service got, the log and the answer", async () => {
  const script = await file(
    "one/audit.js",
    "const { word } = require('./lib.js'); module.exports = async (req, res, metadata) => { console.log(word, process.env.MODE, metadata.hook.service); await metadata.hook.forward(req, res, { headers: { 'x-added': 'yes' } }); };",
  );
  await file("one/lib.js", "exports.word = 'seen';");
  const body = await file("body.json", '{"user":"ada"}');
  const { text, code } = await command(
    script,
    "--method",
    "post",
    "--path",
    "/api/login?x=1",
    "--header",
    "X-A=b=c",
    "--header",
    "Content-Type=application/json",
    "--body",
    body,
    "--upstream",
    "mock",
    "--env",
    "MODE=trial",
  );
  expect(code).toBe(0);
  expect(text).toMatch(/^> POST \/api\/login\?x=1\n> X-A: b=c\n/);
  expect(text).toContain('> {"user":"ada"}');
  expect(text).toMatch(/the service received:\n {2}POST \/api\/login\?x=1\n/);
  expect(text).toContain("  x-added: yes\n");
  expect(text).toContain('  {"user":"ada"}\n');
  expect(text).not.toMatch(/x-hoody-hook/i);
  expect(text).toContain("  info  seen trial terminal\n");
  expect(text).toMatch(/< 200 OK \(forwarded, \d+ ms\)\n/);
  expect(text).toContain('"service":"mock"');
});

test("hook run ends with 1 and the author's line when the script throws", async () => {
  const script = await file("two/bad.ts", "const n: number = 1;\nthrow new Error(`no ${n}`);");
  const { text, code } = await command(script);
  expect(code).toBe(1);
  expect(text).toMatch(/two\/bad\.ts|bad\.ts:2/);
  expect(text).toContain("the service received nothing");
  expect(text).toMatch(/< 500 .*\(script_error/);
});

test("hook run uses a real service, a scripts root, and the script's own address when told so", async () => {
  const service = await startUpstream();
  try {
    const script = await file(
      "tree/default/1/deep/pipe.js",
      "const up = await metadata.hook?.fetchUpstream(req); return up ?? { own: typeof metadata.hook, a: require('../../../shared.js') };",
    );
    await file("tree/shared.js", "module.exports = 7;");
    const root = join(folder, "tree");
    const hooked = await command(script, "--root", root, "--upstream", service.url, "--path", "/x");
    expect(hooked.text).toContain('"url":"/x"');
    expect(service.received.at(-1)?.url).toBe("/x");
    const ordinary = await command(script, "--root", root, "--ordinary", "--path", "/deep/pipe");
    expect(ordinary.text).toContain('{"own":"undefined","a":7}');
  } finally {
    await service.stop();
  }
});

test("hook run refuses what it cannot use, in one sentence", async () => {
  const script = await file("three/x.js", "return 1;");
  await expect(command(join(folder, "none.js"))).rejects.toThrow("There is no script at");
  await expect(command(script, "--upstream", "ftp://x")).rejects.toThrow("plain http://");
  await expect(command(script, "--upstream", "nonsense")).rejects.toThrow('must be "mock"');
  await expect(command(script, "--method", "A B")).rejects.toThrow("A method is one word.");
  await expect(command(script, "--path", "x")).rejects.toThrow("A path starts with /");
  await expect(command(script, "--header", "x")).rejects.toThrow("NAME=VALUE");
  await expect(command(script, "--timeout", "0")).rejects.toThrow("1 to 30000");
  await expect(command(script, "--body", join(folder, "nope"))).rejects.toThrow("cannot be read");
});

test("runScriptOffline() tells a run that never answers by its deadline", async () => {
  const script = await file("four/hang.js", "await new Promise(() => {});");
  const exchange = await runScriptOffline(systemClock, {
    script,
    method: "GET",
    path: "/",
    headers: [],
    body: null,
    upstream: "mock",
    timeoutMs: 100,
  });
  expect(exchange).toMatchObject({ status: 504, outcome: "timed_out", isCut: false });
});
