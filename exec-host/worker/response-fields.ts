import { sweepResponse } from "../../policy/kernel/fields.ts";
import { originOf } from "./response-origin.ts";

/** What is sent of a response object. */
export interface ResponsePlan {
  readonly status: number;
  readonly reason: string;
  /** Without hop-by-hop and framing fields. */
  readonly fields: string[];
  readonly sendsBody: boolean;
  /** The length the response itself announces and may announce, for `pipeResponse()`. */
  readonly declaredLength: string | null;
}

/**
 * Reads status and fields of a response and applies the table of exec-host.md 5.7.
 *
 * @param method the client's: HEAD gets no body.
 * @throws TypeError when it is no response, or its body was used already.
 */
export function planResponse(response: unknown, method: string): ResponsePlan {
  if (!(response instanceof Response)) {
    throw new TypeError("a Response is needed");
  }
  if (response.bodyUsed || response.body?.locked === true) {
    throw new TypeError("the body of the Response was read already");
  }
  const { status } = response;
  const isBodyless = method === "HEAD" || status === 204 || status === 304;
  const origin = originOf(response);
  const isDecoded = origin === "decoded" || origin === "foreign";
  const lines: string[] = [];
  for (const [name, value] of response.headers) {
    if (!(isDecoded && name === "content-encoding")) {
      lines.push(name, value);
    }
  }
  return {
    status,
    reason: response.statusText,
    fields: sweepResponse(lines),
    sendsBody: !isBodyless && response.body !== null,
    declaredLength: isDecoded ? null : declaredLength(response, origin === "raw", method),
  };
}

/** Kept for bytes as sent; a built response keeps its own only where no body follows. */
function declaredLength(response: Response, isRaw: boolean, method: string): string | null {
  const { status } = response;
  const value = response.headers.get("content-length");
  if (value === null || !/^[0-9]{1,15}$/.test(value) || status === 204) {
    return null;
  }
  const isKeptWithoutBody = method === "HEAD" || status === 304;
  return isKeptWithoutBody || (isRaw && response.body !== null) ? value : null;
}
