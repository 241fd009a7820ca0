import { ERRORS, statusOf } from "../policy/kernel/errors.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import { EdgeError } from "../policy/kernel/errors.ts";
import { quote } from "../policy/kernel/json-text.ts";
import { type Log, lineWriter } from "../policy/kernel/log.ts";
import type { Metrics } from "../policy/kernel/metrics.ts";
import { type Refusal, answerRefusal, refusal } from "./answer.ts";
import type { RequestContext } from "./context.ts";
import type { RequestBudget } from "./request-budget.ts";

/** The last phase of every request, on every path: one access line, metrics, release. */
export interface Finisher {
  /** Answers with a refusal and finishes. After the head was sent the client is cut off instead. */
  refuse(context: RequestContext, why: Refusal, outcome?: string): void;
  /** Something was thrown that nobody expected: 500, and the cause goes to the log only. */
  fail(context: RequestContext, cause: unknown): void;
  /** @param status 0 when no answer head was sent. */
  finish(context: RequestContext, outcome: string, status: number): void;
}

/** Longest path in the access line; the rest says nothing that the first kilobyte does not. */
const MAX_LOGGED_PATH = 1024;

/** Builds what ends every request: access line, metrics, release. */
export function createFinisher(deps: {
  clock: Clock;
  log: Log;
  metrics: Metrics;
  budget: RequestBudget;
}): Finisher {
  const { clock, log, budget } = deps;
  const writeLine = lineWriter(log);
  const meter = createMeter(deps.metrics);

  function finish(context: RequestContext, outcome: string, status: number): void {
    if (context.finished) {
      return;
    }
    context.finished = true;
    budget.leave(context);
    const durationMs = clock.monotonic() - context.startedAt;
    const destination = context.route?.destination;
    meter(destination?.program ?? "other", outcome, status, durationMs);
    if (log.isLevelEnabled("info")) {
      writeLine(describe(context, outcome, status, durationMs), "request");
    }
    context.release();
  }

  function refuse(context: RequestContext, why: Refusal, outcome = "refused"): void {
    const { exchange } = context;
    context.code = why.code;
    if (exchange.answered) {
      exchange.abort();
      finish(context, outcome, 0);
      return;
    }
    answerRefusal(exchange, why, context.hook?.auditId);
    finish(context, outcome, statusOf(why.code));
  }

  return {
    finish,
    refuse,
    fail(context, cause) {
      if (cause instanceof EdgeError && cause.code in ERRORS) {
        refuse(context, refusal(cause.code));
        return;
      }
      log.error({ err: cause, reqId: context.id }, "a request failed inside the edge");
      refuse(context, refusal("INTERNAL_ERROR"), "failed");
    },
  };
}

/** The members of the access line. */
function describe(
  context: RequestContext,
  outcome: string,
  status: number,
  durationMs: number,
): string {
  const { head } = context.exchange;
  const path = context.path === "" ? (head.target.split("?", 1)[0] ?? "") : context.path;
  const shown = path.length > MAX_LOGGED_PATH ? path.slice(0, MAX_LOGGED_PATH) : path;
  let line =
    `"reqId":"${context.id}","clientIp":${quote(context.clientAddress)},"method":${quote(head.method)}` +
    `,"path":${quote(shown)},"status":${outcome === "client_gone" && status === 0 ? 499 : status}` +
    `,"durationMs":${milliseconds(durationMs)},"outcome":"${outcome}"`;
  const destination = context.route?.destination;
  if (destination !== undefined) {
    line +=
      `,"container":"${destination.container.container}","service":"${destination.program}"` +
      `,"instance":${destination.instance}`;
  }
  if (context.code !== null) {
    line += `,"code":"${context.code}"`;
  }
  if (context.hook !== null) {
    line += `,"ruleId":${quote(context.hook.ruleId)},"auditId":${quote(context.hook.auditId)}`;
  }
  return line;
}

/** Three decimals at most, from whole numbers: writing a fraction takes ten times as long. */
function milliseconds(ms: number): string {
  const micros = Math.round(ms * 1000);
  const whole = Math.floor(micros / 1000);
  const rest = micros - whole * 1000;
  return rest === 0 ? `${whole}` : `${whole}.${rest < 10 ? "00" : rest < 100 ? "0" : ""}${rest}`;
}

/** Counts with metric children made once per label set: looking labels up by value costs more than counting. */
function createMeter(metrics: Metrics) {
  const counters = new Map<string, Map<string, { inc(): void }[]>>();
  const seconds = new Map<string, { observe(value: number): void }>();
  return (service: string, outcome: string, status: number, durationMs: number): void => {
    let byOutcome = counters.get(service);
    if (byOutcome === undefined) {
      byOutcome = new Map();
      counters.set(service, byOutcome);
    }
    let byClass = byOutcome.get(outcome);
    if (byClass === undefined) {
      byClass = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map((code) =>
        metrics.requests.labels(service, outcome, code === 0 ? "none" : `${code}xx`),
      );
      byOutcome.set(outcome, byClass);
    }
    byClass[Math.floor(status / 100)]?.inc();
    let histogram = seconds.get(service);
    if (histogram === undefined) {
      histogram = metrics.requestSeconds.labels(service);
      seconds.set(service, histogram);
    }
    histogram.observe(durationMs / 1000);
  };
}
