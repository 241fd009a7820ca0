import { storedVersion } from "../documents/version.ts";
import type { DocumentKey, PolicyStore } from "./store.ts";

/** A store that ends with the process: for tests and trials. `texts` is what is stored at the beginning. */
export function createMemoryStore(
  texts: Iterable<readonly [DocumentKey, string]> = [],
): PolicyStore {
  const documents = new Map<DocumentKey, { text: string; stamp: string }>();
  const listeners = new Set<(key: DocumentKey) => void>();
  let writes = 0;
  for (const [key, text] of texts) {
    documents.set(key, { text, stamp: String(++writes) });
  }
  return {
    read(key) {
      return Promise.resolve(documents.get(key) ?? { text: null, stamp: "absent" });
    },
    stamp(key) {
      return documents.get(key)?.stamp ?? "absent";
    },
    async update(key, expected, change) {
      // No await between reading and writing: that is the whole critical section.
      const text = documents.get(key)?.text ?? null;
      const stored = storedVersion(text);
      if (!stored.ok) {
        return { kind: "unreadable", reason: stored.reason };
      }
      if (expected !== null && expected !== stored.version) {
        return { kind: "stale", version: stored.version };
      }
      const changed = change(text, stored.version);
      if (changed.text !== null) {
        documents.set(key, { text: changed.text, stamp: String(++writes) });
        for (const listener of listeners) {
          listener(key);
        }
      }
      return { kind: "done", value: changed.value };
    },
    ids(kind) {
      const prefix = `${kind}/`;
      const keys = [...documents.keys()].filter((key) => key.startsWith(prefix));
      return Promise.resolve(keys.map((key) => key.slice(prefix.length)));
    },
    watch(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    close() {
      listeners.clear();
      return Promise.resolve();
    },
  };
}
