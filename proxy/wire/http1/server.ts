import net, { type Socket } from "node:net";
import type { Timer } from "../../../policy/kernel/clock.ts";
import { errorBody, errorFields } from "../../../policy/kernel/errors.ts";
import { writeFields } from "../../../policy/kernel/http1/request-head.ts";
import type { WireDeps } from "../limits.ts";
import { Http1Connection, type Shared } from "./connection.ts";

/** Takes sockets and hands out exchanges. */
export interface Http1Server {
  readonly server: net.Server;
  /** Takes a connection that somebody else accepted. */
  accept(socket: Socket): void;
  /** Stops accepting, closes idle connections; running answers are finished and end their connection. */
  drain(): void;
  /** Cuts every connection and tunnel. */
  destroy(): void;
  /** Other limits are in force from now on: connections that come see them. */
  limitsChanged(): void;
}

/** How often deadlines are looked at; limits are kept to within this. */
const CHECK_MS = 250;
/** Connections beyond the limit that are told so at one time; further ones are closed without a word. */
export const MAX_TURNED_AWAY = 100;
const TURN_AWAY_MS = 500;

/**
 * The HTTP/1.x side of the edge on bare sockets, with a parser as strict as that for answers. Requests of one connection
 * are handed on one at a time; what cannot be read is answered here (400, 408, 414, 417, 431) and ends the connection.
 */
export function createHttp1Server(deps: WireDeps): Http1Server {
  const { limits, clock, log, metrics } = deps;
  const connections = new Set<Http1Connection>();
  const gauge = metrics?.connections.labels("http");
  let checks: Timer | null = null;
  let second = -1;
  let dateLine = "";

  const shared: Shared = {
    ...deps,
    closing: false,
    date() {
      const now = Math.floor(clock.now() / 1000);
      if (now !== second) {
        second = now;
        dateLine = `Date: ${new Date(now * 1000).toUTCString()}\r\n`;
      }
      return dateLine;
    },
    gone(connection) {
      connections.delete(connection);
      gauge?.dec();
      if (connections.size === 0) {
        checks?.cancel();
        checks = null;
      }
    },
  };

  function check(): void {
    const now = clock.monotonic();
    for (const connection of connections) {
      connection.check(now);
    }
  }

  function accept(socket: Socket): void {
    if (connections.size >= limits.maxConnections) {
      turnAway(socket);
      return;
    }
    connections.add(new Http1Connection(socket, shared));
    gauge?.inc();
    checks ??= clock.every(Math.max(25, Math.min(CHECK_MS, limits.headMs / 4)), check);
  }

  /** Says why before the connection ends; what the client sends meanwhile is dropped. */
  function turnAway(socket: Socket): void {
    log.debug("connection refused: too many");
    const text = errorBody("OVERLOADED");
    socket.on("error", () => {});
    socket.resume();
    socket.end(
      `HTTP/1.1 503 Service Unavailable\r\n${shared.date()}${writeFields(errorFields("OVERLOADED"))}` +
        `Content-Length: ${text.length}\r\nConnection: close\r\n\r\n${text}`,
      "latin1",
    );
    const timer = clock.after(TURN_AWAY_MS, () => socket.destroy());
    socket.once("close", () => timer.cancel());
  }

  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, accept);
  server.maxConnections = limits.maxConnections + MAX_TURNED_AWAY;
  server.on("drop", () => log.debug("connection refused: too many"));

  return {
    server,
    accept,
    drain() {
      shared.closing = true;
      if (server.listening) {
        server.close();
      }
      for (const connection of connections) {
        connection.endIdle();
      }
    },
    destroy() {
      for (const connection of connections) {
        connection.destroy();
      }
    },
    limitsChanged() {
      server.maxConnections = limits.maxConnections + MAX_TURNED_AWAY;
    },
  };
}
