import { readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished, test } from "vitest";
import { createAgentSupervisor } from "../../exec-host/agent/supervisor.ts";
import type { AgentContainer, AgentSupervisor } from "../../exec-host/agent/supervisor.ts";
import {
  loadAgentHostConfig,
  startAgentHost,
  toolEnvironment,
} from "../../exec-host/agent/standalone.ts";
import { edgeAuthField } from "../../exec-host/agent/edge-auth.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import type { Origin } from "../../policy/kernel/http1/types.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics } from "../../policy/kernel/metrics.ts";

const ID = "890abcdef12345678901cdef";

async function start(change: { entry?: string } = {}) {
  const root = await mkdtemp(join(tmpdir(), "agent-sup-"));
  const home = join(root, "home");
  await mkdir(home);
  const metrics = createMetrics();
  const containers = new Map<string, AgentContainer>([
    [ID, { home, fleet: false, realms: [], rateLimit: "off", judge: null }],
  ]);
  const supervisor = createAgentSupervisor(
    { clock: systemClock, log: silentLog(), metrics, dataDir: root, containers: () => containers },
    { env: toolEnvironment(process.env), logLevel: "silent", ...change },
  );
  onTestFinished(async () => {
    await supervisor.close();
    await rm(root, { recursive: true, force: true });
  });
  return { supervisor, metrics, containers, home, root };
}

function ask(
  supervisor: AgentSupervisor,
  origin: Origin,
  method: string,
  target: string,
  body?: unknown,
): Promise<{ status: number; json: Record<string, unknown> }> {
  const [name = "", value = ""] = supervisor.sign(ID, method, target);
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        socketPath: origin.kind === "unix" ? origin.path : "",
        method,
        path: target,
        agent: false,
        headers: { [name]: value, "content-type": "application/json" },
      },
      (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
        response.once("end", () =>
          resolve({
            status: response.statusCode ?? 0,
            json: JSON.parse(text) as Record<string, unknown>,
          }),
        );
      },
    );
    sent.once("error", reject);
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

async function until(what: () => boolean): Promise<void> {
  for (let i = 0; i < 400 && !what(); i++) {
    await new Promise((resolve) => {
      setTimeout(resolve, 25);
    });
  }
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !readFileSync(`/proc/${pid}/stat`, "latin1").includes(") Z ");
  } catch {
    return false;
  }
}

test("a gateway starts when it is asked for, serves signed requests, and counts for its parent", async ({
  expect,
}) => {
  const { supervisor, metrics, home } = await start();
  expect(supervisor.status().size).toBe(0);
  const [first, second] = await Promise.all([supervisor.endpoint(ID), supervisor.endpoint(ID)]);
  expect(first).toEqual(second);
  expect(supervisor.status().get(ID)).toMatchObject({ state: "ready", starts: 1 });
  if (first.kind === "unix") {
    expect((await stat(first.path)).mode & 0o777).toBe(0o600);
  }
  const ran = await ask(supervisor, first, "POST", "/api/v1/agent/tools/bash/run", {
    params: { cmd: "pwd" },
  });
  expect(ran).toMatchObject({ status: 200, json: { is_error: false, output: `${home}\n` } });
  const unsigned = await ask(
    { ...supervisor, sign: () => ["x-none", "1"] },
    first,
    "GET",
    "/api/v1/agent/tools",
  );
  expect(unsigned).toMatchObject({ status: 403, json: { code: "forbidden" } });
  expect(
    await metrics.registry.getSingleMetricAsString("interpose_agent_tool_runs_total"),
  ).toContain('tool="bash",outcome="ok"');
  await expect(Promise.resolve(supervisor.endpoint("000000000000000000000000"))).rejects.toThrow(
    "no embedded",
  );
});

