import { isIP, type Socket } from "node:net";
import type { Clock } from "../../policy/kernel/clock.ts";

/** What the first bytes of a connection are. */
export type ProxyHeader =
  /** No PROXY header: the bytes belong to the client's protocol. */
  | { readonly kind: "none" }
  /** Not decided yet. */
  | { readonly kind: "more" }
  | { readonly kind: "invalid" }
  /** `size` bytes of header; `source` is null when the proxy speaks for itself or does not know. */
  | { readonly kind: "header"; readonly size: number; readonly source: ProxySource | null };

/** The client that a PROXY header names. */
export interface ProxySource {
  readonly address: string;
  readonly port: number;
}

const V1 = Buffer.from("PROXY ", "latin1");
const V2 = Buffer.from("\r\n\r\n\0\r\nQUIT\n", "latin1");
/** Longest version 1 line, CRLF included (PROXY protocol specification 2.1). */
const MAX_V1_BYTES = 107;
/** Addresses and extensions of a version 2 header; real ones are a few hundred bytes. */
const MAX_V2_BYTES = 4096;

/** Reads a PROXY protocol header, version 1 or 2, at the start of `bytes`. */
export function readProxyHeader(bytes: Buffer): ProxyHeader {
  if (startsLike(bytes, V2)) {
    return bytes.length < 16 ? { kind: "more" } : readV2(bytes);
  }
  if (startsLike(bytes, V1)) {
    return bytes.length < V1.length ? { kind: "more" } : readV1(bytes);
  }
  return { kind: "none" };
}

function startsLike(bytes: Buffer, signature: Buffer): boolean {
  const length = Math.min(bytes.length, signature.length);
  return bytes.compare(signature, 0, length, 0, length) === 0;
}

function readV1(bytes: Buffer): ProxyHeader {
  const end = bytes.indexOf("\r\n");
  if (end < 0) {
    return bytes.length >= MAX_V1_BYTES ? { kind: "invalid" } : { kind: "more" };
  }
  if (end + 2 > MAX_V1_BYTES) {
    return { kind: "invalid" };
  }
  const line = bytes.toString("latin1", 0, end);
  if (line === "PROXY UNKNOWN" || line.startsWith("PROXY UNKNOWN ")) {
    return { kind: "header", size: end + 2, source: null };
  }
  const [
    ,
    protocol,
    source = "",
    destination = "",
    sourcePort = "",
    destinationPort = "",
    ...rest
  ] = line.split(" ");
  const family = protocol === "TCP4" ? 4 : protocol === "TCP6" ? 6 : 0;
  if (
    family === 0 ||
    rest.length > 0 ||
    isIP(source) !== family ||
    isIP(destination) !== family ||
    !isPort(sourcePort) ||
    !isPort(destinationPort)
  ) {
    return { kind: "invalid" };
  }
  return { kind: "header", size: end + 2, source: { address: source, port: Number(sourcePort) } };
}

function isPort(text: string): boolean {
  return /^(?:0|[1-9][0-9]{0,4})$/.test(text) && Number(text) <= 65_535;
}

function readV2(bytes: Buffer): ProxyHeader {
  const command = bytes[12]!;
  const family = bytes[13]!;
  const length = bytes.readUInt16BE(14);
  if (length > MAX_V2_BYTES || (command !== 0x20 && command !== 0x21)) {
    return { kind: "invalid" };
  }
  const size = 16 + length;
  if (bytes.length < size) {
    return { kind: "more" };
  }
  if (command === 0x20) {
    return { kind: "header", size, source: null }; // LOCAL: the proxy's own connection, a health check
  }
  switch (family) {
    case 0x11:
      if (length < 12) {
        return { kind: "invalid" };
      }
      return {
        kind: "header",
        size,
        source: { address: bytes.subarray(16, 20).join("."), port: bytes.readUInt16BE(24) },
      };
    case 0x21:
      if (length < 36) {
        return { kind: "invalid" };
      }
      return {
        kind: "header",
        size,
        source: { address: toIpv6(bytes.subarray(16, 32)), port: bytes.readUInt16BE(48) },
      };
    case 0x00:
      return { kind: "header", size, source: null };
    default:
      return { kind: "invalid" }; // datagrams and unix sockets do not reach us
  }
}

function toIpv6(bytes: Buffer): string {
  const groups: string[] = [];
  for (let i = 0; i < 16; i += 2) {
    groups.push(bytes.readUInt16BE(i).toString(16));
  }
  const address = groups.join(":");
  return address.startsWith("0:0:0:0:0:ffff:") ? `::ffff:${bytes.subarray(12).join(".")}` : address;
}

/**
 * Reads the PROXY header of a new connection, if it has one, before anything else looks at the bytes. Afterwards the
 * socket is paused with the client's bytes put back. `done` is called once; not at all when the connection ended, the
 * header was not valid, or the first bytes did not come within `timeoutMs`: then the socket is destroyed.
 */
export function takeProxyHeader(
  socket: Socket,
  timeoutMs: number,
  clock: Clock,
  done: (source: ProxySource | null) => void,
): void {
  let seen: Buffer = Buffer.alloc(0);
  const timer = clock.after(timeoutMs, () => socket.destroy());
  const ignore = (): void => {};
  socket.on("error", ignore); // the listener of the next layer comes with it
  socket.on("readable", read);
  socket.once("close", () => timer.cancel());

  function read(): void {
    for (;;) {
      const chunk = socket.read() as Buffer | null;
      if (chunk === null) {
        if (socket.readableEnded) {
          socket.destroy();
        }
        return;
      }
      seen = seen.length === 0 ? chunk : Buffer.concat([seen, chunk]);
      const header = readProxyHeader(seen);
      if (header.kind === "more") {
        continue;
      }
      timer.cancel();
      socket.removeListener("readable", read);
      if (header.kind === "invalid") {
        socket.destroy();
        return;
      }
      const rest = header.kind === "header" ? seen.subarray(header.size) : seen;
      socket.pause();
      if (rest.length > 0) {
        socket.unshift(rest);
      }
      done(header.kind === "header" ? header.source : null);
      return;
    }
  }
}
