import type { IpGroup } from "../../policy/documents/access.ts";
import type { Check } from "./check.ts";

/** Members are IPv4 addresses inside the range; the IPv4-mapped form of an address is the address (K06). */
export function compileIp({ range }: IpGroup): Check {
  const slash = range.indexOf("/");
  const bits = Number(range.slice(slash + 1));
  const base = parseIPv4(range.slice(0, slash));
  if (base === null) {
    return () => false;
  }
  // A shift by 32 is a shift by 0 in JavaScript.
  const mask = bits === 0 ? 0 : (0xffffffff << (32 - bits)) >>> 0;
  const network = (base & mask) >>> 0;
  return ({ address }) => {
    const client = parseIPv4(address);
    return client !== null && (client & mask) >>> 0 === network;
  };
}

const DOTTED = /^(?:::ffff:)?(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/i;
const MAPPED_HEX = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/i;

/** The 32 bits of an IPv4 address or of an IPv4-mapped IPv6 address; null for anything else. */
export function parseIPv4(address: string): number | null {
  const dotted = DOTTED.exec(address);
  if (dotted !== null) {
    let value = 0;
    for (let i = 1; i <= 4; i++) {
      const octet = Number(dotted[i]);
      if (octet > 255) {
        return null;
      }
      value = value * 256 + octet;
    }
    return value;
  }
  const hex = MAPPED_HEX.exec(address);
  return hex === null
    ? null
    : Number.parseInt(hex[1] ?? "", 16) * 65536 + Number.parseInt(hex[2] ?? "", 16);
}
