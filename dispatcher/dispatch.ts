import { STATUS_CODES } from "node:http";
import type { CompiledRule } from "../policy/compile/compiled-policy.ts";
import { delay, type Clock } from "../policy/kernel/clock.ts";
import { errorBody, errorFields, statusOf, type ErrorCode } from "../policy/kernel/errors.ts";
import type { BodySink, BodySource, Exchange, FieldLines } from "../policy/kernel/exchange.ts";
import type { Log } from "../policy/kernel/log.ts";
import type { Metrics } from "../policy/kernel/metrics.ts";
import { attempt, type AttemptEnd, type AttemptRequest, type Said } from "./attempt.ts";
import { NO_AUDIT, type Audit } from "./audit.ts";
import {
  DISPATCH_OUTCOMES,
  OUTCOME_FIELD,
  type DispatchOutcomeName,
  type ExecEndpoint,
} from "./envelope.ts";
import type { ExecHostClient } from "./exec-call.ts";
import type { ExecTargets } from "./exec-target.ts";
import type { OrderClient } from "./forward-order.ts";

/** Everything a hook dispatch needs to know of a request. */
export interface DispatchRequest {
  readonly exchange: Exchange;
  /** Fields to send on: swept, with the edge's own ones in place, without framing. */
  readonly fields: FieldLines;
  /** Target to send: the client's bytes with the instance selector and alias parameters. */
  readonly target: string;
  /** Path as received, without query. */
  readonly path: string;
  readonly clientAddress: string;
  readonly project: string;
  readonly container: string;
  /** Canonical name of the service the client addressed, and where it really listens. */
  readonly service: string;
  readonly upstreamHost: string;
  readonly upstreamPort: number;
  /** Where that is the edge's own way to the service: what the script's helpers show there. */
  readonly upstreamToken?: string | undefined;
  readonly rule: CompiledRule;
  /** Groups that granted the request. */
  readonly matchedGroups: readonly string[];
  /** The edge may forward the request there itself, as it does where no rule fits. */
  readonly takesOrders?: boolean;
  /** The record was opened elsewhere (by the edge of a remote exec host); none is made here. */
  readonly auditId?: string;
}

/** An ordinary call of the exec service. */
export interface ExecCallRequest {
  readonly exchange: Exchange;
  readonly fields: FieldLines;
  readonly target: string;
  readonly clientAddress: string;
  readonly container: string;
  readonly subdomain: string | null;
  readonly execId: string | null;
  /** Whether the caller may use the management routes (decision 43). */
  readonly manage: boolean;
}

/** How a dispatch ended. */
export interface DispatchOutcome {
  readonly outcome: DispatchOutcomeName;
  /** 0 when nothing was sent. */
  readonly status: number;
  /** Set when the edge made the answer. */
  readonly code: ErrorCode | null;
  readonly auditId: string;
}

/** How a call of a script by its own address ended. */
export type ExecCallOutcome = {
  readonly outcome: "answered" | "failed" | "client_gone";
  readonly status: number;
  readonly code: ErrorCode | null;
};

/** What {@link createDispatcher} builds on. */
export interface DispatcherDeps {
  readonly targets: ExecTargets;
  readonly client: ExecHostClient;
  /** Sends what hosts order to be forwarded; null where none may. */
  readonly orders: OrderClient | null;
  readonly audit: Audit;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
}

/** Times and duties of a dispatcher. */
export interface DispatcherOptions {
  /** The host keeps the deadline itself; the edge acts so long after it, should the host be stuck. */
  readonly backstopMs: number;
  /** Longest wait for a worker to start, before the deadline begins. */
  readonly startWaitMs: number;
  /** Silence allowed to an ordinary call; scripts may take an hour by default. */
  readonly ordinaryIdleMs: number;
  /** Leaves the outcome word in answers: set in an exec host whose edge has a dispatcher of its own. */
  readonly tellOutcome: boolean;
}

