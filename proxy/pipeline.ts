import { MAX_HOOK_DEPTH, readDepth } from "../dispatcher/depth.ts";
import { type Selection, selectHook } from "../dispatcher/select.ts";
import type { CompiledPolicy, RuleRequest } from "../policy/compile/compiled-policy.ts";
import { type Decision, decide } from "../policy/compile/grants.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import type { Exchange } from "../policy/kernel/exchange.ts";
import { fieldValues, sweepRequest } from "../policy/kernel/fields.ts";
import { canonicalForms, readTarget, sameAuthority, splitTarget } from "../policy/kernel/target.ts";
import type { PolicyCache } from "../policy/store/cache.ts";
import { type Refusal, answerEmpty, refusal } from "./answer.ts";
import type { Authentication, Authenticator } from "./auth/authenticate.ts";
import { identityFields } from "./auth/identity.ts";
import { type RequestContext, createContext } from "./context.ts";
import type { Finisher } from "./finish.ts";
import type { HostResolver, Route, RouteResolution } from "./host-resolver.ts";
import { toOutgoingFields } from "./outgoing-fields.ts";
import type { RequestBudget } from "./request-budget.ts";
import type { Router } from "./router.ts";

/**
 * READ FIRST. The phases of a request in their order, each one call. Everything is synchronous until the first IO:
 * only a custom domain that must be looked up, a policy that is not in the cache, or a claim whose key must be fetched
 * waits.
 */
export interface PipelineDeps {
  readonly clock: Clock;
  readonly hosts: Pick<HostResolver, "resolve">;
  readonly policies: PolicyCache;
  readonly authenticator: Authenticator;
  readonly clientAddress: (exchange: Exchange) => string;
  readonly router: Router;
  readonly budget: RequestBudget;
  readonly finisher: Finisher;
}

const BUDGET_SPENT = refusal("REQUEST_BUDGET_SPENT");

/** Builds the function that takes every request through its phases. */
export function createPipeline(deps: PipelineDeps): (exchange: Exchange) => void {
  const { hosts, policies, authenticator, router, budget, finisher } = deps;

  /** Until somebody who can also end the upstream's side sets `cancel`. */
  const refuseSpent = (context: RequestContext): void =>
    finisher.refuse(context, BUDGET_SPENT, "failed");

  /** 1. target, 2. host, then what may have to wait. */
  function begin(exchange: Exchange): void {
    const context = createContext(exchange, deps, refuseSpent);
    budget.enter(context);
    try {
      const refused = readHead(context);
      if (refused !== null) {
        finisher.refuse(context, refused);
        return;
      }
      const target = { path: context.path, query: context.query };
      settle(context, hosts.resolve(context.host, target), locate);
    } catch (cause) {
      finisher.fail(context, cause);
    }
  }

  /** 2. destination. */
  function locate(context: RequestContext, resolution: RouteResolution): void {
    if (resolution.kind === "refused") {
      finisher.refuse(context, refusal(resolution.code));
      return;
    }
    context.route = resolution.route;
    if (context.isAsterisk) {
      answerEmpty(context.exchange);
      finisher.finish(context, "passed", 200);
      return;
    }
    const { project, container } = resolution.route.destination.container;
    settle(context, policies.get(project, container), identify);
  }

  /** 3. policy, 4. identity. */
  function identify(context: RequestContext, policy: CompiledPolicy): void {
    if (policy.unavailable !== null) {
      finisher.refuse(context, refusal("POLICY_UNAVAILABLE"));
      return;
    }
    context.policy = policy;
    const caller = {
      fields: context.exchange.head.fields,
      query: context.query,
      clientAddress: context.clientAddress,
    };
    settle(context, authenticator.authenticate(policy.access, caller), admit);
  }

  /** 5. decision, 6. fields, 7. query, 8. rules, 9. on its way. */
  function admit(context: RequestContext, authentication: Authentication): void {
    if (authentication.kind === "refused") {
      finisher.refuse(context, refusal(authentication.code));
      return;
    }
    const route = context.route as Route;
    const { destination } = route;
    const { principal } = authentication;
    const policy = context.policy as CompiledPolicy;
    const decision = decide(policy.access, {
      service: destination.program,
      index: destination.instance,
      satisfied: principal.groups,
      presented: principal,
    });
    if (decision.kind === "deny") {
      finisher.refuse(context, toRefusal(decision));
      return;
    }
    context.granting = decision.granting;
    context.clientFields = sweepRequest(context.exchange.head.fields);
    context.fields = toOutgoingFields(context.clientFields, {
      clientAddress: context.clientAddress,
      encrypted: context.exchange.peer.encrypted,
      extra: identityFields(principal, decision),
      ...(route.host === null ? {} : { host: route.host }),
    });
    router.route(context, route, select(context, route, policy));
  }

  /** Goes on with a value now, or when it is there; a client that left meanwhile is not served. */
  function settle<T>(
    context: RequestContext,
    value: T | Promise<T>,
    next: (context: RequestContext, value: T) => void,
  ): void {
    if (!(value instanceof Promise)) {
      next(context, value);
      return;
    }
    value
      .then((settled) => {
        if (context.finished) {
          return; // its budget ran out meanwhile, and it was answered
        }
        if (context.gone) {
          finisher.finish(context, "client_gone", 0);
        } else {
          next(context, settled);
        }
      })
      .catch((cause: unknown) => finisher.fail(context, cause));
  }

  return begin;
}

