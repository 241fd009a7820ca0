import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { createControlApi, type ControlApiDeps } from "../../policy/api/server.ts";
import type { ContainerInfo } from "../../policy/api/context.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics } from "../../policy/kernel/metrics.ts";
import { createPolicyCache } from "../../policy/store/cache.ts";
import { createAliases } from "../../policy/store/aliases.ts";
import { createAuditStore } from "../../policy/store/audit-store.ts";
import { createFileStore } from "../../policy/store/file-store.ts";

export const PROJECT = "67e89abc123def456789abcd";
export const CONTAINER = "890abcdef12345678901cdef";
export const OTHER_CONTAINER = "890abcdef12345678901cdee";
export const TOKEN = "test-token-of-the-control-api";

/** A folder that is removed when the test ends. */
export function policyTempDir(): string {
  const dir = mkdtempSync(join(tmpdir(), "interpose-policy-"));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

export interface ApiAnswer {
  readonly status: number;
  readonly headers: Headers;
  // The tests look into answers of many shapes.
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly body: any;
}

export interface CallOptions {
  readonly ifMatch?: string;
  readonly body?: unknown;
  /** Sent as it is, instead of `body`. */
  readonly raw?: string | Uint8Array<ArrayBuffer>;
  readonly headers?: Record<string, string>;
  readonly token?: string | null;
}

/** A control API over a file store of its own, called without a socket. */
export function policyApi(overrides: Partial<ControlApiDeps> = {}) {
  const dataDir = policyTempDir();
  const store = overrides.store ?? createFileStore({ clock: systemClock }, { dataDir });
  const metrics = createMetrics();
  const cache = createPolicyCache({ store, clock: systemClock, log: silentLog(), metrics });
  const containers = new Map<string, ContainerInfo>(
    [CONTAINER, OTHER_CONTAINER].map((id) => [id, { id, project: PROJECT, status: "running" }]),
  );
  const log = silentLog();
  const aliases = createAliases({ store, clock: systemClock, log });
  const audit = createAuditStore({ clock: systemClock, log }, { dataDir });
  onTestFinished(async () => {
    aliases.close();
    await audit.close();
  });
  const app = createControlApi({
    aliases,
    audit,
    aliasUrl: (alias) => `https://${alias}.local.example`,
    store,
    cache,
    metrics,
    log: silentLog(),
    clock: systemClock,
    token: TOKEN,
    containers: () => containers,
    node: "local",
    readiness: () => ({}),
    limits: () => [{ name: "headMs", value: 10_000, unit: "ms" }],
    publicKeys: () => [],
    ...overrides,
  });
  const call = async (
    method: string,
    path: string,
    options: CallOptions = {},
  ): Promise<ApiAnswer> => {
    const headers: Record<string, string> = {
      "content-type": "application/json",
      ...options.headers,
    };
    if (options.token !== null) {
      headers["authorization"] = `Bearer ${options.token ?? TOKEN}`;
    }
    if (options.ifMatch !== undefined) {
      headers["if-match"] = options.ifMatch;
    }
    const body = options.raw ?? (options.body === undefined ? null : JSON.stringify(options.body));
    const response = await app.request(path, { method, headers, body });
    const text = await response.text();
    const type = response.headers.get("content-type") ?? "";
    return {
      status: response.status,
      headers: response.headers,
      body: type.includes("json") ? JSON.parse(text) : text,
    };
  };
  return { app, call, store, cache, metrics, containers, dataDir, aliases, audit };
}
