import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { newHex } from "../../policy/kernel/ids.ts";

/** Longest path a unix socket takes, less a margin (`sun_path` holds 108 bytes). */
const MAX_SOCKET_PATH = 100;

/**
 * A private folder for sockets, below the data folder where the path is short enough for a socket address,
 * otherwise in the system's temporary folder. Folders that an ended process left behind are removed.
 */
export function makeRunDir(dataDir: string): string {
  const base = join(dataDir, "run");
  mkdirSync(base, { recursive: true, mode: 0o700 });
  for (const name of readdirSync(base)) {
    const pid = Number(/^exec-(\d+)-[0-9a-f]+$/.exec(name)?.[1]);
    if (pid > 0 && pid !== process.pid && !isAlive(pid)) {
      rmSync(join(base, name), { recursive: true, force: true });
    }
  }
  const folder = join(base, `exec-${process.pid}-${newHex(3)}`);
  if (Buffer.byteLength(folder) + "/999999-12345678/s".length > MAX_SOCKET_PATH) {
    return mkdtempSync(join(tmpdir(), "interpose-"));
  }
  mkdirSync(folder, { mode: 0o700 });
  return folder;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === "EPERM";
  }
}
