import type { JsonObject } from "./seams.ts";

/** One event of a session, numbered from 1. */
export interface SessionEvent {
  readonly seq: number;
  readonly type: string;
  readonly data: JsonObject;
}

/** A reader of the stream; `push` returns false when it cannot keep up and must be dropped. */
export interface EventReader {
  push(event: SessionEvent): boolean;
  /** The stream is over (`closed`) or this reader was dropped (`lagged`). */
  end(reason: "closed" | "lagged"): void;
}

/** A session's event stream with a ring for late readers. Writing never waits for a reader. */
export interface EventStream {
  emit(type: string, data: JsonObject): void;
  /**
   * Adds a reader and returns what it missed since `since` (exclusive): `gap` is true when the ring no longer has it all.
   * null `since` starts with what comes next.
   */
  attach(
    reader: EventReader,
    since: number | null,
  ): { readonly missed: readonly SessionEvent[]; readonly gap: boolean };
  detach(reader: EventReader): void;
  bounds(): { readonly minSeq: number; readonly maxSeq: number };
  readers(): number;
  close(): void;
}

/** Events kept for late readers. */
const RING_SIZE = 1024;
/** Bytes kept at most; an event is never cut. */
const RING_BYTES = 4 * 1024 * 1024;

/** An empty stream. */
export function createEventStream(): EventStream {
  const ring: { readonly event: SessionEvent; readonly bytes: number }[] = [];
  const readers = new Set<EventReader>();
  let seq = 0;
  let bytes = 0;
  let closed = false;
  return {
    emit(type, data) {
      if (closed) {
        return;
      }
      seq += 1;
      const event: SessionEvent = { seq, type, data };
      const size = JSON.stringify(data).length;
      ring.push({ event, bytes: size });
      bytes += size;
      while (ring.length > RING_SIZE || (bytes > RING_BYTES && ring.length > 1)) {
        bytes -= ring.shift()?.bytes ?? 0;
      }
      for (const reader of readers) {
        if (!reader.push(event)) {
          readers.delete(reader);
          reader.end("lagged");
        }
      }
    },
    attach(reader, since) {
      const first = ring[0]?.event.seq ?? seq + 1;
      const missed =
        since === null ? [] : ring.map((entry) => entry.event).filter((event) => event.seq > since);
      if (closed) {
        reader.end("closed");
      } else {
        readers.add(reader);
      }
      return { missed, gap: since !== null && since + 1 < first };
    },
    detach: (reader) => void readers.delete(reader),
    bounds: () => ({ minSeq: ring[0]?.event.seq ?? seq + 1, maxSeq: seq }),
    readers: () => readers.size,
    close() {
      closed = true;
      for (const reader of readers) {
        readers.delete(reader);
        reader.end("closed");
      }
    },
  };
}
