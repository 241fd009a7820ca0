import type { BodySource, FieldLines } from "../policy/kernel/exchange.ts";
import type { AnswerHandler, OutgoingCall } from "../policy/kernel/http1/types.ts";
import type { Envelope, ExecEndpoint } from "./envelope.ts";
import type { ForwardOrder, OrderReport, RunningOrder } from "./order.ts";

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
  /** Through whom the host may have the request forwarded, where it can say so; null for not at all. */
  readonly orders: OrderTaker | null;
}

/** Takes the order to forward a request instead of an answer to it (decision 16). */
export interface OrderTaker {
  /**
   * At most once per request, whose body was not touched: sends it, relays what comes and reports how it fares. The returned
   * call is given up when the host takes the order back; an answer or a failure then follows.
   */
  forward(order: ForwardOrder, report: OrderReport): RunningOrder;
}

/** The way to an exec host; what is below it can change without the dispatcher noticing. */
export interface ExecHostClient {
  /** @throws TypeError when the request cannot be written as one message. */
  send(request: ExecRequest, handler: AnswerHandler): OutgoingCall;
  /** Closes connections to embedded workers as soon as they carry no call. */
  close(): void;
}

/** Answer heads of scripts: larger than the edge takes from clients, far below what would hurt. */
export const MAX_ANSWER_HEAD_BYTES = 131_072;
