import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { FieldLines } from "../../policy/kernel/exchange.ts";
import type { Origin } from "../../policy/kernel/http1/types.ts";
import { newHex } from "../../policy/kernel/ids.ts";
import type { Log } from "../../policy/kernel/log.ts";
import type { Metrics } from "../../policy/kernel/metrics.ts";
import type { RateLimit } from "./caps.ts";
import { canonicalJson } from "./settings/canonical-json.ts";
import { EDGE_AUTH_FIELD, edgeAuthField } from "./edge-auth.ts";
import { killProcessesWith } from "./process.ts";
import { decodeGatewayMessage, PROTOCOL_VERSION } from "./protocol.ts";
import type { StartMessage } from "./protocol.ts";
import type { JudgeOptions } from "./seams.ts";

/** A container's embedded gateway as configured (contract.md 2). */
export interface AgentContainer {
  readonly home: string;
  readonly fleet: boolean;
  readonly realms: readonly string[];
  readonly rateLimit: RateLimit | "off";
  readonly judge: JudgeOptions | null;
}

/** How one gateway process is. */
export interface GatewayStatus {
  readonly state: "idle" | "starting" | "ready" | "failed";
  readonly pid: number | null;
  readonly starts: number;
  /** Known once it is ready. */
  readonly sandbox: "bubblewrap" | "none" | null;
  readonly sandboxReason: string | null;
}

/** Where a gateway listens, and the secret that requests to it are signed with. */
export interface GatewayAccess {
  readonly origin: Origin;
  readonly secret: string;
}

/** Starts and watches one gateway process per container. */
export interface AgentSupervisor {
  /**
   * Where a container's gateway listens; starts it when it is not running.
   *
   * @throws Error (rejects) when it does not come up or has just failed: the caller answers 503.
   */
  endpoint(containerId: string): Origin | Promise<Origin>;
  /** The same with the secret that requests are signed with, for whoever signs them itself. */
  access(containerId: string): GatewayAccess | Promise<GatewayAccess>;
  /** The signature's field lines for one request; empty for an unknown container, which the gateway then refuses. */
  sign(containerId: string, method: string, target: string): FieldLines;
  status(): ReadonlyMap<string, GatewayStatus>;
  /** For `/readyz`: never started is fine, failed is not; `detail` also says where read-only lines lack their sandbox. */
  readiness(): { readonly ok: boolean; readonly detail: readonly string[] };
  /** Applies a changed configuration: gateways whose container changed or went are ended. */
  reconcile(): void;
  close(): Promise<void>;
}

interface SupervisorDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<Metrics, "agentToolRuns" | "agentHookRuns">;
  readonly dataDir: string;
  readonly containers: () => ReadonlyMap<string, AgentContainer>;
}

interface SupervisorOptions {
  /** Environment of the processes that tools and lifecycle hooks start; secrets do not belong here. */
  readonly env: Readonly<Record<string, string>>;
  readonly logLevel: string;
  readonly readyMs?: number;
  readonly stopMs?: number;
  /** Program instead of the gateway's, for tests. */
  readonly entry?: string;
}

const READY_MS = 20_000;
const STOP_MS = 5000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 30_000;
const HEALTHY_MS = 60_000;
const HEAP_MB = 512;

interface Gateway {
  readonly containerId: string;
  readonly secret: string;
  /** The configuration it runs with. */
  readonly fingerprint: string;
  state: GatewayStatus["state"];
  child: ChildProcess | null;
  origin: Origin | null;
  starting: Promise<Origin> | null;
  /** Done once the last process's folder is gone. */
  cleaned: Promise<void>;
  starts: number;
  failures: number;
  /** Monotonic ms before which it is not started again. */
  notBefore: number;
  sandbox: GatewayStatus["sandbox"];
  sandboxReason: string | null;
  ending: boolean;
}

