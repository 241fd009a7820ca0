import type { AddressInfo, Server } from "node:net";
import type { ListenAddress } from "./config.ts";

/**
 * Binds a server; port 0 is any free one.
 *
 * @returns the bound address.
 * @throws Error in one sentence when the address cannot be had.
 */
export function listen(server: Server, address: ListenAddress): Promise<ListenAddress> {
  return new Promise((resolve, reject) => {
    const failed = (cause: NodeJS.ErrnoException) => {
      const reason =
        cause.code === "EADDRINUSE"
          ? "something else listens there"
          : (cause.code ?? cause.message);
      reject(new Error(`Cannot listen on ${formatAddress(address)}: ${reason}.`, { cause }));
    };
    server.once("error", failed);
    server.listen(address.port, address.host, () => {
      server.off("error", failed);
      resolve({ host: address.host, port: (server.address() as AddressInfo).port });
    });
  });
}

/** `host:port`, an IPv6 address in brackets. */
export function formatAddress({ host, port }: ListenAddress): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
