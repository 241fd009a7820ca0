import {
  decodeEnvelope,
  DEPTH_FIELD,
  ENVELOPE_FIELDS,
  parseDepth,
  type Envelope,
} from "../../dispatcher/envelope.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import { errorBody, errorFields, statusOf, type ErrorCode } from "../../policy/kernel/errors.ts";
import { newRequestId } from "../../policy/kernel/ids.ts";
import { DEFAULT_EXEC_ID, DEFAULT_SUBDOMAIN } from "../scripts/coordinates.ts";
import { Call, currentCall } from "./call.ts";
import type { Execute } from "./execute.ts";
import { showPeer, type HostRequest } from "./host-request.ts";
import { watchResponse, type HostResponse } from "./host-response.ts";
import type { Journal } from "./journal.ts";

export interface ServeDeps {
  readonly clock: Clock;
  readonly journal: Journal;
  readonly execute: Execute;
}

export interface ServeOptions {
  /** Compares a presented secret in constant time. */
  readonly isSecret: (presented: string) => boolean;
}

/** Handles one request of the worker's socket. */
export type Serve = (req: HostRequest, res: HostResponse) => void;

/** Calls that run, for the pong. */
export interface Server {
  readonly serve: Serve;
  readonly active: number;
}

/** The frame of every call: the hand-over fields in front of it, its record behind it. */
export function createServer(deps: ServeDeps, options: ServeOptions): Server {
  const { clock, journal } = deps;
  let active = 0;

  function serve(req: HostRequest, res: HostResponse): void {
    res.on("error", ignore); // late writes on a closed response are the script's affair, never the process's
    req.on("error", ignore); // a client that breaks off its upload; whoever reads the body hears it too
    const fields = req.takeEnvelope();
    const envelope = readEnvelope(fields, options.isSecret);
    if (typeof envelope === "string") {
      answerPlain(res, envelope);
      return;
    }
    showPeer(req.socket, envelope.clientAddress);
    const now = { wall: clock.now(), monotonic: clock.monotonic() };
    const call = new Call(newRequestId(), envelope, req, res, now);
    call.depth = parseDepth(fields?.get(DEPTH_FIELD.toLowerCase()));
    active++;
    watchResponse(res, {
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
    const { envelope } = call;
    const outcome = call.outcome;
    journal.executed({
      executionId: call.executionId,
      auditId: call.auditId,
      kind: envelope.kind,
      subdomain: envelope.subdomain ?? DEFAULT_SUBDOMAIN,
      execId: envelope.execId ?? DEFAULT_EXEC_ID,
      script: call.script,
      method: call.req.method ?? "",
      path: pathOf(call.req.url ?? ""),
      status: call.status,
      outcome,
      startedAt: call.startedAt,
      durationMs: clock.monotonic() - call.started,
    });
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

/** The envelope of a request, or the code with which it is refused. */
function readEnvelope(
  fields: ReadonlyMap<string, string> | null,
  isSecret: (presented: string) => boolean,
): Envelope | ErrorCode {
  const secret = fields?.get(ENVELOPE_FIELDS.auth.toLowerCase());
  if (fields === null || secret === undefined || !isSecret(secret)) {
    return "FORBIDDEN";
  }
  return decodeEnvelope((name) => fields.get(name)) ?? "BAD_REQUEST";
}

function ignore(): void {}

function answerPlain(res: HostResponse, code: ErrorCode): void {
  const body = Buffer.from(errorBody(code));
  res.writeHead(statusOf(code), [...errorFields(code), "Content-Length", String(body.length)]);
  res.end(body);
}

function pathOf(url: string): string {
  const at = url.indexOf("?");
  return at < 0 ? url : url.slice(0, at);
}
