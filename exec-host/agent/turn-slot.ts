/** Who holds a session's slot, and the way to stop it. */
export interface Lease {
  /** Set for model turns, null for direct runs. */
  readonly turnId: string | null;
  /** Aborts when the holder is cancelled. */
  readonly signal: AbortSignal;
  /** Gives the slot back; more calls do nothing. */
  release(): void;
}

/** A session's single serial slot: compare-and-set, no queue (section 14.5). */
export interface TurnSlot {
  /** null when it is taken or the session is closed. */
  claim(turnId: string | null): Lease | null;
  holder(): { readonly turnId: string | null } | null;
  /**
   * Aborts the holder. With a turn id only that turn; a direct run has none and is left alone.
   *
   * @returns whether something was aborted.
   */
  cancel(turnId?: string): boolean;
  /** Aborts the holder and takes no further claim. */
  close(): void;
}

/** A free slot. The holder keeps it until it releases it, also after it was cancelled. */
export function createTurnSlot(): TurnSlot {
  let held: { readonly turnId: string | null; readonly abort: AbortController } | null = null;
  let closed = false;
  return {
    claim(turnId) {
      if (held !== null || closed) {
        return null;
      }
      const mine = { turnId, abort: new AbortController() };
      held = mine;
      return {
        turnId,
        signal: mine.abort.signal,
        release() {
          if (held === mine) {
            held = null;
          }
        },
      };
    },
    holder: () => (held === null ? null : { turnId: held.turnId }),
    cancel(turnId) {
      if (held === null || (turnId !== undefined && held.turnId !== turnId)) {
        return false;
      }
      held.abort.abort();
      return true;
    },
    close() {
      closed = true;
      held?.abort.abort();
    },
  };
}
