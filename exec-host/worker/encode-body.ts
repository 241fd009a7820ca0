import { HookUpstreamError } from "./hook-upstream-error.ts";
import { toBytes } from "./host-message.ts";
import { bytesSource } from "./request-body.ts";
import type { EncodedBody } from "./upstream-request.ts";

/** An override body in sendable form. */
export function encodeBody(body: unknown): EncodedBody {
  if (body === null) {
    return { source: null, contentType: null };
  }
  const bytes = typeof body === "string" ? Buffer.from(body) : toBytes(body);
  if (bytes === null) {
    throw new HookUpstreamError("invalid-override", "body cannot be sent");
  }
  return { source: bytesSource(bytes), contentType: null };
}

/** The body of an answer as bytes. */
export async function encodeAnswer(
  body: unknown,
): Promise<{ readonly bytes: Buffer; readonly contentType: string | null }> {
  if (body === null || body === undefined) {
    return { bytes: Buffer.alloc(0), contentType: null };
  }
  const response = new Response(body as ConstructorParameters<typeof Response>[0]);
  return {
    bytes: Buffer.from(await response.arrayBuffer()),
    contentType: response.headers.get("content-type"),
  };
}
