import type { BodySource, FieldLines } from "../policy/kernel/exchange.ts";
import type { AnswerHandler, Http1Client, OutgoingCall } from "../policy/kernel/http1/types.ts";
import { toEnvelopeFields, type Envelope, type ExecEndpoint } from "./envelope.ts";

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
}

/** What a script changed on a request that the edge is to forward itself. */
export interface ForwardOverrides {
  readonly method?: string;
  readonly target?: string;
  readonly host?: string;
  readonly port?: number;
  /** The complete set of fields to send, without framing. */
  readonly fields?: FieldLines;
  /** Fields the script staged for the answer. */
  readonly responseFields?: FieldLines;
}

/** Hears of one call: an answer to relay, or the order to forward the request (decision 16). */
export interface ExecHandler extends AnswerHandler {
  /** Instead of an answer. Nothing follows it; the request's body was not touched. */
  forward(overrides: ForwardOverrides): void;
}

/** The way to an exec host. What is below it (HTTP over a socket now) can change without the dispatcher noticing. */
export interface ExecHostClient {
  /** @throws TypeError when the request cannot be written as one message. */
  send(request: ExecRequest, handler: ExecHandler): OutgoingCall;
}

const CONNECT_MS = 3000;
/** Answer heads of scripts: larger than the edge takes from clients, far below what would hurt. */
const MAX_HEADER_BYTES = 131_072;

/** Sends calls as HTTP/1.1 to the worker's own socket. Never twice: the script may have run. */
export function createExecHostClient(client: Http1Client): ExecHostClient {
  return {
    send(request, handler) {
      const { endpoint, envelope } = request;
      return client.send(
        {
          origin: endpoint.origin,
          method: request.method,
          target: request.target,
          fields: [...request.fields, ...toEnvelopeFields(envelope, endpoint.secret)],
          body: request.body,
          once: true,
          awaitContinue: request.awaitContinue,
          limits: {
            connectMs: CONNECT_MS,
            idleMs: request.idleMs,
            maxHeaderBytes: MAX_HEADER_BYTES,
          },
        },
        handler,
      );
    },
  };
}
