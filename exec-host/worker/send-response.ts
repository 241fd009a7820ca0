import type { ReadableStreamReadResult } from "node:stream/web";
import type { Call } from "./call.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import { holdToLength, isHeadOut, sendHead, type HostResponse } from "./host-response.ts";
import { takeUntouchedBody, type IncomingBody } from "./incoming-body.ts";
import { readOwn } from "./overrides.ts";
import { planResponse } from "./response-fields.ts";
import { isFromService } from "./response-origin.ts";

/** A returned body that ends within this much gets an exact length. */
const MEASURED_BYTES = 65_536;

/** The parts of Node's response that are used on whatever object a script passes for it. */
type Target = HostResponse;

/**
 * `pipeResponse()`: status, fields and bytes of a response into `res` (exec-host.md 5.4).
 *
 * @throws HookUpstreamError `invalid-override`, `bytes-already-sent`, `stream-aborted`; TypeError for a used body.
 */
export async function pipeResponse(
  call: Call,
  upstream: unknown,
  res: Target,
  options: unknown,
): Promise<void> {
  const { method } =
    options === undefined || options === null
      ? { method: undefined }
      : readOwn(options, ["method"]);
  if (method !== undefined && typeof method !== "string") {
    throw new HookUpstreamError("invalid-override", "method must be a text");
  }
  if (res.headersSent) {
    throw new HookUpstreamError("bytes-already-sent", "the response has been started already");
  }
  const asked = method?.toUpperCase() ?? call.req.method ?? "GET";
  const plan = planResponse(upstream, asked);
  const response = upstream as Response;
  const { fields } = plan;
  if (plan.declaredLength !== null) {
    fields.push("Content-Length", plan.declaredLength);
  } else if (
    response.body === null &&
    plan.status !== 204 &&
    plan.status !== 304 &&
    asked !== "HEAD" // an answer to HEAD without a length leaves it open
  ) {
    fields.push("Content-Length", "0");
  }
  if (call.isGone) {
    cancelBody(response);
    return;
  }
  start(call, res, plan.status, plan.reason, fields, response, plan.sendsBody);
  if (!plan.sendsBody) {
    res.end();
    cancelBody(response);
    return;
  }
  await sendBody(call, res, response);
}

/** Answers with a response that the script returned. Its own length is never believed. */
export async function sendResponse(call: Call, response: Response): Promise<void> {
  const { res } = call;
  const method = call.req.method ?? "GET";
  const plan = planResponse(response, method);
  const { fields } = plan;
  if (!plan.sendsBody) {
    if (response.body === null && method !== "HEAD" && plan.status !== 204 && plan.status !== 304) {
      fields.push("Content-Length", "0");
    }
    start(call, res, plan.status, plan.reason, fields, response, plan.sendsBody);
    res.end();
    cancelBody(response);
    return;
  }
  if (isEventStream(response)) {
    start(call, res, plan.status, plan.reason, fields, response, plan.sendsBody);
    res.flushHeaders();
    await sendBody(call, res, response);
    return;
  }
  const begun = await readBeginning(call, response);
  if (call.isAnswered) {
    begun.cancel();
    return;
  }
  if (begun.isWhole) {
    fields.push("Content-Length", String(begun.bytes));
  }
  start(call, res, plan.status, plan.reason, fields, response, plan.sendsBody);
  for (const chunk of begun.chunks) {
    res.write(chunk);
  }
  if (begun.isWhole) {
    res.end();
    return;
  }
  await begun.rest(res);
}

/** Answers with text that comes bit by bit. */
export async function sendTextStream(call: Call, stream: AsyncIterable<unknown>): Promise<void> {
  const { res } = call;
  if (!res.hasHeader("content-type")) {
    res.setHeader("content-type", "text/plain; charset=utf-8");
  }
  res.flushHeaders();
  const iterator = stream[Symbol.asyncIterator]();
  const stop = call.onGone(() => void iterator.return?.().catch(() => {}));
  try {
    for (let item = await iterator.next(); item.done !== true; item = await iterator.next()) {
      if (call.isGone) {
        return;
      }
      if (!res.write(typeof item.value === "string" ? item.value : String(item.value))) {
        await drained(call, res);
      }
    }
  } finally {
    stop();
  }
  res.end();
}

function start(
  call: Call,
  res: Target,
  status: number,
  reason: string,
  fields: string[],
  response: Response,
  carriesBody: boolean,
): void {
  if (isFromService(response)) {
    call.isForwarded = true;
    res.sendDate = false; // the service's own date, or none, travels
  }
  sendHead(res, status, reason, fields);
  // A length comes from a head that the script may have changed: Node holds the body to it.
  if (carriesBody) {
    holdToLength(res);
  }
}

function isEventStream(response: Response): boolean {
  return (response.headers.get("content-type") ?? "").toLowerCase().startsWith("text/event-stream");
}

