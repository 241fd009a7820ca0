import { MAX_FRAME_BYTES } from "../../dispatcher/frames.ts";
import { encodeOrder } from "../../dispatcher/order.ts";
import type { FieldLines } from "../../policy/kernel/exchange.ts";
import { areSendable } from "../../policy/kernel/http1/request-head.ts";
import type { OutgoingRequest, UpstreamFailure } from "../../policy/kernel/http1/types.ts";
import type { PlannedRequest } from "./upstream-request.ts";
import { currentCall } from "./call.ts";
import type { HookCall } from "./hook.ts";
import { isBodyAnnounced, isBodyUntouched, skipBody, type HostRequest } from "./host-request.ts";
import { takeBack, type HostResponse } from "./host-response.ts";
import { finishLent, isUntouched, lend, stagedFields, tellLentHead } from "./lent-response.ts";
import type { Overrides } from "./overrides.ts";

/** Takes an order for one call. */
export interface OrderDesk {
  /** Asks `decide` at the end of this turn; an encoded order is sent, null is none. It must not throw. */
  place(decide: () => string | null, events: OrderEvents): void;
  /** Tells what the script staged since. */
  stage(fields: FieldLines): void;
}

/** How an order fares. */
export interface OrderEvents {
  head(status: number, reason: string, ms: number): void;
  done(): void;
  failed(failure: UpstreamFailure): void;
}

/** What becomes of a request that was ordered, or not. */
export interface OrderOutcome {
  /** The script did something else to its messages in the same turn: the request is sent from here. */
  sendHere(): void;
  done(): void;
  /** Another answer came first, the script's own or the host's, or the client left. */
  ended(): void;
  /** No answer came; nothing is out. */
  failed(failure: UpstreamFailure): void;
  /** The answer broke off, and the client was cut. */
  brokeOff(failure: UpstreamFailure): void;
}

/**
 * Has the edge forward a request whose answer this process would only pass on (decision 16). False when it would do more
 * than that, or when the edge takes no orders. The script must not be able to tell, so the order is decided at the end of
 * the turn: what it did to its messages right after `forward()` counts as it always did.
 */
export function orderForward(
  hook: HookCall,
  req: HostRequest,
  res: HostResponse,
  request: PlannedRequest,
  overrides: Overrides,
  outcome: OrderOutcome,
): boolean {
  const { call, desk } = hook;
  if (desk === null || req !== call.req || res !== call.res || !isPlain(overrides)) {
    return false;
  }
  const isReady = (): boolean =>
    call.res === res &&
    !call.isAnswered &&
    request.method === hook.envelope.method &&
    isUntouched(res) &&
    isBodyHere(hook, req, request);
  if (!isReady()) {
    return false;
  }
  hook.desk = null; // one order per call
  const fields = request.isAsReceived ? null : request.fields;
  if (fields !== null && !areTexts(fields)) {
    return false;
  }
  /** What the script stages while the service is waited for is told once per turn. */
  let isStaging = false;
  const stageSoon = (): void => {
    if (!isStaging) {
      isStaging = true;
      queueMicrotask(() => {
        isStaging = false;
        const staged = stagedFields(res);
        if (call.isLent && areTexts(staged)) {
          desk.stage(staged);
        }
      });
    }
  };
  const over = (): void => {
    call.isLent = false;
    call.onEnd = null;
  };
  const decide = (): string | null => {
    const staged = isReady() ? stagedFields(res) : null;
    if (staged === null || !areTexts(staged)) {
      return null;
    }
    const order = encodeOrder({
      target: request.target,
      fields,
      staged,
      waitedMs: call.upstreamMs,
    });
    if (order.length > MAX_FRAME_BYTES) {
      return null;
    }
    lend(res, stageSoon, () => {
      over();
      outcome.ended();
    });
    call.isLent = true;
    call.onEnd = () => outcome.ended();
    return order;
  };
  desk.place(
    () => {
      let order: string | null = null;
      try {
        order = decide();
      } catch {
        // a script put something into its messages that throws: it will hear of it where it always did
      }
      if (order === null) {
        currentCall.run(call, outcome.sendHere);
      }
      return order;
    },
    {
      head(status, reason, ms) {
        if (call.isLent) {
          call.isForwarded = true;
          call.upstreamMs = (call.upstreamMs ?? 0) + ms;
          call.tellHead(status);
          tellLentHead(res, status, reason);
        }
      },
      done() {
        if (call.isLent) {
          over();
          if (!req.complete) {
            currentCall.run(call, () => skipBody(req, true));
          }
          finishLent(res);
          outcome.done();
        }
      },
      failed(failure) {
        if (!call.isLent) {
          return;
        }
        over();
        currentCall.run(call, () => {
          if (call.isForwarded) {
            outcome.brokeOff(failure);
          } else {
            takeBack(res);
            skipBody(req, false);
            outcome.failed(failure);
          }
        });
      },
    },
  );
  return true;
}

/** Overrides that only change the request; `onUpstreamError` is asked here in any case. */
function isPlain(overrides: Overrides): boolean {
  const { method, host, port, body, signal, timeoutMs } = overrides;
  return (
    method === null &&
    host === null &&
    port === null &&
    body === undefined &&
    signal === null &&
    timeoutMs === null
  );
}

/** The body to be sent is the client's own, and still with the edge; or there is none. */
function isBodyHere(hook: HookCall, req: HostRequest, request: OutgoingRequest): boolean {
  if (!isBodyAnnounced(req)) {
    return request.body === null;
  }
  return hook.bodyState.isTaken && isBodyUntouched(req);
}

/** A script may have put anything into `req.rawHeaders`. */
function areTexts(fields: FieldLines): boolean {
  return fields.every((text: unknown) => typeof text === "string") && areSendable(fields);
}
