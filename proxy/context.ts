import type { CompiledPolicy } from "../policy/compile/compiled-policy.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import type { ErrorCode } from "../policy/kernel/errors.ts";
import type { Exchange, FieldLines } from "../policy/kernel/exchange.ts";
import { newRequestId } from "../policy/kernel/ids.ts";
import type { Route } from "./host-resolver.ts";

/** What the access line says about a hook dispatch. */
export interface HookTrace {
  readonly ruleId: string;
  readonly auditId: string;
}

/** Everything known about one request, filled in phase by phase; a phase reads only what earlier ones wrote. */
export interface RequestContext {
  readonly id: string;
  readonly exchange: Exchange;
  /** Monotonic ms. */
  readonly startedAt: number;
  /** The client, behind the proxies that the configuration trusts. */
  readonly clientAddress: string;
  /** The one Host field as received. */
  host: string;
  /** `OPTIONS *`. */
  isAsterisk: boolean;
  /** Path as received, without query. */
  path: string;
  /** Query as received, without `?`; null when there is none. */
  query: string | null;
  /** What the host leads to; null until it was resolved. */
  route: Route | null;
  policy: CompiledPolicy | null;
  /** Groups that let the request in. */
  granting: ReadonlySet<string>;
  /** The client's fields after sweeping: what rules look at. */
  clientFields: FieldLines;
  /** What is sent on: `clientFields` and ours behind them. */
  fields: FieldLines;
  /** Code of the answer that the edge made itself. */
  code: ErrorCode | null;
  hook: HookTrace | null;
  /** The client left before its answer was complete. */
  gone: boolean;
  /** The access line was written; nothing counts twice. */
  finished: boolean;
  /** Ends the request: its budget is spent. Replaced by whoever runs it. */
  expire(): void;
}

const NO_GROUPS: ReadonlySet<string> = new Set();
const NO_FIELDS: FieldLines = [];

/** A context for a request whose head was just read. */
export function createContext(
  exchange: Exchange,
  deps: { clock: Clock; clientAddress: (exchange: Exchange) => string },
): RequestContext {
  const context: RequestContext = {
    id: newRequestId(),
    exchange,
    startedAt: deps.clock.monotonic(),
    clientAddress: deps.clientAddress(exchange),
    host: "",
    isAsterisk: false,
    path: "",
    query: null,
    route: null,
    policy: null,
    granting: NO_GROUPS,
    clientFields: NO_FIELDS,
    fields: NO_FIELDS,
    code: null,
    hook: null,
    gone: false,
    finished: false,
    expire: () => exchange.abort(),
  };
  exchange.onGone(() => {
    context.gone = true;
  });
  return context;
}
