import { createAgentHooksApi, type AgentHooksApi } from "./agent-hooks-api.ts";
import { createAgentSessionsApi, type AgentSessionsApi } from "./agent-sessions-api.ts";
import { createAgentToolsApi, type AgentToolsApi } from "./agent-tools-api.ts";
import { send } from "./agent-transport.ts";
import type { AgentScope, Changes, Job, JobResult, StatusAnswer } from "./agent-types.ts";
import type { Transport } from "./transport.ts";

/** Jobs of runs in the background. A finished record is kept for a while, then it is 404. */
export interface AgentJobsApi {
  getJob(job: { readonly id: string }, options?: AgentScope): Promise<Job>;
  getJobResult(job: { readonly id: string }, options?: AgentScope): Promise<JobResult>;
  /** Cancels a job that has not ended, forgets one that has. */
  deleteJob(job: { readonly id: string }, options?: AgentScope): Promise<StatusAnswer>;
}

/** `client.agent`: the gateway of one container's agent, reached through the edge. */
export interface AgentApi {
  readonly hooks: AgentHooksApi;
  readonly tools: AgentToolsApi;
  readonly sessions: AgentSessionsApi;
  readonly jobs: AgentJobsApi;
  readonly changes: {
    /** Tokens that change when what they stand for changes. */
    get(options?: AgentScope): Promise<Changes>;
  };
}

/** The agent methods over a transport to the agent's host. */
export function createAgentApi(transport: Transport): AgentApi {
  return {
    hooks: createAgentHooksApi(transport),
    tools: createAgentToolsApi(transport),
    sessions: createAgentSessionsApi(transport),
    jobs: {
      getJob: ({ id }, scope) =>
        send(transport, { method: "GET", path: "/jobs/{}", args: [id], scope }),
      getJobResult: ({ id }, scope) =>
        send(transport, { method: "GET", path: "/jobs/{}/result", args: [id], scope }),
      deleteJob: ({ id }, scope) =>
        send(transport, { method: "DELETE", path: "/jobs/{}", args: [id], scope }),
    },
    changes: {
      get: (scope) => send(transport, { method: "GET", path: "/changes", scope }),
    },
  };
}