/** A supervisor that has started nothing yet. */
export function createAgentSupervisor(
  deps: SupervisorDeps,
  options: SupervisorOptions,
): AgentSupervisor {
  const { clock, log } = deps;
  const gateways = new Map<string, Gateway>();
  const extension = import.meta.url.endsWith(".ts") ? ".ts" : ".js";
  const entry = options.entry ?? fileURLToPath(new URL(`./main${extension}`, import.meta.url));
  let closed = false;

  function gatewayOf(containerId: string): { gateway: Gateway; container: AgentContainer } | null {
    const container = deps.containers().get(containerId);
    if (container === undefined) {
      return null;
    }
    let gateway = gateways.get(containerId);
    if (gateway === undefined) {
      gateway = {
        containerId,
        secret: newHex(32),
        fingerprint: canonicalJson(container),
        state: "idle",
        child: null,
        origin: null,
        starting: null,
        cleaned: Promise.resolve(),
        starts: 0,
        failures: 0,
        notBefore: 0,
        sandbox: null,
        sandboxReason: null,
        ending: false,
      };
      gateways.set(containerId, gateway);
    }
    return { gateway, container };
  }

  async function start(gateway: Gateway, container: AgentContainer): Promise<Origin> {
    gateway.state = "starting";
    gateway.starts += 1;
    const mark = newHex(8);
    const startedAt = clock.monotonic();
    // sockets have short names: the data folder may be anywhere
    const folder = await mkdtemp(join(tmpdir(), "interpose-agent-"));
    const socketPath = join(folder, "gateway.sock");
    const child = spawn(
      process.execPath,
      [`--max-old-space-size=${HEAP_MB}`, "--disable-sigusr1", entry],
      {
        // a group of its own: a terminal's interrupt is the parent's to hear
        detached: true,
        env: { ...options.env },
        stdio: ["ignore", "pipe", "pipe", "ipc"],
      },
    );
    gateway.child = child;
    relayOutput(child, gateway.containerId);
    const message: StartMessage = {
      type: "start",
      version: PROTOCOL_VERSION,
      socketPath,
      containerId: gateway.containerId,
      home: container.home,
      dataDir: join(deps.dataDir, "containers", gateway.containerId, "agent"),
      fleet: container.fleet,
      realms: [...container.realms],
      judge: container.judge === null ? null : { ...container.judge },
      rateLimit: container.rateLimit === "off" ? null : container.rateLimit,
      env: { ...options.env, INTERPOSE_GATEWAY: mark },
      secrets: [gateway.secret],
      logLevel: options.logLevel,
    };
    return new Promise((resolve, reject) => {
      const timer = clock.after(options.readyMs ?? READY_MS, () => {
        child.kill("SIGKILL");
        reject(new Error("the agent gateway did not get ready in time"));
      });
      child.on("message", (raw) => {
        const told = decodeGatewayMessage(raw);
        switch (told?.type) {
          case "ready": {
            timer.cancel();
            const origin: Origin = { kind: "unix", path: socketPath };
            gateway.state = "ready";
            gateway.origin = origin;
            gateway.sandbox = told.sandbox;
            gateway.sandboxReason = told.sandboxReason;
            if (told.sandbox === "none") {
              log.warn(
                { container: gateway.containerId, reason: told.sandboxReason },
                "read-only command lines run without a sandbox",
              );
            }
            resolve(origin);
            return;
          }
          case "failed":
            log.error(
              { container: gateway.containerId, reason: told.reason },
              "agent gateway failed to start",
            );
            return;
          case "tool_run":
            deps.metrics.agentToolRuns.inc({ tool: told.tool, outcome: told.outcome });
            return;
          case "hook_run":
            deps.metrics.agentHookRuns.inc({ event: told.event, outcome: told.outcome });
            return;
          case undefined:
            log.warn({ container: gateway.containerId }, "agent gateway sent something unknown");
        }
      });
      child.once("error", (error) => {
        timer.cancel();
        settleExit();
        reject(error);
      });
      child.once("exit", (code, signal) => {
        timer.cancel();
        settleExit();
        reject(new Error("the agent gateway ended"));
        if (!gateway.ending) {
          log.error({ container: gateway.containerId, code, signal }, "agent gateway ended");
        }
      });
      const settleExit = (): void => {
        // what its commands left behind ends with it, however it ended
        killProcessesWith(`INTERPOSE_GATEWAY=${mark}`);
        gateway.cleaned = rm(folder, { recursive: true, force: true }).catch((error: unknown) =>
          log.warn({ err: error }, "agent gateway's folder was not removed"),
        );
        if (gateway.child === child) {
          gateway.child = null;
          gateway.origin = null;
          gateway.state = gateway.ending ? "idle" : "failed";
          gateway.failures = clock.monotonic() - startedAt > HEALTHY_MS ? 1 : gateway.failures + 1;
          gateway.notBefore =
            clock.monotonic() +
            Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (gateway.failures - 1));
        }
      };
      child.send(message, (error) => {
        if (error !== null) {
          child.kill("SIGKILL");
        }
      });
    });
  }

  function relayOutput(child: ChildProcess, containerId: string): void {
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) {
        continue;
      }
      createInterface({ input: stream }).on("line", (line) => {
        // the gateway logs as we do; its lines pass as they are, anything else becomes one of ours
        if (line.startsWith("{")) {
          process.stdout.write(`${line}\n`);
        } else {
          log.warn({ container: containerId, line: line.slice(0, 2000) }, "agent gateway output");
        }
      });
    }
  }

  async function stop(gateway: Gateway): Promise<void> {
    gateway.ending = true;
    await gateway.starting?.catch(() => {}); // a failed start has nothing left to stop
    const { child } = gateway;
    if (child === null || child.exitCode !== null || child.signalCode !== null) {
      await gateway.cleaned;
      return;
    }
    await new Promise<void>((resolve) => {
      const timer = clock.after(options.stopMs ?? STOP_MS, () => child.kill("SIGKILL"));
      child.once("exit", () => {
        timer.cancel();
        resolve();
      });
      child.kill("SIGTERM");
    });
    await gateway.cleaned;
  }

  const supervisor: AgentSupervisor = {
    access(containerId) {
      const secret = gatewayOf(containerId)?.gateway.secret ?? "";
      const origin = supervisor.endpoint(containerId);
      return origin instanceof Promise
        ? origin.then((ready) => ({ origin: ready, secret }))
        : { origin, secret };
    },
    endpoint(containerId) {
      const found = closed ? null : gatewayOf(containerId);
      if (found === null) {
        return Promise.reject(new Error("the container has no embedded agent gateway"));
      }
      const { gateway, container } = found;
      if (gateway.origin !== null) {
        return gateway.origin;
      }
      if (gateway.starting !== null) {
        return gateway.starting;
      }
      if (clock.monotonic() < gateway.notBefore) {
        return Promise.reject(new Error("the agent gateway failed a moment ago"));
      }
      const starting = start(gateway, container).finally(() => {
        gateway.starting = null;
      });
      gateway.starting = starting;
      return starting;
    },
    sign(containerId, method, target) {
      const gateway = gateways.get(containerId);
      return gateway === undefined
        ? []
        : [EDGE_AUTH_FIELD, edgeAuthField(gateway.secret, method, target, clock.now())];
    },
    status: () =>
      new Map(
        [...gateways].map(([id, gateway]) => [
          id,
          {
            state: gateway.state,
            pid: gateway.child?.pid ?? null,
            starts: gateway.starts,
            sandbox: gateway.sandbox,
            sandboxReason: gateway.sandboxReason,
          },
        ]),
      ),
    readiness() {
      const detail: string[] = [];
      let ok = true;
      for (const gateway of gateways.values()) {
        if (gateway.state === "failed") {
          ok = false;
          detail.push(`agent gateway of ${gateway.containerId} ended`);
        } else if (gateway.sandbox === "none") {
          detail.push(
            `agent gateway of ${gateway.containerId}: read-only command lines run without a sandbox (${gateway.sandboxReason ?? "unknown"})`,
          );
        }
      }
      return { ok, detail };
    },
    reconcile() {
      const now = deps.containers();
      for (const [id, gateway] of gateways) {
        const container = now.get(id);
        if (container === undefined || canonicalJson(container) !== gateway.fingerprint) {
          gateways.delete(id);
          stop(gateway).catch((error: unknown) =>
            log.error({ err: error }, "agent gateway stop failed"),
          );
        }
      }
    },
    async close() {
      closed = true;
      await Promise.all([...gateways.values()].map(stop));
    },
  };
  return supervisor;
}
