import type { ExecEndpoint } from "../dispatcher/envelope.ts";
import type { ExecHosts } from "../dispatcher/exec-target.ts";

/** Embedded hosts as the traffic side sees them: beside it in one process, or behind the primary's channel. */
export interface EmbeddedHosts extends ExecHosts {
  manageEndpoint(container: string): ExecEndpoint | Promise<ExecEndpoint>;
  /** The agent gateway: its socket, and the secret that requests to it are signed with. */
  agentEndpoint(container: string): ExecEndpoint | Promise<ExecEndpoint>;
}
