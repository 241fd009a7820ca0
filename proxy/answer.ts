import { STATUS_CODES } from "node:http";
import { type ErrorCode, errorBody, errorFields, statusOf } from "../policy/kernel/errors.ts";
import type { Exchange, FieldLines } from "../policy/kernel/exchange.ts";

/** Why the edge does not pass a request on; turned into an answer by `answerRefusal` alone. */
export interface Refusal {
  readonly code: ErrorCode;
  /** Fields besides those of the error table, `WWW-Authenticate` for one. */
  readonly fields?: FieldLines;
}

const refusals = new Map<ErrorCode, Refusal>();

/** The refusal of a code without fields of its own, shared. */
export function refusal(code: ErrorCode): Refusal {
  let shared = refusals.get(code);
  if (shared === undefined) {
    shared = { code };
    refusals.set(code, shared);
  }
  return shared;
}

/** Sends the JSON answer of a refusal (decision 32). Does nothing when the exchange was already answered. */
export function answerRefusal(
  exchange: Exchange,
  { code, fields = [] }: Refusal,
  auditId?: string,
): void {
  if (exchange.answered) {
    return;
  }
  const status = statusOf(code);
  exchange.answer(
    { status, reason: STATUS_CODES[status] ?? "", fields: [...errorFields(code), ...fields] },
    Buffer.from(errorBody(code, undefined, auditId)),
  );
}

const NO_BODY = Buffer.alloc(0);

/** 200 without a body: `OPTIONS *`. */
export function answerEmpty(exchange: Exchange): void {
  exchange.answer({ status: 200, reason: "OK", fields: [] }, NO_BODY);
}
