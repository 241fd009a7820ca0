import type { ExecPlace } from "../dispatcher/exec-target.ts";
import type { ContainerInfo } from "../policy/api/context.ts";
import type { Config, ExecConfig } from "./config.ts";

/** What single parts want to see of the configuration. */

/** Running containers whose scripts this process runs. */
export function embeddedExecs(
  config: Config,
): Map<string, Extract<ExecConfig, { kind: "embedded" }>> {
  const found = new Map<string, Extract<ExecConfig, { kind: "embedded" }>>();
  for (const [id, { exec, state }] of config.containers) {
    if (exec.kind === "embedded" && state === "running") {
      found.set(id, exec);
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

/** The containers as the control API lists them. */
export function containerInfos(config: Config): Map<string, ContainerInfo> {
  const infos = new Map<string, ContainerInfo>();
  for (const [id, { project, state }] of config.containers) {
    infos.set(id, { id, project, status: state });
  }
  return infos;
}
