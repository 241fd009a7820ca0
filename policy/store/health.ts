import type { Clock } from "../kernel/clock.ts";
import { formatIssues, type Issue } from "../kernel/issues.ts";
import { documentIssues } from "./check.ts";
import { StoreError, type DocumentKey, type PolicyStore } from "./store.ts";

/** Whether every stored document is valid, for readiness. */
export interface DocumentHealth {
  /** What is wrong in the stored documents, in one line; null when nothing is. Looks at most once a second. */
  problem(): Promise<string | null>;
}

const LOOK_MS = 1000;
/** Documents whose stamps are read before other work gets its turn. */
const BATCH = 100;
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
  let last: { readonly at: number; readonly result: Promise<string | null> } | null = null;

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
    const shared = projects.map((id) => store.stamp(`projects/${id}`)).join();
    for (const [position, key] of keys.entries()) {
      const stamp = `${store.stamp(key)} ${key.startsWith("containers/") ? shared : ""}`;
      const before = known.get(key);
      seen.set(
        key,
        before?.stamp === stamp
          ? before
          : {
              stamp,
              issues: await documentIssues(key, async (wanted) => (await store.read(wanted)).text),
            },
      );
      if (position % BATCH === BATCH - 1) {
        await new Promise((resolve) => setImmediate(resolve));
      }
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

  return {
    problem() {
      const now = clock.monotonic();
      if (last === null || now - last.at >= LOOK_MS) {
        const result = look().catch((cause: unknown) => {
          if (cause instanceof StoreError) {
            return cause.message;
          }
          throw cause;
        });
        last = { at: now, result };
      }
      return last.result;
    },
  };
}
