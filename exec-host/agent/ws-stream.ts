import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import type { WebSocket } from "ws";
import { z } from "zod";
import type { Log } from "../../policy/kernel/log.ts";
import type { Cap } from "./caps.ts";
import { AgentError, agentStatus, retryAfterOf } from "./errors.ts";
import { AGENT_PREFIX } from "./router.ts";
import { followStream, readSince, toGateRef } from "./session-routes.ts";
import type { LiveSession, Sessions } from "./sessions.ts";

const PATH = new RegExp(`^${AGENT_PREFIX}/sessions/([^/]+)/stream$`);
const MAX_FRAME_BYTES = 65_536;
const MAX_BUFFERED = 1_048_576;

const clientFrame = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("confirm"),
    gate_id: z.string().optional(),
    generation: z.number().optional(),
    approved: z.boolean(),
  }),
  z.object({
    type: z.literal("answer"),
    gate_id: z.string().optional(),
    generation: z.number().optional(),
    answer: z.string(),
  }),
  z.object({ type: z.literal("cancel"), turn_id: z.string().optional() }),
]);

/** S9 as a WebSocket: the same events as text frames; the client may answer gates and cancel. */
export interface StreamSockets {
  /**
   * Takes over an upgrade whose sender has passed the guard.
   *
   * @param client address for the stream cap.
   */
  accept(request: IncomingMessage, socket: Duplex, head: Buffer, client: string): void;
  close(): void;
}

/** WebSockets without compression: an event is small, and a compressor per reader is not. */
export function createStreamSockets(deps: {
  readonly sessions: Sessions;
  readonly streams: Cap;
  readonly log: Log;
}): StreamSockets {
  const server = new WebSocketServer({
    noServer: true,
    maxPayload: MAX_FRAME_BYTES,
    perMessageDeflate: false,
  });

  function follow(
    socket: WebSocket,
    live: LiveSession,
    since: number | null,
    giveBack: () => void,
  ): void {
    const leave = followStream(live, since, {
      send(_name, data) {
        if (socket.bufferedAmount > MAX_BUFFERED) {
          return false;
        }
        socket.send(JSON.stringify(data));
        return true;
      },
      end: () => socket.close(1000),
    });
    socket.on("message", (data) => {
      // one frame is one Buffer: the default binary type
      if (socket.bufferedAmount > MAX_BUFFERED) {
        socket.terminate(); // sends without reading
        return;
      }
      const reply = answerFrame(live, Buffer.isBuffer(data) ? data.toString("utf8") : "");
      socket.send(JSON.stringify(reply));
    });
    socket.on("error", (error) => deps.log.debug({ err: error }, "stream socket failed"));
    socket.once("close", () => {
      leave();
      giveBack();
    });
  }

  return {
    accept(request, socket, head, client) {
      try {
        const url = new URL(request.url ?? "/", "http://agent");
        const id = PATH.exec(url.pathname)?.[1];
        if (id === undefined) {
          throw new AgentError("not_found");
        }
        const live = deps.sessions.require(decodeURIComponent(id));
        const since = readSince(url.searchParams.get("since"));
        const giveBack = deps.streams.take(client);
        if (giveBack === null) {
          throw new AgentError("service_unavailable", "Too many streams are open.");
        }
        socket.once("close", giveBack);
        server.handleUpgrade(request, socket, head, (accepted) =>
          follow(accepted, live, since, giveBack),
        );
      } catch (error) {
        refuseUpgrade(
          socket,
          error instanceof AgentError ? error : new AgentError("internal_error"),
        );
      }
    },
    close() {
      for (const socket of server.clients) {
        socket.terminate();
      }
      server.close();
    },
  };
}

/** Answers an upgrade with an ordinary error and ends the connection. */
export function refuseUpgrade(socket: Duplex, error: AgentError): void {
  const body = JSON.stringify({ code: error.code, message: error.message });
  const retryAfter = retryAfterOf(error.code);
  socket.on("error", () => {}); // the peer may be gone already
  socket.end(
    `HTTP/1.1 ${agentStatus(error.code)} Refused\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n` +
      `${retryAfter === undefined ? "" : `Retry-After: ${retryAfter}\r\n`}` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}

function answerFrame(live: LiveSession, text: string): Record<string, unknown> {
  let frame: unknown;
  try {
    frame = JSON.parse(text);
  } catch {
    return { type: "error", code: "bad_request", message: "The frame is not JSON." };
  }
  const decoded = clientFrame.safeParse(frame);
  if (!decoded.success) {
    return { type: "error", code: "bad_request", message: "The frame is not known." };
  }
  live.touch();
  try {
    switch (decoded.data.type) {
      case "confirm":
        return {
          type: "ok",
          resolved: live.gates.answer(toGateRef(decoded.data), {
            kind: "confirm",
            approved: decoded.data.approved,
          }),
        };
      case "answer":
        return {
          type: "ok",
          resolved: live.gates.answer(toGateRef(decoded.data), {
            kind: "answer",
            text: decoded.data.answer,
          }),
        };
      case "cancel":
        return { type: "ok", matched: live.slot.cancel(decoded.data.turn_id) };
    }
  } catch (error) {
    const known = error instanceof AgentError ? error : new AgentError("internal_error");
    return { type: "error", code: known.code, message: known.message };
  }
}
