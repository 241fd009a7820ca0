import { spawn, type ChildProcess } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { startSmallEdge } from "../support/exec-edge.ts";
import { eventually, tempDir } from "../support/exec-pool.ts";
import { availableConfinements } from "../support/exec-scripts.ts";

const MAIN = join(import.meta.dirname, "../../exec-host/main.ts");
const SECRET = "a shared secret of the test";

function run(args: readonly string[], env: Record<string, string> = {}) {
  const child: ChildProcess = spawn(process.execPath, [MAIN, ...args], {
    env,
    stdio: ["ignore", "pipe", "pipe"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let output = "";
  child.stdout?.on("data", (chunk: Buffer) => (output += String(chunk)));
  child.stderr?.on("data", (chunk: Buffer) => (output += String(chunk)));
  let code: number | null | undefined;
  child.on("exit", (status) => (code = status));
  return { child, output: () => output, code: () => code };
}

test("exec-host serves its container until SIGTERM and leaves no process behind", async () => {
  const folder = await tempDir();
  await mkdir(join(folder, "scripts/default/1"), { recursive: true });
  await writeFile(
    join(folder, "scripts/default/1/hook.js"),
    "module.exports = (req, res) => { console.log('served'); res.end('here'); };",
  );
  const file = join(folder, "exec.yaml");
  await writeFile(
    file,
    "listen: 127.0.0.1:0\nsecret: ${S}\nscripts: ./scripts\nlog: { pretty: false }\n",
  );
  const host = run(["--config", file], { S: SECRET });
  const port = await eventually(() => {
    const found = /"exec":"127\.0\.0\.1:(\d+)"/.exec(host.output());
    return found === null ? false : Number(found[1]);
  });
  const place = { kind: "remote", host: "127.0.0.1", port, secret: SECRET } as const;
  const edge = await startSmallEdge(null, { place });
  expect(await (await fetch(edge.origin)).text()).toBe("here");
  await eventually(() => host.output().includes("served"));
  expect(host.output()).not.toContain(SECRET);
  host.child.kill("SIGTERM");
  expect(await eventually(() => host.code() ?? undefined)).toBe(0);
  expect((await fetch(edge.origin)).status).toBe(502);
});

test("a worker that never yields goes with its killed host", async () => {
  const kinds = await availableConfinements();
  if (kinds.every((kind) => kind.setpriv === null && kind.kind === "none")) {
    return; // no helper on this machine ends a process with its parent: said by readiness
  }
  const folder = await tempDir();
  await mkdir(join(folder, "scripts/default/1"), { recursive: true });
  await writeFile(
    join(folder, "scripts/default/1/hook.js"),
    "module.exports = () => { for (;;) {} };",
  );
  const file = join(folder, "exec.yaml");
  await writeFile(
    file,
    `listen: 127.0.0.1:0\nsecret: ${SECRET}\nscripts: ./scripts\ncpuMs: 600000\nlog: { pretty: false }\n`,
  );
  const host = run(["--config", file]);
  const port = await eventually(() => /"exec":"127\.0\.0\.1:(\d+)"/.exec(host.output())?.[1]);
  const place = { kind: "remote", host: "127.0.0.1", port: Number(port), secret: SECRET } as const;
  const edge = await startSmallEdge(null, { place, timeoutMs: 300 });
  expect((await fetch(edge.origin)).status).toBe(504);
  expect(processesOf(folder)).toBeGreaterThan(0);
  host.child.kill("SIGKILL");
  await eventually(() => processesOf(folder) === 0);
});

/** Processes whose command line names a folder. */
function processesOf(folder: string): number {
  let count = 0;
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      count += readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(`${folder}/`) ? 1 : 0;
    } catch {
      // ended meanwhile
    }
  }
  return count;
}

test("exec-host says what is wrong with its configuration, and its command line", async () => {
  const folder = await tempDir();
  const file = join(folder, "exec.yaml");
  await writeFile(file, "secret: short\nother: 1\n");
  const bad = run(["--config", file]);
  expect(await eventually(() => bad.code() ?? undefined)).toBe(1);
  expect(bad.output()).toContain("/secret: ");
  expect(bad.output()).toContain("/other: ");
  const none = run([]);
  expect(await eventually(() => none.code() ?? undefined)).toBe(2);
});
