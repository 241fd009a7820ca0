import { randomBytes, randomUUID } from "node:crypto";

const CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz";

/** A random UUID (version 4), lower case. Used for audit ids. */
export function newUuid(): string {
  return randomUUID();
}

/** `bytes` of randomness as lower-case hex. Nonces, secrets, alias names. */
export function newHex(bytes: number): string {
  return randomBytes(bytes).toString("hex");
}

/** `bytes` of randomness, base64url without padding. Confirm tokens and control tokens. */
export function newToken(bytes = 32): string {
  return randomBytes(bytes).toString("base64url");
}

/**
 * A lower-case Crockford ULID: 10 characters of time, 16 of randomness (`^[0-9a-hjkmnp-tv-z]{26}$`).
 *
 * @param now ms since the epoch, from the caller's clock.
 */
export function newUlid(now: number): string {
  let time = "";
  let rest = now;
  for (let i = 0; i < 10; i++) {
    time = CROCKFORD.charAt(rest % 32) + time;
    rest = Math.floor(rest / 32);
  }
  let tail = "";
  for (const byte of randomBytes(16)) {
    tail += CROCKFORD.charAt(byte & 31);
  }
  return time + tail;
}

/** All three-digit hex texts: a request id is put together from them, which costs a tenth of drawing one. */
const HEX = Array.from({ length: 4096 }, (_, n) => n.toString(16).padStart(3, "0"));
const IDS_PER_PREFIX = 4096 * 4096;
let prefix = "";
let issued = IDS_PER_PREFIX;

/** A 16-character request id for logs, lower-case hex: unique, never a secret. A random beginning, then a count. */
export function newRequestId(): string {
  if (issued === IDS_PER_PREFIX) {
    prefix = newHex(5);
    issued = 0;
  }
  const n = issued++;
  return prefix + HEX[n >> 12]! + HEX[n & 4095]!;
}
