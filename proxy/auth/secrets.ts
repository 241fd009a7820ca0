import { timingSafeEqual } from "node:crypto";

/** A configured secret, ready to be compared: the bytes of its UTF-8 form. */
export function toSecret(text: string): Buffer {
  return Buffer.from(text, "utf8");
}

/**
 * Whether received bytes equal a secret, in time that depends on lengths only.
 *
 * @param received latin1 text, one character per byte, as header values and query values arrive
 */
export function equalsSecret(received: string, secret: Buffer): boolean {
  return (
    received.length === secret.length && timingSafeEqual(Buffer.from(received, "latin1"), secret)
  );
}

/** Text that a peer sends as UTF-8 bytes, as the latin1 text in which it arrives. */
export function toWireText(text: string): string {
  return Buffer.from(text, "utf8").toString("latin1");
}
