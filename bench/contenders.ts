import { type ChildProcess, spawn } from "node:child_process";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** One proxy under comparison, running as a process of its own. */
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

const START_MS = 20_000;

/**
 * Starts a script and waits for the first JSON line with a port. Its output goes to a file: an access line for
 * every request must not be paid for by the process that makes the load.
 */
async function start(
  root: string,
  args: readonly string[],
  pick: (line: Record<string, unknown>) => number | null,
): Promise<{ child: ChildProcess; port: number }> {
  const folder = mkdtempSync(join(tmpdir(), "interpose-bench-out-"));
  const output = join(folder, "stdout");
  const descriptor = openSync(output, "w");
  const child = spawn(process.execPath, args, {
    cwd: root,
    stdio: ["ignore", descriptor, "inherit"],
  });
  closeSync(descriptor);
  child.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  for (const until = Date.now() + START_MS; Date.now() < until && child.exitCode === null;) {
    for (const line of readFileSync(output, "utf8").split("\n").slice(0, -1)) {
      const found = line.startsWith("{") ? pick(JSON.parse(line) as Record<string, unknown>) : null;
      if (found !== null) {
        return { child, port: found };
      }
    }
    await sleep(20);
  }
  child.kill("SIGKILL");
  throw new Error(`${args.join(" ")} did not say that it listens`);
}

const ownPort = (line: Record<string, unknown>) =>
  typeof line["port"] === "number" ? line["port"] : null;

/** The service that all contenders forward to. */
export async function startUpstream(): Promise<Contender> {
  const { child, port } = await start(ROOT, ["bench/upstream.ts"], ownPort);
  return {
    name: "direct",
    pid: child.pid ?? 0,
    port,
    host: HOST,
    path: "/plain",
    stop: () => child.kill("SIGKILL"),
  };
}

/** Starts a contender of `peers/` in front of the upstream and waits until it listens. */
export async function startPeer(name: string, upstreamPort: number): Promise<Contender> {
  const { child, port } = await start(
    ROOT,
    [`bench/peers/${name}.ts`, String(upstreamPort)],
    ownPort,
  );
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

/** How an edge under comparison is set up. */
export interface EdgeOptions {
  /** Checkout to run; this one by default. */
  readonly root?: string;
  /** Told apart by this in the report. */
  readonly label?: string;
  /** For Node, before the script: a profiler. */
  readonly nodeFlags?: readonly string[];
}

/** The edge as a user runs it, once; one contender per path. */
export async function startEdge(
  upstreamPort: number,
  { root = ROOT, label = "edge", nodeFlags = [] }: EdgeOptions = {},
): Promise<Contender[]> {
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
  const { child, port } = await start(
    root,
    [...nodeFlags, "proxy/main.ts", "serve", "--config", config],
    (line) =>
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
    { ...base, name: `${label} plain`, path: "/plain" },
    { ...base, name: `${label} hooked (forward)`, path: "/hooked" },
    { ...base, name: `${label} hooked (answer)`, path: "/answered" },
  ];
}
