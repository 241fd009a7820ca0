import type { Exchange } from "../policy/kernel/exchange.ts";
import { fieldValue } from "../policy/kernel/fields.ts";

const SAFE_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS"]);

/**
 * Whether a browser says that a page of another origin makes this request, and it could change something or open a
 * tunnel. A visitor's cookie, address or stored password admits such a request as well as their own, and a body of
 * plain text needs no preflight: without this any page they look at could run commands where they may (the services
 * that are ours have no cross-origin callers). Neighbouring containers share a site, so that is no better.
 *
 * Programs send neither field. `Sec-Fetch-Site` is the browser's own word; where it is missing (plain HTTP) the
 * origin must be the Host.
 */
export function isCrossSite({ head, handshake }: Pick<Exchange, "head" | "handshake">): boolean {
  if (SAFE_METHODS.has(head.method) && !handshake) {
    return false;
  }
  const site = fieldValue(head.fields, "sec-fetch-site");
  if (site !== undefined) {
    return site !== "same-origin" && site !== "none";
  }
  const origin = fieldValue(head.fields, "origin")?.toLowerCase();
  if (origin === undefined) {
    return false;
  }
  const host = fieldValue(head.fields, "host")?.toLowerCase() ?? "";
  return origin !== `http://${host}` && origin !== `https://${host}`;
}
