import { createHash, timingSafeEqual } from "node:crypto";
import { STATUS_CODES } from "node:http";
import {
  decodeEnvelope,
  DEPTH_FIELD,
  ENVELOPE_FIELDS,
  ENVELOPE_PREFIX,
  type HookEnvelope,
  type OrdinaryEnvelope,
} from "../dispatcher/envelope.ts";
import { errorBody, errorFields, statusOf, type ErrorCode } from "../policy/kernel/errors.ts";
import type { Exchange, FieldLines } from "../policy/kernel/exchange.ts";
import { fieldValue, isHopByHop } from "../policy/kernel/fields.ts";

/** One request that came with the secret and a whole envelope. */
export interface FrontCall<E> {
  readonly exchange: Exchange;
  readonly envelope: E;
  /** Without the envelope, hop-by-hop and framing fields. */
  readonly fields: FieldLines;
  readonly target: string;
}

/** What {@link createFront} builds on. */
export interface FrontDeps {
  readonly secret: string;
  readonly hook: (call: FrontCall<HookEnvelope>) => void;
  readonly ordinary: (call: FrontCall<OrdinaryEnvelope>) => void;
}

/**
 * The door of an exec host that is reached over TCP: whoever knows the secret is the edge, and only its envelope is
 * believed. Everybody else is refused before anything is looked at.
 */
export function createFront(deps: FrontDeps): (exchange: Exchange) => void {
  const digest = (text: string): Buffer => createHash("sha256").update(text, "latin1").digest();
  const expected = digest(deps.secret);

  return (exchange) => {
    const { fields, target } = exchange.head;
    const presented = fieldValue(fields, ENVELOPE_FIELDS.auth.toLowerCase());
    if (presented === undefined || !timingSafeEqual(digest(presented), expected)) {
      answerError(exchange, "FORBIDDEN");
      return;
    }
    const envelope = decodeEnvelope((name) => fieldValue(fields, name));
    if (envelope === null || exchange.handshake) {
      answerError(exchange, "BAD_REQUEST");
      return;
    }
    const call = { exchange, fields: withoutEnvelope(fields), target };
    if (envelope.kind === "hook") {
      deps.hook({ ...call, envelope });
    } else {
      deps.ordinary({ ...call, envelope });
    }
  };
}

function withoutEnvelope(fields: FieldLines): string[] {
  const kept: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!.toLowerCase();
    const travels = !name.startsWith(ENVELOPE_PREFIX) || fields[i] === DEPTH_FIELD;
    if (travels && !isHopByHop(name)) {
      kept.push(fields[i]!, fields[i + 1]!);
    }
  }
  return kept;
}

function answerError(exchange: Exchange, code: ErrorCode): void {
  const status = statusOf(code);
  exchange.answer(
    { status, reason: STATUS_CODES[status] ?? "", fields: errorFields(code) },
    Buffer.from(errorBody(code)),
  );
}
