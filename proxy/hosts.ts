import type { ExecEndpoint } from "../dispatcher/envelope.ts";
import type { ExecHosts } from "../dispatcher/envelope.ts";

/** Where an agent gateway listens, and the secret that requests to it are signed with. */
export type AgentEndpoint = Pick<ExecEndpoint, "origin" | "secret">;

/** Embedded hosts as the traffic side sees them: beside it in one process, or behind the primary's channel. */
export interface EmbeddedHosts extends ExecHosts {
  manageEndpoint(container: string): ExecEndpoint | Promise<ExecEndpoint>;
  agentEndpoint(container: string): AgentEndpoint | Promise<AgentEndpoint>;
}
