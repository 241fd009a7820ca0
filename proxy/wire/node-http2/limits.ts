import type { ErrorCode } from "../../../policy/kernel/errors.ts";
import type { RequestHead } from "../../../policy/kernel/exchange.ts";
import type { WireLimits } from "../limits.ts";

/** The refusal of a head that is too large, or null; sizes as HTTP/1.1 would write it. */
export function overLimit(head: RequestHead, limits: WireLimits): ErrorCode | null {
  if (head.target.length > limits.maxTargetBytes) {
    return "TARGET_TOO_LONG";
  }
  const fields = head.fields;
  if (fields.length > limits.maxHeaderLines * 2) {
    return "HEAD_TOO_LARGE";
  }
  let bytes = head.method.length + head.target.length + " HTTP/1.1\r\n\r\n".length + 1;
  for (let i = 0; i < fields.length; i += 2) {
    bytes += fields[i]!.length + fields[i + 1]!.length + ": \r\n".length;
  }
  return bytes > limits.maxHeaderBytes ? "HEAD_TOO_LARGE" : null;
}