/** What the edge uses. */
export const DEFAULT_DISPATCHER_OPTIONS: DispatcherOptions = {
  backstopMs: 40,
  startWaitMs: 10_000,
  ordinaryIdleMs: 3_660_000,
  tellOutcome: false,
};

/** Hands requests to scripts. */
export interface Dispatcher {
  /** Runs the rule's script for the request and answers it. Never rejects, and never lets a request pass unanswered. */
  dispatch(request: DispatchRequest): Promise<DispatchOutcome>;
  /** Calls the exec service. Never rejects. */
  callExec(request: ExecCallRequest): Promise<ExecCallOutcome>;
}

const OUTCOMES: ReadonlySet<string> = new Set(DISPATCH_OUTCOMES);
/** How much earlier than ours the host's clock may see the deadline. */
const CLOCK_SLACK_MS = 10;
const CUT_WAIT_MS = 100;

/** Builds the dispatcher. Every path out of it has answered, refused or cut the request. */
export function createDispatcher(
  deps: DispatcherDeps,
  given: Partial<DispatcherOptions> = {},
): Dispatcher {
  const options = { ...DEFAULT_DISPATCHER_OPTIONS, ...given };
  const { targets, client, audit, clock, metrics } = deps;
  const log = deps.log.child({ component: "dispatch" });
  const parts = {
    targets,
    client,
    orders: deps.orders,
    clock,
    log,
    tellOutcome: options.tellOutcome,
  };
  // Looked up once: finding a labelled counter costs more than counting.
  const dispatches = Object.fromEntries(
    DISPATCH_OUTCOMES.map((outcome) => [outcome, metrics.hookDispatches.labels(outcome)]),
  ) as Record<DispatchOutcomeName, ReturnType<typeof metrics.hookDispatches.labels>>;

  const findEndpoint = async (
    container: string,
    pending: Promise<ExecEndpoint>,
  ): Promise<ExecEndpoint | null> => {
    const { promise, resolve } = Promise.withResolvers<null>();
    const timer = clock.after(options.startWaitMs, () => resolve(null));
    try {
      return await Promise.race([pending, promise]);
    } catch (cause) {
      log.warn({ container, err: cause }, "no script worker");
      return null;
    } finally {
      timer.cancel();
    }
  };

  /** Hands the request over; a host whose socket refuses is reported and asked for once more. */
  const run = async (request: AttemptRequest): Promise<AttemptEnd> => {
    const { exchange, container } = request;
    let gone = false;
    exchange.onGone(() => (gone = true));
    const body = exchange.body === null ? null : restartable(exchange.body);
    for (let tries = 1; ; tries++) {
      let endpoint: ExecEndpoint | null;
      try {
        const found = targets.endpoint(container);
        if (found === null) {
          return { kind: "no-host" };
        }
        endpoint = found instanceof Promise ? await findEndpoint(container, found) : found;
      } catch (cause) {
        log.warn({ container, err: cause }, "no script worker");
        return { kind: "unreachable" };
      }
      if (gone) {
        body?.release();
        return {
          kind: "relayed",
          end: { kind: "gone" },
          status: 0,
          said: null,
          ranMs: 0,
          generation: 0,
          brokeOff: false,
        };
      }
      if (endpoint === null) {
        return { kind: "unreachable" };
      }
      const end = await attempt(parts, request, endpoint, body?.source ?? null);
      const refused =
        end.kind === "relayed" &&
        end.end.kind === "failed" &&
        !end.end.answered &&
        end.end.failure.kind === "connect";
      if (!refused) {
        return end;
      }
      targets.reportSuspect(container, endpoint.generation, "connect");
      if (tries > 1 || (body !== null && body.started)) {
        body?.release();
        log.warn({ container }, "the exec host does not accept connections");
        return { kind: "unreachable" };
      }
    }
  };

  const dispatch = async (request: DispatchRequest): Promise<DispatchOutcome> => {
    const { exchange, rule, container } = request;
    const { script } = rule;
    const startedAt = clock.monotonic();
    const record =
      request.auditId !== undefined
        ? null
        : audit.begin({
            project: request.project,
            container,
            service: request.service,
            hookId: rule.id,
            method: exchange.head.method,
            path: request.path,
            clientIp: request.clientAddress,
            matchedGroups: request.matchedGroups,
            script: `${script.subdomain ?? "default"}/${script.execId ?? "1"}${script.path}`,
          });
    const auditId = request.auditId ?? record?.id ?? NO_AUDIT;
    let upstreamMs: number | null = null;
    const finish = (outcome: DispatchOutcomeName, status: number): void => {
      const durationMs = clock.monotonic() - startedAt;
      dispatches[outcome].inc();
      metrics.hookSeconds.observe(durationMs / 1000);
      if (record !== null) {
        audit.finish(record, { outcome, status, durationMs, upstreamMs });
      }
    };
    /** Ends the dispatch with an answer of the edge's own, unless the client has one or left. */
    const refuse = (code: ErrorCode, outcome: DispatchOutcomeName): DispatchOutcome => {
      answerError(exchange, code, auditId, options.tellOutcome ? outcome : undefined);
      return done(outcome, statusOf(code), code);
    };
    const done = (
      outcome: DispatchOutcomeName,
      status: number,
      code: ErrorCode | null = null,
    ): DispatchOutcome => {
      finish(outcome, status);
      return { outcome, status, code, auditId };
    };

    let end: AttemptEnd;
    try {
      end = await run({
        exchange,
        container,
        envelope: {
          kind: "hook",
          auditId,
          method: exchange.head.method,
          path: request.path,
          service: request.service,
          upstreamHost: request.upstreamHost,
          upstreamPort: request.upstreamPort,
          ...(request.upstreamToken === undefined ? {} : { upstreamToken: request.upstreamToken }),
          subdomain: script.subdomain,
          execId: script.execId,
          scriptPath: script.path,
          timeoutMs: rule.timeoutMs,
          clientAddress: request.clientAddress,
        },
        fields: request.fields,
        target: request.target,
        deadlineMs: rule.timeoutMs + options.backstopMs,
        idleMs: rule.timeoutMs + 60_000,
        takesOrders: request.takesOrders === true,
      });
    } catch (cause) {
      log.error({ err: cause, container, auditId }, "dispatch failed");
      return refuse("INTERNAL_ERROR", "crashed");
    }
    switch (end.kind) {
      case "no-host":
        return refuse("HOOK_TARGET_UNAVAILABLE", "target_unavailable");
      case "unreachable":
        return refuse("EXEC_UNREACHABLE", "target_unavailable");
      case "unsendable":
        return refuse("HOOK_BAD_PATH", "bad_path");
      case "late":
        return end.answered ? done("truncated", end.status) : refuse("HOOK_TIMEOUT", "timed_out");
      case "relayed":
        break;
    }
    const { end: relayEnd, status, said } = end;
    upstreamMs = said?.upstreamMs ?? null;
    switch (relayEnd.kind) {
      case "gone":
        return done("client_gone", status);
      case "complete":
        return done(completeOutcome(said, status), status);
      case "failed":
        break;
    }
    if (relayEnd.answered && end.brokeOff) {
      return done("truncated", status);
    }
    if (relayEnd.answered) {
      return done(await cutOutcome(request, auditId, end.ranMs, end.generation), status);
    }
    switch (relayEnd.failure.kind) {
      case "timeout":
        return refuse("HOOK_TIMEOUT", "timed_out");
      case "body":
        exchange.abort(); // the upload broke off: there is nobody to answer
        return done("client_gone", 0);
      case "connect":
        return refuse("EXEC_UNREACHABLE", "target_unavailable");
      case "reset":
      case "protocol":
        log.warn({ container, auditId, detail: relayEnd.failure.message }, "hook worker crashed");
        return refuse("HOOK_CRASHED", "crashed");
    }
  };

  /**
   * An answer that the host cut: by the clock, else its own word if it left one, else whether its process still
   * lives. The word and the exit come on other channels than the cut, so they get a moment; the client is gone.
   */
  const cutOutcome = async (
    { container, rule }: DispatchRequest,
    auditId: string,
    ranMs: number,
    generation: number,
  ): Promise<DispatchOutcomeName> => {
    if (ranMs >= rule.timeoutMs - CLOCK_SLACK_MS) {
      return "truncated";
    }
    await delay(clock, CUT_WAIT_MS);
    const said = auditId === NO_AUDIT ? undefined : targets.takeEnded(container, auditId);
    if (said !== undefined && OUTCOMES.has(said)) {
      return said as DispatchOutcomeName;
    }
    return targets.isGone(container, generation) ? "crashed" : "script_error";
  };

  const callExec = async (request: ExecCallRequest): Promise<ExecCallOutcome> => {
    const { exchange } = request;
    const refuse = (code: ErrorCode): ExecCallOutcome => {
      answerError(exchange, code);
      return { outcome: "failed", status: statusOf(code), code };
    };
    let end: AttemptEnd;
    try {
      end = await run({
        exchange,
        container: request.container,
        envelope: {
          kind: "ordinary",
          subdomain: request.subdomain,
          execId: request.execId,
          clientAddress: request.clientAddress,
          manage: request.manage,
        },
        fields: request.fields,
        target: request.target,
        deadlineMs: null,
        idleMs: options.ordinaryIdleMs,
        takesOrders: false,
      });
    } catch (cause) {
      log.error({ err: cause, container: request.container }, "exec call failed");
      return refuse("INTERNAL_ERROR");
    }
    if (end.kind === "no-host") {
      return refuse("SERVICE_UNAVAILABLE");
    }
    if (end.kind === "unsendable") {
      return refuse("BAD_TARGET");
    }
    if (end.kind !== "relayed") {
      return refuse("EXEC_UNREACHABLE");
    }
    const { end: relayEnd, status } = end;
    if (relayEnd.kind === "gone") {
      return { outcome: "client_gone", status, code: null };
    }
    if (relayEnd.kind === "complete") {
      return { outcome: "answered", status, code: null };
    }
    if (relayEnd.answered) {
      return { outcome: "failed", status, code: null };
    }
    if (relayEnd.failure.kind === "body") {
      exchange.abort();
      return { outcome: "client_gone", status: 0, code: null };
    }
    return refuse(relayEnd.failure.kind === "timeout" ? "SCRIPT_TIMEOUT" : "SCRIPT_ERROR");
  };

  return { dispatch, callExec };
}

