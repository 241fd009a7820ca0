import { createHmac, timingSafeEqual } from "node:crypto";

/** Name of the field by which a gateway knows its edge. */
export const EDGE_AUTH_FIELD = "X-Hoody-Edge-Auth";

/** How far the edge's clock and ours may differ, seconds. */
const MAX_SKEW_SECONDS = 60;
const FIELD = /^v1 (\d{1,12})\.([0-9a-f]{64})$/;

/**
 * The value of `X-Hoody-Edge-Auth` for one request: `v1 <seconds>.<hex HMAC-SHA256>` over version, time, method and
 * target (agent-gateway specification, section 5).
 *
 * @param target path and query exactly as forwarded.
 * @param now ms since the epoch.
 */
export function edgeAuthField(secret: string, method: string, target: string, now: number): string {
  const seconds = String(Math.floor(now / 1000));
  return `v1 ${seconds}.${sign(secret, seconds, method, target)}`;
}

/**
 * True when the field was made with one of the secrets for this very request within the last minute. No secret, no
 * service: an empty list admits nobody.
 *
 * @param secrets one, or two while they are being exchanged.
 */
export function isEdgeAuthValid(
  field: string | undefined,
  secrets: readonly string[],
  method: string,
  target: string,
  now: number,
): boolean {
  const match = FIELD.exec(field ?? "");
  const seconds = match?.[1];
  const given = match?.[2];
  if (seconds === undefined || given === undefined) {
    return false;
  }
  if (Math.abs(Math.floor(now / 1000) - Number(seconds)) > MAX_SKEW_SECONDS) {
    return false;
  }
  const presented = Buffer.from(given, "hex");
  // every secret is tried, so that the time does not tell which one fitted
  return secrets
    .filter((secret) => secret !== "")
    .map((secret) =>
      timingSafeEqual(presented, Buffer.from(sign(secret, seconds, method, target), "hex")),
    )
    .includes(true);
}

function sign(secret: string, seconds: string, method: string, target: string): string {
  return createHmac("sha256", secret).update(`v1\n${seconds}\n${method}\n${target}`).digest("hex");
}
