import type { ExecEndpoint } from "../dispatcher/envelope.ts";
import type { Config, ListenAddress } from "./config.ts";

/**
 * Messages between the primary process, which has the control API and the embedded hosts, and the edge processes
 * that share its port (`workers` above 1). Both ends are ours and of one version; they travel as structured clones.
 */
export type ToEdge =
  | {
      readonly type: "start";
      readonly config: Config;
      readonly token: string;
    }
  | { readonly type: "reload"; readonly config: Config }
  | { readonly type: "drain"; readonly ms: number }
  | { readonly type: "scrape"; readonly id: number }
  /** `value` null: the container has no such host; `problem`: it cannot be had now. */
  | {
      readonly type: "answer";
      readonly id: number;
      readonly value: ExecEndpoint | null;
      readonly problem: string | null;
    };

/** Which host of a container is asked for. */
export type HostKind = "exec" | "manage" | "agent";

/** What an edge process tells the primary. */
export type FromEdge =
  | {
      readonly type: "listening";
      readonly http: ListenAddress | null;
      readonly https: ListenAddress | null;
    }
  | { readonly type: "failed"; readonly message: string }
  /** Metrics of the process as prom-client's JSON form. */
  | { readonly type: "scraped"; readonly id: number; readonly metrics: object[] }
  | {
      readonly type: "ask";
      readonly id: number;
      readonly kind: HostKind;
      readonly container: string;
    }
  | {
      readonly type: "suspect";
      readonly container: string;
      readonly generation: number;
      readonly kind: "connect" | "reset" | "silent";
    };
