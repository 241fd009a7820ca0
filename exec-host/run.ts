import { mkdirSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createDispatcher } from "../dispatcher/dispatch.ts";
import { createExecHostClient } from "../dispatcher/exec-host-client.ts";
import { createExecTargets } from "../dispatcher/exec-target.ts";
import type { HookEnvelope, OrdinaryEnvelope } from "../dispatcher/envelope.ts";
import { systemClock, type Clock } from "../policy/kernel/clock.ts";
import { createHttp1Client } from "../policy/kernel/http1/client.ts";
import { createLog, type Log } from "../policy/kernel/log.ts";
import { createMetrics } from "../policy/kernel/metrics.ts";
import { createHttp1Server } from "../proxy/wire/http1/server.ts";
import { loadExecHostConfig, LOCAL_CONTAINER, type ExecHostConfig } from "./config.ts";
import { createFront, type FrontCall } from "./front.ts";
import { createExecHost } from "./host.ts";
import { createManageApi } from "./manage/api.ts";
import { DEFAULT_POOL_OPTIONS } from "./pool/options.ts";

/** An exec host that runs by itself. */
export interface RunningExecHost {
  readonly address: { readonly host: string; readonly port: number };
  /** Stops taking requests, gives running ones `drainMs`, then ends everything. */
  close(): Promise<void>;
}

/** The edge's lines come with the client's own ones and the envelope. */
const MAX_HEADER_LINES = 2_000;
const ENVELOPE_BYTES = 16_384;

/** Composition root of `interpose exec-host`: one container's workers behind a TCP listener. */
export async function startExecHostServer(
  config: ExecHostConfig,
  { clock, log }: { clock: Clock; log: Log },
): Promise<RunningExecHost> {
  mkdirSync(config.dataDir, { recursive: true, mode: 0o700 });
  const metrics = createMetrics();
  const containers = new Map([[LOCAL_CONTAINER, config]]);
  const { limits } = config;
  const host = await createExecHost(
    { clock, log, metrics, dataDir: config.dataDir, containers: () => containers },
    {
      pool: {
        limits: {
          ...DEFAULT_POOL_OPTIONS.limits,
          maxBufferedBodyBytes: limits.maxBufferedBodyBytes,
          upstreamConnectMs: limits.upstreamConnectMs,
          upstreamIdleMs: limits.upstreamIdleMs,
          maxHeaderBytes: limits.maxHeaderBytes,
        },
      },
    },
  );
  const client = createHttp1Client({ clock });
  const execClient = createExecHostClient(client, clock);
  const dispatcher = createDispatcher(
    {
      targets: createExecTargets(host, () => ({ kind: "embedded" })),
      client: execClient,
      orders: null, // the edge is elsewhere: the script reaches the service from here as well as anybody
      // The edge keeps the record of its dispatches.
      audit: { begin: () => null, finish: () => {}, flush: () => Promise.resolve() },
      clock,
      metrics,
      log,
    },
    { tellOutcome: true },
  );
  const manage = createManageApi({
    client,
    log,
    token: "",
    mode: () => "open", // the edge has decided, and said so in the envelope
    endpoint: (id) => host.manageEndpoint(id),
  });

  const onHook = ({ exchange, envelope, fields, target }: FrontCall<HookEnvelope>): void => {
    void dispatcher.dispatch({
      exchange,
      fields,
      target,
      path: envelope.path,
      clientAddress: envelope.clientAddress,
      project: "",
      container: LOCAL_CONTAINER,
      service: envelope.service,
      upstreamHost: envelope.upstreamHost,
      upstreamPort: envelope.upstreamPort,
      rule: {
        id: "",
        position: 0,
        failedPart: () => null,
        groups: null,
        invalid: null,
        script: {
          subdomain: envelope.subdomain,
          execId: envelope.execId,
          path: envelope.scriptPath,
        },
        timeoutMs: envelope.timeoutMs,
      },
      matchedGroups: [],
      auditId: envelope.auditId,
    });
  };

  const onOrdinary = ({
    exchange,
    envelope,
    fields,
    target,
  }: FrontCall<OrdinaryEnvelope>): void => {
    const call = {
      exchange,
      fields,
      target,
      container: LOCAL_CONTAINER,
      subdomain: envelope.subdomain,
      execId: envelope.execId,
      clientAddress: envelope.clientAddress,
    };
    if (envelope.manage && manage.owns(target.split("?", 1)[0] ?? "")) {
      void manage.handle({ ...call, admitted: true });
    } else {
      void dispatcher.callExec({ ...call, manage: false });
    }
  };

  const server = createHttp1Server({
    limits: {
      headMs: limits.headMs,
      requestMs: 0,
      keepAliveMs: limits.keepAliveMs,
      maxHeaderBytes: limits.maxHeaderBytes + ENVELOPE_BYTES,
      maxHeaderLines: MAX_HEADER_LINES,
      maxTargetBytes: limits.maxTargetBytes,
      maxConnections: limits.maxConnections,
    },
    onExchange: createFront({ secret: config.secret, hook: onHook, ordinary: onOrdinary }),
    log,
    clock,
  });
  await host.warmAll();
  await new Promise<void>((resolve, reject) => {
    server.server.once("error", reject);
    server.server.listen(config.listen.port, config.listen.host, resolve);
  });
  const { address, port } = server.server.address() as AddressInfo;
  log.info({ exec: `${address}:${port}`, isolation: host.readiness().detail }, "ready");

  return {
    address: { host: address, port },
    async close() {
      const closed = new Promise<void>((resolve) => server.server.once("close", () => resolve()));
      server.drain();
      const timer = clock.after(limits.drainMs, () => server.destroy());
      await closed;
      timer.cancel();
      await host.close();
      execClient.close();
      client.close();
    },
  };
}

/**
 * `interpose exec-host --config FILE`: runs until SIGTERM or SIGINT; a second signal exits at once.
 *
 * @returns the exit code.
 */
export async function runExecHost(
  file: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<number> {
  const loaded = loadExecHostConfig(file, env);
  if (!loaded.ok) {
    for (const { path, message } of loaded.issues) {
      process.stderr.write(`${file}: ${path === "" ? "" : `${path}: `}${message}\n`);
    }
    return 1;
  }
  const { config } = loaded;
  const pretty = config.log.pretty === "auto" ? process.stdout.isTTY : config.log.pretty;
  const log = createLog({ level: config.log.level, pretty });
  const stopped = new Promise<void>((resolve) => {
    let signals = 0;
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      process.on(signal, () => (++signals === 1 ? resolve() : process.exit(1)));
    }
  });
  try {
    const running = await startExecHostServer(config, { clock: systemClock, log });
    await stopped;
    await running.close();
    return 0;
  } catch (cause) {
    process.stderr.write(`${cause instanceof Error ? cause.message : String(cause)}\n`);
    return 1;
  }
}
