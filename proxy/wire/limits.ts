import type { Clock } from "../../policy/kernel/clock.ts";
import type { Exchange } from "../../policy/kernel/exchange.ts";
import type { Log } from "../../policy/kernel/log.ts";
import type { Metrics } from "../../policy/kernel/metrics.ts";

/** Limits of a listener; units in the names, `contract.md` 2. */
export interface WireLimits {
  readonly headMs: number;
  /** 0: none. */
  readonly requestMs: number;
  readonly keepAliveMs: number;
  readonly maxHeaderBytes: number;
  readonly maxHeaderLines: number;
  readonly maxTargetBytes: number;
  readonly maxConnections: number;
}

/** What protocol adapters build on. */
export interface WireDeps {
  readonly limits: WireLimits;
  /** Called once per request; must answer, now or later, and must not throw. */
  readonly onExchange: (exchange: Exchange) => void;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics?: Metrics;
}
