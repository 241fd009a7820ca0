import type { BodySource } from "../../policy/kernel/exchange.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import { toBytes } from "./bytes.ts";
import { bytesSource } from "./request-body.ts";
import type { EncodedBody } from "./upstream-request.ts";

type FetchBody = ConstructorParameters<typeof Response>[0];

/**
 * An override body (a Fetch API `BodyInit`, or null for none) in sendable form. Forms and blobs are measured, streams
 * are sent in chunks as they come.
 *
 * @throws HookUpstreamError `invalid-override` for a value that is no body.
 */
export async function encodeBody(body: unknown): Promise<EncodedBody> {
  if (body === null || body === undefined) {
    return { source: null, contentType: null };
  }
  if (typeof body === "string") {
    return { source: bytesSource(Buffer.from(body)), contentType: null };
  }
  const bytes = toBytes(body);
  if (bytes !== null) {
    // A copy: what the script does with its array after the call must not reach the wire.
    return { source: bytesSource(Buffer.from(bytes)), contentType: null };
  }
  const response = toFetchResponse(body);
  if (body instanceof ReadableStream || isAsyncIterable(body)) {
    return { source: streamSource(response.body as ReadableStream<Uint8Array>), contentType: null };
  }
  return {
    source: bytesSource(Buffer.from(await response.arrayBuffer())),
    contentType: response.headers.get("content-type"),
  };
}

/** The body of an answer as bytes, with the type that a Fetch API body brings along. */
export async function encodeAnswer(
  body: unknown,
): Promise<{ readonly bytes: Buffer; readonly contentType: string | null }> {
  if (body === null || body === undefined) {
    return { bytes: Buffer.alloc(0), contentType: null };
  }
  const response = toFetchResponse(body);
  return {
    bytes: Buffer.from(await response.arrayBuffer()),
    contentType: response.headers.get("content-type"),
  };
}

function toFetchResponse(body: unknown): Response {
  try {
    return new Response(body as FetchBody);
  } catch (cause) {
    throw new HookUpstreamError("invalid-override", "body cannot be sent", cause);
  }
}

function isAsyncIterable(value: unknown): boolean {
  return (
    typeof (value as { [Symbol.asyncIterator]?: unknown })[Symbol.asyncIterator] === "function"
  );
}

/** A web stream as an upstream request's body, read no faster than it is sent. */
export function streamSource(stream: ReadableStream<Uint8Array>): BodySource {
  const reader = stream.getReader();
  let isCancelled = false;
  let wake = (): void => {};
  return {
    length: null,
    start(sink) {
      const run = async (): Promise<void> => {
        for (let item = await reader.read(); !item.done; item = await reader.read()) {
          if (isCancelled) {
            return;
          }
          const { value } = item;
          if (!(value instanceof Uint8Array)) {
            throw new TypeError("a body stream must give bytes");
          }
          if (value.byteLength > 0 && !sink.data(Buffer.from(value))) {
            await new Promise<void>((resolve) => (wake = resolve));
          }
        }
        if (!isCancelled) {
          sink.end([]);
        }
      };
      run().catch((error: unknown) => {
        if (!isCancelled) {
          isCancelled = true;
          sink.fail(error instanceof Error ? error : new Error(String(error)));
        }
      });
    },
    resume: () => wake(),
    cancel() {
      isCancelled = true;
      wake();
      reader.cancel().catch(() => {}); // its source may complain; nobody wants the rest
    },
  };
}
