import type { ConnectionOptions } from "node:tls";
import { systemClock, type Clock, type Timer } from "../clock.ts";
import { Call } from "./call.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import type { AnswerHandler, Http1Client, Origin, OutgoingCall, OutgoingRequest } from "./types.ts";

/** Bounds of the idle connections that a client keeps. */
export interface Http1ClientOptions {
  /** Idle connections kept per origin. */
  readonly maxIdlePerOrigin?: number;
  /** Idle connections kept in all. */
  readonly maxIdle?: number;
  /** How long an idle connection is kept when the peer announces nothing; what it announces is used less one second. */
  readonly idleMs?: number;
  /**
   * TLS origins. Certificates are not verified unless this says so: a container's TLS port carries a certificate of
   * its own making, and the address is one that routing chose.
   */
  readonly tls?: ConnectionOptions;
  readonly clock?: Clock;
}

const DEFAULTS = { maxIdlePerOrigin: 256, maxIdle: 1024, idleMs: 4000 } as const;
/** How often deadlines are looked at; limits are kept to within this. */
const CHECK_MS = 50;

/**
 * An HTTP/1.1 client that keeps connections alive per origin and frames every message itself (RFC 9112).
 * The most recently used idle connection is taken first, so that a quiet origin's spare ones time out.
 *
 * `send` throws a TypeError for a request that cannot be written as one message; everything that happens later is
 * told to the handler.
 */
export function createHttp1Client(options: Http1ClientOptions = {}): Http1Client {
  const clock = options.clock ?? systemClock;
  const maxIdlePerOrigin = options.maxIdlePerOrigin ?? DEFAULTS.maxIdlePerOrigin;
  const maxIdle = options.maxIdle ?? DEFAULTS.maxIdle;
  const idleMs = options.idleMs ?? DEFAULTS.idleMs;
  const tlsOptions = options.tls ?? { rejectUnauthorized: false };
  const idle = new Map<string, Connection[]>();
  const all = new Set<Connection>();
  let idleCount = 0;
  let closed = false;
  let checks: Timer | null = null;

  const owner: ConnectionOwner = {
    give(connection) {
      const list = idle.get(connection.key);
      if (
        closed ||
        idleCount >= maxIdle ||
        (list !== undefined && list.length >= maxIdlePerOrigin)
      ) {
        connection.destroy();
        return;
      }
      idleCount++;
      if (list === undefined) {
        idle.set(connection.key, [connection]);
      } else {
        list.push(connection);
      }
    },
    drop(connection) {
      all.delete(connection);
      const list = idle.get(connection.key);
      const at = list === undefined ? -1 : list.indexOf(connection);
      if (list !== undefined && at >= 0) {
        list.splice(at, 1);
        idleCount--;
      }
      if (list !== undefined && list.length === 0) {
        idle.delete(connection.key);
      }
      if (all.size === 0) {
        checks?.cancel();
        checks = null;
      }
    },
    redial(call) {
      dial(call);
    },
  };

  function dial(call: Call): void {
    const origin = call.request.origin;
    all.add(new Connection(owner, keyOf(origin), origin, call, clock.monotonic(), tlsOptions));
    checks ??= clock.every(CHECK_MS, check);
  }

  function check(): void {
    const now = clock.monotonic();
    for (const connection of all) {
      connection.check(now, idleMs);
    }
  }

  function take(key: string): Connection | null {
    const list = idle.get(key);
    while (list !== undefined && list.length > 0) {
      const connection = list.pop()!;
      idleCount--;
      if (connection.usable) {
        return connection; // the empty list stays: this connection most likely comes back to it
      }
      connection.destroy();
    }
    return null;
  }

  return {
    send(request: OutgoingRequest, handler: AnswerHandler): OutgoingCall {
      const call = new Call(request, handler);
      const connection = call.framing === "upgrade" ? null : take(keyOf(request.origin));
      if (connection === null) {
        dial(call);
      } else {
        connection.run(call);
      }
      return call;
    },
    close() {
      closed = true;
      for (const connection of all) {
        if (connection.isIdle) {
          connection.destroy();
        }
      }
    },
  };
}

/** Unambiguous: kind and port come first and cannot be part of a host name or a path. */
function keyOf(origin: Origin): string {
  return origin.kind === "unix"
    ? `unix ${origin.path}`
    : `${origin.kind} ${origin.port} ${origin.host}`;
}
