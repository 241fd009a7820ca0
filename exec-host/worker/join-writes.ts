import { Socket } from "node:net";

interface Queued {
  readonly chunk: string | Buffer;
  readonly encoding: string;
}

type Done = (error?: Error | null) => void;

/** Node's own writers, whatever a script made of them later. */
const NODE = Socket.prototype as unknown as {
  _write(this: Socket, chunk: string, encoding: string, done: Done): void;
  _writev(this: Socket, chunks: readonly Queued[], done: Done): void;
};
const { _write: write, _writev: writev } = NODE;

/** Above this, copying costs more than a list of pieces. */
const MAX_JOINED_BYTES = 16_384;

/**
 * Lets what a socket wrote in one turn, a head and a short body as a rule, go out as one text: a list of pieces costs the
 * runtime twice as much. The bytes and their order stay as they are.
 */
export function joinWrites(socket: Socket): void {
  (socket as unknown as { _writev: unknown })._writev = function (
    this: Socket,
    chunks: readonly Queued[],
    done: Done,
  ): void {
    let bytes = 0;
    for (const { chunk } of chunks) {
      bytes += chunk.length;
    }
    if (bytes > MAX_JOINED_BYTES) {
      writev.call(this, chunks, done);
      return;
    }
    let text = "";
    for (const { chunk, encoding } of chunks) {
      text += toLatin1(chunk, encoding);
    }
    write.call(this, text, "latin1", done);
  };
}

/** One character per byte. */
function toLatin1(chunk: string | Buffer, encoding: string): string {
  if (typeof chunk !== "string") {
    return chunk.toString("latin1");
  }
  return encoding === "latin1" || chunk === ""
    ? chunk
    : Buffer.from(chunk, encoding as BufferEncoding).toString("latin1");
}
