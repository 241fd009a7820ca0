import type { Clock } from "../../policy/kernel/clock.ts";
import { newHex } from "../../policy/kernel/ids.ts";
import { AgentError } from "./errors.ts";
import type { SettingsLayer } from "./seams.ts";

/** The guarded writes a nonce can be minted for. */
export const WRITE_OPS = ["upsert", "delete", "toggle", "set_disabled", "rules_set"] as const;
/** One of those kinds of write. */
export type WriteOp = (typeof WRITE_OPS)[number];

/** How long a nonce lives. */
const NONCE_TTL_MS = 300_000;
const MAX_OPEN_PER_SESSION = 64;

/** What a nonce allows: one write of one kind, through one session, to one file. */
export interface WriteIntent {
  readonly sessionId: string;
  readonly op: WriteOp;
  readonly scope: SettingsLayer;
  /** Real path of the settings file. */
  readonly path: string;
}

interface Entry extends WriteIntent {
  readonly expiresAt: number;
  used: boolean;
}

/**
 * One-shot write permissions. They live in memory, like the sessions they are bound to: after a restart neither exists.
 */
export class NonceStore {
  readonly #clock: Clock;
  readonly #bySession = new Map<string, Map<string, Entry>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Mints a nonce. A session keeps its newest 64, spent ones included. */
  issue(intent: WriteIntent): { readonly nonce: string; readonly expiresAt: number } {
    const entries = this.#bySession.get(intent.sessionId) ?? new Map<string, Entry>();
    this.#bySession.set(intent.sessionId, entries);
    while (entries.size >= MAX_OPEN_PER_SESSION) {
      const [oldest] = entries.keys();
      entries.delete(oldest ?? "");
    }
    const nonce = newHex(16);
    const expiresAt = this.#clock.now() + NONCE_TTL_MS;
    entries.set(nonce, { ...intent, expiresAt, used: false });
    return { nonce, expiresAt };
  }

  /**
   * Spends a nonce: look-up and spending are one synchronous step, so that of two requests with one nonce exactly one gets it. A
   * nonce of another session or operation is refused and not spent; once it fits, it is spent whatever happens next.
   *
   * @param scope as sent with the write; undefined takes the nonce's.
   * @throws AgentError `bad_request` with `details.field` `nonce` (or `scope`) and `details.reason`.
   */
  take(
    nonce: string | undefined,
    sessionId: string,
    op: WriteOp,
    scope: SettingsLayer | undefined,
  ): WriteIntent {
    if (nonce === undefined || nonce === "") {
      throw refused("missing");
    }
    const entry = this.#bySession.get(sessionId)?.get(nonce);
    if (entry === undefined) {
      throw refused(this.#isOfAnother(nonce) ? "session" : "unknown");
    }
    if (entry.op !== op) {
      throw refused("op");
    }
    if (entry.used) {
      throw refused("used");
    }
    entry.used = true;
    if (entry.expiresAt <= this.#clock.now()) {
      throw refused("expired");
    }
    if (scope !== undefined && scope !== entry.scope) {
      throw refused("scope");
    }
    return entry;
  }

  /** Voids everything a session holds. */
  drop(sessionId: string): void {
    this.#bySession.delete(sessionId);
  }

  #isOfAnother(nonce: string): boolean {
    return [...this.#bySession.values()].some((entries) => entries.has(nonce));
  }
}

function refused(reason: string): AgentError {
  return new AgentError("bad_request", "The write needs a usable nonce for exactly this write.", {
    field: "nonce",
    reason,
  });
}
