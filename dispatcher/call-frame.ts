import type { FieldLines } from "../policy/kernel/exchange.ts";
import { areSendable, EXPECTS_BODY, isSendableStart } from "../policy/kernel/http1/request-head.ts";
import {
  checkedHook,
  decodeBytes,
  DEPTH_FIELD,
  encodeBytes,
  parseDepth,
  type Envelope,
} from "./envelope.ts";
import { MAX_FRAME_BYTES } from "./frames.ts";

/** A call as it reaches a worker: a request without its body, and what the edge says of it. */
export interface CallHead {
  readonly envelope: Envelope;
  readonly method: string;
  readonly target: string;
  /** As the script may see them, the framing of the body included; one line for a name, one for a value. See `splitFields`. */
  readonly fields: string;
  readonly hasBody: boolean;
  /** The edge would forward the request itself (`order.ts`). */
  readonly takesOrders: boolean;
  /** How deep the call stands in calls of other hooks (`depth.ts`). */
  readonly depth: number;
}

/**
 * The payload of a call frame: one value per line, the fields behind all others.
 *
 * @param bodyLength null for a body of unknown length, undefined for none.
 * @throws TypeError when the request cannot be one message, or is too long for a frame.
 */
export function encodeCall(
  envelope: Envelope,
  method: string,
  target: string,
  fields: FieldLines,
  bodyLength: number | null | undefined,
  takesOrders: boolean,
): string {
  if (!isSendableStart(method, target) || !areSendable(fields)) {
    throw new TypeError("the request cannot be handed over");
  }
  let depth = "";
  let lines = "";
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if (fields[i] === DEPTH_FIELD) {
      depth = fields[i + 1]!;
    } else {
      lines += `\n${fields[i]}\n${fields[i + 1]}`;
    }
  }
  if (bodyLength === null) {
    lines += "\nTransfer-Encoding\nchunked";
  } else if (bodyLength !== undefined || EXPECTS_BODY.has(method)) {
    lines += `\nContent-Length\n${bodyLength ?? 0}`;
  }
  const { clientAddress, subdomain, execId } = envelope;
  const marks = `${bodyLength === undefined ? "" : "b"}${takesOrders ? "o" : ""}`;
  const head =
    `${envelope.kind}\n${clientAddress}\n${subdomain ?? ""}\n${execId ?? ""}\n${depth}\n` +
    `${method}\n${target}\n${marks}\n${encodeOwn(envelope)}`;
  const count = envelope.kind === "hook" ? HOOK_LINES : ORDINARY_LINES;
  if (NO_LINES.test(head) || countLines(head) !== count) {
    throw new TypeError("the hand-over has a value that is no line");
  }
  const payload = head + lines;
  if (payload.length > MAX_FRAME_BYTES) {
    throw new TypeError("the request is too long to be handed over");
  }
  return payload;
}

/** The fields of a call, name, value, name, value…: most scripts never look at them. */
export function splitFields(fields: string): string[] {
  return fields === "" ? [] : fields.split("\n");
}

function countLines(text: string): number {
  let count = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) {
    count++;
  }
  return count;
}

/** What no line of the hand-over has: bytes that end lines elsewhere, and characters that are no byte. */
const NO_LINES = /[\0\r]|[^\0-\xff]/;

/** The lines that only one kind of call has. */
function encodeOwn(envelope: Envelope): string {
  if (envelope.kind === "ordinary") {
    return envelope.manage ? "1" : "";
  }
  const { auditId, method, path, service, upstreamHost, upstreamPort } = envelope;
  return (
    `${auditId}\n${method}\n${encodeBytes(path)}\n${service}\n${upstreamHost}\n${upstreamPort}\n` +
    `${envelope.upstreamToken ?? ""}\n${encodeBytes(envelope.scriptPath)}\n${envelope.timeoutMs}`
  );
}

const SHARED_LINES = 8;
const HOOK_LINES = SHARED_LINES + 9;
const ORDINARY_LINES = SHARED_LINES + 1;

/** Reads it back; null for anything that {@link encodeCall} did not make. */
export function decodeCall(payload: string): CallHead | null {
  const lines = payload.split("\n", HOOK_LINES);
  const [kind, clientAddress, sub, exec, depth, method, target, marks] = lines;
  const count = kind === "hook" ? HOOK_LINES : ORDINARY_LINES;
  if (lines.length < count || !method || !target) {
    return null;
  }
  let at = 0;
  for (let i = 0; i < count; i++) {
    at += lines[i]!.length + 1;
  }
  const fields = payload.slice(at);
  if (at <= payload.length && countLines(fields) % 2 !== 0) {
    return null;
  }
  const shared = {
    subdomain: sub || null,
    execId: exec || null,
    clientAddress: clientAddress!,
  };
  const head = {
    method,
    target,
    fields,
    hasBody: marks!.includes("b"),
    takesOrders: marks!.includes("o"),
    depth: parseDepth(depth),
  };
  if (kind === "ordinary") {
    return { ...head, envelope: { kind, ...shared, manage: lines[SHARED_LINES] === "1" } };
  }
  if (kind !== "hook") {
    return null;
  }
  const token = lines[SHARED_LINES + 6]!;
  const envelope = checkedHook({
    kind,
    ...shared,
    auditId: lines[SHARED_LINES]!,
    method: lines[SHARED_LINES + 1]!,
    path: decodeBytes(lines[SHARED_LINES + 2]!),
    service: lines[SHARED_LINES + 3]!,
    upstreamHost: lines[SHARED_LINES + 4]!,
    upstreamPort: Number(lines[SHARED_LINES + 5]),
    ...(token === "" ? {} : { upstreamToken: token }),
    scriptPath: decodeBytes(lines[SHARED_LINES + 7]!),
    timeoutMs: Number(lines[SHARED_LINES + 8]),
  });
  return envelope === null ? null : { ...head, envelope };
}
