import { BlockList, isIP } from "node:net";
import type { FieldLines } from "../policy/kernel/exchange.ts";
import { fieldValues } from "../policy/kernel/fields.ts";

/** An address with IPv4-mapped IPv6 turned into plain IPv4, so that both spellings mean one client. */
export function plainAddress(address: string): string {
  if (address.length < 8 || !/^::ffff:/i.test(address)) {
    return address;
  }
  const rest = address.slice(7);
  if (isIP(rest) === 4) {
    return rest;
  }
  const match = /^([0-9a-f]{1,4}):([0-9a-f]{1,4})$/i.exec(rest);
  if (match === null) {
    return address;
  }
  const high = Number.parseInt(match[1]!, 16);
  const low = Number.parseInt(match[2]!, 16);
  return `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`;
}

/** Proxies in front of the edge. */
export interface TrustedProxies {
  has(address: string): boolean;
}

/**
 * Compiles CIDRs and single addresses.
 *
 * @throws TypeError for an entry that is neither; an unreadable entry must never trust more or less than was meant.
 */
export function createTrustedProxies(entries: readonly string[]): TrustedProxies {
  const list = new BlockList();
  for (const entry of entries) {
    const slash = entry.indexOf("/");
    const address = plainAddress(slash < 0 ? entry : entry.slice(0, slash));
    const family = isIP(address);
    const wasMapped = family === 4 && entry.includes(":");
    const widest = family === 4 ? 32 : 128;
    const written = slash < 0 ? "" : entry.slice(slash + 1);
    const prefix = slash < 0 ? widest : Number(written) - (wasMapped ? 96 : 0);
    if (
      family === 0 ||
      (slash >= 0 && !/^[0-9]{1,3}$/.test(written)) ||
      prefix < 0 ||
      prefix > widest
    ) {
      throw new TypeError(`not an address or CIDR: ${entry}`);
    }
    list.addSubnet(address, prefix, family === 4 ? "ipv4" : "ipv6");
  }
  const isEmpty = entries.length === 0;
  return {
    has(address) {
      const plain = plainAddress(address);
      const family = isIP(plain);
      return !isEmpty && family !== 0 && list.check(plain, family === 4 ? "ipv4" : "ipv6");
    },
  };
}

/** Hops looked at; nobody has more proxies in a row. */
const MAX_HOPS = 64;

/**
 * The address of the client: the socket peer, or, when that is a trusted proxy, the first address of
 * `X-Forwarded-For` that is not one, counted from the right (K06). What stands left of it was written by strangers.
 * An entry that is no address ends the walk: the hop before it is the last one known.
 *
 * @param fields as received, before sweeping.
 */
export function clientAddress(peer: string, fields: FieldLines, trusted: TrustedProxies): string {
  let known = plainAddress(peer);
  if (!trusted.has(known)) {
    return known;
  }
  const hops = fieldValues(fields, "x-forwarded-for").join(",").split(",");
  for (let i = hops.length - 1, count = 0; i >= 0 && count < MAX_HOPS; i--, count++) {
    const hop = addressOf(hops[i]!.trim());
    if (hop === null) {
      return known;
    }
    known = hop;
    if (!trusted.has(known)) {
      return known;
    }
  }
  return known;
}

/** An address, also with a port behind it as some proxies write it. */
function addressOf(text: string): string | null {
  const plain = plainAddress(text);
  if (isIP(plain) !== 0) {
    return plain.includes("%") ? null : plain;
  }
  const match = /^(?:\[([^\]]+)\]|([0-9.]+))(?::[0-9]{1,5})?$/.exec(text);
  const inner = plainAddress(match?.[1] ?? match?.[2] ?? "");
  return isIP(inner) === 0 || inner.includes("%") ? null : inner;
}