/** One reading of target and Host for everything that follows (K02). */
function readHead(context: RequestContext): Refusal | null {
  const { head } = context.exchange;
  const reading = readTarget(head.method, head.target);
  if (reading.kind === "refused") {
    return refusal("BAD_TARGET");
  }
  const [host, ...more] = fieldValues(head.fields, "host");
  if (host === undefined || more.length > 0) {
    return refusal("BAD_HOST");
  }
  context.host = host;
  if (reading.kind === "asterisk") {
    context.isAsterisk = true;
    return null;
  }
  if (reading.authority !== null && !sameAuthority(reading.authority, host)) {
    return refusal("BAD_HOST");
  }
  const { path, query } = splitTarget(reading.target);
  context.path = path;
  context.query = query;
  return null;
}

function toRefusal(decision: Extract<Decision, { kind: "deny" }>): Refusal {
  if (decision.status === 403) {
    return refusal("FORBIDDEN");
  }
  return decision.challengeBasic
    ? { code: "UNAUTHORIZED", fields: ["WWW-Authenticate", 'Basic realm="hoody", charset="UTF-8"'] }
    : { code: "UNAUTHORIZED", fields: ["WWW-Authenticate", 'Bearer realm="hoody"'] };
}

/** Which rule takes the request. Rules see the client's fields after sweeping, and every reading of the path. */
function select(context: RequestContext, route: Route, policy: CompiledPolicy): Selection {
  const { service } = route.destination;
  const hooks = service?.hookable === true ? policy.hooks.get(service.name) : undefined;
  if (hooks === undefined) {
    return NO_HOOKS;
  }
  const { exchange, path } = context;
  const request: RuleRequest = {
    method: exchange.handshake ? "GET" : exchange.head.method,
    paths:
      route.testPaths.length === 1
        ? canonicalForms(route.testPaths[0]!)
        : route.testPaths.flatMap(canonicalForms),
    header: (name) => {
      const values = fieldValues(context.clientFields, name);
      return values.length === 0 ? undefined : values.join(name === "cookie" ? "; " : ", ");
    },
  };
  const chosen = selectHook(hooks, request, context.granting, exchange.handshake, path.length);
  return chosen.kind === "dispatch" && readDepth(exchange.head.fields) >= MAX_HOOK_DEPTH
    ? { kind: "refuse", code: "HOOK_LOOP", rule: chosen.rule }
    : chosen;
}

const NO_HOOKS: Selection = { kind: "none" };