function cancelBody(response: Response): void {
  const untouched = takeUntouchedBody(response);
  if (untouched !== null) {
    untouched.cancel();
  } else if (response.body !== null && !response.body.locked) {
    response.body.cancel().catch(() => {}); // its source may complain; nobody wants the body
  }
}

/** The whole body, with back-pressure. A broken one cuts the client off and is thrown. */
async function sendBody(call: Call, res: Target, response: Response): Promise<void> {
  const untouched = takeUntouchedBody(response);
  if (untouched !== null) {
    await pour(call, res, untouched);
    return;
  }
  const reader = response.body!.getReader() as ReadableStreamDefaultReader<Uint8Array>;
  await pump(call, res, reader, reader.read());
}

function pour(call: Call, res: Target, body: IncomingBody): Promise<void> {
  return new Promise((resolve, reject) => {
    flushSoon(res);
    body.pour({
      data(chunk) {
        try {
          if (res.write(chunk)) {
            return true;
          }
          res.once("drain", () => body.resume());
          return false;
        } catch (error) {
          body.cancel(); // more bytes than the head announces, or a script's own `write` that throws
          reject(error as Error);
          return true;
        }
      },
      end() {
        try {
          res.end();
          resolve();
        } catch (error) {
          reject(error as Error);
        }
      },
      fail(error) {
        if (call.isGone) {
          resolve();
        } else {
          call.cut("truncated");
          reject(asAborted(error));
        }
      },
    });
    call.onGone(() => {
      body.cancel();
      resolve();
    });
  });
}

async function pump(
  call: Call,
  res: Target,
  reader: ReadableStreamDefaultReader<Uint8Array>,
  first: Promise<ReadableStreamReadResult<Uint8Array>>,
): Promise<void> {
  flushSoon(res);
  const stop = call.onGone(() => void reader.cancel().catch(() => {}));
  try {
    for (let item = await first; !item.done; item = await reader.read()) {
      if (call.isGone) {
        return;
      }
      if (!res.write(toChunk(item.value))) {
        await drained(call, res);
      }
    }
  } catch (error) {
    if (call.isGone) {
      return;
    }
    call.cut("truncated");
    reader.cancel().catch(() => {}); // it failed already, or is not to send more
    throw asAborted(error);
  } finally {
    stop();
  }
  if (!call.isGone) {
    res.end();
  }
}

function toChunk(value: unknown): Uint8Array {
  if (value instanceof Uint8Array) {
    return value;
  }
  throw new TypeError("a body stream must give bytes");
}

interface Beginning {
  readonly chunks: readonly Uint8Array[];
  readonly bytes: number;
  readonly isWhole: boolean;
  rest(res: Target): Promise<void>;
  cancel(): void;
}

/**
 * Reads ahead while the body comes without waiting, at most `MEASURED_BYTES`: a body that is complete by then is
 * sent with its length, a slow one is passed on as soon as it pauses.
 */
async function readBeginning(call: Call, response: Response): Promise<Beginning> {
  const reader = response.body!.getReader() as ReadableStreamDefaultReader<Uint8Array>;
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  const make = (
    isWhole: boolean,
    pending?: Promise<ReadableStreamReadResult<Uint8Array>>,
  ): Beginning => ({
    chunks,
    bytes,
    isWhole,
    rest: (res) => pump(call, res, reader, pending ?? reader.read()),
    cancel: () => void reader.cancel().catch(() => {}),
  });
  const first = await Promise.race([reader.read(), gone(call)]);
  if (first === null) {
    return make(false);
  }
  if (first.done) {
    return make(true);
  }
  chunks.push(toChunk(first.value));
  bytes += first.value.byteLength;
  while (bytes <= MEASURED_BYTES) {
    const pending = reader.read();
    pending.catch(() => {}); // looked at again by `rest`
    const item = await Promise.race([pending, pause()]);
    if (item === null) {
      return make(false, pending);
    }
    if (item.done) {
      return make(true);
    }
    chunks.push(toChunk(item.value));
    bytes += item.value.byteLength;
  }
  return make(false);
}

/** Resolves when the event loop has gone round once: whatever was ready is there by then. */
function pause(): Promise<null> {
  return new Promise((resolve) => setImmediate(() => setImmediate(() => resolve(null))));
}

function gone(call: Call): Promise<null> {
  return new Promise((resolve) => {
    call.onGone(() => resolve(null));
  });
}

function drained(call: Call, res: Target): Promise<void> {
  return new Promise((resolve) => {
    res.once("drain", () => resolve());
    call.onGone(() => resolve());
  });
}

/** A head whose body does not come at once must not wait for it. */
function flushSoon(res: Target): void {
  setImmediate(() => {
    if (!isHeadOut(res) && res.headersSent && !res.destroyed) {
      res.flushHeaders();
    }
  });
}

function asAborted(error: unknown): HookUpstreamError {
  if (error instanceof HookUpstreamError && error.kind === "stream-aborted") {
    return error;
  }
  return new HookUpstreamError("stream-aborted", "the body broke off", error);
}
