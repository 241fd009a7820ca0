import {
  constants,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { Socket } from "node:net";
import { errorBody, errorFields, statusOf, type ErrorCode } from "../../../policy/kernel/errors.ts";
import type { Peer, ResponseHead } from "../../../policy/kernel/exchange.ts";
import type { WireDeps } from "../limits.ts";
import { peerOf } from "../peer.ts";
import { Http2Exchange } from "./exchange.ts";
import { overLimit } from "./limits.ts";
import { readHttp2Request } from "./request-head.ts";

/** Takes TLS sockets that chose HTTP/2 and hands out exchanges. */
export interface Http2Wire {
  /** Takes a connection whose protocol was agreed to be HTTP/2. */
  accept(socket: Socket): void;
  /** Announces the end to every client; running streams finish. */
  drain(): void;
  destroy(): void;
}

const MAX_STREAMS = 100;
const WINDOW_BYTES = 262_144;
/** Streams that a client may take back before they are answered, per window: more is an attack (CVE-2023-44487). */
const MAX_RESETS = 200;
const RESET_WINDOW_MS = 10_000;
const END_STREAM = 1;
const { NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_NO_ERROR } = constants;

/**
 * The HTTP/2 side of the edge on `node:http2`. Each stream becomes an exchange like any other; what HTTP/1.1 refuses
 * is refused here with the same status. Floods end the connection: streams, resets, settings, pings, continuations and
 * invalid frames are bounded here or by nghttp2.
 */
export function createHttp2Wire(deps: WireDeps): Http2Wire {
  const { limits, clock, log, metrics } = deps;
  const sessions = new Set<ServerHttp2Session>();
  const server: Http2Server = createServer({
    settings: {
      maxConcurrentStreams: MAX_STREAMS,
      initialWindowSize: WINDOW_BYTES,
      // Beyond this the stream is reset without an answer; up to it we answer 431 or 414 ourselves.
      maxHeaderListSize: 2 * (limits.maxHeaderBytes + limits.maxTargetBytes),
      enableConnectProtocol: true,
      enablePush: false,
    },
    maxHeaderListPairs: limits.maxHeaderLines * 4,
    maxSessionInvalidFrames: 20,
    maxSessionRejectedStreams: 100,
    maxOutstandingPings: 10,
    streamResetBurst: 2 * MAX_RESETS,
    streamResetRate: 20,
    maxSessionMemory: 16,
  });

  server.on("session", (session) => {
    const connection = new Http2Connection(session, deps);
    sessions.add(session);
    metrics?.connections.labels("http").inc();
    session.on("error", (error) => log.debug({ err: error }, "http/2 connection failed"));
    session.on("close", () => {
      sessions.delete(session);
      metrics?.connections.labels("http").dec();
    });
    session.on(
      "stream",
      (stream: ServerHttp2Stream, _headers: IncomingHttpHeaders, flags: number, lines: string[]) =>
        connection.take(stream, flags, lines),
    );
  });
  server.on("sessionError", (error) => log.debug({ err: error }, "http/2 connection failed"));

  class Http2Connection {
    readonly #session: ServerHttp2Session;
    readonly #deps: WireDeps;
    readonly #peer: Peer;
    #open = 0;
    #resets = 0;
    #windowEnds = 0;

    constructor(session: ServerHttp2Session, wire: WireDeps) {
      this.#session = session;
      this.#deps = wire;
      this.#peer = connecting ?? peerOf(session.socket as Socket);
      session.setTimeout(limits.headMs, () => this.#quiet());
    }

    /** Nothing was heard or sent for a while. */
    #quiet(): void {
      if (this.#open === 0) {
        this.#session.close();
        clock.after(1000, () => this.#session.destroy());
      }
    }

    take(stream: ServerHttp2Stream, flags: number, lines: string[]): void {
      if (this.#open === 0) {
        this.#session.setTimeout(limits.keepAliveMs);
      }
      this.#open++;
      const request = readHttp2Request(lines);
      const exchange = new Http2Exchange(
        stream,
        request?.head ?? { method: "GET", target: "", version: "2", fields: [] },
        this.#peer,
        (flags & END_STREAM) !== 0 ? 0 : (request?.length ?? null),
        request?.expect === "100-continue",
        request?.handshake ?? false,
        (ended) => this.#ended(stream, ended),
      );
      const code =
        request === null
          ? "BAD_REQUEST"
          : (refusalOf(request.expect) ?? overLimit(request.head, limits));
      if (code !== null) {
        exchange.answer(answerHead(code), Buffer.from(errorBody(code)));
        return;
      }
      if (limits.requestMs > 0 && exchange.body !== null) {
        this.#limitUpload(stream, exchange);
      }
      try {
        this.#deps.onExchange(exchange);
      } catch (cause) {
        log.error({ err: cause }, "a request was not handled");
        exchange.abort();
      }
    }

    #limitUpload(stream: ServerHttp2Stream, exchange: Http2Exchange): void {
      const timer = clock.after(limits.requestMs, () => {
        if (!exchange.answered) {
          exchange.answer(answerHead("REQUEST_TIMEOUT"), Buffer.from(errorBody("REQUEST_TIMEOUT")));
        }
        exchange.leave();
      });
      stream.once("end", () => timer.cancel());
      stream.once("close", () => timer.cancel());
    }

    #ended(stream: ServerHttp2Stream, exchange: Http2Exchange): void {
      this.#open--;
      if (stream.rstCode === NGHTTP2_NO_ERROR || exchange.answered) {
        return;
      }
      const now = clock.monotonic();
      if (now >= this.#windowEnds) {
        this.#windowEnds = now + RESET_WINDOW_MS;
        this.#resets = 0;
      }
      if (++this.#resets > MAX_RESETS && !this.#session.destroyed) {
        log.debug("http/2 connection ended: too many streams taken back");
        this.#session.goaway(NGHTTP2_ENHANCE_YOUR_CALM);
        this.#session.destroy();
      }
    }
  }

  /** The session is made within `emit`, from a socket whose peer may be known better than by the session. */
  let connecting: Peer | null = null;

  return {
    accept(socket) {
      connecting = peerOf(socket);
      server.emit("connection", socket);
      connecting = null;
      socket.on("end", () => socket.destroy()); // in HTTP/2 a client that closes its side has left
    },
    drain() {
      for (const session of sessions) {
        session.close();
      }
    },
    destroy() {
      for (const session of sessions) {
        session.destroy();
      }
    },
  };
}

function refusalOf(expect: string | null): ErrorCode | null {
  return expect === null || expect === "100-continue" ? null : "EXPECTATION_FAILED";
}

function answerHead(code: ErrorCode): ResponseHead {
  return { status: statusOf(code), reason: "", fields: errorFields(code) };
}
