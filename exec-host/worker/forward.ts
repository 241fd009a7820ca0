import type { FieldLines, ResponseHead } from "../../policy/kernel/exchange.ts";
import { fieldValue, sweepResponse } from "../../policy/kernel/fields.ts";
import type { OutgoingCall, OutgoingRequest } from "../../policy/kernel/http1/types.ts";
import { encodeAnswer, encodeBody } from "./encode-body.ts";
import type { HookCall } from "./hook.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import type { HostRequest } from "./host-request.ts";
import { isHeadOut, sendHead, type HostResponse } from "./host-response.ts";
import {
  checkHeaders,
  readOverrides,
  readOwn,
  snapshotHeaders,
  type Overrides,
} from "./overrides.ts";
import { orderForward } from "./order-forward.ts";
import { planRequest, sendUpstream, toHookError } from "./upstream-request.ts";

/**
 * One pass from the request to the service and back (exec-host.md 5.4): bytes and fields as they are, apart from
 * what belongs to one connection. Errors of the service become an answer here; errors of the script are thrown.
 */
export async function forward(
  hook: HookCall,
  req: HostRequest,
  res: HostResponse,
  given: unknown,
): Promise<void> {
  const overrides = readOverrides(given);
  if (res.headersSent) {
    throw new HookUpstreamError("bytes-already-sent", "the response has been started already");
  }
  const encoded = overrides.body === undefined ? null : await encodeBody(overrides.body);
  let request;
  try {
    request = planRequest(
      hook.call,
      hook.envelope,
      hook.origPath,
      req,
      hook.bodyState,
      overrides,
      encoded,
      hook.upstream.limits,
    );
  } catch (error) {
    if (error instanceof HookUpstreamError && error.kind === "unforwardable-path") {
      hook.call.refuse("HOOK_BAD_PATH");
      return;
    }
    throw error;
  }
  const failure = await new Promise<HookUpstreamError | null>((resolve, reject) => {
    const sendHere = (): void => {
      try {
        relay(hook, res, request, overrides, resolve, reject);
      } catch (cause) {
        reject(cause as Error);
      }
    };
    const isOrdered = orderForward(hook, req, res, request, overrides, {
      sendHere,
      done: () => resolve(null),
      ended() {
        if (hook.call.isGone) {
          resolve(null); // nobody is left to be told
        } else {
          reject(answeredError());
        }
      },
      failed: (cause) => resolve(toHookError(cause, hook.call)),
      brokeOff(cause) {
        hook.call.cut("truncated");
        const { message } = cause;
        reject(new HookUpstreamError("stream-aborted", message, toHookError(cause, hook.call)));
      },
    });
    if (!isOrdered) {
      sendHere();
    }
  });
  if (failure !== null) {
    await answerFailure(hook, res, overrides, failure);
  }
}

/** What Node says where an answer was begun already. */
function answeredError(): Error {
  return Object.assign(new Error("Cannot write headers after they are sent to the client"), {
    code: "ERR_HTTP_HEADERS_SENT",
  });
}

/** Sends the request from here and passes the answer on; resolves with what kept one from coming. */
function relay(
  hook: HookCall,
  res: HostResponse,
  request: OutgoingRequest,
  overrides: Overrides,
  resolve: (failure: HookUpstreamError | null) => void,
  reject: (cause: Error) => void,
): void {
  let outgoing: OutgoingCall | null = null;
  let isStarted = false;
  outgoing = sendUpstream(hook.upstream, hook.call, request, overrides, hook.setTimer, {
    head(head, length, isBodyless) {
      isStarted = true;
      try {
        startAnswer(hook, res, head, length, isBodyless);
      } catch (cause) {
        outgoing?.abort();
        reject(cause instanceof Error ? cause : new Error(String(cause)));
      }
    },
    data(chunk) {
      try {
        if (res.write(chunk)) {
          return true;
        }
        res.once("drain", () => outgoing?.resume());
        return false;
      } catch (cause) {
        outgoing?.abort();
        reject(cause as Error); // a script's own `write` that throws
        return true;
      }
    },
    end() {
      try {
        res.end();
        resolve(null);
      } catch (cause) {
        reject(cause as Error);
      }
    },
    fail(error) {
      if (hook.call.isGone || (error.kind === "abort" && hook.call.hasLeft)) {
        resolve(null); // nobody is left to be told
      } else if (isStarted) {
        const aborted = new HookUpstreamError("stream-aborted", error.message, error);
        hook.call.cut("truncated");
        reject(aborted);
      } else {
        resolve(error);
      }
    },
  });
}

