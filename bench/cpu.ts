import { readFileSync, readdirSync } from "node:fs";

const TICKS_PER_SECOND = 100; // USER_HZ on Linux

interface Stat {
  readonly parent: number;
  /** User and system time of the process and of the children that it has outlived, microseconds. */
  readonly micros: number;
}

function statOf(pid: number): Stat | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "latin1");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return {
      parent: Number(fields[1]),
      micros:
        (fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) * 1e6) /
        TICKS_PER_SECOND,
    };
  } catch {
    return null; // it ended between listing and reading
  }
}

/** `root` and all its living descendants. */
export function processTree(root: number): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    const stat = Number.isInteger(pid) ? statOf(pid) : null;
    if (stat) {
      parents.set(pid, stat.parent);
    }
  }
  const tree = [root];
  for (let i = 0; i < tree.length; i++) {
    for (const [pid, parent] of parents) {
      if (parent === tree[i]) {
        tree.push(pid);
      }
    }
  }
  return tree;
}

/** CPU microseconds that a process and its descendants, ended ones included, have used so far. */
export function cpuMicros(root: number): number {
  return processTree(root).reduce((sum, pid) => sum + (statOf(pid)?.micros ?? 0), 0);
}

/** Peak resident size of one process in KiB. */
export function peakRssKib(pid: number): number {
  const match = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "latin1"));
  return Number(match?.[1] ?? 0);
}
