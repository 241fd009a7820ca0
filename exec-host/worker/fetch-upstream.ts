import type { ResponseHead } from "../../policy/kernel/exchange.ts";
import type { OutgoingCall } from "../../policy/kernel/http1/types.ts";
import { encodeBody } from "./encode-body.ts";
import type { HookCall } from "./hook.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import type { HostRequest } from "./host-request.ts";
import { attachBody, IncomingBody } from "./incoming-body.ts";
import { readOverrides } from "./overrides.ts";
import { trackResponse } from "./response-origin.ts";
import { planRequest, sendUpstream } from "./upstream-request.ts";

/** How long the body of an answer may wait for a reader once the client has its own answer. */
const UNREAD_GRACE_MS = 5000;

/**
 * The request side of `forward()` with the answer as a Fetch API response: bytes as sent, headers that may be
 * changed (exec-host.md 5.4). Nothing of it reaches the client by itself.
 */
export async function fetchUpstream(
  hook: HookCall,
  req: HostRequest,
  given: unknown,
): Promise<Response> {
  const overrides = readOverrides(given);
  const encoded = overrides.body === undefined ? null : await encodeBody(overrides.body);
  const request = planRequest(
    hook.call,
    hook.envelope,
    hook.origPath,
    req,
    hook.bodyState,
    overrides,
    encoded,
    hook.upstream.limits,
  );
  return new Promise((resolve, reject) => {
    const body = new IncomingBody();
    let outgoing: OutgoingCall | null = null;
    let isStarted = false;
    outgoing = sendUpstream(hook.upstream, hook.call, request, overrides, hook.setTimer, {
      head(head, _length, isBodyless) {
        isStarted = true;
        try {
          const response = toResponse(head, isBodyless ? null : body);
          resolve(response);
        } catch (cause) {
          outgoing?.abort();
          reject(new HookUpstreamError("network", "the answer cannot be a Response", cause));
        }
      },
      data: (chunk) => body.push(chunk),
      end: () => body.end(),
      fail(error) {
        if (isStarted) {
          const kind = hook.call.isGone ? "abort" : "stream-aborted";
          body.fail(new HookUpstreamError(kind, error.message, error));
        } else {
          reject(error);
        }
      },
    });
    body.bind(outgoing);
    hook.call.onClose(() => {
      hook.setTimer(UNREAD_GRACE_MS, () => {
        if (!body.isTouched) {
          body.cancel();
        }
      });
    });
  });
}

/** @throws TypeError or RangeError for a status outside 200 to 599. */
function toResponse(head: ResponseHead, body: IncomingBody | null): Response {
  const headers = new Headers();
  for (let i = 0; i + 1 < head.fields.length; i += 2) {
    headers.append(head.fields[i]!, head.fields[i + 1]!);
  }
  const carries = body !== null && ![204, 205, 304].includes(head.status);
  if (body !== null && !carries) {
    body.cancel();
  }
  const response = new Response(carries ? body.toStream() : null, {
    status: head.status,
    statusText: /^[\t\x20-\x7e\x80-\xff]*$/.test(head.reason) ? head.reason : "",
    headers,
  });
  if (carries) {
    attachBody(response, body);
  }
  return trackResponse(response, "raw", { isService: true });
}
