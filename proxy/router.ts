import { readDepth } from "../dispatcher/depth.ts";
import type { Dispatcher } from "../dispatcher/dispatch.ts";
import { withDepth } from "../dispatcher/envelope.ts";
import type { Selection } from "../dispatcher/select.ts";
import type { CompiledRule } from "../policy/compile/compiled-policy.ts";
import type { Service } from "../policy/documents/services.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import type { Exchange, FieldLines } from "../policy/kernel/exchange.ts";
import type { Http1Client, Origin, UpstreamFailure } from "../policy/kernel/http1/types.ts";
import type { Log } from "../policy/kernel/log.ts";
import type { Metrics } from "../policy/kernel/metrics.ts";
import { joinTarget } from "../policy/kernel/target.ts";
import { refusal } from "./answer.ts";
import { upstreamLimits } from "./config-views.ts";
import type { Config, ListenAddress } from "./config.ts";
import { BUDGET_SPENT, type RequestContext } from "./context.ts";
import { isCrossSite } from "./cross-site.ts";
import { type Destination, portOf } from "./destination.ts";
import type { InnerService } from "./inner-service.ts";
import type { Finisher } from "./finish.ts";
import { forceQuery } from "./forced-query.ts";
import { type ForwardOutcome, startForward } from "./forward.ts";
import type { Route } from "./host-resolver.ts";
import type { AgentEndpoint } from "./hosts.ts";
import type { OwnAddresses } from "./own-addresses.ts";
import type { RequestBudget } from "./request-budget.ts";
import { openTunnel } from "./tunnel.ts";

/** Sends an admitted request on its way: to a script, the agent gateway, or the service itself. */
export interface Router {
  route(context: RequestContext, route: Route, selection: Selection): void;
}

/** The agent gateway of a container: where it is, and how a request is signed for it (decision 20). */
export interface AgentGateway {
  endpoint(container: string): AgentEndpoint | Promise<AgentEndpoint>;
  /** The signature's field lines for one request, made with the endpoint's secret. */
  sign(secret: string, method: string, target: string): FieldLines;
}

/** The script management routes (decision 43), served beside the exec host. */
export interface ScriptManagement {
  /** True for a path that these routes own. */
  owns(path: string): boolean;
  /** Answers the exchange; never rejects. Resolves to the status sent, 0 when the client left. */
  handle(request: ManagementRequest): Promise<number>;
}

/** A request to script management. */
export interface ManagementRequest {
  readonly exchange: Exchange;
  readonly fields: FieldLines;
  readonly target: string;
  readonly container: string;
  readonly subdomain: string | null;
  readonly execId: string | null;
  /** Whether a granting group admitted the caller; the control token is looked for in `fields`. */
  readonly admitted: boolean;
  readonly clientAddress: string;
}

