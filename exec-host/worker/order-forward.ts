import type { ForwardOrder } from "../../dispatcher/order.ts";
import type { FieldLines } from "../../policy/kernel/exchange.ts";
import { areSendable } from "../../policy/kernel/http1/request-head.ts";
import type { OutgoingRequest, UpstreamFailure } from "../../policy/kernel/http1/types.ts";
import type { HookCall } from "./hook.ts";
import {
  areFieldsReceived,
  areHeadersSeen,
  isBodyAnnounced,
  isBodyUntouched,
  skipBody,
  type HostRequest,
} from "./host-request.ts";
import {
  finishLent,
  isUntouched,
  lend,
  takeBack,
  tellLentHead,
  type HostResponse,
} from "./host-response.ts";
import { NO_OVERRIDES, type Overrides } from "./overrides.ts";

/** Takes an order for one call. */
export interface OrderDesk {
  /** Asks `decide` at the end of this turn; an order is sent, null is none. */
  place(decide: () => ForwardOrder | null, events: OrderEvents): void;
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
  /** The call ended before: its client left, or the host answered in the script's place. */
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
  request: OutgoingRequest,
  overrides: Overrides,
  outcome: OrderOutcome,
): boolean {
  const { call, desk } = hook;
  if (desk === null || req !== call.req || res !== call.res || !isPlain(overrides)) {
    return false;
  }
  const isReady = (): boolean =>
    call.res === res && !call.isAnswered && isUntouched(res) && isBodyHere(hook, req, request);
  if (!isReady()) {
    return false;
  }
  hook.desk = null; // one order per call
  const isSame = overrides === NO_OVERRIDES && !areHeadersSeen(req) && areFieldsReceived(req);
  const fields = isSame ? null : request.fields;
  if (fields !== null && !areTexts(fields)) {
    return false;
  }
  desk.place(
    () => {
      if (!isReady()) {
        outcome.sendHere();
        return null;
      }
      lend(res);
      call.isLent = true;
      call.onEnd = () => outcome.ended();
      return { target: request.target, fields, waitedMs: call.upstreamMs };
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
          call.isLent = false;
          call.onEnd = null;
          skipBody(req);
          outcome.done();
          finishLent(res);
        }
      },
      failed(failure) {
        if (!call.isLent) {
          return;
        }
        call.isLent = false;
        call.onEnd = null;
        if (call.isForwarded) {
          outcome.brokeOff(failure);
        } else {
          takeBack(res);
          outcome.failed(failure);
        }
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
