import { mkdir, readdir, readFile } from "node:fs/promises";
import { constants } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { runCommand } from "../../exec-host/agent/process.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { realSandbox } from "../support/agent-gateway.ts";
import { tempDir } from "../support/exec-pool.ts";
import { startSmallEdge, type SmallEdge } from "../support/exec-edge.ts";
import { availableConfinements, startHost } from "../support/exec-scripts.ts";

/** What a hostile script of one container tries against the machine and its neighbours. */

const kinds = await availableConfinements();
const boxed = kinds.filter(({ kind }) => kind === "bubblewrap");

const PROBE = `module.exports = async (req) => {
  const code = Buffer.from(req.headers["x-code"], "base64").toString();
  try {
    const value = await (0, eval)("(async (require, process) => {" + code + "})")(require, process);
    return { value: value === undefined ? null : value };
  } catch (error) {
    return { error: error.code ?? String(error.message) };
  }
};`;

async function probe(edge: SmallEdge, code: string): Promise<{ value?: unknown; error?: string }> {
  const answer = await fetch(edge.origin, {
    headers: { "x-code": Buffer.from(code).toString("base64") },
  });
  return (await answer.json()) as { value?: unknown; error?: string };
}

async function start(kind: (typeof kinds)[number], changes = {}) {
  const setup = await startHost(changes, { confinement: kind });
  await setup.script("a", "hook.js", PROBE);
  return { ...setup, edge: await startSmallEdge(setup.host) };
}

const childProcess = { allow: { childProcess: true, read: [], write: [] } };

describe.for(boxed.map((kind) => [kind.kind, kind] as const))("a child under %s", ([, kind]) => {
  test("cannot write the kernel's settings", async () => {
    const { edge } = await start(kind, childProcess);
    // Asked, not tried: a test must not change the machine when it fails.
    const ask = (path: string): string =>
      `const r = require("child_process").spawnSync("/bin/sh", ["-c", "test -e ${path} && test -w ${path}"]); return r.status;`;
    for (const path of [
      "/proc/sys/kernel/core_pattern",
      "/proc/sys/kernel/hostname",
      "/proc/sys/vm/drop_caches",
      "/proc/sysrq-trigger",
    ]) {
      expect(await probe(edge, ask(path)), path).toEqual({ value: 1 });
    }
  });
});

describe.for(
  kinds.map((kind) => [`${kind.kind}${kind.setpriv ? " with helpers" : ""}`, kind] as const),
)("a script under %s", ([, kind]) => {
  test("makes and reaches unix sockets in its own folders only", async () => {
    const { edge, dataDir, host } = await start(kind);
    const policy = join(dataDir, "policy/containers");
    await mkdir(policy, { recursive: true });
    const other = await host.endpoint("b");
    const neighbour = other.origin.kind === "unix" ? other.origin.path : "";
    const listen = (path: string): string => `
      const server = require("net").createServer((peer) => peer.end("hello"));
      await new Promise((ok, no) => server.on("error", no).listen(${JSON.stringify(path)}, ok));
      await new Promise((ok) => server.close(ok));`;
    const connect = (path: string): string => `
      await new Promise((ok, no) => require("net").connect(${JSON.stringify(path)}).on("error", no).on("connect", ok));`;
    for (const path of [
      join(policy, "x.json"),
      join(dataDir, "x"),
      "../x",
      "\u0000interpose-test",
    ]) {
      expect(await probe(edge, listen(path)), path).toHaveProperty("error");
    }
    for (const path of [neighbour, join(dataDir, "x"), "\u0000interpose-test"]) {
      expect(await probe(edge, connect(path)), path).toMatchObject({
        error: expect.stringMatching(/^(ERR_ACCESS_DENIED|EACCES)$/),
      });
    }
    // Neither by the runtime's own class behind a connection, however the check is called.
    const inner = `
      const handle = await new Promise((ok, no) => { const server = require("net").createServer(); server.on("error", no).listen("own", () => ok(server._handle)); });
      Object.defineProperty(process.permission, "has", { value: () => true });
      const Pipe = handle.constructor;
      return new Pipe(1).bind(${JSON.stringify(join(policy, "y.json"))});`;
    expect(await probe(edge, inner)).toEqual({ value: -constants.errno.EACCES });
    expect(await readdir(policy)).toEqual([]);
    const own = `
      const net = require("net");
      const server = net.createServer((peer) => peer.end("hello"));
      await new Promise((ok, no) => server.on("error", no).listen("mine", ok));
      const text = await new Promise((ok, no) => net.connect("mine").on("error", no).on("data", (data) => ok(String(data))));
      server.close();
      return text;`;
    expect(await probe(edge, own)).toEqual({ value: "hello" });
  });
});

test("a flood of short lines on the process's own output is cut before it costs the edge anything", async () => {
  const { edge, dataDir } = await start(kinds[0]!, { cpuMs: 20_000 });
  const flood = `
    const lines = "x\\n".repeat(30_000);
    for (const until = Date.now() + 1500; Date.now() < until; ) {
      try { require("fs").writeSync(1, lines); } catch {}
      await new Promise((resolve) => setImmediate(resolve));
    }`;
  expect(await probe(edge, flood)).toEqual({ value: null });
  const log = join(dataDir, "containers/a/logs/worker.log");
  await expect
    .poll(() => readFile(log, "utf8").catch(() => ""), { timeout: 10_000 })
    .toContain("lines of output were left out");
  const kept = (await readFile(log, "utf8")).split("\n").length;
  expect(kept).toBeLessThan(20_000);
});

test.runIf(process.getuid?.() === 0)(
  "a read-only command line of the agent has no privilege of root but reading",
  async () => {
    const sandbox = await realSandbox();
    if (sandbox.kind === "none") {
      return; // said by readiness and in the log
    }
    const cwd = await tempDir();
    const scope = { home: cwd, cwd, dirScope: "home" as const, protectedDirs: [] };
    const outcome = await runCommand(
      {
        command:
          "grep CapEff /proc/self/status; test -w /proc/sys/kernel/core_pattern && echo writable; true",
        cwd,
        env: { PATH: "/usr/bin:/bin" },
        stdin: null,
        timeoutMs: 20_000,
        killGraceMs: 0,
        maxOutputBytes: 4096,
        keep: "head",
        mergeOutput: true,
        launcher: sandbox.launcher(scope, cwd),
      },
      systemClock,
      new AbortController().signal,
    );
    // Bit 2 is CAP_DAC_READ_SEARCH.
    expect(outcome.stdout).toBe("CapEff:\t0000000000000004\n");
  },
);
