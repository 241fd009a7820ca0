import net from "node:net";
import tls from "node:tls";
import type { FieldLines, ResponseHead } from "../exchange.ts";
import { AnswerParser, type AnswerEvents } from "./answer-parser.ts";
import type { Call } from "./call.ts";
import { UpstreamFailure, type Origin } from "./types.ts";

/** What a connection tells its pool. */
export interface ConnectionOwner {
  /** The connection is clean and idle. */
  give(connection: Connection): void;
  /** The connection is gone. */
  drop(connection: Connection): void;
  /** Send the call again, on a connection that was not used before. */
  redial(call: Call): void;
}

/** One read buffer for all connections: reads are synchronous, and the parser copies what it passes on. */
const READ_BUFFER = Buffer.allocUnsafeSlow(65_536);

/** One socket to an origin: sends one call at a time and reads its answer. */
export class Connection implements AnswerEvents {
  readonly socket: net.Socket;
  readonly key: string;
  readonly #owner: ConnectionOwner;
  readonly #parser: AnswerParser;
  readonly #dedicated: boolean;
  #call: Call | null;
  #connected = false;
  #paused = false;
  #used = false;
  #gone = false;
  #headSeen = false;
  /** Not a byte of the answer had come when the connection ended. */
  #untouched = false;
  #error: Error | null = null;
  #writeFailed = false;
  readonly #hangUp: (error?: Error) => net.Socket;
  /** Something happened since the last look at the deadlines. */
  #touched = true;
  #since = 0;

  /** Dials `origin` for `call`. `dedicated`: for an upgrade, never pooled, read as an ordinary stream. */
  constructor(
    owner: ConnectionOwner,
    key: string,
    origin: Origin,
    call: Call,
    now: number,
    tlsOptions: tls.ConnectionOptions,
  ) {
    this.#owner = owner;
    this.key = key;
    this.#call = call;
    this.#dedicated = call.framing === "upgrade";
    this.#since = now;
    this.#parser = new AnswerParser(this);
    const reading = this.#dedicated
      ? {}
      : {
          onread: {
            buffer: READ_BUFFER,
            callback: (size: number, bytes: Uint8Array) => this.#read(bytes as Buffer, size),
          },
        };
    this.socket = dial(origin, reading, tlsOptions);
    call.attach(this);
    const socket = this.socket;
    this.#hangUp = socket.destroy.bind(socket);
    socket.destroy = (error) => this.#failed(error);
    socket.on("error", (error: Error) => {
      this.#error = error;
    });
    socket.on("close", () => this.#closed());
    socket.once(origin.kind === "tls" ? "secureConnect" : "connect", () => this.#connect());
    socket.on("drain", () => {
      this.#touched = true;
      this.#call?.drained();
    });
    socket.on("end", this.#ended);
    if (this.#dedicated) {
      socket.on("data", this.#streamed);
    }
  }

  get isIdle(): boolean {
    return this.#call === null;
  }

  get usable(): boolean {
    return !this.#gone && !this.socket.destroyed && this.socket.readable && this.socket.writable;
  }

  /**
   * Node ends a socket whose write failed, and what the peer sent before it closed would be lost: often the very
   * answer that says why it did not read on. So the rest is read first; the end of it ends the socket.
   */
  #failed(error?: NodeJS.ErrnoException): net.Socket {
    if (error?.syscall === "write" && this.#call !== null && !this.#gone && !this.#writeFailed) {
      this.#writeFailed = true;
      this.#error = error;
      this.#call.stopUpload();
      return this.socket;
    }
    return this.#hangUp(error);
  }

  /** Sends `call` on this idle connection. */
  run(call: Call): void {
    this.#call = call;
    this.#used = true;
    this.#begin(call);
  }

  #connect(): void {
    this.#connected = true;
    this.#touched = true;
    this.socket.setNoDelay(true);
    const call = this.#call;
    if (call !== null) {
      this.#begin(call);
    }
  }

  #begin(call: Call): void {
    this.#touched = true;
    this.#headSeen = false;
    this.#parser.begin(
      call.request.method,
      call.framing === "upgrade",
      call.request.limits.maxHeaderBytes,
    );
    call.run(this);
  }

