import { onTestFinished } from "vitest";
import { createAudit, type AuditRecord } from "../../dispatcher/audit.ts";
import {
  createDispatcher,
  type DispatcherOptions,
  type DispatchOutcome,
  type DispatchRequest,
  type ExecCallOutcome,
} from "../../dispatcher/dispatch.ts";
import { createExecHostClient } from "../../dispatcher/exec-host-client.ts";
import type { ExecHosts } from "../../dispatcher/envelope.ts";
import { createExecTargets, type ExecPlace } from "../../dispatcher/exec-target.ts";
import type { CompiledRule, ScriptTarget } from "../../policy/compile/compiled-policy.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import type { Exchange } from "../../policy/kernel/exchange.ts";
import { sweepRequest } from "../../policy/kernel/fields.ts";
import { createHttp1Client } from "../../policy/kernel/http1/client.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics, type Metrics } from "../../policy/kernel/metrics.ts";
import { startWireEdge } from "./wire-edge.ts";

export interface SmallEdgeOptions {
  readonly timeoutMs?: number;
  readonly script?: Partial<ScriptTarget>;
  readonly container?: string;
  readonly upstreamPort?: number;
  readonly place?: ExecPlace;
  readonly maxQueue?: number;
  /** Ordinary calls of the exec service instead of dispatches. */
  readonly ordinary?: boolean;
  readonly manage?: boolean;
  readonly dispatcher?: Partial<DispatcherOptions>;
  readonly request?: (changes: DispatchRequest) => DispatchRequest;
}

export type Ended = DispatchOutcome | ExecCallOutcome;

export interface SmallEdge {
  readonly origin: string;
  readonly port: number;
  readonly outcomes: Ended[];
  readonly records: AuditRecord[];
  readonly metrics: Metrics;
}

/** A rule that fits everything. */
export function hookRule(script: Partial<ScriptTarget>, timeoutMs: number): CompiledRule {
  return {
    id: "rule-1",
    position: 0,
    failedPart: () => null,
    groups: null,
    invalid: null,
    script: { subdomain: null, execId: null, path: "/hook.js", ...script },
    timeoutMs,
  };
}

/** A server that dispatches every request it gets: the edge without hosts, rules and permissions. */
export async function startSmallEdge(
  pool: ExecHosts | null,
  options: SmallEdgeOptions = {},
): Promise<SmallEdge> {
  const metrics = createMetrics();
  const records: AuditRecord[] = [];
  const outcomes: Ended[] = [];
  const clock = systemClock;
  const audit = createAudit(
    {
      sink: { append: async (_, lines) => void records.push(...recordsOf(lines)) },
      clock,
      metrics,
      log: silentLog(),
    },
    { maxQueue: options.maxQueue ?? 1024 },
  );
  const http1 = createHttp1Client();
  const execClient = createExecHostClient(http1, clock);
  const dispatcher = createDispatcher(
    {
      targets: createExecTargets(pool, () => options.place ?? { kind: "embedded" }),
      client: execClient,
      orders: {
        client: http1,
        limits: () => ({ connectMs: 3000, idleMs: 60_000, maxHeaderBytes: 65_536 }),
      },
      audit,
      clock,
      metrics,
      log: silentLog(),
    },
    options.dispatcher,
  );
  const container = options.container ?? "a";
  const { origin, port } = await startExchangeServer((exchange) => {
    const { target, fields } = exchange.head;
    const shared = {
      exchange,
      fields: sweepRequest(fields),
      target,
      clientAddress: "192.0.2.7",
      container,
    };
    const dispatch: DispatchRequest = {
      ...shared,
      path: target.split("?", 1)[0] ?? "/",
      project: "p",
      service: "files",
      upstreamHost: "127.0.0.1",
      upstreamPort: options.upstreamPort ?? 9,
      rule: hookRule(options.script ?? {}, options.timeoutMs ?? 5000),
      matchedGroups: ["everyone"],
    };
    const ended: Promise<DispatchOutcome | ExecCallOutcome> = options.ordinary
      ? dispatcher.callExec({
          ...shared,
          subdomain: options.script?.subdomain ?? null,
          execId: options.script?.execId ?? null,
          manage: options.manage ?? false,
        })
      : dispatcher.dispatch(options.request?.(dispatch) ?? dispatch);
    void ended.then((outcome) => {
      if ("outcome" in outcome) {
        outcomes.push(outcome);
      }
    });
  });
  onTestFinished(() => {
    execClient.close();
    http1.close();
  });
  return { origin, port, outcomes, records, metrics };
}

/** The records of lines that an audit sink got. */
export function recordsOf(lines: Uint8Array): AuditRecord[] {
  const text = new TextDecoder().decode(lines);
  return text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line)]));
}

/** The edge's listener without an edge: hands its requests over as exchanges. */
export async function startExchangeServer(
  onExchange: (exchange: Exchange) => void,
): Promise<{ origin: string; port: number }> {
  const { port } = await startWireEdge(0, { onExchange });
  return { origin: `http://127.0.0.1:${port}`, port };
}
