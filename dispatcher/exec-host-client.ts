import type { BodySource, FieldLines } from "../policy/kernel/exchange.ts";
import type { AnswerHandler, Http1Client, OutgoingCall } from "../policy/kernel/http1/types.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import { toEnvelopeFields, type Envelope, type ExecEndpoint } from "./envelope.ts";
import { createFrameClient } from "./frame-client.ts";
import type { ForwardOrder, OrderReport } from "./order.ts";

/** One call of a script. */
export interface ExecRequest {
  readonly endpoint: ExecEndpoint;
  readonly envelope: Envelope;
  readonly method: string;
  readonly target: string;
  /** Swept and completed by the edge; the envelope is added here. */
  readonly fields: FieldLines;
  readonly body: BodySource | null;
  /** The client waits to be told before it sends its body: the host says when, or answers without it (K07). */
  readonly awaitContinue: boolean;
  /** Longest silence of the host; always beyond the deadline that its caller keeps. */
  readonly idleMs: number;
  /** The host may have the edge forward the request, where it can say so. */
  readonly takesOrders: boolean;
}

/** Hears of one call: an answer to relay, or the order to forward the request (decision 16). */
export interface ExecHandler extends AnswerHandler {
  /**
   * Instead of an answer, at most once: sends the request, whose body was not touched, relays what comes and reports how
   * it fares. The returned call is given up when the host takes the order back: an answer or a failure then follows.
   */
  forward(order: ForwardOrder, report: OrderReport): OutgoingCall;
}

/** The way to an exec host; what is below it can change without the dispatcher noticing. */
export interface ExecHostClient {
  /** @throws TypeError when the request cannot be written as one message. */
  send(request: ExecRequest, handler: ExecHandler): OutgoingCall;
  /** Closes connections to embedded workers as soon as they carry no call. */
  close(): void;
}

const CONNECT_MS = 3000;
/** Answer heads of scripts: larger than the edge takes from clients, far below what would hurt. */
export const MAX_ANSWER_HEAD_BYTES = 131_072;

/**
 * Embedded workers get their calls as frames over one socket, exec hosts elsewhere as HTTP/1.1 requests. A call is never
 * sent twice: the script may have run.
 */
export function createExecHostClient(http: Http1Client, clock: Clock): ExecHostClient {
  const frames = createFrameClient(clock);
  return {
    send(request, handler) {
      return request.endpoint.origin.kind === "unix"
        ? frames.send(request, handler)
        : sendHttp(http, request, handler);
    },
    close: () => frames.close(),
  };
}

function sendHttp(http: Http1Client, request: ExecRequest, handler: ExecHandler): OutgoingCall {
  const { endpoint, envelope, method, target, body, awaitContinue, idleMs } = request;
  return http.send(
    {
      origin: endpoint.origin,
      method,
      target,
      fields: [...request.fields, ...toEnvelopeFields(envelope, endpoint.secret)],
      body,
      once: true,
      awaitContinue,
      limits: { connectMs: CONNECT_MS, idleMs, maxHeaderBytes: MAX_ANSWER_HEAD_BYTES },
    },
    handler,
  );
}