  readonly #streamed = (chunk: Buffer): void => {
    if (!this.#read(chunk, chunk.length)) {
      this.socket.pause();
    }
  };

  readonly #ended = (): void => {
    const call = this.#call;
    if (call !== null && this.#parser.finish()) {
      return; // an answer that only the end of the connection ends
    }
    this.destroy();
  };

  #read(bytes: Buffer, size: number): boolean {
    this.#touched = true;
    if (this.#call === null) {
      this.destroy(); // an answer to nothing: whatever it is, it must not meet the next request
      return false;
    }
    const reason = this.#parser.push(bytes, size);
    if (reason !== null) {
      this.#call?.broken(new UpstreamFailure("protocol", reason));
      this.destroy();
      return false;
    }
    return !this.#paused;
  }

  onInterim(head: ResponseHead): void {
    const call = this.#call;
    if (call !== null) {
      if (head.status === 100) {
        call.proceed();
      }
      call.handler.interim(head);
    }
  }

  onHead(head: ResponseHead, length: number | null, bodyless: boolean): void {
    const call = this.#call;
    if (call === null) {
      return;
    }
    this.#headSeen = true;
    if (head.status >= 400 && call.uploading) {
      call.stopUpload();
    }
    call.handler.head(head, length, bodyless);
  }

  onData(chunk: Buffer): void {
    const call = this.#call;
    if (call !== null && !call.handler.data(chunk)) {
      this.#paused = true;
    }
  }

  onEnd(trailers: FieldLines, reusable: boolean): void {
    const call = this.#call;
    if (call === null) {
      return;
    }
    this.#call = null;
    const clean =
      reusable &&
      call.sent &&
      !this.#dedicated &&
      this.#parser.keepAliveSeconds !== 0 &&
      this.usable;
    call.complete();
    if (this.#paused) {
      this.#paused = false;
      this.socket.resume();
    }
    if (clean) {
      this.#touched = true;
      this.#owner.give(this);
    } else {
      this.destroy();
    }
    call.handler.end(trailers);
  }

  onSwitch(head: ResponseHead, rest: Buffer): void {
    const call = this.#call;
    if (call === null) {
      return;
    }
    const socket = this.socket;
    this.#call = null;
    this.#gone = true;
    this.#owner.drop(this);
    call.complete();
    socket.removeAllListeners("data");
    socket.removeAllListeners("end");
    socket.removeAllListeners("drain");
    socket.pause();
    if (rest.length > 0) {
      socket.unshift(rest);
    }
    call.handler.tunnel(head, socket); // "error" keeps its listener: a reset must never be without one
  }

  resume(): void {
    if (this.#paused) {
      this.#paused = false;
      this.#touched = true;
      this.socket.resume();
    }
  }

  destroy(): void {
    if (!this.#gone) {
      this.#gone = true;
      this.#untouched = this.#parser.untouched;
      this.#owner.drop(this);
    }
    this.#parser.stop();
    this.socket.destroy();
  }

  #closed(): void {
    const call = this.#call;
    this.#call = null;
    this.destroy();
    if (call === null || call.settled) {
      return;
    }
    if (this.#used && this.#untouched && !call.retried && call.repeatable) {
      call.retried = true;
      call.detach();
      this.#owner.redial(call);
    } else if (this.#connected) {
      call.broken(
        new UpstreamFailure(
          "reset",
          "the connection closed before the answer was complete",
          this.#error,
        ),
      );
    } else {
      call.broken(new UpstreamFailure("connect", "the connection was not accepted", this.#error));
    }
  }

  /**
   * Looks at the deadlines; called every fraction of a second, so that no request sets timers of its own.
   * The idle limit runs only while the peer is waited for: not while our own body or reader is slow.
   */
  check(now: number, idleMs: number): void {
    const call = this.#call;
    if (call === null) {
      if (this.#touched) {
        this.#touched = false;
        this.#since = now;
      }
      const announced = this.#parser.keepAliveSeconds;
      const limit = announced > 0 ? Math.min(announced * 1000 - 1000, idleMs * 4) : idleMs;
      if (now - this.#since >= limit) {
        this.destroy();
      }
      return;
    }
    if (!this.#connected) {
      if (now - this.#since >= call.request.limits.connectMs) {
        call.broken(new UpstreamFailure("connect", "the connection was not accepted in time"));
      }
      return;
    }
    const waiting =
      !this.#paused &&
      (call.sent || call.awaiting || this.#headSeen || this.socket.writableNeedDrain);
    if (this.#touched || !waiting) {
      this.#touched = false;
      this.#since = now;
    } else if (now - this.#since >= call.request.limits.idleMs) {
      call.broken(new UpstreamFailure("timeout", "the service did not send anything in time"));
    }
  }
}

function dial(
  origin: Origin,
  reading: { onread?: net.OnReadOpts },
  tlsOptions: tls.ConnectionOptions,
): net.Socket {
  switch (origin.kind) {
    case "tcp":
      return net.connect({ host: origin.host, port: origin.port, ...reading });
    case "unix":
      return net.connect({ path: origin.path, ...reading });
    case "tls":
      return tls.connect({
        ...tlsOptions,
        host: origin.host,
        port: origin.port,
        ALPNProtocols: ["http/1.1"],
        ...(net.isIP(origin.host) === 0 ? { servername: origin.host } : {}),
        ...reading,
      });
  }
}
