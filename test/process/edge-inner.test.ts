import { test } from "vitest";
import { ask } from "../support/ask.ts";
import { CONTAINER, OTHER, startTestEdge } from "../support/edge.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

const FORWARD = "module.exports = (req, res, metadata) => metadata.hook.forward(req, res);";
const catchAll = (path: string) => ({ match: {}, script: { path }, timeout: 10_000 });

test("a hook on the exec service forwards to the script that was asked for", async ({ expect }) => {
  const edge = await startTestEdge();
  edge.script("pass.js", FORWARD);
  edge.script(
    "asked.js",
    "module.exports = (req, res, metadata) => res.end(`${metadata.hook === undefined} ${req.url} ${req.socket.remoteAddress}`);",
  );
  await edge.hook("exec", catchAll("/pass"));
  const answer = await ask(edge.port, { host: edge.host("exec-1"), path: "/asked?x=1" });
  expect([answer.status, answer.body]).toEqual([200, "true /asked?x=1 127.0.0.1"]);
  const management = await ask(edge.port, {
    host: edge.host("exec-1"),
    path: "/api/v1/exec/scripts/list",
  });
  expect(management.status).toBe(404); // nothing that a script forwards is admitted to manage scripts
});

test("a hook on the agent service forwards to the agent gateway, body and all", async ({
  expect,
}) => {
  const edge = await startTestEdge({ container: { agent: { kind: "embedded" } } });
  edge.script("pass.js", FORWARD);
  await edge.hook("agent", catchAll("/pass"));
  const host = edge.host("agent-1");
  const tools = await ask(edge.port, { host, path: "/api/v1/agent/tools" });
  expect(tools.status).toBe(200);
  const run = await ask(edge.port, {
    host,
    method: "POST",
    path: "/api/v1/agent/tools/bash/run",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ params: { cmd: "echo through" } }),
  });
  expect([run.status, run.json["is_error"]]).toEqual([200, false]);
  expect(run.body).toContain("through");
});

test("the way inside admits nobody without the token of a running dispatch, and to nothing but its destination", async ({
  expect,
}) => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({
    upstream: upstream.port,
    otherUpstream: upstream.port,
    container: { agent: { kind: "embedded" } },
  });
  edge.script(
    "address.js",
    "module.exports = (req, res, metadata) => res.end(JSON.stringify(metadata.hook.upstream));",
  );
  edge.script(
    "elsewhere.js",
    `module.exports = async (req, res, metadata) => {
    await metadata.hook.forward(req, res, { host: "127.0.0.1", port: ${upstream.port} });
  };`,
  );
  const id = await edge.hook("exec", catchAll("/address"));
  const { port } = JSON.parse((await ask(edge.port, { host: edge.host("exec-1") })).body) as {
    port: number;
  };
  for (const token of [undefined, "", "a.b", "e30.AAAA"]) {
    const direct = await ask(port, {
      host: edge.host("agent-1"),
      path: "/api/v1/agent/tools",
      headers: token === undefined ? {} : { "X-Hoody-Hook-Upstream-Token": token },
    });
    expect(direct.status).toBe(403);
  }
  const path = `/api/v1/containers/${CONTAINER}/proxy/hooks/exec`;
  await edge.api("PUT", `${path}/${id}`, catchAll("/elsewhere"), "file:v1");
  await ask(edge.port, { host: edge.host("exec-1") });
  expect(upstream.requests[0]?.lines.join().toLowerCase()).not.toContain("token"); // another address never sees it
  expect(edge.host("exec-1", OTHER)).toContain(OTHER);
});
