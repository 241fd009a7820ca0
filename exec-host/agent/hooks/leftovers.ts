import { readdirSync, readFileSync } from "node:fs";

/** Variable that marks every process of one hook run. */
export const RUN_MARK = "INTERPOSE_HOOK_RUN";

const MAX_PASSES = 3;

/**
 * Kills what a hook run left behind outside its process group: a child that made a session of its own (`setsid`) is still
 * known by the mark in its environment. Does nothing where there is no `/proc`.
 *
 * @param mark the run's own value of `RUN_MARK`.
 * @param leader process id of the run's first process: only younger ones can descend from it.
 * @returns how many processes were killed.
 */
export function killMarked(mark: string, leader: number): number {
  const needle = Buffer.from(`${RUN_MARK}=${mark}\0`);
  let killed = 0;
  for (let pass = 0; pass < MAX_PASSES; pass++) {
    const found = markedPids(needle, leader);
    for (const pid of found) {
      try {
        process.kill(pid, "SIGKILL");
        killed += 1;
      } catch {
        // it ended by itself between being found and being killed
      }
    }
    if (found.length === 0) {
      break; // what a killed process started meanwhile would have shown up in this pass
    }
  }
  return killed;
}

function markedPids(needle: Buffer, leader: number): number[] {
  let names: string[];
  let wrapped: boolean;
  try {
    names = readdirSync("/proc");
    // the last field is the newest process id; below the leader's, the numbers began again from the bottom since
    wrapped = Number(readFileSync("/proc/loadavg", "latin1").trim().split(" ").at(-1)) < leader;
  } catch {
    return [];
  }
  const pids: number[] = [];
  for (const name of names) {
    const pid = Number(name);
    if (Number.isInteger(pid) && (wrapped || pid > leader) && hasMark(name, needle)) {
      pids.push(pid);
    }
  }
  return pids;
}

function hasMark(pid: string, needle: Buffer): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`).includes(needle);
  } catch {
    return false; // gone, or another user's
  }
}
