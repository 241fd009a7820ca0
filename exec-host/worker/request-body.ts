import type { BodySink, BodySource } from "../../policy/kernel/exchange.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import { toBytes } from "./bytes.ts";
import type { HostRequest } from "./host-request.ts";

/** How the host treats the body of a call. */
export interface BodyState {
  /** The client sent one: a length above zero, or chunks. */
  readonly isExpected: boolean;
  /** The script reads the stream itself (`@rawBody`). */
  readonly isRaw: boolean;
  /** A helper has sent the live stream already. */
  isTaken: boolean;
}

/**
 * Reads a whole body, at most `limit` bytes, and leaves it readable: a script that reads `req` as a stream finds
 * the bytes still there. Null when the client broke off, `too-large` beyond the limit.
 */
export function bufferBody(req: HostRequest, limit: number): Promise<Buffer | "too-large" | null> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const finish = (result: Buffer | "too-large" | null): void => {
      req.off("readable", onReadable);
      req.off("end", onEnd);
      req.off("error", onFail);
      req.off("close", onFail);
      resolve(result);
    };
    const onReadable = (): void => {
      for (
        let chunk = req.read() as Buffer | null;
        chunk !== null;
        chunk = req.read() as Buffer | null
      ) {
        size += chunk.length;
        if (size > limit) {
          finish("too-large");
          return;
        }
        chunks.push(chunk);
      }
      if (req.complete && size > 0) {
        const body = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, size);
        // In the same turn as the last read: the stream's end is announced only while nothing is left in it.
        req.unshift(body);
        finish(body);
      }
    };
    const onEnd = (): void => finish(Buffer.concat(chunks, size));
    const onFail = (): void => finish(null);
    req.on("readable", onReadable);
    req.on("end", onEnd);
    req.on("error", onFail);
    req.on("close", onFail);
  });
}

/**
 * The client's body for one upstream request: the buffered one where there is one, else the live stream.
 *
 * @throws HookUpstreamError `no-body` or `body-consumed`.
 */
export function clientBody(req: HostRequest, state: BodyState): BodySource | null {
  const buffered = req.rawBody;
  if (buffered !== undefined && buffered !== null) {
    const bytes = typeof buffered === "string" ? Buffer.from(buffered) : toBytes(buffered);
    if (bytes === null) {
      throw new HookUpstreamError("no-body", "req.rawBody holds neither bytes nor text");
    }
    return bytesSource(bytes);
  }
  if (!state.isExpected) {
    return null;
  }
  if (!state.isRaw) {
    throw new HookUpstreamError("no-body", "req.rawBody was cleared");
  }
  if (state.isTaken) {
    throw new HookUpstreamError("body-consumed", "the request body was already sent once");
  }
  if (req.readableDidRead || req.readableFlowing === true || req.destroyed) {
    throw new HookUpstreamError(
      "no-body",
      "the request body was read before the helper was called",
    );
  }
  state.isTaken = true;
  return new LiveBody(req);
}

/** Bytes as a body; null for none at all. */
export function bytesSource(bytes: Buffer): BodySource | null {
  if (bytes.length === 0) {
    return null;
  }
  return {
    length: bytes.length,
    start(sink) {
      sink.data(bytes);
      sink.end([]);
    },
    resume() {},
    cancel() {},
  };
}

/**
 * The live body of a request. It is listened to from the moment it is to be sent: a script that reads or resumes the request
 * while a connection is made would else take pieces away.
 */
export class LiveBody implements BodySource {
  readonly length: number | null;
  readonly #req: HostRequest;
  #sink: BodySink | null = null;
  #held: Buffer[] = [];
  /** What came before anybody took it: the end, or a break. */
  #last: "end" | "break" | null = null;
  #isListening = false;

  constructor(req: HostRequest) {
    this.#req = req;
    const declared = req.headers["content-length"];
    this.length = declared === undefined ? null : Number(declared);
  }

  listen(): void {
    if (!this.#isListening) {
      this.#isListening = true;
      const req = this.#req;
      req.pause();
      req.on("data", this.#onData);
      req.on("end", this.#onEnd);
      req.on("error", this.#onBreak);
      req.on("close", this.#onBreak);
    }
  }

  start(sink: BodySink): void {
    this.listen();
    this.#sink = sink;
    const held = this.#held;
    this.#held = [];
    for (const chunk of held) {
      sink.data(chunk);
    }
    if (this.#last === "end") {
      sink.end([]);
    } else if (this.#last === "break") {
      sink.fail(brokeOff());
    } else {
      this.#req.resume();
    }
  }

  resume(): void {
    this.#req.resume();
  }

  cancel(): void {
    this.#detach();
    // Nobody else reads the rest, and its sender waits for somebody who does.
    this.#req.resume();
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#sink === null) {
      this.#held.push(chunk);
      this.#req.pause();
    } else if (!this.#sink.data(chunk)) {
      this.#req.pause();
    }
  };

  readonly #onEnd = (): void => {
    this.#detach();
    this.#last = "end";
    this.#sink?.end([]);
  };

  readonly #onBreak = (): void => {
    this.#detach();
    this.#last = "break";
    this.#sink?.fail(brokeOff());
  };

  #detach(): void {
    this.#req.off("data", this.#onData);
    this.#req.off("end", this.#onEnd);
    this.#req.off("error", this.#onBreak);
    this.#req.off("close", this.#onBreak);
  }
}

function brokeOff(): Error {
  return new Error("the client broke off its upload");
}
