import type { FieldLines } from "../policy/kernel/exchange.ts";
import type { UpstreamFailureKind } from "../policy/kernel/http1/types.ts";

/**
 * "Forward it yourself" (decision 16): what a worker answers for a script whose only act is to pass the request on to the
 * service that the client addressed. The bytes then never come to the worker, which still decides: whatever it says later
 * (an answer at the deadline, a cut) takes the order's place. No order names an address, so none reaches what the rule's
 * own request would not.
 */
export interface ForwardOrder {
  readonly target: string;
  /** The complete set of fields to send, without framing; null for those of the request. */
  readonly fields: FieldLines | null;
  /** ms that the script had waited for services before; null when it had not. */
  readonly waitedMs: number | null;
}

/** How an order fared, as the worker hears it. */
export interface OrderReport {
  /** @param ms from the request to the head. */
  head(status: number, reason: string, ms: number): void;
  done(): void;
  failed(kind: UpstreamFailureKind, message: string): void;
}

/** An order as the payload of a frame; its values are one line each. */
export function encodeOrder({ target, fields, waitedMs }: ForwardOrder): string {
  const rest = fields?.map((text) => `\n${text}`).join("") ?? "";
  return `${target}\n${waitedMs ?? ""}\n${fields === null ? "same" : "own"}${rest}`;
}

/** Reads it back; null for anything else. Values are judged where they are sent. */
export function decodeOrder(payload: string): ForwardOrder | null {
  const [target, waited, kind, ...fields] = payload.split("\n");
  const waitedMs = waited === "" ? null : Number(waited);
  const isKnown = kind === "own" || (kind === "same" && fields.length === 0);
  if (target === undefined || !isKnown || fields.length % 2 !== 0) {
    return null;
  }
  if (waitedMs !== null && !(waitedMs >= 0 && waitedMs < 1e9)) {
    return null;
  }
  return { target, fields: kind === "same" ? null : fields, waitedMs };
}

/** The head's report as the payload of a frame. */
export function encodeOrderHead(status: number, reason: string, ms: number): string {
  return `${status}\n${ms.toFixed(1)}\n${reason}`;
}

/** Reads it back. */
export function decodeOrderHead(payload: string): {
  readonly status: number;
  readonly reason: string;
  readonly ms: number;
} {
  const [status, ms, reason] = payload.split("\n");
  return { status: Number(status), ms: Number(ms), reason: reason ?? "" };
}

/** A failure's report as the payload of a frame. */
export function encodeOrderFailure(kind: UpstreamFailureKind, message: string): string {
  return `${kind}\n${message.replaceAll(/[^\x20-\x7e]/g, "?").slice(0, 500)}`;
}

/** Reads it back. */
export function decodeOrderFailure(payload: string): {
  readonly kind: UpstreamFailureKind;
  readonly message: string;
} {
  const at = payload.indexOf("\n");
  return { kind: payload.slice(0, at) as UpstreamFailureKind, message: payload.slice(at + 1) };
}
