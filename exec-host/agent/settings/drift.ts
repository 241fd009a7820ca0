import type { LoadedFile } from "./load.ts";

/** A settings file that no longer is what a session loaded. */
export interface Drift {
  readonly scope: string;
  readonly path: string;
  readonly reason: "changed" | "created" | "removed" | "unreadable";
}

/**
 * Compares what a session loaded with what is there now.
 *
 * @param before files at session start, reload or the session's own write.
 * @param now the same scope, read again.
 */
export function findDrift(before: readonly LoadedFile[], now: readonly LoadedFile[]): Drift[] {
  const drifts: Drift[] = [];
  for (const file of now) {
    const old = before.find((other) => other.place.path === file.place.path);
    if (old?.digest === file.digest) {
      continue;
    }
    drifts.push({ scope: file.place.layer, path: file.place.path, reason: reasonOf(old, file) });
  }
  for (const file of before) {
    if (!now.some((other) => other.place.path === file.place.path)) {
      drifts.push({ scope: file.place.layer, path: file.place.path, reason: "removed" });
    }
  }
  return drifts;
}

function reasonOf(old: LoadedFile | undefined, now: LoadedFile): Drift["reason"] {
  if (now.state === "failed") {
    return "unreadable";
  }
  if (now.state === "missing") {
    return "removed";
  }
  return old === undefined || old.state === "missing" ? "created" : "changed";
}
