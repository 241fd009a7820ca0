import { decodeEnvelope, ENVELOPE_FIELDS, type Envelope } from "../../dispatcher/envelope.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import { errorBody, errorFields, statusOf, type ErrorCode } from "../../policy/kernel/errors.ts";
import { newRequestId } from "../../policy/kernel/ids.ts";
import type { WorkerLimits } from "../protocol.ts";
import { areHookCoordinates, DEFAULT_EXEC_ID, DEFAULT_SUBDOMAIN } from "../scripts/coordinates.ts";
import { resolveScript, type ResolvedScript } from "../scripts/resolve.ts";
import { Call, currentCall } from "./call.ts";
import type { Deployment, Deployments } from "./deployments.ts";
import { createHookMetadata, toPathText, type HookCall, type HookMetadata } from "./hook.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import { showPeer, type HostRequest, type HostResponse } from "./host-message.ts";
import type { Journal } from "./journal.ts";
import type { LoadedScript } from "./load.ts";
import { createMetadata } from "./metadata.ts";
import { announcesBody, bufferBody, type BodyState } from "./request-body.ts";
import { respondWith } from "./respond.ts";
import { describeError } from "./script-console.ts";
import type { UpstreamDeps } from "./upstream-request.ts";

export interface ServeDeps {
  readonly clock: Clock;
  readonly journal: Journal;
  readonly deployments: Deployments;
  readonly upstream: UpstreamDeps;
}

