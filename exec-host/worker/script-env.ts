import { readFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import type { Clock } from "../../policy/kernel/clock.ts";
import { parseEnvFile } from "../scripts/env-file.ts";
import { realPathInside } from "../scripts/resolve.ts";
import { isSameStamp, readStamp, type Stamp } from "../scripts/stamp.ts";

/** Environments of scripts: one object per script and version of its files. */
export interface ScriptEnvironments {
  of(file: string): Record<string, string>;
}

interface Known {
  readonly files: readonly string[];
  readonly stamps: readonly (Stamp | null)[];
  readonly env: Record<string, string>;
  checkedAt: number;
}

const CHECK_MS = 100;
const MAX_KNOWN = 2000;
const MAX_FILE_BYTES = 1_048_576;

/**
 * The given environment, then every `_default.env` from the root down to the script's folder, then `<name>.env`; the
 * nearest file wins per variable (exec-host.md 2.4). Changed files are seen within `CHECK_MS`.
 *
 * @param root scripts root, free of links.
 */
export function createScriptEnvironments(
  clock: Clock,
  root: string,
  base: Readonly<Record<string, string>>,
): ScriptEnvironments {
  const known = new Map<string, Known>();

  return {
    of(file) {
      const now = clock.monotonic();
      const found = known.get(file);
      if (found !== undefined) {
        if (now - found.checkedAt < CHECK_MS) {
          return found.env;
        }
        found.checkedAt = now;
        if (
          found.files.every((path, at) => isSameStamp(readStamp(path), found.stamps[at] ?? null))
        ) {
          return found.env;
        }
      }
      const files = filesFor(root, file);
      const stamps = files.map(readStamp);
      const env = { ...base };
      files.forEach((path, at) => {
        if (stamps[at] !== null) {
          merge(env, root, path);
        }
      });
      known.delete(file);
      known.set(file, { files, stamps, env, checkedAt: now });
      const oldest = known.size > MAX_KNOWN ? known.keys().next().value : undefined;
      if (oldest !== undefined) {
        known.delete(oldest);
      }
      return env;
    },
  };
}

function filesFor(root: string, file: string): string[] {
  const below = relative(root, dirname(file));
  const folders = [root];
  for (const part of below === "" ? [] : below.split(sep)) {
    folders.push(join(folders.at(-1) ?? root, part));
  }
  return [
    ...folders.map((folder) => join(folder, "_default.env")),
    file.replace(/\.(?:js|ts)$/, ".env"),
  ];
}

function merge(env: Record<string, string>, root: string, path: string): void {
  if (realPathInside(root, path) === null) {
    return; // a link that leads out of the scripts folder
  }
  try {
    const text = readFileSync(path, "utf8");
    if (text.length <= MAX_FILE_BYTES) {
      for (const [name, value] of parseEnvFile(text)) {
        env[name] = value;
      }
    }
  } catch {
    // vanished between two looks: as if it had not been there
  }
}
