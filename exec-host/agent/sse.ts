import type { Clock } from "../../policy/kernel/clock.ts";

/** One server-sent frame; `event` absent for control lines. */
export interface Frame {
  readonly event: string;
  readonly data: unknown;
  readonly id?: number;
}

/** The writing end of an event stream. */
export interface FrameWriter {
  /** False when the reader is too far behind; the frame is then not queued. */
  send(frame: Frame): boolean;
  end(): void;
}

/** Bytes waiting for a slow reader before it counts as too far behind. */
const MAX_BUFFERED = 1_048_576;
const HEARTBEAT_MS = 15_000;
const encoder = new TextEncoder();

/**
 * An event-stream answer. `open` gets the writer; `onGone` runs once, when the reader leaves or the stream ends.
 *
 * @param first text before the first frame, for example a `retry:` line.
 */
export function eventStreamAnswer(
  clock: Clock,
  open: (writer: FrameWriter) => void,
  onGone: () => void,
  first = "",
): Response {
  let controller: ReadableStreamDefaultController<Uint8Array> | null = null;
  let over = false;
  const heartbeat = clock.every(HEARTBEAT_MS, () => write(": alive\n\n"));

  const finish = (): void => {
    if (over) {
      return;
    }
    over = true;
    heartbeat.cancel();
    onGone();
  };
  const write = (text: string): boolean => {
    if (over || controller === null) {
      return false;
    }
    if ((controller.desiredSize ?? 0) < -MAX_BUFFERED) {
      return false;
    }
    controller.enqueue(encoder.encode(text));
    return true;
  };
  const writer: FrameWriter = {
    send: (frame) => write(formatFrame(frame)),
    end() {
      if (!over) {
        finish();
        controller?.close();
      }
    },
  };
  const body = new ReadableStream<Uint8Array>(
    {
      start(opened) {
        controller = opened;
        if (first !== "") {
          write(first);
        }
        open(writer);
      },
      cancel: finish,
    },
    new ByteLengthQueuingStrategy({ highWaterMark: 65_536 }),
  );
  return new Response(body, {
    status: 200,
    headers: {
      "Content-Type": "text/event-stream",
      "Cache-Control": "no-store",
      "X-Accel-Buffering": "no",
    },
  });
}

/** JSON never holds a raw newline, so one `data:` line is enough. */
function formatFrame(frame: Frame): string {
  const id = frame.id === undefined ? "" : `id: ${frame.id}\n`;
  return `${id}event: ${frame.event}\ndata: ${JSON.stringify(frame.data)}\n\n`;
}
