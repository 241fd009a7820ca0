import type { Clock } from "../../policy/kernel/clock.ts";
import { newRequestId } from "../../policy/kernel/ids.ts";
import { DEFAULT_EXEC_ID, DEFAULT_SUBDOMAIN } from "../scripts/coordinates.ts";
import { Call, currentCall } from "./call.ts";
import type { ReceivedCall } from "./call-server.ts";
import type { Execute } from "./execute.ts";
import { watchResponse } from "./host-response.ts";
import type { Journal } from "./journal.ts";

export interface ServeDeps {
  readonly clock: Clock;
  readonly journal: Journal;
  readonly execute: Execute;
}

/** Calls that run, for the pong. */
export interface Server {
  /** Runs one call. */
  serve(received: ReceivedCall): void;
  readonly active: number;
}

/** The frame of every call: what the edge says of it in front, its record behind it. */
export function createServer(deps: ServeDeps): Server {
  const { clock, journal } = deps;
  let active = 0;

  function serve({ head, req, res, desk }: ReceivedCall): void {
    res.on("error", ignore); // late writes on a closed response are the script's affair, never the process's
    req.on("error", ignore); // a client that breaks off its upload; whoever reads the body hears it too
    const now = { wall: clock.now(), monotonic: clock.monotonic() };
    const call = new Call(newRequestId(), head.envelope, req, res, now);
    call.depth = head.depth;
    call.desk = desk;
    active++;
    watchResponse(res, {
      within: (task) => currentCall.run(call, task),
      head: (status) => call.tellHead(status),
      closed() {
        active--;
        call.close();
        record(call);
        call.release();
      },
    });
    currentCall.run(call, deps.execute, call);
  }

  function record(call: Call): void {
    const { envelope, outcome } = call;
    journal.executed(() => ({
      executionId: call.executionId,
      auditId: call.auditId,
      path: pathOf(asText(call.req.url)),
      startedAt: call.startedAt,
      durationMs: clock.monotonic() - call.started,
      labels: {
        kind: envelope.kind,
        subdomain: envelope.subdomain ?? DEFAULT_SUBDOMAIN,
        execId: envelope.execId ?? DEFAULT_EXEC_ID,
        script: call.script,
        method: asText(call.req.method),
        status: call.status,
        outcome,
      },
    }));
    if (envelope.kind === "hook" && call.headOutcome !== null && outcome !== call.headOutcome) {
      journal.ended({ type: "ended", auditId: envelope.auditId, outcome });
    }
  }

  return {
    serve,
    get active() {
      return active;
    },
  };
}

function ignore(): void {}

/** A script may have put anything there. */
function asText(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function pathOf(url: string): string {
  const at = url.indexOf("?");
  return at < 0 ? url : url.slice(0, at);
}