export interface ServeOptions {
  /** Scripts root, free of links. */
  readonly root: string;
  readonly limits: WorkerLimits;
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

/** The life of a call, from the hand-over fields to the end of its answer (exec-host.md 5.2). */
export function createServer(deps: ServeDeps, options: ServeOptions): Server {
  const { clock, journal } = deps;
  let active = 0;

  function serve(req: HostRequest, res: HostResponse): void {
    res.on("error", () => {}); // late writes on a closed response are the script's affair, never the process's
    req.on("error", () => {}); // a client that breaks off its upload; whoever reads the body hears it too
    const fields = req.takeEnvelope();
    const envelope = readEnvelope(fields, options.isSecret);
    if (typeof envelope === "string") {
      answerPlain(res, envelope);
      return;
    }
    showPeer(req.socket, envelope.clientAddress);
    const call = new Call(newRequestId(), envelope, req, res, {
      wall: clock.now(),
      monotonic: clock.monotonic(),
    });
    active++;
    res.on("close", () => {
      active--;
      call.close();
      record(call);
    });
    currentCall.run(call, run, call);
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

  function run(call: Call): void {
    const { envelope } = call;
    if (
      envelope.kind === "hook" &&
      !areHookCoordinates(envelope.subdomain, envelope.execId, envelope.scriptPath)
    ) {
      call.refuse("HOOK_TARGET_UNAVAILABLE");
      return;
    }
    const { script: resolved } = resolveScript(options.root, {
      subdomain: envelope.subdomain,
      execId: envelope.execId,
      path: envelope.kind === "hook" ? envelope.scriptPath : pathOf(call.req.url ?? ""),
      withExtension: envelope.kind === "hook",
    });
    if (resolved === null) {
      call.refuse(envelope.kind === "hook" ? "HOOK_SCRIPT_NOT_FOUND" : "SCRIPT_NOT_FOUND");
      return;
    }
    call.script = resolved.name;
    const deployment = deps.deployments.obtain(envelope.subdomain, envelope.execId);
    let script: LoadedScript;
    try {
      script = deps.deployments.script(deployment, resolved.file);
    } catch (error) {
      fail(call, error);
      return;
    }
    call.logLevel = script.directives.logLevel;
    if (!script.directives.enabled) {
      call.refuse(envelope.kind === "hook" ? "HOOK_SCRIPT_NOT_FOUND" : "SCRIPT_NOT_FOUND");
      return;
    }
    startDeadline(call, script);
    execute(call, resolved, script, deployment).catch((error: unknown) => fail(call, error));
  }

  /** The timer stays until the answer is complete: a stream that outlives it is cut. */
  function startDeadline(call: Call, script: LoadedScript): void {
    const { envelope } = call;
    const own = script.directives.timeoutMs;
    const timeoutMs =
      envelope.kind === "hook"
        ? Math.min(envelope.timeoutMs, own === null || own === 0 ? Infinity : own)
        : (own ?? options.limits.ordinaryTimeoutMs);
    if (timeoutMs === 0) {
      return;
    }
    const left = Math.max(0, timeoutMs - (clock.monotonic() - call.started));
    const timer = clock.after(left, () => {
      journal.log(call, "warn", `no complete answer in ${timeoutMs} ms`);
      call.refuse(envelope.kind === "hook" ? "HOOK_TIMEOUT" : "SCRIPT_TIMEOUT");
    });
    call.res.once("close", () => timer.cancel());
  }

  async function execute(
    call: Call,
    resolved: ResolvedScript,
    script: LoadedScript,
    deployment: Deployment,
  ): Promise<void> {
    const { req, res, envelope } = call;
    const { rawBody: isRaw } = script.directives;
    const hasBody = announcesBody(req);
    const neverRead = req.method === "GET" || req.method === "HEAD";
    const bodyState: BodyState = { isExpected: hasBody && !neverRead, isRaw, isTaken: false };
    if (hasBody && neverRead) {
      req.resume();
    } else if (hasBody && !isRaw) {
      const body = await bufferBody(req, options.limits.maxBufferedBodyBytes);
      if (body === null) {
        return; // the client is gone
      }
      if (body === "too-large") {
        call.refuse("BODY_TOO_LARGE", "denied");
        return;
      }
      req.rawBody = body;
    }
    const hook = envelope.kind === "hook" ? toHook(call, envelope, bodyState) : undefined;
    const metadata = createMetadata(call, resolved.parameters, hook);
    const result = await script.run({ req, res, metadata, shared: deployment.shared });
    if (!call.isAnswered) {
      await respondWith(call, result);
    }
  }

  function toHook(
    call: Call,
    envelope: Extract<Envelope, { kind: "hook" }>,
    bodyState: BodyState,
  ): HookMetadata {
    const hook: HookCall = {
      call,
      envelope,
      origPath: toPathText(envelope.path),
      bodyState,
      upstream: deps.upstream,
      setTimer: (ms, task) => clock.after(ms, task),
      log: (level, text) => journal.log(call, level, text),
      logError: (what, error) => journal.log(call, "error", `${what}: ${describeError(error)}`),
    };
    return createHookMetadata(hook);
  }

  /** An uncaught error of the script, or of loading it. */
  function fail(call: Call, error: unknown): void {
    const isHook = call.envelope.kind === "hook";
    if (call.isAnswered && (call.isGone || call.res.writableEnded)) {
      // Too late to matter to anybody: the client left, or has its whole answer.
      journal.log(call, "debug", `after the answer: ${describeError(error)}`);
      return;
    }
    const isRefusal = error instanceof HookUpstreamError && error.kind === "unforwardable-path";
    journal.log(call, isRefusal ? "warn" : "error", describeError(error));
    if (call.pathRefused && !call.res.headersSent) {
      call.refuse("HOOK_BAD_PATH");
      return;
    }
    call.refuse(isHook ? "HOOK_SCRIPT_ERROR" : "SCRIPT_ERROR");
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

function answerPlain(res: HostResponse, code: ErrorCode): void {
  const body = Buffer.from(errorBody(code));
  res.writeHead(statusOf(code), [...errorFields(code), "Content-Length", String(body.length)]);
  res.end(body);
}

function pathOf(url: string): string {
  const at = url.indexOf("?");
  return at < 0 ? url : url.slice(0, at);
}
