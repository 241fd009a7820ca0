import type { CompiledPolicy } from "../policy/compile/compiled-policy.ts";
import type { ErrorCode } from "../policy/kernel/errors.ts";
import type { Exchange } from "../policy/kernel/exchange.ts";
import type { Destination } from "./destination.ts";

/**
 * How a request ended. Hook dispatches use the words of contract.md 5; these are the others.
 * `passed`: the service answered. `refused`: the edge answered itself.
 */
export type PlainOutcome = "passed" | "refused" | "tunnelled" | "upstream_failed" | "client_gone" | "failed";

/** What the access line says about a hook dispatch. */
export interface HookTrace {
  readonly ruleId: string;
  readonly auditId: string;
}

/** Everything known about one request, filled in phase by phase. */
export interface RequestContext {
  readonly id: string;
  readonly exchange: Exchange;
  /** Monotonic ms. */
  readonly startedAt: number;
  /** Resolved address of the client; the socket's until the proxies in front are taken into account. */
  clientAddress: string;
  /** Path as received, without query, once the target was read. */
  path: string;
  /** Query without `?`; null when there is none. */
  query: string | null;
  destination: Destination | null;
  policy: CompiledPolicy | null;
  outcome: string;
  /** 0 while no answer was begun. */
  status: number;
  code: ErrorCode | null;
  hook: HookTrace | null;
  /** Ends the request when its budget is spent. */
  expire(): void;
}
