import { ApiError } from "../kernel/json-api.ts";

const ETAG = /^(?:file:v(0|[1-9]\d{0,14})|"file:v(0|[1-9]\d{0,14})")$/;

/** A version as clients see it: `file:v<N>`. */
export function formatEtag(version: number): string {
  return `file:v${version}`;
}

/**
 * The version that an If-Match field expects (edge-proxy.md 6.4). Bare and quoted forms are taken; `*`, weak and all
 * other values give -1, which no document has. A missing or empty field throws an ApiError (428).
 */
export function expectedVersion(field: string | undefined): number {
  const value = field?.trim() ?? "";
  if (value === "") {
    throw new ApiError("PRECONDITION_REQUIRED", "If-Match header required for this operation");
  }
  const match = ETAG.exec(value);
  return match === null ? -1 : Number(match[1] ?? match[2]);
}
