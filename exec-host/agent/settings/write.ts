import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { writeFileAtomic } from "../../../policy/kernel/atomic-file.ts";
import { AgentError } from "../errors.ts";
import { parseSettings, SETTINGS_VERSION, versionOf } from "./document.ts";
import { setMember } from "./json-text.ts";
import { failureWords } from "./load.ts";
import { openLocation } from "./places.ts";
import type { SettingsPlace } from "./places.ts";
import { MAX_SETTINGS_BYTES, readWholeFile } from "./read-file.ts";

/** What an edit wants changed: top-level members to set, or to remove where the value is undefined. */
export interface SettingsEdit<T> {
  readonly members: readonly (readonly [key: string, value: unknown])[];
  readonly result: T;
}

/** Guarded writes of settings files. */
export interface SettingsWriter {
  /**
   * Reads, edits and replaces one settings file as one transaction: one writer per file, nothing lost, readers see the old
   * file or the new one. Everything the edit does not name keeps its bytes.
   *
   * @param edit runs under the lock on the parsed file, once per attempt; it may throw to leave the file as it is.
   * @throws AgentError `bad_request` for a file that may not be written, and whatever `edit` throws.
   */
  update<T>(
    place: SettingsPlace,
    edit: (value: Record<string, unknown>) => SettingsEdit<T>,
  ): Promise<T>;
}

const NEW_FILE = `{\n  "version": ${SETTINGS_VERSION}\n}\n`;
const MAX_ATTEMPTS = 5;

/** A writer with its locks; one per process. */
export function createSettingsWriter(): SettingsWriter {
  const tails = new Map<string, Promise<unknown>>();

  async function withLock<T>(path: string, task: () => Promise<T>): Promise<T> {
    const before = tails.get(path) ?? Promise.resolve();
    const run = before.then(task, task);
    const tail = run.catch(() => {}); // the failure is the caller's; those who wait only need the order
    tails.set(path, tail);
    try {
      return await run;
    } finally {
      if (tails.get(path) === tail) {
        tails.delete(path);
      }
    }
  }

  return {
    update(place, edit) {
      return withLock(place.realPath, () => attempt(place, edit));
    },
  };
}

async function attempt<T>(
  place: SettingsPlace,
  edit: (value: Record<string, unknown>) => SettingsEdit<T>,
): Promise<T> {
  for (let i = 0; i < MAX_ATTEMPTS; i++) {
    // folders of the path may have become links since the place was found
    if (place.foreign || (await openLocation(place.path)) !== place.realPath) {
      throw unwritable("moved", "changed its place");
    }
    const before = await readForWrite(place);
    const edited = edit(before.value);
    const text = edited.members.reduce(
      (result, [key, value]) => setMember(result, key, value),
      before.text,
    );
    if (text === (before.stored ?? NEW_FILE)) {
      return edited.result;
    }
    if (Buffer.byteLength(text) > MAX_SETTINGS_BYTES) {
      throw unwritable("too_large", failureWords("too_large"));
    }
    await makeFolder(place);
    // a person's editor takes no lock; what it saved meanwhile must not be lost
    if ((await stampOf(place.realPath)) === before.stamp) {
      await writeFileAtomic(place.realPath, text, 0o600);
      return edited.result;
    }
  }
  throw unwritable("busy", "keeps changing");
}

async function readForWrite(place: SettingsPlace) {
  const read = await readWholeFile(place.realPath);
  if (read.kind === "failed") {
    throw unwritable(read.reason, failureWords(read.reason));
  }
  const stored = read.kind === "read" ? read.text : null;
  const parsed = parseSettings(stored ?? NEW_FILE);
  if (!parsed.ok) {
    throw unwritable("unparsable", parsed.reason);
  }
  const version = versionOf(parsed.value);
  if (version === "missing" || version === "wrong") {
    throw unwritable("version", `has a ${version} version (expected ${SETTINGS_VERSION})`);
  }
  const text = stored ?? NEW_FILE;
  return {
    stored,
    value: parsed.value,
    text: version === "absent" ? setMember(text, "version", SETTINGS_VERSION) : text,
    stamp: read.kind === "read" ? read.stamp : "missing",
  };
}

async function stampOf(path: string): Promise<string> {
  const read = await readWholeFile(path);
  return read.kind === "read" ? read.stamp : read.kind;
}

/** Makes the settings folder. The folder above a project's must exist already: a write never creates a working directory. */
async function makeFolder(place: SettingsPlace): Promise<void> {
  try {
    await mkdir(dirname(place.realPath), { mode: 0o700, recursive: place.layer === "user" });
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "EEXIST") {
      throw unwritable("no_folder", "has no folder to be in");
    }
  }
}

function unwritable(reason: string, words: string): AgentError {
  return new AgentError("bad_request", `The settings file was not written: it ${words}.`, {
    field: "scope",
    reason,
  });
}
