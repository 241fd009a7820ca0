import type { Clock } from "../../policy/kernel/clock.ts";
import { newUlid } from "../../policy/kernel/ids.ts";
import { AgentError } from "./errors.ts";
import type { RunOutcome, ToolRuns } from "./runs.ts";
import type { JsonObject } from "./seams.ts";
import type { GateAnswer, GateRequest } from "./session-gates.ts";
import type { LiveSession } from "./sessions.ts";

/** What the script of a turn may do. A turn's tool calls pass the same gate as direct runs. */
export interface Turn {
  readonly id: string;
  /** Aborts at cancel and close. */
  readonly signal: AbortSignal;
  /** Runs a tool; a call that needs a confirmation parks a confirm gate on the session and waits for its answer. */
  callTool(tool: string, params: JsonObject): Promise<RunOutcome>;
  /** Parks a gate and waits. */
  park(request: GateRequest): Promise<GateAnswer>;
  emit(type: string, data: JsonObject): void;
}

/**
 * Runs a turn in a session's slot. The model loop is a caller of this; here the work is whatever the caller scripts.
 * The end is told by `event.agent_done`, whatever the script does.
 *
 * @throws AgentError `gate_parked` or `turn_in_flight` when the session is not free.
 */
export function startTurn(
  deps: { readonly clock: Clock; readonly runs: ToolRuns },
  live: LiveSession,
  script: (turn: Turn) => Promise<void>,
): { readonly turnId: string; readonly done: Promise<void> } {
  const pending = live.gates.pending();
  if (pending !== null) {
    throw new AgentError("gate_parked", undefined, { pending_gate: pending });
  }
  const turnId = `turn_${newUlid(deps.clock.now())}`;
  const lease = live.slot.claim(turnId);
  if (lease === null) {
    throw new AgentError("turn_in_flight");
  }
  const { signal } = lease;
  const posture = { requestedMode: null, allowMutations: false };
  const call = (
    tool: string,
    params: JsonObject,
    confirmToken: string | null,
  ): Promise<RunOutcome> =>
    deps.runs.run({
      tool,
      params,
      session: live.session,
      live,
      entry: "turn",
      posture: { ...posture, confirm: confirmToken !== null, confirmToken },
      signal,
    });
  const turn: Turn = {
    id: turnId,
    signal,
    park: (request) => live.gates.park(request, signal),
    emit: (type, data) => live.stream.emit(type, data),
    async callTool(tool, params) {
      const outcome = await call(tool, params, null);
      if (outcome.kind !== "needs_confirmation") {
        return outcome;
      }
      const { details } = outcome;
      const answer = await live.gates.park(
        {
          type: "confirm",
          toolName: tool,
          gateCause: String(details["gate_cause"]),
          risk: String(details["risk"]),
          params,
        },
        signal,
      );
      return answer.kind === "confirm" && answer.approved
        ? call(tool, params, String(details["confirm_token"]))
        : outcome;
    },
  };
  const finish = (reason: string): void => {
    lease.release();
    live.touch();
    live.stream.emit("event.agent_done", { turn_id: turnId, reason });
  };
  const done = Promise.resolve()
    .then(() => script(turn))
    .then(
      () => finish(signal.aborted ? "cancelled" : "done"),
      (error: unknown) => {
        finish(signal.aborted ? "cancelled" : "failed");
        if (!signal.aborted) {
          throw error;
        }
      },
    );
  return { turnId, done };
}
