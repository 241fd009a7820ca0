import type { Presented } from "./presented.ts";

const BEARER = /^bearer +/i;

/**
 * A credential in a header: `Authorization` may carry it behind `Bearer`, every other header carries it bare
 * (edge-proxy.md 2.2).
 *
 * @param lower lower-case name of the header
 */
export function headerCredential(presented: Presented, lower: string): string | undefined {
  const value = presented.header(lower);
  return lower === "authorization" ? value?.replace(BEARER, "") : value;
}
