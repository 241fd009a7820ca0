import { execFile } from "node:child_process";
import { mkdir, utimes, writeFile } from "node:fs/promises";
import { createServer, request as forward } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { onTestFinished, test } from "vitest";
import { edgeAuthField } from "../../exec-host/agent/edge-auth.ts";
import type { JsonObject } from "../../exec-host/agent/seams.ts";
import { realSandbox, SECRET, startGateway } from "../support/agent-gateway.ts";

const run = promisify(execFile);

/** Stands in for the edge: signs what passes, like the real one. */
async function startSigner(port: number): Promise<string> {
  const server = createServer((incoming, outgoing) => {
    const { method = "GET", url = "/" } = incoming;
    const headers = {
      ...incoming.headers,
      "x-hoody-edge-auth": edgeAuthField(SECRET, method, url, Date.now()),
    };
    const sent = forward({ port, host: "127.0.0.1", method, path: url, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(outgoing);
    });
    sent.once("error", () => outgoing.destroy());
    incoming.pipe(sent);
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function start() {
  const gateway = await startGateway({ sandbox: await realSandbox() });
  const { project } = gateway;
  await mkdir(join(project, "src/sub"), { recursive: true });
  await writeFile(join(project, "README.md"), "readme\n");
  await writeFile(join(project, "src/sub/cli.ts"), "one\ntwo\n");
  await writeFile(join(project, "src/agent.ts"), "export const agent = 1;\n");
  await writeFile(join(gateway.root, "marker"), "");
  await utimes(join(gateway.root, "marker"), 1, 1);
  const base = await startSigner(gateway.port);
  /** Runs a curl line as a person would type it. */
  const curl = async (line: string): Promise<string> =>
    (
      await run("bash", [
        "-c",
        line
          .replaceAll("BASE", `${base}/api/v1/agent`)
          .replaceAll("PROJECT", project)
          .replaceAll("MARKER", join(gateway.root, "marker")),
      ])
    ).stdout;
  return {
    gateway,
    project,
    curl,
    json: async (line: string) => JSON.parse(await curl(line)) as JsonObject,
  };
}

test("the documented catalogue calls answer in the documented shapes", async ({ expect }) => {
  const { json } = await start();
  const list = await json(`curl -s -X GET "BASE/tools?page=1&limit=50" -H "X-Hoody-Cwd: PROJECT"`);
  expect(list["meta"]).toEqual({ total: 10, page: 1, limit: 50 });
  expect((list["items"] as JsonObject[])[0]).toMatchObject({
    name: "read_file",
    read_only: true,
    input_schema: { type: "object", required: ["path"] },
  });
  const one = await json(`curl -s -X GET "BASE/tools/bash" -H "X-Hoody-Cwd: PROJECT"`);
  expect(one).toMatchObject({
    name: "bash",
    read_only: false,
    input_schema: {
      properties: {
        cmd: { type: "string" },
        cwd: { type: "string" },
        timeout_ms: { type: "integer" },
      },
      required: ["cmd"],
    },
  });
  const readOnly = await json(
    `curl -s -X GET "BASE/tools/read-only?page=1&limit=50" -H "X-Hoody-Cwd: PROJECT"`,
  );
  expect((readOnly["items"] as JsonObject[]).every((tool) => tool["read_only"] === true)).toBe(
    true,
  );
});

test("the documented runs without a session answer in the documented shapes", async ({
  expect,
}) => {
  const { json, curl, project } = await start();
  const ran = await json(`curl -s -X POST "BASE/tools/bash/run" \\
    -H "Content-Type: application/json" \\
    -H "X-Hoody-Cwd: PROJECT" \\
    -H "X-Hoody-Tool-Mode: read_only" \\
    -d '{ "params": { "cmd": "ls -la PROJECT", "timeout_ms": 5000 }, "allow_mutations": false }'`);
  expect(ran).toMatchObject({ tool: "bash", is_error: false, content: [{ type: "text" }] });
  expect((ran["content"] as { text: string }[])[0]?.text).toContain("README.md");

  const job = await json(`curl -s -X POST "BASE/tools/bash/runAsync" \\
    -H "Content-Type: application/json" \\
    -H "X-Hoody-Cwd: PROJECT" \\
    -H "X-Hoody-Tool-Mode: read_only" \\
    -d '{ "params": { "cmd": "find PROJECT -name \\u0027*.ts\\u0027 -newer MARKER", "timeout_ms": 30000 }, "allow_mutations": false }'`);
  expect(Object.keys(job)).toEqual(["job_id"]);
  let result: JsonObject = {};
  for (let i = 0; i < 200 && result["status"] !== "succeeded"; i++) {
    result = await json(`curl -s "BASE/jobs/${String(job["job_id"])}/result"`);
  }
  const { output } = result["result"] as { output: string };
  expect(
    output
      .trim()
      .split("\n")
      .toSorted((a, b) => (a < b ? -1 : 1)),
  ).toEqual([join(project, "src/agent.ts"), join(project, "src/sub/cli.ts")]);

  const streamed = await curl(`curl -s -N -X POST "BASE/tools/bash/stream" \\
    -H "Content-Type: application/json" \\
    -H "Accept: text/event-stream" \\
    -H "X-Hoody-Cwd: PROJECT" \\
    -H "X-Hoody-Tool-Mode: read_only" \\
    -d '{ "params": { "cmd": "wc -l PROJECT/src/**/*.ts", "timeout_ms": 10000 }, "allow_mutations": false }'`);
  expect(streamed).toMatch(
    /^event: start\ndata: \{"tool":"bash","started_at":"[^"]+"\}\n\nevent: result\ndata: \{"tool":"bash","is_error":false,.*\}\n\nevent: end\ndata: \{"tool":"bash","finished_at":"[^"]+"\}\n\n$/,
  );
  expect(streamed).toContain(`2 ${join(project, "src/sub/cli.ts")}`);
}, 60_000);

test("the documented session calls answer in the documented shapes", async ({ expect }) => {
  const { json } = await start();
  const { session_id: id } = await json(
    `curl -s -X POST "BASE/sessions" -H "Content-Type: application/json" -d '{"cwd":"PROJECT"}'`,
  );
  const tools = await json(
    `curl -s -X GET "BASE/sessions/${String(id)}/tools?page=1&limit=50" -H "X-Hoody-Cwd: PROJECT"`,
  );
  expect(tools["meta"]).toEqual({ total: 9, page: 1, limit: 50 });
  const mcp = await json(
    `curl -s -X GET "BASE/sessions/${String(id)}/tools/mcp?page=1&limit=50" -H "X-Hoody-Cwd: PROJECT"`,
  );
  expect(mcp).toMatchObject({ items: [], meta: { total: 0, page: 1, limit: 50 } });
  const ran = await json(`curl -s -X POST "BASE/sessions/${String(id)}/tools/read_file/run" \\
    -H "Content-Type: application/json" -H "X-Hoody-Cwd: PROJECT" \\
    -d '{ "params": { "path": "PROJECT/src/agent.ts", "max_lines": 200 } }'`);
  expect(ran).toMatchObject({
    tool: "read_file",
    is_error: false,
    content: [{ type: "text", text: "export const agent = 1;\n" }],
  });
});
