import { AgentError } from "./errors.ts";
import type { JsonObject } from "./seams.ts";

/** What a gate asks for. */
export interface GateRequest {
  readonly type: "confirm" | "question";
  readonly toolName?: string;
  readonly gateCause?: string;
  readonly risk?: string;
  readonly humanOnly?: boolean;
  readonly params?: JsonObject;
}

/** How a gate was resolved. `ended`: cancelled, closed or out of time; nobody answered. */
export type GateAnswer =
  | { readonly kind: "confirm"; readonly approved: boolean }
  | { readonly kind: "answer"; readonly text: string }
  | { readonly kind: "ended" };

/** One session's gates: at most one is open, answered once. */
export interface SessionGates {
  /**
   * Opens a gate and waits for its answer.
   *
   * @throws AgentError `gate_parked` when one is open already.
   */
  park(request: GateRequest, signal: AbortSignal): Promise<GateAnswer>;
  /** The open gate as S3 shows it; null when none is open. */
  pending(): JsonObject | null;
  /**
   * Answers the open gate.
   *
   * @throws AgentError `no_pending_gate`, `stale_gate`, `gate_already_answered`, `gate_type_mismatch`.
   */
  answer(
    which: { readonly gateId?: string; readonly generation?: number },
    answer: Exclude<GateAnswer, { kind: "ended" }>,
  ): JsonObject;
  /** Ends the open gate without an answer. */
  close(): void;
}

interface OpenGate {
  readonly id: string;
  readonly generation: number;
  readonly request: GateRequest;
  readonly resolve: (answer: GateAnswer) => void;
}

/**
 * A gate store for one session.
 *
 * @param newId makes gate ids.
 * @param emit tells the session's stream (`event.confirm_request`, `event.user_question`, `event.gate_resolved`).
 */
export function createSessionGates(
  newId: () => string,
  emit: (type: string, data: JsonObject) => void,
): SessionGates {
  let open: OpenGate | null = null;
  let generation = 0;
  let lastAnswered: string | null = null;
  let closed = false;

  const settle = (gate: OpenGate, answer: GateAnswer, how: string): void => {
    if (open !== gate) {
      return;
    }
    open = null;
    emit("event.gate_resolved", { gate_id: gate.id, generation: gate.generation, resolution: how });
    gate.resolve(answer);
  };

  return {
    park(request, signal) {
      if (open !== null) {
        return Promise.reject(
          new AgentError("gate_parked", undefined, { pending_gate: describe(open) }),
        );
      }
      if (closed || signal.aborted) {
        return Promise.resolve({ kind: "ended" });
      }
      generation += 1;
      return new Promise((resolve) => {
        const onAbort = (): void => settle(gate, { kind: "ended" }, "ended");
        const gate: OpenGate = {
          id: newId(),
          generation,
          request,
          resolve(answer) {
            signal.removeEventListener("abort", onAbort);
            resolve(answer);
          },
        };
        open = gate;
        signal.addEventListener("abort", onAbort, { once: true });
        emit(
          request.type === "confirm" ? "event.confirm_request" : "event.user_question",
          describe(gate),
        );
      });
    },
    pending: () => (open === null ? null : describe(open)),
    answer(which, answer) {
      if (open === null) {
        const again = which.gateId !== undefined && which.gateId === lastAnswered;
        throw new AgentError(again ? "gate_already_answered" : "no_pending_gate");
      }
      if (
        (which.gateId ?? open.id) !== open.id ||
        (which.generation ?? open.generation) !== open.generation
      ) {
        throw new AgentError(
          which.gateId === lastAnswered && lastAnswered !== null
            ? "gate_already_answered"
            : "stale_gate",
        );
      }
      if ((answer.kind === "confirm") !== (open.request.type === "confirm")) {
        throw new AgentError("gate_type_mismatch");
      }
      const gate = open;
      lastAnswered = gate.id;
      settle(
        gate,
        answer,
        answer.kind === "confirm" ? (answer.approved ? "approved" : "denied") : "answered",
      );
      return describe(gate);
    },
    close() {
      closed = true;
      if (open !== null) {
        settle(open, { kind: "ended" }, "ended");
      }
    },
  };
}

function describe(gate: OpenGate): JsonObject {
  const { request } = gate;
  return {
    id: gate.id,
    generation: gate.generation,
    type: request.type,
    human_only: request.humanOnly ?? false,
    ...(request.toolName === undefined ? {} : { tool_name: request.toolName }),
    ...(request.gateCause === undefined ? {} : { gate_cause: request.gateCause }),
    ...(request.risk === undefined ? {} : { risk: request.risk }),
    ...(request.params === undefined ? {} : { params: request.params }),
  };
}
