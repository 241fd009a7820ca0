import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Writable } from "node:stream";
import { onTestFinished } from "vitest";
import { systemClock } from "../../policy/kernel/clock.ts";
import { createLog } from "../../policy/kernel/log.ts";
import { decodeConfig } from "../../proxy/config.ts";
import { type RunningEdge, startEdge } from "../../proxy/serve.ts";

export const PROJECT = "67e89abc123def456789abcd";
export const CONTAINER = "890abcdef12345678901cdef";
export const OTHER = "890abcdef1234567890fffff";
export const TOKEN = "test-control-token-0123456789";

export interface TestEdge {
  readonly edge: RunningEdge;
  readonly folder: string;
  readonly port: number;
  readonly control: string;
  /** Log lines so far, parsed. */
  readonly log: Record<string, unknown>[];
  /** Host of a service of the first container: `host("terminal-1")`. */
  host(tail: string, container?: string): string;
  /** Writes a script of the container's default deployment. */
  script(name: string, source: string, container?: string): void;
  /** Calls the control API; JSON in and out. */
  api(method: string, path: string, body?: unknown, ifMatch?: string): Promise<ApiAnswer>;
  /** Stores a hook at the end of a service's list. */
  hook(service: string, rule: unknown, container?: string): Promise<string>;
  /** Resolves with the first access line that `test` accepts; rejects after `ms`. */
  accessLine(
    test: (line: Record<string, unknown>) => boolean,
    ms?: number,
  ): Promise<Record<string, unknown>>;
}

export interface ApiAnswer {
  readonly status: number;
  readonly etag: string | null;
  // JSON of an API under test: what is in it is what the test asserts.
  readonly body: { data?: Record<string, never>; message?: string; [key: string]: unknown };
}

export interface TestEdgeOptions {
  /** Port of the first container's `terminal` service. */
  readonly upstream?: number;
  readonly container?: Record<string, unknown>;
  /** A second container, `OTHER`, whose terminal listens there. */
  readonly otherUpstream?: number;
  readonly config?: Record<string, unknown>;
}

/** A whole edge in this process, on free ports and a temp folder; ended with the test. */
export async function startTestEdge(options: TestEdgeOptions = {}): Promise<TestEdge> {
  const self = await openTestEdge(options);
  onTestFinished(() => self.close());
  return self;
}

/** The same for several tests: whoever opened it closes it. */
export async function openTestEdge(
  options: TestEdgeOptions = {},
): Promise<TestEdge & { close(): Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), "interpose-test-"));
  const containers: Record<string, unknown>[] = [
    {
      project: PROJECT,
      container: CONTAINER,
      ports: { terminal: options.upstream ?? 9 },
      ...options.container,
    },
  ];
  if (options.otherUpstream !== undefined) {
    containers.push({
      project: PROJECT,
      container: OTHER,
      ports: { terminal: options.otherUpstream },
    });
  }
  const decoded = decodeConfig(
    {
      listen: { http: "127.0.0.1:0" },
      control: { listen: "127.0.0.1:0" },
      dataDir: join(folder, "data"),
      containers,
      ...options.config,
    },
    { base: folder, env: {} },
  );
  if (!decoded.ok) {
    throw new Error(JSON.stringify(decoded.issues));
  }
  const { config } = decoded;
  const log: Record<string, unknown>[] = [];
  const destination = new Writable({
    write(chunk: Buffer, _encoding, done) {
      for (const line of chunk.toString().trim().split("\n")) {
        log.push(JSON.parse(line) as Record<string, unknown>);
      }
      done();
    },
  });
  const edge = await startEdge(config, {
    clock: systemClock,
    log: createLog({ level: "debug", pretty: false }, destination),
    token: TOKEN,
    env: { PATH: process.env["PATH"] },
  });
  const control = `http://127.0.0.1:${edge.addresses.control.port}`;

  const self: TestEdge & { close(): Promise<void> } = {
    async close() {
      await edge.close();
      rmSync(folder, { recursive: true, force: true });
    },
    edge,
    folder,
    port: edge.addresses.http?.port ?? 0,
    control,
    log,
    host: (tail, container = CONTAINER) =>
      `${PROJECT}-${container}${tail === "" ? "" : `-${tail}`}.local.containers.localhost`,
    script(name, source, container = CONTAINER) {
      const file = join(folder, "data/containers", container, "scripts/default/1", name);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, source);
    },
    async api(method, path, body, ifMatch) {
      const response = await fetch(`${control}${path}`, {
        method,
        headers: {
          authorization: `Bearer ${TOKEN}`,
          "content-type": "application/json",
          ...(ifMatch === undefined ? {} : { "if-match": ifMatch }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const etag = response.headers.get("etag");
      return { status: response.status, etag, body: (await response.json()) as ApiAnswer["body"] };
    },
    async hook(service, rule, container = CONTAINER) {
      const path = `/api/v1/containers/${container}/proxy/hooks/${service}`;
      const current = await self.api("GET", path);
      const created = await self.api("POST", path, rule, current.etag ?? "file:v0");
      if (created.status !== 201) {
        throw new Error(`hook not stored: ${created.status} ${String(created.body.message)}`);
      }
      return ((created.body.data ?? {})["hook"] as unknown as { id: string }).id;
    },
    async accessLine(test, ms = 5000) {
      const until = Date.now() + ms;
      for (;;) {
        const line = log.find((entry) => entry["msg"] === "request" && test(entry));
        if (line !== undefined) {
          return line;
        }
        if (Date.now() > until) {
          throw new Error(`no such access line; last: ${JSON.stringify(log.slice(-3))}`);
        }
        await new Promise((wait) => setTimeout(wait, 10));
      }
    },
  };
  return self;
}