/** Sends the service's head, merged over what the script staged; the service's own fields win. */
function startAnswer(
  hook: HookCall,
  res: HostResponse,
  head: ResponseHead,
  length: number | null,
  isBodyless: boolean,
): void {
  const fields = sweepResponse(head.fields);
  const declared = declaredLength(hook, head, length, isBodyless);
  if (declared !== undefined) {
    fields.push("Content-Length", declared);
  }
  hook.call.isForwarded = true;
  res.sendDate = false;
  sendHead(res, head.status, head.reason, fields);
  if (isBodyless || length === 0) {
    return;
  }
  // A stream may stay silent for long after its head; a short answer has its first bytes in this same turn.
  process.nextTick(() => {
    if (!isHeadOut(res) && !res.destroyed) {
      res.flushHeaders();
    }
  });
}

/** HEAD and 304 keep the length of the body they leave out; a GET that was sent on as HEAD has none to give. */
function declaredLength(
  hook: HookCall,
  head: ResponseHead,
  length: number | null,
  isBodyless: boolean,
): string | undefined {
  if (head.status === 204) {
    return undefined;
  }
  if (!isBodyless) {
    return length?.toString();
  }
  return head.status === 304 || hook.call.req.method === "HEAD"
    ? fieldValue(head.fields, "content-length")
    : "0";
}

/** What `onUpstreamError` makes of it, else the plain 502. */
async function answerFailure(
  hook: HookCall,
  res: HostResponse,
  overrides: Overrides,
  error: HookUpstreamError,
): Promise<void> {
  const cause = error.cause instanceof Error ? ` (${error.cause.message})` : "";
  hook.log("warn", `forward(): ${error.kind}: ${error.message}${cause}`);
  if (overrides.onUpstreamError !== null) {
    try {
      const answer = readAnswer(await overrides.onUpstreamError(error));
      const body = await encodeAnswer(answer.body);
      if (hook.call.isGone || res.headersSent) {
        return;
      }
      hook.call.mark("upstream_failed");
      sendAnswer(res, answer, body);
      return;
    } catch (cause) {
      hook.logError("onUpstreamError", cause);
      if (hook.call.isGone || res.headersSent) {
        return;
      }
    }
  }
  hook.call.refuse("HOOK_UPSTREAM_UNAVAILABLE");
}

interface ReplacementAnswer {
  readonly status: number;
  readonly fields: FieldLines;
  readonly body: unknown;
}

/** @throws for anything that is not `{status, headers?, body?}`; members are read once, own ones only. */
function readAnswer(given: unknown): ReplacementAnswer {
  const { status, headers, body } = readOwn(given, ["status", "headers", "body"]);
  if (typeof status !== "number" || !Number.isInteger(status) || status < 200 || status > 599) {
    throw new TypeError("status must be an integer from 200 to 599");
  }
  const fields: string[] = [];
  for (const { name, values } of checkHeaders(snapshotHeaders(headers ?? undefined)).values()) {
    for (const value of values ?? []) {
      fields.push(name, value);
    }
  }
  return { status, fields, body };
}

function sendAnswer(
  res: HostResponse,
  answer: ReplacementAnswer,
  body: { readonly bytes: Buffer; readonly contentType: string | null },
): void {
  const fields = [...answer.fields];
  const isTyped = fieldValue(fields, "content-type") !== undefined || res.hasHeader("content-type");
  if (!isTyped && body.contentType !== null) {
    fields.push("Content-Type", body.contentType);
  }
  if (answer.status !== 204 && answer.status !== 304) {
    fields.push("Content-Length", String(body.bytes.length));
  }
  sendHead(res, answer.status, "", fields);
  res.end(answer.status === 204 || answer.status === 304 ? undefined : body.bytes);
}
