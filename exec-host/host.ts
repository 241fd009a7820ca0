import { join } from "node:path";
import type { ExecEndpoint, ExecHosts } from "../dispatcher/envelope.ts";
import type { Clock, Timer } from "../policy/kernel/clock.ts";
import type { Log } from "../policy/kernel/log.ts";
import { createMetrics, type Metrics } from "../policy/kernel/metrics.ts";
import { createLogStore, type LogStoreOptions } from "./manage/log-store.ts";
import { probeProgram } from "./pool/child.ts";
import { detectConfinement, type Confinement } from "./pool/confinement.ts";
import type { ExecPoolOptions, ReportSink } from "./pool/options.ts";
import { createExecPool } from "./pool/pool.ts";
import { parseUser, type ExecContainer } from "./pool/worker.ts";
import type { LogLine } from "./protocol.ts";

/** What {@link createExecHost} builds on. */
export interface ExecHostDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly dataDir: string;
  /** Containers with an embedded exec host, as configured now. */
  readonly containers: () => ReadonlyMap<string, ExecContainer>;
}

/** How workers, logs and confinement differ from the defaults. */
export interface ExecHostOptions {
  readonly pool: Partial<ExecPoolOptions>;
  readonly logs?: LogStoreOptions;
  readonly confinement?: Confinement;
}

/** Scripts and their management for all embedded containers of this process. */
export interface ExecHost extends ExecHosts {
  /** Where a container's management routes are answered. */
  manageEndpoint(containerId: string): ExecEndpoint | Promise<ExecEndpoint>;
  /** Starts the worker of every configured container, so that no first request waits. Never rejects. */
  warmAll(): Promise<void>;
  /** Applies a changed configuration. */
  reconcile(): void;
  readiness(): { readonly ok: boolean; readonly detail: readonly string[] };
  close(): Promise<void>;
}

/** Script lines per second and container that also go to the process's own log. */
const ECHO_PER_SECOND = 20;
const ECHO_BURST = 100;
const MANAGE_IDLE_MS = 60_000;
/** Parsing and searching may take longer than a script's uninterrupted run; one that does not end is cut here. */
const MANAGE_CPU_MS = 3_000;
const MANAGE_MEMORY_MB = 256;

/** Builds the pool of workers, the pool of management processes and the log store, and ties them together. */
export async function createExecHost(
  deps: ExecHostDeps,
  options: ExecHostOptions = { pool: {} },
): Promise<ExecHost> {
  const { clock, dataDir } = deps;
  const root = process.getuid?.() === 0;
  const confinement = options.confinement ?? (await detectConfinement(probeProgram, root));
  const log = deps.log.child({ component: "exec" });
  log.info({ confinement: confinement.kind, open: confinement.open }, "script isolation");
  const store = createLogStore(
    {
      clock,
      log,
      folder: (id) => join(dataDir, "containers", id, "logs"),
      groupOf: (id) =>
        root ? (parseUser(deps.containers().get(id)?.user ?? null)?.gid ?? null) : null,
    },
    options.logs,
  );
  const echo = createEcho(clock, deps.log);
  const reports: ReportSink = {
    logs(id, lines, dropped) {
      store.logs(id, lines, dropped);
      echo.lines(id, lines);
    },
    executions: (id, entries, dropped) => store.executions(id, entries, dropped),
    output: (id, line) => store.output(id, line),
  };
  const scripts = await createExecPool(
    { ...deps, reports },
    { ...options.pool, role: "scripts", confinement },
  );
  let managed: ReadonlyMap<string, ExecContainer> = new Map();
  let managedFrom: ReadonlyMap<string, ExecContainer> | null = null;
  const manage = await createExecPool(
    {
      clock,
      log: deps.log,
      metrics: createMetrics(), // these processes are no script workers: they count in no metric of theirs
      dataDir,
      containers() {
        const current = deps.containers();
        if (current !== managedFrom) {
          managedFrom = current;
          managed = new Map(
            [...current].map(([id, entry]) => [id, toManaged(managed.get(id), entry)]),
          );
        }
        return managed;
      },
      reports: {
        logs: () => {},
        executions: () => {},
        output: (id, line) => store.output(id, `management: ${line}`),
      },
    },
    { ...options.pool, role: "manage", confinement, idleMs: MANAGE_IDLE_MS },
  );

  return {
    endpoint: (id) => scripts.endpoint(id),
    reportSuspect: (id, generation, kind) => scripts.reportSuspect(id, generation, kind),
    isGone: (id, generation) => scripts.isGone(id, generation),
    takeEnded: (id, auditId) => scripts.takeEnded(id, auditId),
    manageEndpoint: (id) => manage.endpoint(id),
    async warmAll() {
      await Promise.all([...deps.containers().keys()].map((id) => scripts.warm(id)));
    },
    reconcile() {
      scripts.reconcile();
      manage.reconcile();
    },
    readiness() {
      const { failing } = scripts.status();
      return {
        ok: failing.length === 0,
        detail: [
          ...failing.map(({ container, detail }) => `container ${container}: ${detail}`),
          ...(root ? [] : ineffectiveUsers(deps.containers())),
          ...unboundChildren(deps.containers(), confinement),
          ...confinement.open,
        ],
      };
    },
    async close() {
      await Promise.all([scripts.close(), manage.close()]);
      echo.close();
      await store.close();
    },
  };
}

