import { realpath, stat } from "node:fs/promises";
import { LRUCache } from "lru-cache";
import type { Clock } from "../../policy/kernel/clock.ts";
import { newUlid } from "../../policy/kernel/ids.ts";
import type { Log } from "../../policy/kernel/log.ts";
import type { ReadRecord } from "../tools/tool.ts";
import { createDecisionLog } from "./decisions.ts";
import type { DecisionLog } from "./decisions.ts";
import { AgentError } from "./errors.ts";
import { createEventStream } from "./events.ts";
import type { EventStream } from "./events.ts";
import { createReadRecord } from "./read-record.ts";
import type {
  DirScope,
  JsonObject,
  LifecycleHooks,
  Session,
  SessionRegistry,
  ToolMode,
} from "./seams.ts";
import { createSessionGates } from "./session-gates.ts";
import type { SessionGates } from "./session-gates.ts";
import { createTurnSlot } from "./turn-slot.ts";
import type { TurnSlot } from "./turn-slot.ts";

/** What a session is started with. Paths are absolute but not resolved yet. */
export interface SessionRequest {
  readonly realm: string | null;
  readonly container: string | null;
  readonly cwd: string | null;
  readonly configDir: string | null;
  readonly toolMode: ToolMode;
  readonly dirScope: DirScope;
  readonly headless: boolean;
  readonly agent: string | null;
  readonly model: string | null;
  /** The session opted in to `report_outcome`. */
  readonly reportsOutcome: boolean;
}

/** A live session with everything that belongs to it. */
export interface LiveSession {
  readonly session: Session;
  readonly slot: TurnSlot;
  readonly gates: SessionGates;
  readonly stream: EventStream;
  readonly reads: ReadRecord;
  readonly decisions: DecisionLog;
  readonly reportsOutcome: boolean;
  /** ms since the epoch of the last call that named the session. */
  readonly lastUsedAt: () => number;
  touch(): void;
}

/** An ephemeral session for one run; `end` aborts what still belongs to it. */
export interface EphemeralSession {
  readonly session: Session;
  readonly end: () => void;
}

/** All sessions of a gateway. */
export interface Sessions extends SessionRegistry {
  create(
    request: SessionRequest,
    idempotencyKey?: string,
  ): Promise<{ readonly live: LiveSession; readonly replayed: boolean }>;
  /** An unregistered session for a single run. */
  ephemeral(request: SessionRequest): Promise<EphemeralSession>;
  /**
   * The live session, marked as used.
   *
   * @throws AgentError `not_found`.
   */
  require(id: string): LiveSession;
  all(): readonly LiveSession[];
  /** Ends a session: it is gone at once, its run is aborted, SessionEnd is raised. False when it is not live. */
  close(id: string, reason: string): Promise<boolean>;
  /** Counts starts and ends, for change tokens. */
  generation(): number;
  closeAll(): Promise<void>;
}

interface Entry extends LiveSession {
  readonly abort: AbortController;
}

const MAX_SESSIONS = 256;
const IDLE_MS = 60 * 60_000;
const REAP_MS = 60_000;
const KEY_LIFETIME_MS = 24 * 60 * 60_000;

/**
 * @param home the agent's home; made physical at first use.
 * @param hooks raised at start and end; late-bound because they are built on this registry.
 */
