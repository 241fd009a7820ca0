import net from "node:net";
import type { Clock, Timer } from "../policy/kernel/clock.ts";
import {
  UpstreamFailure,
  type AnswerHandler,
  type OutgoingCall,
} from "../policy/kernel/http1/types.ts";
import { encodeCall } from "./call-frame.ts";
import { CallNumbers, CallTable } from "./call-table.ts";
import type { ExecEndpoint } from "./envelope.ts";
import type { ExecRequest } from "./exec-call.ts";
import { FramedCall, type CallLine } from "./framed-call.ts";
import { FRAME, FrameReader, FrameWriter } from "./frames.ts";

/** Calls of embedded workers, over one connection to each. */
export interface FrameClient {
  /** @throws TypeError when the request cannot be written as one message. */
  send(request: ExecRequest, handler: AnswerHandler): OutgoingCall;
  /** Closes connections without calls; the others close with their last one. */
  close(): void;
}

/** How often silence is looked at. */
const CHECK_MS = 1000;
/** What a worker may leave unread; more would be memory of the edge that its scripts decide about. */
const MAX_UNREAD_BYTES = 16 * 1024 * 1024;
/** One read buffer for all connections: reads are synchronous, and parsers copy what they pass on. */
const READ_BUFFER = Buffer.allocUnsafeSlow(65_536);

/** Builds the client. A connection is made at the first call, and lives as long as its worker. */
export function createFrameClient(clock: Clock): FrameClient {
  const lines = new Map<string, Line>();
  let isClosed = false;
  return {
    send(request, handler) {
      const { endpoint, envelope, method, target, fields, body, orders } = request;
      const payload = encodeCall(envelope, method, target, fields, body?.length, orders !== null);
      const path = pathOf(endpoint);
      let line = lines.get(path);
      if (line === undefined) {
        const opened = new Line(path, endpoint.secret, clock, () => {
          if (lines.get(path) === opened) {
            lines.delete(path);
          }
        });
        line = opened;
        lines.set(path, line);
      }
      const call = line.send(request, payload, handler);
      if (isClosed) {
        line.closeWhenIdle();
      }
      return call;
    },
    close() {
      isClosed = true;
      for (const line of lines.values()) {
        line.closeWhenIdle();
      }
    },
  };
}

function pathOf({ origin }: ExecEndpoint): string {
  if (origin.kind !== "unix") {
    throw new TypeError("frames travel over unix sockets only");
  }
  return origin.path;
}

/** One connection to a worker. */
class Line implements CallLine {
  readonly writer: FrameWriter;
  readonly #socket: net.Socket;
  readonly #calls = new CallTable<FramedCall>();
  readonly #numbers = new CallNumbers();
  readonly #reader: FrameReader;
  readonly #checks: Timer;
  readonly #ended: () => void;
  #isConnected = false;
  #isGone = false;
  #endsIdle = false;
  #error: Error | null = null;

  constructor(path: string, secret: string, clock: Clock, ended: () => void) {
    this.#ended = ended;
    this.#reader = new FrameReader((type, id, payload) => {
      this.#calls.get(id)?.take(type, payload);
    });
    const socket = net.connect({
      path,
      onread: {
        buffer: READ_BUFFER,
        callback: (size: number, bytes: Uint8Array) => this.#read(bytes as Buffer, size),
      },
    });
    this.#socket = socket;
    this.writer = new FrameWriter(socket, clock);
    this.writer.text(FRAME.hello, 0, secret);
    this.#checks = clock.every(CHECK_MS, () => this.#check(clock.monotonic()));
    socket.once("connect", () => (this.#isConnected = true));
    socket.on("drain", () => {
      this.writer.isFull = false;
      for (const call of this.#calls.all()) {
        call.drained();
      }
    });
    socket.on("error", (error: Error) => (this.#error = error));
    socket.on("close", () => this.#close());
  }

  send(request: ExecRequest, payload: string, handler: AnswerHandler): OutgoingCall {
    if (this.#socket.writableLength > MAX_UNREAD_BYTES) {
      this.#socket.destroy(new Error("the worker does not read its calls"));
    }
    const call = new FramedCall(this.#numbers.next(), this, request, handler);
    this.#calls.put(call.id, call);
    this.writer.text(FRAME.call, call.id, payload);
    return call;
  }

  forget(call: FramedCall): void {
    if (this.#calls.remove(call.id)) {
      this.#numbers.release(call.id);
    }
    if (this.#endsIdle && this.#calls.size === 0) {
      this.#socket.destroy();
    }
  }

  violated(): void {
    this.#socket.destroy(new Error("the worker broke the protocol"));
  }

  closeWhenIdle(): void {
    this.#endsIdle = true;
    if (this.#calls.size === 0) {
      this.#socket.destroy();
    }
  }

  #read(bytes: Buffer, size: number): boolean {
    if (!this.#reader.push(bytes, size)) {
      this.violated();
    }
    return true;
  }

  #check(now: number): void {
    for (const call of this.#calls.all()) {
      call.check(now);
    }
  }

  #close(): void {
    if (this.#isGone) {
      return;
    }
    this.#isGone = true;
    this.#checks.cancel();
    this.#ended();
    const failure = this.#isConnected
      ? new UpstreamFailure(
          "reset",
          "the connection closed before the answer was complete",
          this.#error,
        )
      : new UpstreamFailure("connect", "the connection was not accepted", this.#error);
    for (const call of this.#calls.all()) {
      call.broken(failure);
    }
  }
}
