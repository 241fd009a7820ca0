import { cpSync, existsSync, mkdirSync, readdirSync } from "node:fs";
import { type Server, createServer } from "node:http";
import { type AddressInfo, createServer as createProbe } from "node:net";
import { join, relative, resolve } from "node:path";
import type { ListenAddress } from "./config.ts";

/** Ids of the demo container; any 24 hex characters would do. */
const DEMO_PROJECT = "67e89abc123def456789abcd";
const DEMO_CONTAINER = "890abcdef12345678901cdef";
const DOMAIN = "containers.localhost";

/** The demo: a configuration, and the service that it leads to. */
export interface Demo {
  /** As the configuration file would say it. */
  readonly config: Record<string, unknown>;
  /** Sentences about ports that were taken. */
  readonly remarks: readonly string[];
  close(): void;
}

/** The hook that the demo stores once: requests to /api/login* of the terminal service run /login-audit first. */
const DEMO_HOOK = {
  match: { method: ["POST"], path: "/api/login*" },
  script: { path: "/login-audit" },
  timeout: 2000,
};

/**
 * Everything `interpose serve` needs without a configuration file: free ports, example scripts, and a small
 * service behind `terminal`. Writes only below `dataDir`.
 *
 * @param examples folder with the example scripts (`<name>/script.js`).
 */
export async function prepareDemo(dataDir: string, examples: string): Promise<Demo> {
  const remarks: string[] = [];
  const http = await freePort(8080, "the edge", remarks);
  const control = await freePort(8081, "the control API", remarks, http);
  const scripts = join(resolve(dataDir), "containers", DEMO_CONTAINER, "scripts");
  copyExamples(examples, join(scripts, "default", "1"));
  const service = await startDemoService();
  const port = (service.address() as AddressInfo).port;
  return {
    config: {
      node: "local",
      domain: DOMAIN,
      listen: { http: `127.0.0.1:${http}` },
      control: { listen: `127.0.0.1:${control}` },
      dataDir: resolve(dataDir),
      containers: [
        {
          project: DEMO_PROJECT,
          container: DEMO_CONTAINER,
          ports: { terminal: port },
          exec: { kind: "embedded", scripts },
          agent: { kind: "embedded" },
        },
      ],
    },
    remarks,
    close: () => void service.close(),
  };
}

/** The greeting: at most ten lines, each `curl` line works as printed. */
export function demoGreeting(
  addresses: { http: ListenAddress; control: ListenAddress },
  dataDir: string,
  remarks: readonly string[],
): string[] {
  const name = (tail: string) =>
    `http://${DEMO_PROJECT}-${DEMO_CONTAINER}-${tail}.local.${DOMAIN}:${addresses.http.port}`;
  const control = `http://${addresses.control.host}:${addresses.control.port}`;
  const folder = relative(process.cwd(), dataDir);
  const token = join(folder.startsWith("..") ? dataDir : folder, "control-token");
  return [
    `interpose demo: edge on ${addresses.http.host}:${addresses.http.port}, control API on ${control}`,
    ...(remarks.length === 0 ? [] : [`  ${remarks.join("; ")}`]),
    "  to the service:       curl " + name("terminal-1") + "/hello",
    "  through the hook:     curl -d user=ada " + name("terminal-1") + "/api/login",
    "  a script by itself:   curl " + name("exec-1") + "/short-circuit",
    "  the agent gateway:    curl " + name("agent-1") + "/api/v1/agent/tools",
    `  the stored hook:      curl -H "Authorization: Bearer $(cat ${token})" ${control}/api/v1/containers/${DEMO_CONTAINER}/proxy/hooks`,
  ];
}

/** Stores the demo's hook as a user would, through the control API; a hook that is there stays. */
export async function storeDemoHook(control: ListenAddress, token: string): Promise<void> {
  const url = `http://${control.host}:${control.port}/api/v1/containers/${DEMO_CONTAINER}/proxy/hooks/terminal`;
  const response = await fetch(url, {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      "if-match": "file:v0",
    },
    body: JSON.stringify(DEMO_HOOK),
  });
  if (response.status !== 201 && response.status !== 412) {
    throw new Error(
      `The demo's hook could not be stored: the control API answered ${response.status}.`,
    );
  }
}

/** `wanted` when nothing listens there, otherwise the next free port but `promised`, with a remark. */
async function freePort(
  wanted: number,
  what: string,
  remarks: string[],
  promised?: number,
): Promise<number> {
  for (let port = wanted; port < wanted + 100; port++) {
    if (port !== promised && (await canListen(port))) {
      if (port !== wanted) {
        remarks.push(`port ${wanted} is taken, ${what} uses ${port}`);
      }
      return port;
    }
  }
  throw new Error(
    `No free port from ${wanted} to ${wanted + 99} for ${what}; stop what listens there.`,
  );
}

function canListen(port: number): Promise<boolean> {
  return new Promise((done) => {
    const probe = createProbe();
    probe.once("error", () => done(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => done(true)));
  });
}

/** Each example becomes `<name>.js`; files that are there stay as the user left them. */
function copyExamples(examples: string, target: string): void {
  mkdirSync(target, { recursive: true, mode: 0o700 });
  for (const name of existsSync(examples) ? readdirSync(examples) : []) {
    const source = join(examples, name, "script.js");
    const copy = join(target, `${name}.js`);
    if (existsSync(source) && !existsSync(copy)) {
      cpSync(source, copy);
    }
  }
}

/** A service that says what it got. */
function startDemoService(): Promise<Server> {
  const server = createServer((request, response) => {
    let bytes = 0;
    request.on("data", (chunk: Buffer) => (bytes += chunk.length));
    request.on("end", () => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(
        `${JSON.stringify({ service: "demo", method: request.method, url: request.url, bodyBytes: bytes, headers: request.headers }, null, 2)}\n`,
      );
    });
  });
  return new Promise((ready) => server.listen(0, "127.0.0.1", () => ready(server)));
}
