import type { FieldLines } from "../policy/kernel/exchange.ts";
import { isHopByHop } from "../policy/kernel/fields.ts";
import { areSendable } from "../policy/kernel/http1/request-head.ts";
import {
  UpstreamFailure,
  type OutgoingCall,
  type UpstreamFailureKind,
} from "../policy/kernel/http1/types.ts";

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
  /** What the script staged for the answer: lines of fields; the service's own win. */
  readonly staged: FieldLines;
  /** ms that the script had waited for services before; null when it had not. */
  readonly waitedMs: number | null;
}

/** How an order fared, as the worker hears it. */
export interface OrderReport {
  /** @param ms from the request to the head. */
  head(status: number, reason: string, ms: number): void;
  done(): void;
  failed(failure: UpstreamFailure): void;
}

/** A request that is forwarded in a script's place. */
export interface RunningOrder extends OutgoingCall {
  /** The script staged other fields meanwhile. */
  stage(fields: FieldLines): void;
  /** The script answers by itself: what comes is thrown away, and given up at its head. */
  leave(): void;
}

/** An order as the payload of a frame; its values are one line each. */
export function encodeOrder({ target, fields, staged, waitedMs }: ForwardOrder): string {
  const lines = [target, waitedMs ?? "", staged.length, fields === null ? "same" : "own"];
  return [...lines, ...staged, ...(fields ?? [])].join("\n");
}

/** Reads it back; null for anything else. Target and fields are judged where they are sent. */
export function decodeOrder(payload: string): ForwardOrder | null {
  const [target, waited, stagedCount, kind, ...rest] = payload.split("\n");
  const waitedMs = waited === "" ? null : Number(waited);
  const count = Number(stagedCount);
  if (target === undefined || !Number.isInteger(count) || count < 0 || count > rest.length) {
    return null;
  }
  const staged = rest.slice(0, count);
  const fields = rest.slice(count);
  const isKnown = kind === "own" || (kind === "same" && fields.length === 0);
  const isTimed = waitedMs === null || (waitedMs >= 0 && waitedMs < 1e9);
  if (!isKnown || !isTimed || fields.length % 2 !== 0 || !isStage(staged)) {
    return null;
  }
  return { target, fields: kind === "same" ? null : fields, staged, waitedMs };
}

/** Staged fields as the payload of a frame. */
export function encodeStage(fields: FieldLines): string {
  return fields.join("\n");
}

/** Reads them back; null for anything that cannot be sent. */
export function decodeStage(payload: string): FieldLines | null {
  const fields = payload === "" ? [] : payload.split("\n");
  return isStage(fields) ? fields : null;
}

function isStage(fields: FieldLines): boolean {
  return fields.length % 2 === 0 && areSendable(fields);
}

/**
 * A service's fields merged over staged ones, as Node's response has them: a field of the service replaces staged ones of its
 * name, the cookies of both are kept, and lines of one name stand together. Without staged ones they are as received.
 */
export function mergeStaged(staged: FieldLines, fields: FieldLines): FieldLines {
  if (staged.length === 0) {
    return fields;
  }
  const merged = new Map<string, { readonly name: string; readonly values: string[] }>();
  const add = (name: string, value: string): void => {
    const lower = name.toLowerCase();
    const known = merged.get(lower);
    if (known === undefined) {
      merged.set(lower, { name, values: [value] });
    } else {
      known.values.push(value);
    }
  };
  for (let i = 0; i + 1 < staged.length; i += 2) {
    if (!isHopByHop(staged[i]!.toLowerCase())) {
      add(staged[i]!, staged[i + 1]!); // framing and connection are not the script's affair
    }
  }
  const cookies = merged.get(COOKIES)?.values ?? [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    merged.delete(fields[i]!.toLowerCase());
  }
  if (cookies.length > 0) {
    merged.set(COOKIES, { name: "Set-Cookie", values: [...cookies] });
  }
  for (let i = 0; i + 1 < fields.length; i += 2) {
    add(fields[i]!, fields[i + 1]!);
  }
  return [...merged.values()].flatMap(({ name, values }) =>
    values.flatMap((value) => [name, value]),
  );
}

const COOKIES = "set-cookie";

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
export function encodeOrderFailure({ kind, message, cause }: UpstreamFailure): string {
  const { code, message: detail } = (cause ?? {}) as { code?: unknown; message?: unknown };
  return [kind, message, code ?? "", detail ?? ""].map(asLine).join("\n");
}

/** Reads it back. */
export function decodeOrderFailure(payload: string): UpstreamFailure {
  const [kind, message, code, detail] = payload.split("\n");
  const cause = detail ? Object.assign(new Error(detail), code ? { code } : {}) : undefined;
  return new UpstreamFailure(kind as UpstreamFailureKind, message ?? "", cause);
}

function asLine(value: unknown): string {
  return String(value)
    .replaceAll(/[^\x20-\x7e]/g, "?")
    .slice(0, 500);
}
