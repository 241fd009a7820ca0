import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { onTestFinished, test } from "vitest";
import { ask } from "../support/ask.ts";
import { CONTAINER, PROJECT, TOKEN } from "../support/edge.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

const ROOT = join(import.meta.dirname, "../..");
const HOST = `${PROJECT}-${CONTAINER}-terminal-1.local.containers.localhost`;
const HOOKS = `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`;

interface Served {
  readonly child: ChildProcess;
  readonly folder: string;
  readonly file: string;
  readonly port: number;
  readonly control: string;
  api(method: string, path: string, body?: unknown, ifMatch?: string): Promise<Response>;
  exited: Promise<number | null>;
}

async function serve(config: Record<string, unknown>): Promise<Served> {
  const folder = mkdtempSync(join(tmpdir(), "interpose-workers-"));
  const scripts = join(folder, "scripts/default/1");
  mkdirSync(scripts, { recursive: true });
  writeFileSync(join(scripts, "say.js"), "module.exports = (req, res) => res.end('said');");
  const file = join(folder, "edge.json");
  writeFileSync(
    file,
    JSON.stringify({
      listen: { http: "127.0.0.1:0" },
      control: { listen: "127.0.0.1:0", token: TOKEN },
      dataDir: "./data",
      limits: { drainMs: 2000 },
      ...config,
    }),
  );
  const child = spawn(process.execPath, [join(ROOT, "proxy/main.ts"), "serve", "--config", file], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = new Promise<number | null>((done) => child.once("exit", done));
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await exited;
    rmSync(folder, { recursive: true, force: true });
  });
  const ready = await new Promise<Record<string, string>>((resolve, reject) => {
    exited.then((code) => reject(new Error(`ended with ${code} before it was ready`)), reject);
    createInterface({ input: child.stdout! }).on("line", (line) => {
      const entry = JSON.parse(line) as Record<string, string>;
      if (entry["msg"] === "ready") {
        resolve(entry);
      }
    });
  });
  const control = `http://${ready["control"]}`;
  return {
    child,
    folder,
    file,
    port: Number(ready["http"]?.split(":")[1]),
    control,
    exited,
    api: (method, path, body, ifMatch) =>
      fetch(control + path, {
        method,
        headers: {
          authorization: `Bearer ${TOKEN}`,
          "content-type": "application/json",
          ...(ifMatch ? { "if-match": ifMatch } : {}),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      }),
  };
}

const container = (port: number) => ({
  project: PROJECT,
  container: CONTAINER,
  ports: { terminal: port },
  exec: { kind: "embedded", scripts: "./scripts" },
});

/** Pids of the edge processes below a primary. */
function edgePids(primary: number): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
        const parent = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
        return (
          parent === primary &&
          readFileSync(`/proc/${pid}/cmdline`, "latin1").includes("edge-process")
        );
      } catch {
        return false;
      }
    });
}

