import type { Session } from "../seams.ts";
import { loadSettings } from "../settings/load.ts";
import type { LoadedSettings } from "../settings/load.ts";
import type { AckStore } from "./ack-store.ts";
import { takeTrustSnapshot } from "./trust.ts";
import type { TrustSnapshot } from "./trust.ts";

/** A session's loaded settings and whether they are trusted. */
export interface SessionTrust extends TrustSnapshot {
  readonly needsAck: boolean;
}

/** What each session enforces: a snapshot of its settings taken at start, reload and its own writes. */
export interface SessionSettings {
  /** The snapshot; loaded on first use, so that a run without a session sees the files as they are. */
  get(session: Session): Promise<LoadedSettings>;
  /** Takes a new snapshot. On failure the old one stays. */
  reload(session: Session): Promise<LoadedSettings>;
  trust(settings: LoadedSettings): Promise<SessionTrust>;
}

/** Snapshots keyed by the session object; they go when the session goes. */
export function createSessionSettings(
  deps: { readonly acks: AckStore },
  options: { readonly fleet: boolean },
): SessionSettings {
  const loaded = new WeakMap<Session, Promise<LoadedSettings>>();
  const reloads = new WeakMap<Session, Promise<unknown>>();

  return {
    get(session) {
      const known = loaded.get(session);
      if (known !== undefined) {
        return known;
      }
      const loading = loadSettings(session);
      loaded.set(session, loading);
      loading.catch(() => {
        if (loaded.get(session) === loading) {
          loaded.delete(session);
        }
      });
      return loading;
    },
    reload(session) {
      // one after the other: of two reloads the one that read last must be the one that stays
      const before = reloads.get(session) ?? Promise.resolve();
      const run = before.then(async () => {
        const settings = await loadSettings(session);
        loaded.set(session, Promise.resolve(settings));
        return settings;
      });
      reloads.set(
        session,
        run.catch(() => {}), // the failure is the caller's
      );
      return run;
    },
    async trust(settings) {
      const snapshot = takeTrustSnapshot(settings, options.fleet);
      const needsAck =
        snapshot.wantsAck && !(await deps.acks.has(settings.places.profile, snapshot));
      return { ...snapshot, needsAck };
    },
  };
}
