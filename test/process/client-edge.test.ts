import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "vitest";
import { HoodyClient } from "../../client/client.ts";
import { ask } from "../support/ask.ts";
import { runCli } from "../support/cli-run.ts";
import { CONTAINER, startTestEdge, TOKEN } from "../support/edge.ts";

/*
 * The typed client and the command line against a whole edge: only addresses differ from what the source documents
 * show.
 */

test("an agent is called through the edge by its host's name", async ({ expect }) => {
  const edge = await startTestEdge({ container: { agent: { kind: "embedded" } } });
  const client = new HoodyClient({
    baseURL: `http://${edge.host("agent-1")}:${edge.port}`,
    token: TOKEN,
  });
  const names: string[] = [];
  for await (const tool of client.agent.tools.listToolsIterator({ page: 1, limit: 4 })) {
    names.push(tool.name);
  }
  expect(names).toContain("bash");

  const cwd = join(edge.folder, "data/containers", CONTAINER, "home");
  mkdirSync(cwd, { recursive: true });
  const run = await client.agent.tools.runTool(
    "bash",
    { params: { cmd: "ls -la", timeout_ms: 5000 }, allow_mutations: false },
    { cwd },
  );
  expect(run).toMatchObject({ tool: "bash", is_error: false });
  const events: string[] = [];
  const stream = client.agent.tools.streamTool("list_dir", { params: { path: "." } }, { cwd });
  for await (const frame of stream) {
    events.push(frame.event);
  }
  expect(events).toEqual(["start", "result", "end"]);
  const { session_id } = await client.agent.sessions.create({ cwd });
  expect((await client.agent.hooks.list({ session_id })).session).toBe(session_id);
  expect(await client.agent.sessions.close(session_id)).toMatchObject({ status: "ok" });
}, 60_000);

test("a rule made with the client is explained, dispatched and tailed", async ({ expect }) => {
  const edge = await startTestEdge();
  edge.script(
    "login-audit.js",
    'module.exports = async (req, res) => { res.writeHead(418); res.end("seen"); };',
  );
  const client = new HoodyClient({ baseURL: edge.control, token: TOKEN });
  const { data } = await client.api.proxy.hooks.create(
    CONTAINER,
    "terminal",
    {
      match: { method: ["POST"], path: "/api/login*" },
      script: { path: "/login-audit" },
      timeout: 5000,
    },
    { ifMatch: "file:v0" },
  );
  const cli = (args: string[]) =>
    runCli(args, { env: { INTERPOSE_BASE_URL: edge.control, INTERPOSE_TOKEN: TOKEN } });
  const explained = await cli(["explain", "-c", CONTAINER, "terminal", "POST", "/api/login"]);
  expect(explained.stdout).toContain(`dispatch to /login-audit by rule ${data.hook.id}`);

  const answer = await ask(edge.port, {
    method: "POST",
    host: edge.host("terminal-1"),
    path: "/api/login?token=hidden",
  });
  expect(answer).toMatchObject({ status: 418, body: "seen" });
  await expect
    .poll(async () => (await client.api.proxy.audit.list(CONTAINER)).data.records.length, {
      timeout: 10_000,
    })
    .toBe(1);
  const tailed = await cli(["tail", "-c", CONTAINER, "--no-follow"]);
  expect(tailed.stdout).toMatch(
    new RegExp(`  denied  418  .*  POST /api/login  terminal  rule=${data.hook.id}  `),
  );
  expect(tailed.stdout).not.toContain("hidden");
}, 60_000);
