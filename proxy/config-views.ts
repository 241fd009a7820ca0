import type { ExecEndpoint } from "../dispatcher/envelope.ts";
import type { ExecPlace } from "../dispatcher/exec-target.ts";
import type { OutgoingRequest } from "../policy/kernel/http1/types.ts";
import type { ContainerInfo } from "../policy/api/context.ts";
import type { AgentConfig, Config, ExecConfig } from "./config.ts";

/** What single parts want to see of the configuration. */

/** What requests to services are held to. */
export function upstreamLimits({ limits }: Pick<Config, "limits">): OutgoingRequest["limits"] {
  return {
    connectMs: limits.upstreamConnectMs,
    idleMs: limits.upstreamIdleMs,
    maxHeaderBytes: limits.maxHeaderBytes * 2,
  };
}

/** An exec host that this edge runs. */
export type EmbeddedExec = Extract<ExecConfig, { kind: "embedded" }>;

/** Running containers whose scripts this process runs. */
export function embeddedExecs(config: Config): Map<string, EmbeddedExec> {
  const found = new Map<string, EmbeddedExec>();
  for (const [id, { exec, state }] of config.containers) {
    if (exec.kind === "embedded" && state === "running") {
      found.set(id, exec);
    }
  }
  return found;
}

/** An agent gateway that this edge starts. */
export type EmbeddedAgent = Extract<AgentConfig, { kind: "embedded" }>;

/** Running containers whose agent gateway this process runs. */
export function embeddedAgents(config: Config): Map<string, EmbeddedAgent> {
  const found = new Map<string, EmbeddedAgent>();
  for (const [id, { agent, state }] of config.containers) {
    if (agent.kind === "embedded" && state === "running") {
      found.set(id, agent);
    }
  }
  return found;
}

/** Where a container's exec host is; undefined for an unknown container. */
export function execPlace(config: Config, id: string): ExecPlace | undefined {
  const container = config.containers.get(id);
  if (container === undefined) {
    return undefined;
  }
  const { exec, host } = container;
  return exec.kind === "remote"
    ? { kind: "remote", host, port: exec.port, secret: exec.secret }
    : { kind: exec.kind };
}

/** Who may use a container's script management routes (decision 43). */
export function manageMode(config: Config, id: string): "admitted" | "open" | "off" {
  const exec = config.containers.get(id)?.exec;
  return exec === undefined || exec.kind === "none" ? "off" : exec.manage;
}

/** Where those routes are answered: beside the embedded workers, or by the remote exec host itself. */
export function manageEndpoint(
  config: Config,
  id: string,
  embedded: { manageEndpoint(id: string): ExecEndpoint | Promise<ExecEndpoint> },
): ExecEndpoint | null | Promise<ExecEndpoint> {
  const place = execPlace(config, id);
  switch (place?.kind) {
    case "embedded":
      return embedded.manageEndpoint(id);
    case "remote":
      return {
        origin: { kind: "tcp", host: place.host, port: place.port },
        secret: place.secret,
        generation: 0,
      };
    default:
      return null;
  }
}

/** The containers as the control API lists them. */
export function containerInfos(config: Config): Map<string, ContainerInfo> {
  const infos = new Map<string, ContainerInfo>();
  for (const [id, { project, state }] of config.containers) {
    infos.set(id, { id, project, status: state });
  }
  return infos;
}