test("two edge processes share port, policy, hosts and metrics; one that ends is replaced", async ({
  expect,
}) => {
  const upstream = await recordingUpstream();
  const edge = await serve({ workers: 2, containers: [container(upstream.port)] });
  expect(edgePids(edge.child.pid ?? 0)).toHaveLength(2);
  const created = await edge.api(
    "POST",
    HOOKS,
    { match: { path: "/hooked*" }, script: { path: "/say" }, timeout: 5000 },
    "file:v0",
  );
  expect(created.status).toBe(201);
  const hooked = (count: number) =>
    Promise.all(
      Array.from({ length: count }, () => ask(edge.port, { host: HOST, path: "/hooked" })),
    );
  let dispatched = 0;
  await expect
    .poll(
      async () => {
        const bodies = (await hooked(4)).map((answer) => answer.body);
        dispatched += bodies.filter((body) => body === "said").length;
        return bodies;
      },
      { timeout: 15_000 },
    )
    .toEqual(["said", "said", "said", "said"]); // the write is live in every process, and the worker runs
  const answers = await hooked(20);
  dispatched += 20;
  expect(new Set(answers.map((answer) => answer.body))).toEqual(new Set(["said"]));
  const plain = await Promise.all(
    Array.from({ length: 20 }, () => ask(edge.port, { host: HOST, path: "/plain" })),
  );
  expect(plain.every((answer) => answer.body === "ok")).toBe(true);
  const metrics = await (await fetch(`${edge.control}/metrics`)).text();
  const passed =
    /interpose_requests_total\{service="terminal",outcome="passed",code_class="2xx"\} (\d+)/.exec(
      metrics,
    );
  expect(Number(passed?.[1])).toBeGreaterThanOrEqual(20); // added up over both processes
  const records = async () => {
    const answer = await edge.api("GET", `/api/v1/containers/${CONTAINER}/proxy/audit?limit=500`);
    return ((await answer.json()) as { data: { records: unknown[] } }).data.records.length;
  };
  await expect.poll(records, { timeout: 10_000 }).toBeGreaterThanOrEqual(dispatched);

  const [victim] = edgePids(edge.child.pid ?? 0);
  process.kill(victim ?? 0, "SIGKILL");
  const until = Date.now() + 30_000;
  while (
    edgePids(edge.child.pid ?? 0).includes(victim ?? 0) ||
    edgePids(edge.child.pid ?? 0).length < 2 ||
    !(await fetch(`${edge.control}/readyz`)).ok
  ) {
    expect(Date.now()).toBeLessThan(until);
    await new Promise((wait) => setTimeout(wait, 100));
  }
  expect((await ask(edge.port, { host: HOST, path: "/plain" })).status).toBe(200);
  edge.child.kill("SIGTERM");
  expect(await edge.exited).toBe(0);
});

test.for([1, 2])(
  "with %i process(es) a changed file counts without touching a socket, an invalid one is refused whole",
  async (workers, { expect }) => {
    const upstream = await recordingUpstream();
    const edge = await serve({ workers, containers: [container(upstream.port)] });
    const { Agent, request } = await import("node:http");
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    let connections = 0;
    const get = () =>
      new Promise<number>((resolve, reject) => {
        const call = request(
          { host: "127.0.0.1", port: edge.port, agent, headers: { host: HOST } },
          (response) => {
            response.resume().on("end", () => resolve(response.statusCode ?? 0));
          },
        );
        call.on("socket", (socket) => {
          if (socket.connecting) {
            connections++;
          }
        });
        call.on("error", reject).end();
      });
    const until = async (status: number) => {
      const end = Date.now() + 8000;
      while ((await get()) !== status) {
        expect(Date.now()).toBeLessThan(end);
        await new Promise((wait) => setTimeout(wait, 50));
      }
    };
    expect(await get()).toBe(200);
    const before = JSON.parse(readFileSync(edge.file, "utf8")) as Record<string, unknown>;
    writeFileSync(edge.file, "{ nonsense");
    edge.child.kill("SIGHUP");
    await new Promise((wait) => setTimeout(wait, 700));
    expect(await get()).toBe(200);
    writeFileSync(
      edge.file,
      JSON.stringify({
        ...before,
        containers: [{ ...container(upstream.port), state: "stopped" }],
      }),
    );
    await until(503);
    writeFileSync(edge.file, JSON.stringify(before));
    await until(200);
    expect(connections).toBe(1);
  },
);

test("SIGTERM turns readiness red, lets running requests finish and exits 0", async ({
  expect,
}) => {
  const upstream = await recordingUpstream((_request, socket) => {
    setTimeout(() => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate"), 800);
    return null;
  });
  const edge = await serve({ containers: [container(upstream.port)] });
  const running = ask(edge.port, { host: HOST });
  await upstream.waitForRequests(1);
  edge.child.kill("SIGTERM");
  await new Promise((wait) => setTimeout(wait, 200));
  expect((await fetch(`${edge.control}/readyz`)).status).toBe(503);
  await expect(ask(edge.port, { host: HOST })).rejects.toThrow();
  expect((await running).body).toBe("late");
  expect(await edge.exited).toBe(0);
});
