import { systemClock } from "../../../policy/kernel/clock.ts";
import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type {
  DrainingSink,
  Exchange,
  FieldLines,
  Peer,
  RequestHead,
  ResponseHead,
} from "../../../policy/kernel/exchange.ts";
import { writeFields } from "../../../policy/kernel/http1/request-head.ts";
import { breakOff } from "./break-off.ts";

/**
 * A WebSocket handshake: `node:http` hands out the bare socket. It becomes a tunnel, or gets one complete answer
 * and is closed.
 */
export class HandshakeExchange implements Exchange {
  readonly head: RequestHead;
  readonly peer: Peer;
  readonly body = null;
  readonly handshake = true;
  readonly #socket: Socket;
  #early: Buffer;
  #gone = false;
  #over = false;
  #endsByClose = false;
  #listeners: (() => void)[] = [];
  answered = false;

  constructor(socket: Socket, early: Buffer, head: RequestHead, peer: Peer) {
    this.#socket = socket;
    this.#early = early;
    this.head = head;
    this.peer = peer;
    socket.on("error", ignore);
    socket.on("close", this.#leave);
    socket.on("end", this.#leave); // whoever asks for a tunnel and hangs up wants none
    socket.on("data", this.#hold);
  }

  /** Reading on is how a closed connection is noticed; what comes before the tunnel opens is kept, within a bound. */
  readonly #hold = (chunk: Buffer): void => {
    this.#early = this.#early.length === 0 ? chunk : Buffer.concat([this.#early, chunk]);
    if (this.#early.length > MAX_EARLY_BYTES) {
      this.#socket.pause();
    }
  };

  readonly #leave = (): void => {
    if (this.#gone || this.#over) {
      return;
    }
    this.#gone = true;
    this.#socket.destroy();
    const listeners = this.#listeners;
    this.#listeners = [];
    for (const listener of listeners) {
      listener();
    }
  };

  onGone(listener: () => void): void {
    if (this.#gone) {
      listener();
    } else {
      this.#listeners.push(listener);
    }
  }

  sendContinue(): void {}

  sendInterim(head: ResponseHead): void {
    if (!this.answered && !this.#gone && head.status > 101 && head.status < 200) {
      this.#socket.write(
        `HTTP/1.1 ${head.status} ${head.reason}\r\n${writeFields(head.fields)}\r\n`,
        "latin1",
      );
    }
  }

  answer(head: ResponseHead, body: Buffer): void {
    const sink = this.startAnswer({ ...head, fields: [...head.fields] }, body.length);
    sink.data(body);
    sink.end([]);
  }

  startAnswer(head: ResponseHead, length: number | null): DrainingSink {
    const bodyless = head.status === 204 || head.status === 304;
    let framing = "Connection: close\r\n";
    if (length !== null && !bodyless) {
      framing += `Content-Length: ${length}\r\n`;
    }
    this.#endsByClose = length === null && !bodyless;
    this.#write(head, framing);
    const socket = this.#socket;
    const over = (): void => {
      this.#over = true;
    };
    return {
      data: (chunk) => (bodyless || socket.destroyed ? true : socket.write(chunk)),
      end: () => {
        over();
        socket.removeListener("data", this.#hold);
        socket.resume();
        socket.end(() => socket.destroySoon());
      },
      fail: () => this.abort(),
      onDrain: (listener) => socket.on("drain", listener),
    };
  }

  tunnel(head: ResponseHead): Duplex {
    this.#over = true;
    this.#write(head, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    const socket = this.#socket;
    socket.removeListener("data", this.#hold);
    socket.removeListener("end", this.#leave);
    socket.removeListener("close", this.#leave);
    socket.pause();
    if (this.#early.length > 0) {
      socket.unshift(this.#early);
    }
    return socket;
  }

  abort(): void {
    if (this.#endsByClose) {
      breakOff(this.#socket);
    } else {
      this.#socket.destroy();
    }
  }

  #write(head: ResponseHead, framing: string): void {
    if (this.answered) {
      throw new TypeError("already answered");
    }
    this.answered = true;
    const reason = head.reason === "" ? (STATUS_CODES[head.status] ?? "") : head.reason;
    const date =
      hasDate(head.fields) || head.status === 101
        ? ""
        : `Date: ${new Date(systemClock.now()).toUTCString()}\r\n`;
    const fields = writeFields(head.fields);
    this.#socket.write(
      `HTTP/1.1 ${head.status} ${reason}\r\n${date}${fields}${framing}\r\n`,
      "latin1",
    );
  }
}

/** What a client may send before its handshake is answered. */
const MAX_EARLY_BYTES = 65_536;

function hasDate(fields: FieldLines): boolean {
  for (let i = 0; i < fields.length; i += 2) {
    if (fields[i]!.toLowerCase() === "date") {
      return true;
    }
  }
  return false;
}

function ignore(): void {}