/** What `exec.user` promises and a process without root cannot keep. */
function ineffectiveUsers(containers: ReadonlyMap<string, ExecContainer>): string[] {
  return [...containers]
    .filter(([, entry]) => entry.user !== null)
    .map(([id]) => `container ${id}: exec.user has no effect, this process is not root`);
}

/** Where `exec.allow.childProcess` gives more than its name says: the permission model ends at the runtime. */
function unboundChildren(
  containers: ReadonlyMap<string, ExecContainer>,
  { kind, root }: Confinement,
): string[] {
  return [...containers].flatMap(([id, { allow, user }]) => {
    if (!allow.childProcess || kind === "bubblewrap") {
      return [];
    }
    const whose = root && user !== null ? `user ${user}` : "this process";
    return [`container ${id}: programs that its scripts start may do all that ${whose} may`];
  });
}

/** A management process gets the same folders and user, and limits of its own. Unchanged entries stay the same object. */
function toManaged(before: ExecContainer | undefined, entry: ExecContainer): ExecContainer {
  const made: ExecContainer = {
    scripts: entry.scripts,
    user: entry.user,
    memoryMb: MANAGE_MEMORY_MB,
    cpuMs: MANAGE_CPU_MS,
    allow: { childProcess: false, read: [], write: [] },
  };
  return before !== undefined && JSON.stringify(before) === JSON.stringify(made) ? before : made;
}

/** Script lines in the process's own log, a few per second: the full text is in the container's log files. */
function createEcho(clock: Clock, parent: Log) {
  const log = parent.child({ component: "script" });
  const left = new Map<string, number>();
  const refill: Timer = clock.every(1000, () => {
    for (const [id, tokens] of left) {
      if (tokens + ECHO_PER_SECOND >= ECHO_BURST) {
        left.delete(id);
      } else {
        left.set(id, tokens + ECHO_PER_SECOND);
      }
    }
  });
  return {
    lines(container: string, lines: readonly LogLine[]): void {
      for (const { level, executionId, script, auditId, msg } of lines) {
        const tokens = left.get(container) ?? ECHO_BURST;
        if (tokens <= 0) {
          return;
        }
        left.set(container, tokens - 1);
        log[level](
          { container, script, executionId, ...(auditId === null ? {} : { auditId }) },
          msg,
        );
      }
    },
    close: () => refill.cancel(),
  };
}
