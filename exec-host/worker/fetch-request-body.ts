import type { BodySource } from "../../policy/kernel/exchange.ts";
import { streamSource } from "./encode-body.ts";
import { bytesSource } from "./request-body.ts";

/** The body of a fetch. Bytes can be sent again after a redirect, a stream cannot. */
export type FetchContent =
  | { readonly kind: "bytes"; readonly bytes: Buffer }
  | { readonly kind: "stream"; readonly source: BodySource };

export type RequestContent = FetchContent | Promise<FetchContent>;

/** A body of unknown origin up to this size is measured, a larger one is sent in chunks. */
const MEASURED_BYTES = 1_048_576;

/**
 * The body of a request that was just made. What lies in memory anyway (texts, arrays, forms, blobs) is measured, so
 * that it goes out with a length; a stream is sent as it comes.
 *
 * @param given the body as the script gave it; undefined when it came inside a `Request`.
 */
export function readRequestBody(request: Request, given: unknown): RequestContent | null {
  const body = request.body as ReadableStream<Uint8Array> | null;
  if (body === null) {
    return null;
  }
  if (isStream(given)) {
    return { kind: "stream", source: streamSource(body) };
  }
  if (given !== undefined && given !== null) {
    return request.arrayBuffer().then((bytes) => ({ kind: "bytes", bytes: Buffer.from(bytes) }));
  }
  return readAhead(body);
}

function isStream(value: unknown): boolean {
  return (
    typeof value === "object" &&
    value !== null &&
    (value instanceof ReadableStream || Symbol.asyncIterator in value)
  );
}

async function readAhead(body: ReadableStream<Uint8Array>): Promise<FetchContent> {
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (let item = await reader.read(); !item.done; item = await reader.read()) {
    chunks.push(item.value);
    size += item.value.byteLength;
    if (size > MEASURED_BYTES) {
      reader.releaseLock();
      return { kind: "stream", source: streamSource(concatenate(chunks, body)) };
    }
  }
  return { kind: "bytes", bytes: Buffer.concat(chunks, size) };
}

function concatenate(
  chunks: readonly Uint8Array[],
  rest: ReadableStream<Uint8Array>,
): ReadableStream<Uint8Array> {
  const left = [...chunks];
  const reader = rest.getReader();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const next = left.shift() ?? (await reader.read()).value;
      if (next === undefined) {
        controller.close();
      } else {
        controller.enqueue(next);
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** The source for one attempt; a stream gives itself once. */
export function toSource(content: FetchContent | null): BodySource | null {
  if (content === null) {
    return null;
  }
  return content.kind === "bytes" ? bytesSource(content.bytes) : content.source;
}
