import { Gauge, Registry } from "prom-client";
import { Counter, Histogram } from "./metric-types.ts";

const SECONDS = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
];

/** Every metric of the product (contract.md 6), made once per process on a registry of its own. */
export function createMetrics(registry: Registry = new Registry()) {
  const registers = [registry];
  return {
    registry,
    requests: new Counter({
      name: "interpose_requests_total",
      help: "Requests finished at the edge, refused ones included.",
      labelNames: ["service", "outcome", "code_class"],
      registers,
    }),
    requestSeconds: new Histogram({
      name: "interpose_request_seconds",
      help: "From the request head to the end of the answer.",
      labelNames: ["service"],
      buckets: SECONDS,
      registers,
    }),
    hookDispatches: new Counter({
      name: "interpose_hook_dispatches_total",
      help: "Hook dispatches by outcome.",
      labelNames: ["outcome"],
      registers,
    }),
    hookSeconds: new Histogram({
      name: "interpose_hook_seconds",
      help: "Whole hook dispatch, from hand-over to the end of the answer.",
      buckets: SECONDS,
      registers,
    }),
    upstreamSeconds: new Histogram({
      name: "interpose_upstream_seconds",
      help: "From sending a request to a service until its answer head.",
      buckets: SECONDS,
      registers,
    }),
    connections: new Gauge({
      name: "interpose_connections",
      help: "Open client connections.",
      labelNames: ["kind"],
      registers,
    }),
    execWorkers: new Gauge({
      name: "interpose_exec_workers",
      help: "Script worker processes by state.",
      labelNames: ["state"],
      registers,
    }),
    execRestarts: new Counter({
      name: "interpose_exec_restarts_total",
      help: "Script workers ended, by reason.",
      labelNames: ["reason"],
      registers,
    }),
    policyAge: new Gauge({
      name: "interpose_policy_generation_age_seconds",
      help: "Age of the newest policy document that was compiled.",
      aggregator: "min",
      registers,
    }),
    policyCache: new Counter({
      name: "interpose_policy_cache_total",
      help: "Policy look-ups by result (hit, miss, stale, error).",
      labelNames: ["result"],
      registers,
    }),
    auditDropped: new Counter({
      name: "interpose_audit_dropped_total",
      help: "Dispatches without an audit record because the queue was full or the store failed.",
      registers,
    }),
    agentToolRuns: new Counter({
      name: "interpose_agent_tool_runs_total",
      help: "Agent tool runs by tool and outcome.",
      labelNames: ["tool", "outcome"],
      registers,
    }),
    agentHookRuns: new Counter({
      name: "interpose_agent_hook_runs_total",
      help: "Agent lifecycle hook runs by event and outcome.",
      labelNames: ["event", "outcome"],
      registers,
    }),
  };
}

/** All metrics of a process. */
export type Metrics = ReturnType<typeof createMetrics>;
