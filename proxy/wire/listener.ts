import net, { type Socket } from "node:net";
import tls from "node:tls";
import type { TrustedProxies } from "../client-address.ts";
import type { WireDeps } from "./limits.ts";
import { createHttp1Server, MAX_TURNED_AWAY } from "./http1/server.ts";
import { createHttp2Wire } from "./node-http2/server.ts";
import { setPeer } from "./peer.ts";
import { takeProxyHeader } from "./proxy-protocol.ts";
import type { Certificates } from "./tls.ts";

/** What a port speaks and whom it trusts. */
export interface ListenerOptions {
  /** Peers that may send a PROXY header; null when nobody may. */
  readonly proxyProtocol: TrustedProxies | null;
  /** TLS with these certificates, HTTP/1.1 and HTTP/2 by ALPN; null for plain HTTP/1.1. */
  readonly certificates: Certificates | null;
}

/** One listening port. */
export interface Listener {
  /** To be told to listen; its address is the listener's. */
  readonly server: net.Server;
  /** Stops accepting, closes idle connections; running answers finish and end theirs. */
  drain(): void;
  /** Cuts every connection and tunnel. */
  destroy(): void;
  /** Other limits are in force from now on: connections that come see them. */
  limitsChanged(): void;
}

/**
 * One listening port of the edge: PROXY header, TLS and protocol choice in front of the HTTP adapters, which are the same
 * for all ports.
 */
export function createListener(deps: WireDeps, options: ListenerOptions): Listener {
  const { limits, clock, log } = deps;
  const { proxyProtocol, certificates } = options;
  const http1 = createHttp1Server(deps);
  if (proxyProtocol === null && certificates === null) {
    return http1;
  }
  const http2 = certificates === null ? null : createHttp2Wire(deps);
  const raw = new Set<Socket>();
  /** Sources told by PROXY headers, by the proxy's own address and port, for the TLS socket made of the connection. */
  const sources = new Map<string, { readonly address: string; readonly port: number }>();

  const secure =
    certificates === null
      ? null
      : tls.createServer({
          SNICallback: (name, done) => done(null, certificates.contextFor(name)),
          ALPNProtocols: ["h2", "http/1.1"],
          handshakeTimeout: limits.headMs,
          allowHalfOpen: true,
          minVersion: "TLSv1.2",
          ...certificates.first(),
        });
  certificates?.onChange(() =>
    secure?.setSecureContext({ minVersion: "TLSv1.2", ...certificates.first() }),
  );
  secure?.on("secureConnection", (socket) => {
    const source = sources.get(keyOf(socket));
    if (source !== undefined) {
      setPeer(socket, source);
    }
    socket.on("error", ignore);
    if (socket.alpnProtocol === "h2" && http2 !== null) {
      http2.accept(socket);
    } else {
      http1.accept(socket);
    }
  });
  secure?.on("tlsClientError", (error, socket) => {
    log.debug({ err: error }, "TLS handshake failed");
    socket.destroy();
  });

  const server = net.createServer({
    allowHalfOpen: true,
    noDelay: true,
    pauseOnConnect: proxyProtocol !== null,
  });
  /** Over TLS nobody is told: the words would cost a handshake. */
  const most = (): number => limits.maxConnections + (secure === null ? MAX_TURNED_AWAY : 0);
  server.maxConnections = most();
  server.on("drop", () => log.debug("connection refused: too many"));
  server.on("connection", (socket) => {
    raw.add(socket);
    socket.on("error", ignore);
    socket.once("close", () => raw.delete(socket));
    if (proxyProtocol === null || !proxyProtocol.has(socket.remoteAddress ?? "")) {
      hand(socket);
      return;
    }
    takeProxyHeader(socket, limits.headMs, clock, (source) => {
      if (source !== null) {
        setPeer(socket, source);
        const key = keyOf(socket);
        sources.set(key, source);
        socket.once("close", () => sources.delete(key));
      }
      hand(socket);
    });
  });

  function hand(socket: Socket): void {
    if (secure === null) {
      http1.accept(socket);
      socket.resume();
    } else {
      secure.emit("connection", socket); // takes over the reading, with what was put back
    }
  }

  return {
    server,
    drain() {
      if (server.listening) {
        server.close();
      }
      http1.drain();
      http2?.drain();
    },
    limitsChanged() {
      server.maxConnections = most();
      http1.limitsChanged();
    },
    destroy() {
      http1.destroy();
      http2?.destroy();
      for (const socket of raw) {
        socket.destroy();
      }
    },
  };
}

function keyOf(socket: Socket): string {
  return `${socket.remotePort} ${socket.remoteAddress}`;
}

function ignore(): void {}
