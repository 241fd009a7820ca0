/** Which stored document: a container's, a project's, or the one list of aliases. Also its path below the store. */
export type DocumentKey = `containers/${string}` | `projects/${string}` | "aliases";

/** Largest stored document in bytes; a bigger one counts as unreadable. */
export const MAX_DOCUMENT_BYTES = 4 * 1024 * 1024;

/** A document as it is stored. */
export interface StoredText {
  /** null when nothing is stored. */
  readonly text: string | null;
  /** Changes whenever the stored text does; compare for equality only. */
  readonly stamp: string;
}

/** What a change makes of a document. `text: null` writes nothing. */
export interface Change<T> {
  readonly text: string | null;
  readonly value: T;
}

/** How a write ended. */
export type UpdateResult<T> =
  | { readonly kind: "done"; readonly value: T }
  /** The stored version is another one than expected; nothing was changed. */
  | { readonly kind: "stale"; readonly version: number }
  /** The stored text is not a document, so there is no version to compare; nothing was changed. */
  | { readonly kind: "unreadable"; readonly reason: string };

/**
 * Where policy documents live. One contract test suite runs over every implementation.
 *
 * Every method may fail with a StoreError: the store is out of reach, full or read-only.
 */
export interface PolicyStore {
  read(key: DocumentKey): Promise<StoredText>;
  /** The stamp that `read` would give, at once. This is what keeps caches current, so it must be cheap. */
  stamp(key: DocumentKey): string;
  /**
   * One critical section per document, across processes: read, compare the version with `expected` (null: any),
   * apply `change`, write. What `change` throws comes out again and nothing was changed. When the promise
   * resolves the new text is on stable storage and every reader sees it whole.
   *
   * @param change pure; gets the stored text and its version (0 without a document), and may run more than once.
   */
  update<T>(
    key: DocumentKey,
    expected: number | null,
    change: (text: string | null, version: number) => Change<T>,
  ): Promise<UpdateResult<T>>;
  /** Ids of all stored documents of a kind. */
  ids(kind: "containers" | "projects"): Promise<string[]>;
  /** Calls `listener` after each write of this process. Returns how to stop that. */
  watch(listener: (key: DocumentKey) => void): () => void;
  close(): Promise<void>;
}

/** The store cannot do what was asked: out of reach, full, read-only. The message says which, without paths. */
export class StoreError extends Error {
  override readonly name = "StoreError";
}

/** The text, unless it is too large to be read again: then a StoreError. */
export function checkedSize(text: string): string {
  if (Buffer.byteLength(text) > MAX_DOCUMENT_BYTES) {
    throw new StoreError(`a stored document may have at most ${MAX_DOCUMENT_BYTES} bytes`);
  }
  return text;
}
