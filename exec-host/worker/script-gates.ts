import { createHash, timingSafeEqual } from "node:crypto";
import { queryValues, splitTarget } from "../../policy/kernel/target.ts";
import type { Directives } from "../scripts/directives.ts";
import type { HostRequest } from "./host-request.ts";
import type { HostResponse } from "./host-response.ts";

/**
 * Whether an ordinary caller may run a script with `@token` lines (exec-host.md 3). The first credential that is
 * there decides: `Authorization: Bearer`, the password of Basic, `X-Token`, `?token=`.
 */
export function isTokenAccepted(req: HostRequest, tokens: readonly string[]): boolean {
  if (tokens.length === 0) {
    return true;
  }
  const presented = presentedToken(req);
  if (presented === null) {
    return false;
  }
  const digest = sha256(presented);
  let isAccepted = false;
  for (const token of tokens) {
    // All of them, so that the time says nothing about which one fits. An empty token lets nobody in.
    const fits = timingSafeEqual(digest, sha256(token));
    isAccepted ||= fits && token !== "";
  }
  return isAccepted;
}

function presentedToken(req: HostRequest): string | null {
  const authorization = req.headers.authorization ?? "";
  const bearer = /^bearer[ ]+(\S+)\s*$/i.exec(authorization)?.[1];
  if (bearer !== undefined) {
    return bearer;
  }
  const basic = /^basic[ ]+([A-Za-z0-9+/=_-]+)\s*$/i.exec(authorization)?.[1];
  if (basic !== undefined) {
    const pair = Buffer.from(basic, "base64").toString("utf8");
    const at = pair.indexOf(":");
    return at === -1 ? "" : pair.slice(at + 1);
  }
  const header = req.headers["x-token"];
  if (header !== undefined) {
    return String(header);
  }
  return queryValues(splitTarget(req.url ?? "").query, "token")[0] ?? null;
}

function sha256(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

const ALL_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/** Stages the `Access-Control-*` fields of a script before it runs, so that it may change them. */
export function stageCors(req: HostRequest, res: HostResponse, directives: Directives): void {
  const { cors } = directives;
  const { origin } = req.headers;
  if (cors === "none" || origin === undefined) {
    return;
  }
  const allowed = cors === "*" ? "*" : cors === "reflective" ? origin : cors.origin;
  res.setHeader("Access-Control-Allow-Origin", allowed);
  if (allowed !== "*") {
    res.setHeader("Vary", "Origin");
    if (directives.corsCredentials) {
      res.setHeader("Access-Control-Allow-Credentials", "true");
    }
  }
}

/** Whether this is the question a browser asks first; it is answered without running the script. */
export function isPreflight(req: HostRequest, directives: Directives): boolean {
  return (
    directives.cors !== "none" &&
    req.method === "OPTIONS" &&
    req.headers.origin !== undefined &&
    req.headers["access-control-request-method"] !== undefined
  );
}

/** Answers it, over what `stageCors` staged. */
export function answerPreflight(req: HostRequest, res: HostResponse, directives: Directives): void {
  const wanted = req.headers["access-control-request-headers"];
  const names = typeof wanted === "string" && /^[\w\-, ]{1,1000}$/.test(wanted) ? wanted : null;
  res.setHeader("Access-Control-Allow-Methods", directives.corsMethods ?? ALL_METHODS);
  const headers = directives.corsHeaders ?? names;
  if (headers !== null) {
    res.setHeader("Access-Control-Allow-Headers", headers);
  }
  if (directives.corsMaxAge !== null) {
    res.setHeader("Access-Control-Max-Age", String(directives.corsMaxAge));
  }
  res.statusCode = 204;
  res.end();
}
