import { spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { text } from "node:stream/consumers";
import { onTestFinished, test } from "vitest";
import { startCli, words } from "../support/cli-run.ts";
import { startEcho } from "../support/client-echo.ts";
import { CONTAINER } from "../support/policy-api.ts";

const MAIN = resolve(import.meta.dirname, "../../proxy/main.ts");

function start(args: readonly string[], env: Readonly<Record<string, string>>) {
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: { PATH: process.env["PATH"], ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  return child;
}

/** Runs the binary with what is on its standard input, which is no terminal. */
async function run(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  stdin = "",
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = start(args, env);
  child.stdin.on("error", () => {}); // a command that reads no input may be gone first
  child.stdin.end(stdin);
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "close") as Promise<[number | null]>,
  ]);
  return { code, stdout, stderr };
}

test("the binary carries out commands and ends with their exit codes", async ({ expect }) => {
  const { env } = await startCli();
  const create = words(
    `containers proxy hooks create -c ${CONTAINER} terminal --match-path '*' --script-path /gate --if-match file:v0`,
  );
  expect(await run(create, env)).toMatchObject({ code: 0, stderr: "" });
  const stale = await run(create, env);
  expect(stale).toMatchObject({ code: 1, stdout: "" });
  expect(stale.stderr).toMatch(/^Error \[412\] POST \/api\/v1\/containers\/[^\n]+\n$/);
  const list = await run(
    ["containers", "proxy", "hooks", "list", "-c", CONTAINER, "-o", "json"],
    env,
  );
  const { hooks } = JSON.parse(list.stdout) as { hooks: { terminal: [{ id: string }] } };
  const remove = words(
    `containers proxy hooks delete -c ${CONTAINER} terminal ${hooks.terminal[0].id} --if-match file:v1`,
  );
  const unasked = await run(remove, env, "y\n");
  expect(unasked).toMatchObject({ code: 1, stdout: "" });
  expect(unasked.stderr).toContain("-y confirms");
  expect(await run([...remove, "-y"], env)).toMatchObject({ code: 0, stderr: "" });
  expect(await run(["containers", "proxy", "hooks", "list"], env)).toMatchObject({
    code: 2,
    stdout: "",
  });
  const help = await run(["containers", "proxy", "hooks", "create", "--help"], {});
  expect(help).toMatchObject({ code: 0, stderr: "" });
  expect(help.stdout).toContain("--applies-to-groups");
}, 60_000);

test("the binary reads a document from standard input", async ({ expect }) => {
  const { env } = await startCli();
  const set = words(
    `containers proxy permissions set -c ${CONTAINER} --file - --if-match file:v0 -o json`,
  );
  const done = await run(set, env, "groups: {}\npermissions: {}\ndefault: deny\n");
  expect(done).toMatchObject({ code: 0, stderr: "" });
  expect(JSON.parse(done.stdout)).toMatchObject({ default: "deny", etag: "file:v1" });
}, 60_000);

test("the binary ends quietly when nobody reads its output any more", async ({ expect }) => {
  const { baseURL } = await startEcho((request, response) => {
    if (request.url?.includes("/stream") !== true) {
      response.writeHead(200, { "content-type": "application/json" });
      response.end('{"statusCode":200,"message":"ok","data":{"records":[],"next":null}}');
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    let id = 0;
    const timer = setInterval(() => {
      id++;
      response.write(
        `id: ${id}\ndata: {"audit_id":"${id}","ts":"t","outcome":"answered","duration_ms":1}\n\n`,
      );
    }, 20);
    response.on("close", () => clearInterval(timer));
  });
  const child = start(["tail", "-c", CONTAINER, "--base-url", baseURL], {});
  const stderr = text(child.stderr);
  const closed = once(child, "close") as Promise<[number | null]>;
  await once(child.stdout, "data");
  child.stdout.destroy();
  expect((await closed)[0]).toBe(0);
  expect(await stderr).toBe("");
}, 60_000);