test("a gateway that dies is started again, its commands die with it, and its secret is not in its environment", async ({
  expect,
}) => {
  const { supervisor, home } = await start();
  const origin = await supervisor.endpoint(ID);
  const pid = supervisor.status().get(ID)?.pid ?? 0;
  const created = await ask(supervisor, origin, "POST", "/api/v1/agent/sessions", { cwd: home });
  const session = String(created.json["session_id"]);
  const running = ask(
    supervisor,
    origin,
    "POST",
    `/api/v1/agent/sessions/${session}/tools/bash/run`,
    { params: { cmd: "setsid sleep 300 & echo $! > pid; sleep 300" } },
  );
  running.catch(() => {});
  const file = join(home, "pid");
  let child = 0;
  await until(() => {
    try {
      child = Number(readFileSync(file, "utf8"));
    } catch {
      return false;
    }
    return child > 0;
  });
  expect(alive(child)).toBe(true);
  const [, signature = ""] = supervisor.sign(ID, "GET", "/");
  expect(signature).toContain("v1 ");
  expect(readFileSync(`/proc/${pid}/environ`, "latin1")).not.toMatch(/[0-9a-f]{64}/);
  process.kill(pid, "SIGKILL");
  await expect(running).rejects.toThrow();
  await until(() => !alive(child));
  expect(alive(child)).toBe(false);
  expect(supervisor.readiness().ok).toBe(false);
  await expect(Promise.resolve(supervisor.endpoint(ID))).rejects.toThrow("a moment ago");
  let again: Origin | null = null;
  for (let i = 0; i < 100 && again === null; i++) {
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
    again = await Promise.resolve(supervisor.endpoint(ID)).catch(() => null);
  }
  expect(again).not.toBeNull();
  expect(supervisor.status().get(ID)).toMatchObject({ state: "ready", starts: 2 });
});

test("a program that ends before it is ready is a failure, not a wait", async ({ expect }) => {
  const root = await mkdtemp(join(tmpdir(), "agent-bad-"));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  await writeFile(join(root, "bad.mjs"), "process.exit(3)");
  const { supervisor } = await start({ entry: join(root, "bad.mjs") });
  await expect(Promise.resolve(supervisor.endpoint(ID))).rejects.toThrow("ended");
  expect(supervisor.status().get(ID)).toMatchObject({ state: "failed" });
});

test("a changed configuration ends the old gateway", async ({ expect }) => {
  const { supervisor, containers } = await start();
  await supervisor.endpoint(ID);
  const pid = supervisor.status().get(ID)?.pid ?? 0;
  const before = containers.get(ID);
  if (before !== undefined) {
    containers.set(ID, { ...before, fleet: true });
  }
  supervisor.reconcile();
  await until(() => !alive(pid));
  expect(alive(pid)).toBe(false);
  await supervisor.endpoint(ID);
  expect(supervisor.status().get(ID)?.state).toBe("ready");
});

test("a gateway of its own listens on TCP and reports every problem of its file at once", async ({
  expect,
}) => {
  const root = await mkdtemp(join(tmpdir(), "agent-host-"));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const file = join(root, "agent.yaml");
  await writeFile(file, "listen: nowhere\nsecret: short\nhome: h\nextra: 1\n");
  const bad = loadAgentHostConfig(file, {});
  expect(
    bad.ok ? [] : bad.issues.map((issue) => issue.path).toSorted((a, b) => (a < b ? -1 : 1)),
  ).toEqual(["/dataDir", "/extra", "/listen", "/secret"]);
  const secret = "0123456789abcdef";
  await writeFile(
    file,
    "listen: 127.0.0.1:0\nsecret: ${AGENT_SECRET}\nhome: home\ndataDir: data\nrateLimit: off\n",
  );
  expect(loadAgentHostConfig(file, {})).toMatchObject({
    ok: false,
    issues: [{ path: "/secret", message: "the environment variable AGENT_SECRET is not set" }],
  });
  const good = loadAgentHostConfig(file, { AGENT_SECRET: secret });
  if (!good.ok) {
    throw new Error("the configuration was refused");
  }
  const host = await startAgentHost(
    { clock: systemClock, log: silentLog() },
    good.config,
    toolEnvironment(process.env),
  );
  onTestFinished(() => host.close());
  const target = "/api/v1/agent/tools?limit=2";
  const url = `http://127.0.0.1:${host.address.port}${target}`;
  expect((await fetch(url)).status).toBe(403);
  const field = edgeAuthField(secret, "GET", target, Date.now());
  const answer = await fetch(url, { headers: { "X-Hoody-Edge-Auth": field } });
  expect(await answer.json()).toMatchObject({
    meta: { total: 10, page: 1, limit: 2 },
    has_more: true,
  });
});
