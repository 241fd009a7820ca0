import type { Clock } from "../policy/kernel/clock.ts";
import type { AnswerHandler, Http1Client, OutgoingCall } from "../policy/kernel/http1/types.ts";
import { toEnvelopeFields } from "./envelope.ts";
import { MAX_ANSWER_HEAD_BYTES, type ExecHostClient, type ExecRequest } from "./exec-call.ts";
import { createFrameClient } from "./frame-client.ts";

const CONNECT_MS = 3000;
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

function sendHttp(http: Http1Client, request: ExecRequest, handler: AnswerHandler): OutgoingCall {
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
