import { subscribe } from "node:diagnostics_channel";
import type { ClientRequest } from "node:http";
import { DEPTH_FIELD } from "../../dispatcher/envelope.ts";
import { currentCall } from "./call.ts";

/**
 * Requests that scripts and their packages make with `node:http` and `node:https` carry the depth of the call they
 * belong to, as those of `fetch` and of the helpers do (`dispatcher/depth.ts`): otherwise a script that asks its own public address with
 * them would start itself again without end.
 */
export function markRequests(): void {
  subscribe("http.client.request.created", (message) => {
    const { request } = message as { readonly request: ClientRequest };
    const depth = currentCall.getStore()?.depth ?? 0;
    if (depth > 0 && !request.headersSent) {
      request.setHeader(DEPTH_FIELD, String(depth));
    }
  });
}
