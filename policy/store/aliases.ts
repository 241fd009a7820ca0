import { decodeAliasDocument, formatAliasDocument, type AliasRecord } from "../documents/alias.ts";
import type { Clock, Timer } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { checkedSize, StoreError, type PolicyStore } from "./store.ts";

/** What the alias store builds on. */
export interface AliasesDeps {
  readonly store: PolicyStore;
  readonly clock: Clock;
  readonly log: Log;
}

/** The aliases of this node: in memory for the edge, written through to the store. */
export interface Aliases {
  /** Resolves when the list was loaded for the first time, or could not be. */
  ready(): Promise<void>;
  /** The alias of a lower-case host label; null when there is none. Never waits. */
  lookup(label: string): AliasRecord | null;
  list(): readonly AliasRecord[];
  /**
   * Changes the list in one step and makes it live. `change` gets the current records and returns the new ones and
   * its own result; what it throws comes out, and nothing was changed.
   *
   * Fails with a StoreError when the list cannot be read or written.
   */
  update<T>(
    change: (records: readonly AliasRecord[]) => {
      readonly records: readonly AliasRecord[];
      readonly value: T;
    },
  ): Promise<T>;
  /** Why the stored list cannot be used; null when it can. No alias serves anything then. */
  problem(): string | null;
  close(): void;
}

/** How often the stored list is looked at for writes of other processes and of editors, in ms. */
const CHECK_MS = 50;

/** Loads the aliases and keeps them current; until `ready` there are none. */
export function createAliases({ store, clock, log }: AliasesDeps): Aliases {
  let byName: ReadonlyMap<string, AliasRecord> = new Map();
  let stamp: string | null = null;
  let problem: string | null = null;
  let loading: Promise<void> | null = null;

  const load = async (): Promise<void> => {
    try {
      const stored = await store.read("aliases");
      stamp = stored.stamp;
      const decoded = decodeAliasDocument(stored.text);
      // A list that cannot be read serves nothing: nobody knows any more whom its names were meant for.
      byName = new Map(
        decoded.ok ? decoded.document.records.map((record) => [record.alias, record]) : [],
      );
      const now = decoded.ok ? null : decoded.reason;
      if (now !== null && now !== problem) {
        log.error({ reason: now }, "stored aliases cannot be used");
      }
      problem = now;
    } catch (cause) {
      // What was loaded before goes on, decision 10.
      problem = cause instanceof StoreError ? cause.message : "the stored aliases cannot be read";
      log.error({ err: cause }, "aliases cannot be loaded");
    }
  };
  const refresh = (): void => {
    if (loading !== null) {
      return;
    }
    try {
      if (store.stamp("aliases") === stamp) {
        return;
      }
    } catch (cause) {
      problem = cause instanceof StoreError ? cause.message : "the stored aliases cannot be read";
      return;
    }
    loading = load().finally(() => {
      loading = null;
    });
  };
  const first = load();
  const timer: Timer = clock.every(CHECK_MS, refresh);

  return {
    ready: () => first,
    lookup: (label) => byName.get(label) ?? null,
    list: () => [...byName.values()],
    async update(change) {
      const result = await store.update("aliases", null, (text, version) => {
        const decoded = decodeAliasDocument(text);
        if (!decoded.ok) {
          throw new StoreError(decoded.reason);
        }
        const { records, value } = change(decoded.document.records);
        const written = formatAliasDocument({
          version: version + 1,
          records,
          broken: decoded.document.broken,
        });
        return { text: checkedSize(written), value };
      });
      if (result.kind !== "done") {
        throw new StoreError(
          result.kind === "unreadable" ? result.reason : "the list of aliases has changed",
        );
      }
      await loading;
      await load();
      return result.value;
    },
    problem: () => problem,
    close: () => timer.cancel(),
  };
}
