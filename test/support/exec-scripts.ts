import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { onTestFinished } from "vitest";
import { createExecHost, type ExecHost } from "../../exec-host/host.ts";
import { probeProgram } from "../../exec-host/pool/child.ts";
import {
  bareConfinement,
  DEFAULT_SEARCH_FOLDERS,
  detectConfinement,
  type Confinement,
} from "../../exec-host/pool/confinement.ts";
import type { ExecPoolOptions } from "../../exec-host/pool/options.ts";
import type { ExecContainer } from "../../exec-host/pool/worker.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics, type Metrics } from "../../policy/kernel/metrics.ts";
import { execContainer, tempDir } from "./exec-pool.ts";

export interface HostSetup {
  readonly host: ExecHost;
  readonly dataDir: string;
  readonly metrics: Metrics;
  readonly containers: Map<string, ExecContainer>;
  /** Writes `default/1/<name>` of a container. */
  readonly script: (container: string, name: string, source: string) => Promise<void>;
}

/** An exec host with the real worker over a temporary data folder; containers `a` and `b`. */
export async function startHost(
  changes: Partial<ExecContainer> = {},
  options: { pool?: Partial<ExecPoolOptions>; confinement?: Confinement } = {},
): Promise<HostSetup> {
  const dataDir = await tempDir();
  const metrics = createMetrics();
  const containers = new Map<string, ExecContainer>();
  for (const id of ["a", "b"]) {
    const scripts = join(dataDir, "containers", id, "scripts");
    await mkdir(join(scripts, "default", "1"), { recursive: true });
    containers.set(id, execContainer(scripts, changes));
  }
  const host = await createExecHost(
    { clock: systemClock, log: silentLog(), metrics, dataDir, containers: () => containers },
    {
      pool: options.pool ?? {},
      ...(options.confinement === undefined ? {} : { confinement: options.confinement }),
    },
  );
  onTestFinished(() => host.close());
  return {
    host,
    dataDir,
    metrics,
    containers,
    async script(container, name, source) {
      const path = join(containers.get(container)?.scripts ?? dataDir, "default", "1", name);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, source);
    },
  };
}

/** The ways of keeping workers apart that this machine has, the weakest first. */
export async function availableConfinements(): Promise<Confinement[]> {
  const root = process.getuid?.() === 0;
  const found = [bareConfinement(root)];
  const options = { searchFolders: DEFAULT_SEARCH_FOLDERS };
  const helpers = await detectConfinement(probeProgram, root, {
    ...options,
    without: ["bwrap", "unshare"],
  });
  if (helpers.setpriv !== null) {
    found.push(helpers);
  }
  const namespace = await detectConfinement(probeProgram, root, { ...options, without: ["bwrap"] });
  if (namespace.kind === "namespace") {
    found.push(namespace);
  }
  const best = await detectConfinement(probeProgram, root, options);
  if (best.kind === "bubblewrap") {
    found.push(best);
  }
  return found;
}
