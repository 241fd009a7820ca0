import { delay, type Clock } from "../kernel/clock.ts";
import { formatIssues, type Issue } from "../kernel/issues.ts";
import { documentIssues } from "./check.ts";
import { StoreError, type DocumentKey, type PolicyStore } from "./store.ts";

/** Whether every stored document is valid, for readiness. */
export interface DocumentHealth {
  /**
   * What is wrong in the stored documents, in one line; null when nothing is known to be. Looks at most once a
   * second. The first look at thousands of documents takes seconds; nothing is known to be wrong until then, and
   * each document is checked anyway by whatever uses it.
   */
  problem(): Promise<string | null>;
  /** Whether a look is going on. */
  looking(): boolean;
}

const LOOK_MS = 1000;
/** Documents looked at before other work gets its turn. */
const BATCH = 32;
/** How long a caller waits for a look that takes longer, in ms; it then gets the result before that one. */
const PATIENCE_MS = 1000;
/** Most documents named in one answer. */
const MAX_NAMED = 5;

/** Creates the check. It decodes a document again only when its stamp, or that of its project, has changed. */
export function createDocumentHealth({
  store,
  clock,
}: {
  readonly store: PolicyStore;
  readonly clock: Clock;
}): DocumentHealth {
  let known = new Map<DocumentKey, { readonly stamp: string; readonly issues: readonly Issue[] }>();

  let shared = "";
  let sharedEpoch = 0;

  const look = async (): Promise<string | null> => {
    const [projects, containers] = await Promise.all([
      store.ids("projects"),
      store.ids("containers"),
    ]);
    const keys: DocumentKey[] = [
      "aliases",
      ...projects.map((id) => `projects/${id}` as const),
      ...containers.map((id) => `containers/${id}` as const),
    ];
    const seen: typeof known = new Map();
    // A project's document has a say in what is valid in those of its containers.
    const nowShared = projects.map((id) => `${id} ${store.stamp(`projects/${id}`)}`).join();
    if (nowShared !== shared) {
      shared = nowShared;
      sharedEpoch++;
    }
    const projectTexts = new Map<DocumentKey, Promise<string | null>>();
    const read = async (key: DocumentKey): Promise<string | null> => {
      if (!key.startsWith("projects/")) {
        return (await store.read(key)).text;
      }
      let text = projectTexts.get(key);
      if (text === undefined) {
        text = store.read(key).then((stored) => stored.text);
        projectTexts.set(key, text);
      }
      return await text;
    };
    for (let from = 0; from < keys.length; from += BATCH) {
      await Promise.all(
        keys.slice(from, from + BATCH).map(async (key) => {
          const stamp = `${store.stamp(key)} ${key.startsWith("containers/") ? sharedEpoch : ""}`;
          const before = known.get(key);
          seen.set(
            key,
            before?.stamp === stamp ? before : { stamp, issues: await documentIssues(key, read) },
          );
        }),
      );
      await new Promise((resolve) => setImmediate(resolve));
    }
    known = seen;
    const bad = [...seen].filter(([, { issues }]) => issues.length > 0);
    if (bad.length === 0) {
      return null;
    }
    const named = bad
      .slice(0, MAX_NAMED)
      .map(([key, { issues }]) => `${key}: ${formatIssues(issues.slice(0, 3))}`);
    return `${bad.length} stored ${bad.length === 1 ? "document is" : "documents are"} not valid: ${named.join("; ")}`;
  };

  let looking: Promise<void> | null = null;
  let lookedAt = -Infinity;
  let result: string | null = null;
  return {
    looking: () => looking !== null,
    async problem() {
      const now = clock.monotonic();
      if (looking === null && now - lookedAt >= LOOK_MS) {
        lookedAt = now;
        looking = look()
          .catch((cause: unknown) =>
            cause instanceof StoreError ? cause.message : Promise.reject(cause as Error),
          )
          .then((found) => void (result = found))
          .finally(() => {
            looking = null;
          });
      }
      if (looking !== null) {
        await Promise.race([looking, delay(clock, PATIENCE_MS)]);
      }
      return result;
    },
  };
}
