import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";

/**
 * Ends a connection in the middle of a body that only the end of the connection ends. A plain close would say that the
 * body is complete (RFC 9112 8); a reset says that it is not. TLS has a word of its own for a neat end, which a
 * destroyed socket does not send.
 */
export function breakOff(socket: Socket): void {
  if (socket instanceof TLSSocket) {
    socket.destroy();
  } else {
    socket.resetAndDestroy();
  }
}
