import type { Clock } from "../../policy/kernel/clock.ts";
import { DEFAULT_EXEC_ID, DEFAULT_SUBDOMAIN } from "../scripts/coordinates.ts";
import { isSameStamp, look, readStamp } from "../scripts/stamp.ts";
import { loadScript, type LoadedScript, type ScriptScope } from "./load.ts";
import type { ScriptEnvironments } from "./script-env.ts";
import { createModuleCache, type ModuleCache } from "./modules.ts";

/** One `subdomain`/`execId` pair: its loaded code and the object its scripts share. */
export interface Deployment {
  readonly subdomain: string;
  readonly execId: string;
  /** Same identity for every request and script of the deployment, until it is evicted. */
  readonly shared: object;
  readonly modules: ModuleCache;
  readonly scripts: Map<string, LoadedScript>;
}

export interface Deployments {
  /** The deployment of a call; made when it is first addressed. */
  obtain(subdomain: string | null, execId: string | null): Deployment;
  /**
   * The current version of a file. One `stat` when nothing changed; calls that run keep the version they
   * started with. A changed environment makes a new version too: a module reads it when it is evaluated.
   *
   * @throws ScriptLoadError
   */
  script(deployment: Deployment, file: string): LoadedScript;
}

const MAX_SCRIPTS = 2000;

/** @param root scripts root, free of links. */
export function createDeployments(
  clock: Clock,
  root: string,
  scope: ScriptScope,
  environments: ScriptEnvironments,
  maxDeployments: number,
): Deployments {
  const deployments = new Map<string, Deployment>();

  return {
    obtain(subdomain, execId) {
      const key = `${subdomain ?? DEFAULT_SUBDOMAIN}/${execId ?? DEFAULT_EXEC_ID}`;
      const known = deployments.get(key);
      if (known !== undefined) {
        if (deployments.size > 1) {
          deployments.delete(key); // to the end: the first one is the longest unused
          deployments.set(key, known);
        }
        return known;
      }
      const deployment: Deployment = {
        subdomain: subdomain ?? DEFAULT_SUBDOMAIN,
        execId: execId ?? DEFAULT_EXEC_ID,
        shared: {},
        modules: createModuleCache(clock, root),
        scripts: new Map(),
      };
      deployments.set(key, deployment);
      evictOldest(deployments, maxDeployments);
      return deployment;
    },
    script(deployment, file) {
      deployment.modules.refresh();
      const known = deployment.scripts.get(file);
      const env = environments.of(file);
      if (known !== undefined && known.env === env && isCurrent(clock, known)) {
        return known;
      }
      const script = loadScript(root, file, deployment.modules, scope, env);
      deployment.scripts.delete(file);
      deployment.scripts.set(file, script);
      evictOldest(deployment.scripts, MAX_SCRIPTS);
      return script;
    },
  };
}

function isCurrent(clock: Clock, script: LoadedScript): boolean {
  const stamp = look(script.file, readStamp);
  if (!isSameStamp(stamp, script.stamp) || stamp === null || !script.isCurrent()) {
    return false;
  }
  return script.isSettled(clock.now());
}

function evictOldest<K, V>(map: Map<K, V>, max: number): void {
  for (const key of map.keys()) {
    if (map.size <= max) {
      return;
    }
    map.delete(key);
  }
}