/** What {@link createRouter} builds on. */
export interface RouterDeps {
  readonly config: () => Config;
  readonly client: Http1Client;
  readonly dispatcher: Dispatcher;
  readonly agents: AgentGateway;
  readonly management: ScriptManagement;
  /** The loopback way of hooks to embedded hosts. */
  readonly inner: Pick<InnerService, "mint"> & { address(): ListenAddress };
  /** Addresses of the edge itself, which no host name of a container leads to. */
  readonly own: Pick<OwnAddresses, "has">;
  readonly finisher: Finisher;
  readonly budget: RequestBudget;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

type Cancel = (failure: UpstreamFailure) => void;

/** A script runs on after its deadline; so long its helpers may still reach the service (exec-host.md 5.2). */
const LATE_HELPER_MS = 300_000;

/** Builds what sends an admitted request where it goes. */
export function createRouter(deps: RouterDeps): Router {
  const { client, dispatcher, finisher, budget, clock } = deps;
  const upstreamSeconds = deps.metrics.upstreamSeconds;
  const tunnels = deps.metrics.connections.labels("tunnel");

  const limits = () => upstreamLimits(deps.config());

  /** To the service, or through a tunnel when the client asked for one. */
  function pass(context: RequestContext, origin: Origin, target: string, fields: FieldLines): void {
    const { exchange } = context;
    if (exchange.handshake) {
      tunnel(context, origin, target, fields);
      return;
    }
    const request = {
      client,
      clock,
      origin,
      method: exchange.head.method,
      target,
      fields,
      limits: limits(),
    };
    const hooks = { onStart: (cancel: Cancel) => void (context.cancel = cancel) };
    startForward(exchange, request, hooks, (outcome) => passed(context, outcome));
  }

  /** What became of a request that went to a service. */
  function passed(context: RequestContext, outcome: ForwardOutcome): void {
    try {
      if (outcome.upstreamMs !== null) {
        upstreamSeconds.observe(outcome.upstreamMs / 1000);
      }
      switch (outcome.kind) {
        case "done":
          finisher.finish(context, "passed", outcome.status);
          return;
        case "client_gone":
          finisher.finish(context, "client_gone", outcome.status ?? 0);
          return;
        case "failed":
          upstreamFailed(context, outcome.failure);
      }
    } catch (cause) {
      finisher.fail(context, cause);
    }
  }

  function tunnel(
    context: RequestContext,
    origin: Origin,
    target: string,
    fields: FieldLines,
  ): void {
    let open = false;
    openTunnel(
      context.exchange,
      { client, clock, origin, target, fields, limits: limits() },
      {
        onStart: (cancel) => (context.cancel = cancel),
        onOpen() {
          open = true;
          budget.leave(context); // a tunnel lives as long as both ends want
          tunnels.inc();
        },
      },
    )
      .then((outcome) => {
        switch (outcome.kind) {
          case "closed":
            finisher.finish(context, "tunnelled", 101);
            return;
          case "refused":
            finisher.finish(context, "passed", outcome.status);
            return;
          case "client_gone":
            finisher.finish(context, "client_gone", 0);
            return;
          case "failed":
            upstreamFailed(context, outcome.failure);
        }
      })
      .catch((cause: unknown) => finisher.fail(context, cause))
      .finally(() => open && tunnels.dec());
  }

  /** Before the head one plain answer without any of the service's details; after it the client was cut already. */
  function upstreamFailed(context: RequestContext, failure: UpstreamFailure): void {
    deps.log.debug({ err: failure, reqId: context.id }, "service failed");
    if (failure === BUDGET_SPENT) {
      finisher.refuse(context, refusal("REQUEST_BUDGET_SPENT"), "upstream_failed");
    } else if (failure.kind === "timeout") {
      finisher.refuse(context, refusal("UPSTREAM_TIMEOUT"), "upstream_failed");
    } else {
      const code = failure.kind === "connect" ? "UPSTREAM_UNREACHABLE" : "UPSTREAM_FAILED";
      finisher.refuse(context, refusal(code), "upstream_failed");
    }
  }

  function dispatch(context: RequestContext, route: Route, rule: CompiledRule): void {
    const { destination, hookTarget } = route;
    const { container, service, instance } = destination;
    dispatcher
      .dispatch({
        exchange: context.exchange,
        fields: withDepth(context.fields, readDepth(context.exchange.head.fields) + 1),
        target: joinTarget(
          hookTarget.path,
          forceQuery(hookTarget.query, service, instance, "hook"),
        ),
        path: context.path,
        clientAddress: context.clientAddress,
        project: container.project,
        container: container.container,
        service: destination.program,
        ...hookUpstream(destination, rule.timeoutMs),
        rule,
        matchedGroups: [...context.granting],
      })
      .then((outcome) => {
        context.hook = { ruleId: rule.id, auditId: outcome.auditId };
        context.code = outcome.code;
        finisher.finish(context, outcome.outcome, outcome.status);
      })
      .catch((cause: unknown) => finisher.fail(context, cause));
  }

  /** What `metadata.hook.upstream` names: the real service (edge-proxy.md 6.7), or our own way to an embedded host. */
  function hookUpstream({ container, service, endpoint }: Destination, timeoutMs: number) {
    const port = "port" in endpoint ? endpoint.port : portOf(container, service as Service);
    const isReachable = "port" in endpoint || container.exec.kind !== "embedded";
    if (isReachable) {
      const takesOrders = endpoint.kind === "tcp" && !deps.own.has(container.host, port);
      return { upstreamHost: container.host, upstreamPort: port, takesOrders };
    }
    const host = endpoint.kind === "exec" ? endpoint : { subdomain: null, execId: null };
    const { subdomain, execId } = host;
    const inner = { container: container.container, service: endpoint.kind, subdomain, execId };
    return {
      upstreamHost: deps.inner.address().host,
      upstreamPort: deps.inner.address().port,
      upstreamToken: deps.inner.mint(inner, timeoutMs + LATE_HELPER_MS),
    };
  }

  function callExec(
    context: RequestContext,
    route: Route,
    to: { subdomain: string | null; execId: string | null },
  ): void {
    const { exchange, clientAddress } = context;
    const fields = withDepth(context.fields, readDepth(exchange.head.fields));
    const container = route.destination.container.container;
    const target = joinTarget(route.target.path, route.target.query);
    const call = { exchange, fields, target, clientAddress, container, ...to };
    if (deps.management.owns(route.target.path)) {
      if (isCrossSite(exchange)) {
        finisher.refuse(context, refusal("FORBIDDEN"));
        return;
      }
      deps.management
        .handle({ ...call, admitted: context.granting.size > 0 })
        .then((status) => finisher.finish(context, status === 0 ? "client_gone" : "passed", status))
        .catch((cause: unknown) => finisher.fail(context, cause));
      return;
    }
    dispatcher
      .callExec({ ...call, manage: false })
      .then((outcome) => {
        context.code = outcome.code;
        finisher.finish(
          context,
          outcome.outcome === "answered" ? "passed" : outcome.outcome,
          outcome.status,
        );
      })
      .catch((cause: unknown) => finisher.fail(context, cause));
  }

  function toAgent(context: RequestContext, container: string, target: string): void {
    const go = ({ origin, secret }: AgentEndpoint): void => {
      const signature = deps.agents.sign(secret, context.exchange.head.method, target);
      pass(context, origin, target, [...context.fields, ...signature]);
    };
    Promise.try(() => deps.agents.endpoint(container))
      .then(go)
      .catch((cause: unknown) => {
        deps.log.warn({ err: cause, container }, "agent gateway not available");
        finisher.refuse(context, refusal("SERVICE_UNAVAILABLE"));
      });
  }

  return {
    route(context, route, selection) {
      if (selection.kind === "refuse") {
        context.hook =
          selection.rule === null ? null : { ruleId: selection.rule.id, auditId: "none" };
        finisher.refuse(context, refusal(selection.code));
        return;
      }
      // Before a hook, too: what it forwards comes to the gateway as the visitor's own wish.
      if (route.destination.endpoint.kind === "agent" && isCrossSite(context.exchange)) {
        finisher.refuse(context, refusal("FORBIDDEN"));
        return;
      }
      if (selection.kind === "dispatch") {
        dispatch(context, route, selection.rule);
        return;
      }
      const { container, service, instance, endpoint } = route.destination;
      const target = joinTarget(
        route.target.path,
        forceQuery(route.target.query, service, instance, "plain"),
      );
      switch (endpoint.kind) {
        case "exec":
          callExec(context, route, endpoint);
          return;
        case "agent":
          toAgent(context, container.container, target);
          return;
        case "tcp":
        case "tls":
          if (deps.own.has(container.host, endpoint.port)) {
            finisher.refuse(context, refusal("UNKNOWN_HOST"));
            return;
          }
          pass(
            context,
            { kind: endpoint.kind, host: container.host, port: endpoint.port },
            target,
            context.fields,
          );
      }
    },
  };
}
