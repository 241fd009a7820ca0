import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock } from "../../../policy/kernel/clock.ts";
import type {
  DrainingSink,
  Exchange,
  Peer,
  RequestHead,
  ResponseHead,
} from "../../../policy/kernel/exchange.ts";
import { writeFields } from "../../../policy/kernel/http1/request-head.ts";
import { writeAnswerHead, writeInterimHead } from "./answer-head.ts";
import { breakOff } from "./break-off.ts";

/**
 * A WebSocket handshake, which has its connection to itself from here on. It becomes a tunnel, or gets one complete
 * answer and is closed.
 */
export class HandshakeExchange implements Exchange {
  readonly head: RequestHead;
  readonly peer: Peer;
  readonly body = null;
  readonly handshake = true;
  readonly #socket: Socket;
  readonly #deps: { readonly clock: Clock; date(): string };
  #early: Buffer;
  #gone = false;
  #over = false;
  #endsByClose = false;
  #listeners: (() => void)[] = [];
  answered = false;

  /** @param early what the client sent behind its handshake; `date` gives a `Date` line. */
  constructor(
    socket: Socket,
    early: Buffer,
    head: RequestHead,
    peer: Peer,
    deps: { readonly clock: Clock; date(): string },
  ) {
    this.#socket = socket;
    this.#deps = deps;
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
      this.#socket.write(writeInterimHead(head), "latin1");
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
        socket.end(); // read on for a while: a reset at once could cost the client its answer
        socket.once("end", () => socket.destroySoon());
        const timer = this.#deps.clock.after(LINGER_MS, () => socket.destroy());
        socket.once("close", () => timer.cancel());
      },
      fail: () => this.abort(),
      onDrain: (listener) => socket.on("drain", listener),
    };
  }

  tunnel(head: ResponseHead): Duplex {
    if (this.answered) {
      throw new TypeError("already answered");
    }
    this.#socket.write(
      `HTTP/1.1 101 Switching Protocols\r\n${writeFields(head.fields)}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
      "latin1",
    );
    this.answered = true;
    this.#over = true;
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
    const text = writeAnswerHead(head, this.#deps.date(), framing);
    this.answered = true;
    this.#socket.write(text, "latin1");
  }
}

/** What a client may send before its handshake is answered. */
const MAX_EARLY_BYTES = 65_536;

/** How long a refused connection is read before it is closed. */
const LINGER_MS = 2000;

function ignore(): void {}
