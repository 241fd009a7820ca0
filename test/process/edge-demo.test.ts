import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished, test } from "vitest";

const ROOT = join(import.meta.dirname, "../..");

interface Demo {
  readonly lines: readonly string[];
  readonly folder: string;
}

async function startDemo(): Promise<Demo> {
  const folder = mkdtempSync(join(tmpdir(), "interpose-demo-"));
  const child = spawn(process.execPath, [join(ROOT, "proxy/main.ts"), "serve"], {
    cwd: folder,
    env: { PATH: process.env["PATH"] },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = new Promise<void>((done) => child.once("exit", () => done()));
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await exited;
    rmSync(folder, { recursive: true, force: true });
  });
  let text = "";
  child.stdout.on("data", (chunk: Buffer) => (text += chunk.toString()));
  const until = Date.now() + 20_000;
  while (!text.includes("the stored hook:")) {
    if (Date.now() > until || child.exitCode !== null) {
      throw new Error(`the demo did not greet: ${text}`);
    }
    await new Promise((wait) => setTimeout(wait, 50));
  }
  return { lines: text.trimEnd().split("\n"), folder };
}

const curls = ({ lines }: Demo) => lines.flatMap((line) => /: +(curl .*)$/.exec(line)?.[1] ?? []);

/** Runs a printed line as a person would paste it; curl's own flags are added behind it. */
const run = (line: string, folder: string) =>
  execFileSync("bash", ["-c", `${line} --silent --show-error --fail --max-time 20`], {
    cwd: folder,
    encoding: "utf8",
  });

test("the demo greets in at most ten lines, each curl line works as printed, and it writes below its data folder alone", async ({
  expect,
}) => {
  const demo = await startDemo();
  expect(demo.lines.length).toBeLessThanOrEqual(10);
  expect(curls(demo)).toHaveLength(5);
  const [service = "", hook = "", script = "", agent = "", stored = ""] = curls(demo).map((line) =>
    run(line, demo.folder),
  );
  expect(JSON.parse(service)).toMatchObject({ service: "demo", method: "GET" });
  expect(JSON.parse(hook)).toMatchObject({ service: "demo", method: "POST", bodyBytes: 8 });
  expect(JSON.parse(script)).toMatchObject({ answeredBy: "script" });
  expect((JSON.parse(agent) as { items: unknown[] }).items.length).toBeGreaterThan(5);
  expect(JSON.parse(stored)).toMatchObject({
    data: { hooks: { terminal: [{ script: { path: "/login-audit" } }] } },
  });
  expect(readdirSync(demo.folder)).toEqual(["data"]);
});

test("the demo takes the next free ports and says so", async ({ expect }) => {
  const blockers = await Promise.all(
    [8080, 8081].map(
      (port) =>
        new Promise<ReturnType<typeof createServer>>((done) => {
          const server = createServer();
          server.once("error", () => done(server)); // somebody else has it: just as well
          server.listen(port, "127.0.0.1", () => done(server));
        }),
    ),
  );
  onTestFinished(() => {
    for (const server of blockers) {
      server.close();
    }
  });
  const demo = await startDemo();
  expect(demo.lines.length).toBeLessThanOrEqual(10);
  const text = demo.lines.join("\n");
  expect(text).toMatch(/port 8080 is taken, the edge uses 8\d{3}/);
  expect(text).toMatch(/port 8081 is taken, the control API uses 8\d{3}/);
  expect(JSON.parse(run(curls(demo)[1] ?? "", demo.folder))).toMatchObject({ method: "POST" });
});
