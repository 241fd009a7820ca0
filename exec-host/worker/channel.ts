import { Socket } from "node:net";
import {
  CHANNEL_FD,
  createLineReader,
  decodeParentMessage,
  encodeMessage,
  type ParentMessage,
  type PlainWorkerMessage,
} from "../protocol.ts";

/** The private line to the parent process. */
export interface Channel {
  /** Returns false when the parent reads slower than we write; `send` still queues. */
  send(message: PlainWorkerMessage): boolean;
  /** Sends a line that is encoded already, its end included. */
  sendLine(line: string): void;
  /** What was sent and the parent did not take so far, in characters. */
  readonly waiting: number;
  /** Runs `then` once all that was sent is on its way. */
  flush(then: () => void): void;
}

/**
 * Opens the channel the parent made at spawn. When it closes, the parent is gone and `closed` is called.
 *
 * @throws when the process was not started with the descriptor.
 */
export function openChannel(handlers: {
  message(message: ParentMessage): void;
  closed(): void;
}): Channel {
  const socket = new Socket({ fd: CHANNEL_FD, readable: true, writable: true });
  const lines = createLineReader((line) => {
    const message = decodeParentMessage(line);
    if (message !== null) {
      handlers.message(message);
    }
  });
  socket.on("data", (chunk: Buffer) => {
    if (!lines.push(chunk)) {
      handlers.closed();
    }
  });
  socket.on("error", () => {}); // `close` follows
  socket.on("close", () => handlers.closed());
  return {
    send: (message) => socket.write(encodeMessage(message)),
    sendLine: (line) => void socket.write(line),
    get waiting() {
      return socket.writableLength;
    },
    flush: (then) => {
      socket.write("", () => then());
    },
  };
}
