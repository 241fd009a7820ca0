import type { Socket } from "node:net";
import type { Peer } from "../../policy/kernel/exchange.ts";
import { plainAddress } from "../client-address.ts";

/** Peers that are not those of the socket: told by a PROXY protocol header. */
const told = new WeakMap<Socket, { readonly address: string; readonly port: number }>();

/** Says who is really at the other end of a socket. */
export function setPeer(
  socket: Socket,
  source: { readonly address: string; readonly port: number },
): void {
  told.set(socket, source);
}

/** Who is at the other end of a socket. */
export function peerOf(socket: Socket): Peer {
  const source = told.get(socket);
  return {
    address: plainAddress(source?.address ?? socket.remoteAddress ?? ""),
    port: source?.port ?? socket.remotePort ?? 0,
    encrypted: "encrypted" in socket,
  };
}
