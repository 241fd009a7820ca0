import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export interface Contender {
  readonly name: string;
  readonly pid: number;
  readonly port: number;
  readonly host: string;
  readonly path: string;
  stop(): void;
}

const ROOT = join(import.meta.dirname, "..");
const PROJECT = "67e89abc123def456789abcd";
const CONTAINER = "890abcdef12345678901cdef";
const TOKEN = "bench-control-token-0000";
const HOST = `${PROJECT}-${CONTAINER}-terminal-1.local.containers.localhost`;

/** Starts a script and reads the first JSON line with a port from its output. */
function start(
  file: string,
  args: string[],
  pick: (line: Record<string, unknown>) => number | null,
) {
  const child = spawn(process.execPath, [join(ROOT, file), ...args], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  return new Promise<{ child: ChildProcess; port: number }>((resolve, reject) => {
    child.once("exit", (code) =>
      reject(new Error(`${file} ended with ${code} before it listened`)),
    );
    createInterface({ input: child.stdout }).on("line", (line) => {
      const found = line.startsWith("{") ? pick(JSON.parse(line) as Record<string, unknown>) : null;
      if (found !== null) {
        resolve({ child, port: found });
      }
    });
  });
}

const ownPort = (line: Record<string, unknown>) =>
  typeof line["port"] === "number" ? line["port"] : null;

/** The service that all contenders forward to. */
export async function startUpstream(): Promise<Contender> {
  const { child, port } = await start("bench/upstream.ts", [], ownPort);
  return {
    name: "direct",
    pid: child.pid ?? 0,
    port,
    host: HOST,
    path: "/plain",
    stop: () => child.kill("SIGKILL"),
  };
}

export async function startPeer(name: string, upstreamPort: number): Promise<Contender> {
  const { child, port } = await start(`bench/peers/${name}.ts`, [String(upstreamPort)], ownPort);
  return {
    name,
    pid: child.pid ?? 0,
    port,
    host: HOST,
    path: "/plain",
    stop: () => child.kill("SIGKILL"),
  };
}

const HOOKS = [
  {
    id: "01hzzzzzzzzzzzzzzzzzzzzzz1",
    match: { method: "*", path: "/hooked*" },
    script: { path: "/forward" },
    timeout: 30_000,
  },
  {
    id: "01hzzzzzzzzzzzzzzzzzzzzzz2",
    match: { method: "*", path: "/answered*" },
    script: { path: "/answer" },
    timeout: 30_000,
  },
];

const SCRIPTS = {
  forward: "module.exports = async (req, res, metadata) => metadata.hook.forward(req, res);\n",
  answer: `const body = Buffer.from(JSON.stringify({ ok: true, pad: "x".repeat(${1024 - 22}) }));
module.exports = async (req, res) => {
  res.writeHead(200, { "content-type": "application/json", "content-length": body.length });
  res.end(body);
};
`,
};

/** The edge as a user runs it, once; one contender per path. */
export async function startEdge(upstreamPort: number): Promise<Contender[]> {
  const folder = mkdtempSync(join(tmpdir(), "interpose-bench-"));
  const scripts = join(folder, "scripts/default/1");
  mkdirSync(scripts, { recursive: true });
  for (const [name, text] of Object.entries(SCRIPTS)) {
    writeFileSync(join(scripts, `${name}.js`), text);
  }
  const policy = join(folder, "data/policy/containers");
  mkdirSync(policy, { recursive: true });
  writeFileSync(
    join(policy, `${CONTAINER}.json`),
    JSON.stringify({
      project: PROJECT,
      container: CONTAINER,
      groups: {},
      permissions: {},
      default: "allow",
      enable_proxy: true,
      hooks: { terminal: HOOKS },
      schema_version: 2,
      file_version: 1,
    }),
  );
  const config = join(folder, "config.json");
  writeFileSync(
    config,
    JSON.stringify({
      listen: { http: "127.0.0.1:0" },
      control: { listen: "127.0.0.1:0", token: TOKEN },
      dataDir: join(folder, "data"),
      log: { level: "info", pretty: false },
      containers: [
        {
          project: PROJECT,
          container: CONTAINER,
          ports: { terminal: upstreamPort },
          exec: { kind: "embedded", scripts: join(folder, "scripts") },
        },
      ],
    }),
  );
  const { child, port } = await start("proxy/main.ts", ["serve", "--config", config], (line) =>
    line["msg"] === "ready" && typeof line["http"] === "string"
      ? Number(String(line["http"]).split(":").at(-1))
      : null,
  );
  const stop = () => {
    child.kill("SIGTERM");
    child.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  };
  const base = { pid: child.pid ?? 0, port, host: HOST, stop };
  return [
    { ...base, name: "edge plain", path: "/plain" },
    { ...base, name: "edge hooked (forward)", path: "/hooked" },
    { ...base, name: "edge hooked (answer)", path: "/answered" },
  ];
}
