import type { AddressInfo, Server } from "node:net";
import type { ListenAddress } from "./config.ts";

/**
 * Binds a server; port 0 is any free one.
 *
 * @param exclusive for an address of this process alone; edge processes share their listeners otherwise.
 * @returns the bound address.
 * @throws Error in one sentence when the address cannot be had.
 */
export function listen(
  server: Server,
  { host, port }: ListenAddress,
  exclusive = false,
): Promise<ListenAddress> {
  return new Promise((resolve, reject) => {
    const failed = (cause: NodeJS.ErrnoException) => {
      const reason =
        cause.code === "EADDRINUSE"
          ? "something else listens there"
          : (cause.code ?? cause.message);
      reject(new Error(`Cannot listen on ${formatAddress({ host, port })}: ${reason}.`, { cause }));
    };
    server.once("error", failed);
    server.listen({ host, port, exclusive }, () => {
      server.off("error", failed);
      resolve({ host, port: (server.address() as AddressInfo).port });
    });
  });
}

/** `host:port`, an IPv6 address in brackets. */
export function formatAddress({ host, port }: ListenAddress): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
