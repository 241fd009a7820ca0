import { chmodSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createExecHost } from "../../exec-host/host.ts";
import { bareConfinement } from "../../exec-host/pool/confinement.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics } from "../../policy/kernel/metrics.ts";
import { ask } from "../support/ask.ts";
import { CONTAINER, startTestEdge, TOKEN } from "../support/edge.ts";
import { execContainer, tempDir } from "../support/exec-pool.ts";

/** Everything below `path` that another user of the machine could read or write, as `path mode`. */
function openToOthers(path: string): string[] {
  const { mode } = statSync(path);
  const here = (mode & 0o006) === 0 ? [] : [`${path} ${(mode & 0o777).toString(8)}`];
  const passable = statSync(path).isDirectory() && (mode & 0o001) !== 0;
  return passable
    ? [...here, ...readdirSync(path).flatMap((name) => openToOthers(join(path, name)))]
    : here;
}

const isRoot = process.getuid?.() === 0;

test("nothing that the edge or its hosts write can be read by other users", async () => {
  const edge = await startTestEdge({
    container: {
      agent: { kind: "embedded" },
      exec: { kind: "embedded", ...(isRoot ? { user: "64321:64321" } : {}) },
    },
  });
  chmodSync(edge.folder, 0o711); // of the test: the user must get to the data folder
  const token = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
  const written = await ask(edge.port, {
    method: "POST",
    host: edge.host("exec-1"),
    path: "/api/v1/exec/scripts/write",
    headers: token,
    body: JSON.stringify({ path: "deep/hook.js", content: "module.exports = () => 1;" }),
  });
  expect(written.status, written.body).toBe(200);
  await edge.hook("terminal", { match: { path: "/x" }, script: { path: "/deep/hook" } });
  const hooked = await ask(edge.port, { host: edge.host("terminal-1"), path: "/x" });
  expect(hooked.status, hooked.body).toBe(200);
  await ask(edge.port, { host: edge.host("agent-1"), path: "/api/v1/agent/health" });
  await edge.api("POST", "/api/v1/proxy/aliases", {
    container_id: CONTAINER,
    program: "terminal",
    alias: "mine",
  });
  const data = join(edge.folder, "data");
  expect(readdirSync(join(data, "containers", CONTAINER)).toSorted()).toEqual([
    "agent",
    "data",
    "home",
    "logs",
    "scripts",
  ]);
  expect(openToOthers(data)).toEqual([]);
});

test("readiness names containers whose programs nothing holds", async () => {
  const dataDir = await tempDir();
  const allow = { childProcess: true, read: [], write: [] };
  const containers = new Map([
    ["a", execContainer(join(dataDir, "a"), { allow })],
    ["b", execContainer(join(dataDir, "b"), { allow, user: "64321:64321" })],
    ["c", execContainer(join(dataDir, "c"))],
  ]);
  const host = await createExecHost(
    {
      clock: systemClock,
      log: silentLog(),
      metrics: createMetrics(),
      dataDir,
      containers: () => containers,
    },
    { pool: {}, confinement: bareConfinement(true) },
  );
  const text = host.readiness().detail.join("\n");
  await host.close();
  expect(text).toContain(
    "container a: programs that its scripts start may do all that this process may",
  );
  expect(text).toContain(
    "container b: programs that its scripts start may do all that user 64321:64321 may",
  );
  expect(text).not.toContain("container c");
});
