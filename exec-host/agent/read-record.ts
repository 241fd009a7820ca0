import type { ReadRecord } from "../tools/tool.ts";

/** Files remembered per session; the longest unseen are forgotten, which only asks for another read. */
const MAX_FILES = 2000;

/** An empty record of the files a session has seen. */
export function createReadRecord(): ReadRecord {
  const seen = new Map<string, string>();
  return {
    note(physical, state) {
      seen.delete(physical);
      seen.set(physical, stamp(state));
      if (seen.size > MAX_FILES) {
        const [oldest] = seen.keys();
        seen.delete(oldest ?? "");
      }
    },
    check(physical, now) {
      const before = seen.get(physical);
      if (before === undefined) {
        return "unread";
      }
      return before === stamp(now) ? "current" : "changed";
    },
  };
}

function stamp(state: {
  readonly mtimeMs: number;
  readonly size: number;
  readonly ino: number;
}): string {
  return `${state.ino}:${state.size}:${state.mtimeMs}`;
}
