import type { Call } from "./call.ts";
import { toBytes } from "./bytes.ts";
import { sendResponse, sendTextStream } from "./send-response.ts";

/**
 * Sends what a script returned without answering itself (exec-host.md 2.3). Nothing is sent for `undefined` on a
 * hook dispatch: an answer from a callback may still come, and the deadline bounds the wait.
 */
export async function respondWith(call: Call, result: unknown): Promise<void> {
  const { res } = call;
  if (result === undefined) {
    answerUndefined(call);
    return;
  }
  if (typeof result === "string") {
    setDefaultType(call, "text/plain; charset=utf-8");
    res.end(result);
    return;
  }
  const bytes = toBytes(result);
  if (bytes !== null) {
    setDefaultType(call, "application/octet-stream");
    res.end(bytes);
    return;
  }
  if (isResponse(result)) {
    await sendResponse(call, result);
    return;
  }
  const stream = textStreamOf(result);
  if (stream !== null) {
    await sendTextStream(call, stream);
    return;
  }
  setDefaultType(call, "application/json; charset=utf-8");
  res.end(JSON.stringify(result) ?? "null");
}

function answerUndefined(call: Call): void {
  if (call.envelope.kind === "hook") {
    // A refused path was caught and nothing came of it: say so now instead of at the deadline.
    if (call.pathRefused) {
      call.refuse("HOOK_BAD_PATH");
    }
    return;
  }
  if (call.res.statusCode === 200) {
    call.res.statusCode = 204;
  }
  call.res.end();
}

function setDefaultType(call: Call, type: string): void {
  if (!call.res.hasHeader("content-type")) {
    call.res.setHeader("content-type", type);
  }
}

/** By its tag: looking at `Response` itself would load the runtime's whole fetch for scripts that never use it. */
function isResponse(value: unknown): value is Response {
  return Object.prototype.toString.call(value) === "[object Response]" && value instanceof Response;
}

/** A result with a `textStream`, as text generators give it. */
function textStreamOf(value: unknown): AsyncIterable<unknown> | null {
  if (typeof value !== "object" || value === null || !("textStream" in value)) {
    return null;
  }
  const stream = value.textStream as AsyncIterable<unknown> | null | undefined;
  return typeof stream?.[Symbol.asyncIterator] === "function" ? stream : null;
}
