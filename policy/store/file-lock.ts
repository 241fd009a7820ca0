import { link, readFile, stat, unlink, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { basename, dirname, join } from "node:path";
import { delay, type Clock } from "../kernel/clock.ts";
import { newHex } from "../kernel/ids.ts";
import { StoreError } from "./store.ts";

/** How long to wait for another process, in ms; a critical section takes a few. */
const PATIENCE_MS = 5_000;
/** Age at which a lock counts as left behind, whoever holds it, in ms. */
const ABANDONED_MS = 30_000;

/** This process among all that ever had its pid. */
const SELF = { pid: process.pid, host: hostname(), token: newHex(8) };

/**
 * Runs `task` while holding a lock file, so that processes sharing a folder write one after another. The lock of
 * a process that died is taken over: at once on the same host, elsewhere after half a minute.
 *
 * Fails with a StoreError when the lock is not to be had in time; I/O errors come out as they are.
 */
export async function withFileLock<T>(
  path: string,
  clock: Clock,
  task: () => Promise<T>,
): Promise<T> {
  const until = clock.monotonic() + PATIENCE_MS;
  let waitMs = 1;
  while (!(await take(path))) {
    if (!(await dropIfAbandoned(path, clock))) {
      if (clock.monotonic() > until) {
        throw new StoreError("another process holds the lock of this document");
      }
      await delay(clock, waitMs);
      waitMs = Math.min(waitMs * 2, 20);
    }
  }
  try {
    return await task();
  } finally {
    await release(path);
  }
}

/** Gives the lock back, unless somebody took us for dead and has taken it since. */
async function release(path: string): Promise<void> {
  const owner = await readFile(path, "utf8").catch(() => "");
  if (owner === JSON.stringify(SELF)) {
    await unlink(path).catch(() => {}); // the folder is gone; so is the lock
  }
}

/**
 * Takes the lock by linking a finished file to its name, which fails when the name is taken: so a lock always says
 * whose it is, even when its owner was killed the moment after.
 */
async function take(path: string): Promise<boolean> {
  const own = join(dirname(path), `.${basename(path)}.${newHex(6)}.tmp`);
  try {
    await writeFile(own, JSON.stringify(SELF), { flag: "wx", mode: 0o600 });
    await link(own, path);
    return true;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "EEXIST") {
      return false;
    }
    throw cause;
  } finally {
    await unlink(own).catch(() => {}); // swept at the next start
  }
}

/**
 * Removes a lock whose owner is gone. Two processes may come to that conclusion at once, and the slower one must
 * not remove the lock that the faster one has taken since; so removing is itself guarded, and looks again.
 */
async function dropIfAbandoned(path: string, clock: Clock): Promise<boolean> {
  if (!(await isAbandoned(path, clock))) {
    return false;
  }
  const guard = `${path}.drop`;
  if (!(await take(guard))) {
    if (await isAbandoned(guard, clock)) {
      await unlink(guard).catch(() => {}); // another process was quicker
    }
    return false;
  }
  try {
    if (await isAbandoned(path, clock)) {
      await unlink(path).catch(() => {}); // released in the meantime
    }
    return true;
  } finally {
    await unlink(guard).catch(() => {}); // taken for abandoned by somebody else
  }
}

async function isAbandoned(path: string, clock: Clock): Promise<boolean> {
  let owner: Partial<typeof SELF>;
  let ageMs: number;
  try {
    ageMs = clock.now() - (await stat(path)).mtimeMs;
    owner = JSON.parse(await readFile(path, "utf8")) as Partial<typeof SELF>;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") {
      return false;
    }
    owner = {}; // not one of ours
    ageMs = await stat(path).then(
      ({ mtimeMs }) => clock.now() - mtimeMs,
      () => 0,
    );
  }
  // Also on this host: by now its pid may belong to another program.
  if (ageMs > ABANDONED_MS || owner.host !== SELF.host || typeof owner.pid !== "number") {
    return ageMs > ABANDONED_MS;
  }
  if (owner.pid === SELF.pid) {
    return owner.token !== SELF.token;
  }
  try {
    process.kill(owner.pid, 0);
    return false;
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === "ESRCH";
  }
}