/** The host's word, where it is one of ours; an answered 4xx is the script's denial. */
function completeOutcome(said: Said | null, status: number): DispatchOutcomeName {
  const outcome = said?.outcome ?? "answered";
  return outcome === "answered" && status >= 400 && status <= 499 ? "denied" : outcome;
}

/** The JSON answer of a code, naming the audit record; nothing when the client has an answer already. */
function answerError(
  exchange: Exchange,
  code: ErrorCode,
  auditId?: string,
  outcome?: DispatchOutcomeName,
): void {
  if (exchange.answered) {
    return;
  }
  const status = statusOf(code);
  const fields = errorFields(code);
  if (auditId !== undefined) {
    fields.push("X-Hoody-Hook-Audit", auditId);
  }
  if (outcome !== undefined) {
    fields.push(OUTCOME_FIELD, outcome);
  }
  exchange.answer(
    { status, reason: STATUS_CODES[status] ?? "", fields },
    Buffer.from(errorBody(code, undefined, auditId)),
  );
}

/**
 * A body that survives an attempt which never began to read it: giving that attempt up cancels its body, and a
 * second attempt still needs it.
 */
function restartable(body: BodySource): {
  readonly source: BodySource;
  readonly started: boolean;
  release(): void;
} {
  let started = false;
  return {
    source: {
      length: body.length,
      start(sink: BodySink) {
        started = true;
        body.start(sink);
      },
      resume: () => body.resume(),
      cancel() {
        if (started) {
          body.cancel();
        }
      },
    },
    get started() {
      return started;
    },
    release() {
      if (!started) {
        body.cancel();
      }
    },
  };
}
