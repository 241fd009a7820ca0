import { open, stat } from "node:fs/promises";
import type { Clock } from "../kernel/clock.ts";
import type { AuditFiles } from "./audit-files.ts";
import { type AuditRow, parseAuditLine } from "./audit-row.ts";

/** How often the files of containers with subscribers are looked at for other processes' records, in ms. */
const TAIL_MS = 250;

/** Follows the records of one container. */
export interface AuditTail {
  /** Adds a listener; what is returned takes it away again and tells how many are left. */
  add(listener: (record: AuditRow) => void): () => number;
  /** There may be something new. */
  wake(): void;
  stop(): void;
}

/**
 * Follows the files of one container by their growth, which covers this process and all others in one way. What is
 * there at the beginning is not reported.
 */
export function createAuditTail(files: AuditFiles, container: string, clock: Clock): AuditTail {
  const listeners = new Set<(record: AuditRow) => void>();
  let file: string | null = null;
  let offset = 0;
  let rest: Buffer = Buffer.alloc(0);
  let reading: Promise<void> = start().catch(() => {}); // a file rotated away just now; then all of the next one is new
  const timer = clock.every(TAIL_MS, wake);

  async function start(): Promise<void> {
    file = (await files.list(container)).at(-1) ?? null;
    offset = file === null ? 0 : (await stat(files.path(container, file))).size;
  }

  async function follow(): Promise<void> {
    for (const name of await files.list(container)) {
      if (file !== null && name < file) {
        continue;
      }
      if (name !== file) {
        file = name;
        offset = 0;
        rest = Buffer.alloc(0);
      }
      await readOn(files.path(container, name));
    }
  }

  async function readOn(path: string): Promise<void> {
    const handle = await open(path, "r");
    try {
      for (;;) {
        const { bytesRead, buffer } = await handle.read(Buffer.alloc(65_536), 0, 65_536, offset);
        if (bytesRead === 0) {
          return;
        }
        offset += bytesRead;
        const bytes = Buffer.concat([rest, buffer.subarray(0, bytesRead)]);
        const end = bytes.lastIndexOf(0x0a) + 1;
        rest = bytes.subarray(end);
        for (const line of bytes.toString("utf8", 0, end).split("\n")) {
          const record = parseAuditLine(line);
          if (record !== null) {
            listeners.forEach((listener) => listener(record));
          }
        }
      }
    } finally {
      await handle.close();
    }
  }

  function wake(): void {
    reading = reading.then(follow).catch(() => {}); // a file that was rotated away; the next look goes on behind it
  }

  return {
    add(listener) {
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
        if (listeners.size === 0) {
          timer.cancel();
        }
        return listeners.size;
      };
    },
    wake,
    stop() {
      listeners.clear();
      timer.cancel();
    },
  };
}
