import { createServer, type IncomingMessage, type Server } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { WireDeps } from "../limits.ts";
import { ClientConnection, connectionOf } from "./connection.ts";
import { isHandshake } from "./handshake.ts";

export type { WireDeps, WireLimits } from "../limits.ts";

export interface Http1Server {
  readonly server: Server;
  /** Watches deadlines although the server itself does not listen: connections come through `accept`. */
  track(): void;
  /** Takes a connection that somebody else accepted. */
  accept(socket: Socket): void;
  /** Stops accepting, closes idle connections; running answers are finished and end their connection. */
  drain(): void;
  /** Cuts every connection and tunnel. */
  destroy(): void;
  /** Other limits are in force from now on: connections that come see them. */
  limitsChanged(): void;
}

/**
 * The HTTP/1.x side of the edge on `node:http` with its strict parser. Requests of one connection are handed on one
 * at a time; what cannot be read is answered here (400, 408, 414, 417, 431) and ends the connection.
 */
export function createHttp1Server(deps: WireDeps): Http1Server {
  const { limits, log, metrics } = deps;
  const connections = new Set<ClientConnection>();
  const shared = { ...deps, state: { closing: false } };
  const server = createServer({
    insecureHTTPParser: false,
    requireHostHeader: false, // answered by the pipeline, with a body of ours
    connectionsCheckingInterval: Math.max(50, Math.min(1000, limits.headMs / 4)),
    noDelay: true,
    shouldUpgradeCallback: (request) => connectionOf(request.socket).isFree && isHandshake(request),
  });
  server.maxHeadersCount = 0; // a count would drop lines silently; more than the limit is 431
  server.timeout = 0;
  applyLimits(server, limits);
  // A client that closed its sending side after a complete request still gets its answer.
  (server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true;

  server.on("connection", (socket: Socket) => {
    const connection = new ClientConnection(socket, shared);
    connections.add(connection);
    metrics?.connections.labels("http").inc();
    socket.on("close", () => {
      connections.delete(connection);
      connection.closed();
      metrics?.connections.labels("http").dec();
    });
  });
  server.on("drop", () => log.debug("connection refused: too many"));
  server.on("request", (request, response) =>
    connectionOf(request.socket).request(request, response, false, null),
  );
  server.on("checkContinue", (request, response) =>
    connectionOf(request.socket).request(request, response, true, null),
  );
  server.on("checkExpectation", (request, response) =>
    connectionOf(request.socket).request(request, response, false, "EXPECTATION_FAILED"),
  );
  server.on("upgrade", (request: IncomingMessage, stream: Duplex, early: Buffer) => {
    connectionOf(request.socket).upgrade(request, stream as Socket, early);
  });
  server.on("connect", (request: IncomingMessage) =>
    connectionOf(request.socket).refuse("BAD_TARGET"),
  );
  server.on(
    "clientError",
    (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, stream: Duplex) => {
      connectionOf(stream as Socket).unreadable(error);
    },
  );

  return {
    server,
    track: () => void server.emit("listening"), // what starts the check of deadlines
    accept: (socket) => void server.emit("connection", socket),
    drain() {
      shared.state.closing = true;
      if (server.listening) {
        server.close();
      }
      server.closeIdleConnections();
    },
    destroy() {
      for (const connection of connections) {
        connection.socket.destroy();
      }
    },
    limitsChanged: () => applyLimits(server, limits),
  };
}

/** Node reads these members for every new connection. */
function applyLimits(server: Server, limits: WireDeps["limits"]): void {
  const { headMs, requestMs } = limits;
  // Node counts target and fields together; ours are told apart behind it, so its limit is the sum.
  (server as Server & { maxHeaderSize: number }).maxHeaderSize =
    limits.maxHeaderBytes + limits.maxTargetBytes;
  server.headersTimeout = requestMs > 0 ? Math.min(headMs, requestMs) : headMs;
  server.requestTimeout = requestMs;
  server.keepAliveTimeout = limits.keepAliveMs;
  server.maxConnections = limits.maxConnections;
}