export function createSessions(
  deps: { readonly clock: Clock; readonly log: Log; readonly hooks: () => LifecycleHooks },
  options: { readonly home: string; readonly idleMs?: number },
): Sessions {
  const { clock, log } = deps;
  const live = new Map<string, Entry>();
  const keys = new LRUCache<string, Promise<LiveSession>>({ max: 1000, ttl: KEY_LIFETIME_MS });
  const startListeners: ((session: Session) => void)[] = [];
  const closeListeners: ((session: Session) => void)[] = [];
  const idleMs = options.idleMs ?? IDLE_MS;
  let generation = 0;

  async function freeze(
    request: SessionRequest,
    kind: Session["kind"],
    emit: Session["emit"],
    signal: AbortSignal,
  ): Promise<Session> {
    const home = await physicalDir(options.home, "home");
    return Object.freeze({
      id: `sess_${newUlid(clock.now())}`,
      kind,
      realm: request.realm ?? "global",
      container: request.container,
      home,
      cwd: request.cwd === null ? home : await physicalDir(request.cwd, "cwd"),
      configDir: request.configDir,
      toolMode: request.toolMode,
      dirScope: request.dirScope,
      headless: request.headless,
      agent: request.agent ?? (request.toolMode === "orchestrator" ? "orchestrator" : "general"),
      model: request.model,
      startedAt: clock.now(),
      signal,
      emit,
    });
  }

  async function start(request: SessionRequest): Promise<LiveSession> {
    if (live.size >= MAX_SESSIONS) {
      throw new AgentError("service_unavailable", "Too many sessions are live.");
    }
    const abort = new AbortController();
    const stream = createEventStream();
    const session = await freeze(
      request,
      "live",
      (type, data) => stream.emit(type, data),
      abort.signal,
    );
    let usedAt = clock.now();
    const entry: Entry = {
      session,
      slot: createTurnSlot(),
      gates: createSessionGates(
        () => `gate_${newUlid(clock.now())}`,
        (type, data) => {
          generation += 1;
          stream.emit(type, data);
        },
      ),
      stream,
      reads: createReadRecord(),
      decisions: createDecisionLog(),
      reportsOutcome: request.reportsOutcome,
      abort,
      lastUsedAt: () => usedAt,
      touch() {
        usedAt = clock.now();
      },
    };
    try {
      const { context } = await deps.hooks().sessionStart(session, "startup");
      stream.emit("event.session_started", {
        session_id: session.id,
        ...(context.length === 0 ? {} : { context }),
      });
    } catch (error) {
      abort.abort();
      stream.close();
      throw error;
    }
    // the number may have been reached while the start was awaited
    if (live.size >= MAX_SESSIONS) {
      abort.abort();
      stream.close();
      throw new AgentError("service_unavailable", "Too many sessions are live.");
    }
    live.set(session.id, entry);
    generation += 1;
    notify(startListeners, session);
    return entry;
  }

  function notify(listeners: readonly ((session: Session) => void)[], session: Session): void {
    for (const listener of listeners) {
      try {
        listener(session);
      } catch (error) {
        log.error({ err: error }, "session listener failed");
      }
    }
  }

  async function close(id: string, reason: string): Promise<boolean> {
    const entry = live.get(id);
    if (entry === undefined) {
      return false;
    }
    live.delete(id);
    generation += 1;
    entry.slot.close();
    entry.gates.close();
    notify(closeListeners, entry.session);
    try {
      await deps.hooks().sessionEnd(entry.session, reason);
    } catch (error) {
      log.error({ err: error }, "session end failed");
    }
    entry.abort.abort();
    entry.stream.emit("event.quit", { reason });
    entry.stream.close();
    return true;
  }

  const reaper = clock.every(Math.min(REAP_MS, idleMs), () => {
    for (const entry of live.values()) {
      const idle = clock.now() - entry.lastUsedAt() > idleMs;
      if (idle && entry.slot.holder() === null && entry.stream.readers() === 0) {
        void close(entry.session.id, "idle");
      }
    }
  });

  return {
    async create(request, idempotencyKey) {
      if (idempotencyKey === undefined) {
        return { live: await start(request), replayed: false };
      }
      const known = await keys.get(idempotencyKey);
      if (known !== undefined && live.has(known.session.id)) {
        return { live: known, replayed: true };
      }
      const starting = start(request);
      keys.set(idempotencyKey, starting);
      try {
        return { live: await starting, replayed: false };
      } catch (error) {
        keys.delete(idempotencyKey);
        throw error;
      }
    },
    async ephemeral(request) {
      const abort = new AbortController();
      return {
        session: await freeze(request, "ephemeral", () => {}, abort.signal),
        end: () => abort.abort(),
      };
    },
    require(id) {
      const entry = live.get(id);
      if (entry === undefined) {
        throw new AgentError("not_found", "The session is not live.");
      }
      entry.touch();
      return entry;
    },
    get(id) {
      const entry = live.get(id);
      entry?.touch();
      return entry?.session;
    },
    list: () => [...live.values()].map((entry) => entry.session),
    all: () => [...live.values()],
    onStart: (listener) => void startListeners.push(listener),
    onClose: (listener) => void closeListeners.push(listener),
    close,
    generation: () => generation,
    async closeAll() {
      reaper.cancel();
      await Promise.all([...live.keys()].map((id) => close(id, "shutdown")));
    },
  };
}

/**
 * The physical path of a folder that must exist.
 *
 * @throws AgentError `bad_request`.
 */
async function physicalDir(path: string, field: string): Promise<string> {
  try {
    const physical = await realpath(path);
    if ((await stat(physical)).isDirectory()) {
      return physical;
    }
  } catch {
    // reported below: why a folder cannot be used is nobody's business outside
  }
  throw new AgentError("bad_request", "The folder does not exist.", { field });
}

/** What S1 and S3 say about how a session was started. */
export function describeStart(session: Session): JsonObject {
  return {
    realm: session.realm,
    container: session.container,
    cwd: session.cwd,
    config_dir: session.configDir,
    tool_mode: session.toolMode,
    dir_scope: session.dirScope,
    headless: session.headless,
    agent: session.agent,
  };
}
