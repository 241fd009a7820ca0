import { mkdirSync, statSync } from "node:fs";
import { open, readdir, stat, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { storedVersion } from "../documents/version.ts";
import { writeFileAtomic } from "../kernel/atomic-file.ts";
import type { Clock } from "../kernel/clock.ts";
import { withFileLock } from "./file-lock.ts";
import {
  MAX_DOCUMENT_BYTES,
  StoreError,
  type Change,
  type DocumentKey,
  type PolicyStore,
  type StoredText,
  type UpdateResult,
} from "./store.ts";

const KEY = /^(?:(?:containers|projects)\/[0-9a-f]{24}|aliases)$/;
const ABSENT: StoredText = { text: null, stamp: "absent" };
/** Age at which a temp or lock file counts as left behind by a process that was killed, in ms. */
const LEFTOVER_MS = 60_000;

/**
 * Keeps documents as files below `<dataDir>/policy` (decision 34): readable JSON, owner only, replaced as a whole.
 * Several processes may share the folder.
 *
 * Throws when the folders cannot be made.
 */
export function createFileStore(
  deps: { readonly clock: Clock },
  options: { readonly dataDir: string },
): PolicyStore {
  const root = join(options.dataDir, "policy");
  for (const folder of ["containers", "projects"]) {
    mkdirSync(join(root, folder), { recursive: true, mode: 0o700 });
  }
  const queues = new Map<DocumentKey, Promise<unknown>>();
  const listeners = new Set<(key: DocumentKey) => void>();
  const sweeping = sweep(root, deps.clock);

  const pathOf = (key: DocumentKey): string => {
    if (!KEY.test(key)) {
      throw new StoreError("no document can have this key");
    }
    return join(root, `${key}.json`);
  };

  const write = async <T>(
    key: DocumentKey,
    expected: number | null,
    change: (text: string | null, version: number) => Change<T>,
  ): Promise<UpdateResult<T>> => {
    const path = pathOf(key);
    return await withFileLock(`${path}.lock`, deps.clock, async () => {
      const { text } = await readDocument(path);
      const stored = storedVersion(text);
      if (!stored.ok) {
        return { kind: "unreadable", reason: stored.reason };
      }
      if (expected !== null && expected !== stored.version) {
        return { kind: "stale", version: stored.version };
      }
      const changed = change(text, stored.version);
      if (changed.text !== null) {
        await writeFileAtomic(path, changed.text);
        for (const listener of listeners) {
          listener(key);
        }
      }
      return { kind: "done", value: changed.value };
    });
  };

  return {
    async read(key) {
      return await guarded(() => readDocument(pathOf(key)));
    },
    stamp(key) {
      const path = pathOf(key);
      try {
        const found = statSync(path, { bigint: true, throwIfNoEntry: false });
        if (found !== undefined) {
          return stampOf(found);
        }
        statSync(dirname(path));
        return ABSENT.stamp;
      } catch (cause) {
        throw storeError(cause);
      }
    },
    async update(key, expected, change) {
      // Waiting here keeps the writers of this process from polling the lock against each other.
      const before = queues.get(key) ?? Promise.resolve();
      const turn = before.then(() => guarded(() => write(key, expected, change)));
      const settled = turn.catch(() => {}); // whoever asked for the write hears of it
      queues.set(key, settled);
      try {
        return await turn;
      } finally {
        if (queues.get(key) === settled) {
          queues.delete(key);
        }
      }
    },
    async ids(kind) {
      const names = await guarded(() => readdir(join(root, kind)));
      return names.flatMap((name) => /^([0-9a-f]{24})\.json$/.exec(name)?.[1] ?? []);
    },
    watch(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    async close() {
      listeners.clear();
      await Promise.all([...queues.values(), sweeping]);
    },
  };
}

/** Reads text and stamp from one open file, so that they belong together. */
async function readDocument(path: string): Promise<StoredText> {
  let file;
  try {
    file = await open(path, "r");
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ENOENT") {
      throw cause;
    }
    // A missing file means "nothing stored", which is open by default. A missing folder means that the whole store
    // is gone (a volume that is not mounted), and must not be taken for that.
    await stat(dirname(path));
    return ABSENT;
  }
  try {
    const found = await file.stat({ bigint: true });
    if (!found.isFile() || found.size > MAX_DOCUMENT_BYTES) {
      return { text: "", stamp: stampOf(found) };
    }
    return { text: await file.readFile("utf8"), stamp: stampOf(found) };
  } finally {
    await file.close();
  }
}

function stampOf(found: {
  readonly ino: bigint;
  readonly mtimeNs: bigint;
  readonly size: bigint;
}): string {
  return `${found.ino}:${found.mtimeNs}:${found.size}`;
}

async function guarded<T>(task: () => Promise<T>): Promise<T> {
  try {
    return await task();
  } catch (cause) {
    throw (cause as NodeJS.ErrnoException | null)?.syscall === undefined
      ? cause
      : storeError(cause);
  }
}

const IN_WORDS: Readonly<Record<string, string>> = {
  ENOSPC: "no space is left for policy documents",
  EDQUOT: "no space is left for policy documents",
  EFBIG: "no space is left for policy documents",
  EROFS: "the data folder is read-only",
  EACCES: "the data folder may not be used",
  EPERM: "the data folder may not be used",
  ENOENT: "the data folder is gone",
  EMFILE: "too many files are open",
  ENFILE: "too many files are open",
};

function storeError(cause: unknown): StoreError {
  const code = (cause as NodeJS.ErrnoException | null)?.code ?? "";
  return new StoreError(IN_WORDS[code] ?? `the data folder cannot be used (${code || "unknown"})`, {
    cause,
  });
}

/** Removes what killed processes left behind. Failing to is no reason not to start. */
async function sweep(root: string, clock: Clock): Promise<void> {
  for (const folder of [root, join(root, "containers"), join(root, "projects")]) {
    const names = await readdir(folder).catch(() => []);
    for (const name of names.filter((each) => /^\..*\.tmp$|\.lock(?:\.drop)?$/.test(each))) {
      const path = join(folder, name);
      const found = await stat(path).catch(() => null);
      if (found !== null && clock.now() - found.mtimeMs > LEFTOVER_MS) {
        await unlink(path).catch(() => {}); // another process sweeps, too
      }
    }
  }
}
