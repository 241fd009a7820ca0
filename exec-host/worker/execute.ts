import { readFileSync } from "node:fs";
import type { Envelope } from "../../dispatcher/envelope.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { WorkerLimits } from "../protocol.ts";
import { areHookCoordinates } from "../scripts/coordinates.ts";
import { resolveMarkdown, type ResolvedScript } from "../scripts/resolve.ts";
import type { Call } from "./call.ts";
import type { Deployment, Deployments } from "./deployments.ts";
import { createHookMetadata, type HookMetadata } from "./hook.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import { isBodyAnnounced, type HostRequest } from "./host-request.ts";
import { isHeadOut, type HostResponse } from "./host-response.ts";
import type { Journal } from "./journal.ts";
import type { LoadedScript } from "./load.ts";
import type { Location, LocateScript } from "./locate.ts";
import { createMetadata, withMainResult, type ScriptMetadata } from "./metadata.ts";
import { toPathText } from "./path-text.ts";
import { bufferBody, type BodyState } from "./request-body.ts";
import { respondWith } from "./respond.ts";
import { isMalformedJson, presentBody } from "./script-body.ts";
import { describeError } from "./script-console.ts";
import { answerPreflight, isPreflight, isTokenAccepted, stageCors } from "./script-gates.ts";
import { createSlots, type Slots } from "./slots.ts";
import type { UpstreamDeps } from "./upstream-request.ts";

export interface ExecuteDeps {
  readonly clock: Clock;
  readonly journal: Journal;
  readonly deployments: Deployments;
  readonly locate: LocateScript;
  readonly upstream: UpstreamDeps;
}

export interface ExecuteOptions {
  /** Scripts root, free of links. */
  readonly root: string;
  readonly limits: WorkerLimits;
}

/** What scripts get of a call. */
interface Messages {
  readonly req: HostRequest;
  readonly res: HostResponse;
}

/** One call, from its coordinates to what the script made of it (exec-host.md 5.2). Never throws. */
export type Execute = (call: Call) => void;

export function createExecutor(deps: ExecuteDeps, options: ExecuteOptions): Execute {
  const { clock, journal } = deps;
  const slots = new WeakMap<Deployment, Map<string, Slots>>();

  function execute(call: Call): void {
    const { envelope } = call;
    const isHook = envelope.kind === "hook";
    if (isHook && !areHookCoordinates(envelope.subdomain, envelope.execId, envelope.scriptPath)) {
      call.refuse("HOOK_TARGET_UNAVAILABLE");
      return;
    }
    const path = isHook ? envelope.scriptPath : pathOf(call.req.url ?? "");
    if (!isHook && path.endsWith(".md")) {
      serveMarkdown(call, path);
      return;
    }
    const { subdomain, execId } = envelope;
    const location = deps.locate({ subdomain, execId, path, withExtension: isHook });
    if (location === null) {
      call.refuse(isHook ? "HOOK_SCRIPT_NOT_FOUND" : "SCRIPT_NOT_FOUND");
      return;
    }
    const { script: resolved } = location;
    call.script = resolved.name;
    const deployment = deps.deployments.obtain(subdomain, execId);
    let script: LoadedScript;
    try {
      script = loadNoted(call, deployment, resolved);
    } catch (error) {
      fail(call, error);
      return;
    }
    call.env = script.env;
    call.logLevel = script.directives.logLevel;
    if (!passesGates(call, script)) {
      return;
    }
    startDeadline(call, script);
    run(call, location, script, deployment).catch((error: unknown) => fail(call, error));
  }

  /** Tells the author once per version what is odd about a script. */
  function loadNoted(call: Call, deployment: Deployment, resolved: ResolvedScript): LoadedScript {
    const { file, shadowed } = resolved;
    const before = deployment.scripts.get(file);
    const script = deps.deployments.script(deployment, file);
    if (script !== before) {
      for (const { line, directive, message } of script.warnings) {
        journal.log(call, "warn", `${script.name}:${line}: @${directive} ${message}`);
      }
      if (shadowed !== null) {
        journal.log(call, "warn", `${script.name} is used, ${shadowed} beside it is not`);
      }
    }
    return script;
  }

  /** What keeps a call from running its script at all. Hooks are the rule's affair: only `@enabled` counts there. */
  function passesGates(call: Call, script: LoadedScript): boolean {
    const { req, res, envelope } = call;
    const { directives } = script;
    if (!directives.enabled) {
      call.refuse(envelope.kind === "hook" ? "HOOK_SCRIPT_NOT_FOUND" : "SCRIPT_NOT_FOUND");
      return false;
    }
    if (envelope.kind === "hook") {
      return true;
    }
    stageCors(req, res, directives);
    if (isPreflight(req, directives)) {
      answerPreflight(req, res, directives);
      return false;
    }
    if (!isTokenAccepted(req, directives.tokens)) {
      call.refuse("UNAUTHORIZED", "denied");
      return false;
    }
    return true;
  }

  /** A Markdown file of an ordinary call, behind the token of the script beside it. */
  function serveMarkdown(call: Call, path: string): void {
    const { req, res, envelope } = call;
    const found = resolveMarkdown(options.root, envelope.subdomain, envelope.execId, path);
    if (found === null || (req.method !== "GET" && req.method !== "HEAD")) {
      call.refuse("SCRIPT_NOT_FOUND");
      return;
    }
    try {
      if (found.script !== null) {
        const deployment = deps.deployments.obtain(envelope.subdomain, envelope.execId);
        const script = deps.deployments.script(deployment, found.script);
        if (!script.directives.enabled) {
          call.refuse("SCRIPT_NOT_FOUND");
          return;
        }
        if (!isTokenAccepted(req, script.directives.tokens)) {
          call.refuse("UNAUTHORIZED", "denied");
          return;
        }
      }
      const text = readFileSync(found.file);
      res.setHeader("Content-Type", "text/markdown; charset=utf-8");
      res.setHeader("Content-Length", text.length);
      res.end(text);
    } catch (error) {
      fail(call, error); // a sibling that cannot be read may have had a token: no pass without looking
    }
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
    call.deadline = clock.after(left, () => {
      journal.log(call, "warn", `no complete answer in ${timeoutMs} ms`);
      call.refuse(envelope.kind === "hook" ? "HOOK_TIMEOUT" : "SCRIPT_TIMEOUT");
    });
  }

  function run(
    call: Call,
    location: Location,
    script: LoadedScript,
    deployment: Deployment,
  ): Promise<void> {
    const { mode, concurrent } = script.directives;
    return mode === "serverless" && concurrent !== Infinity
      ? takeTurn(call, concurrent, location, script, deployment)
      : runNow(call, location, script, deployment);
  }

  async function takeTurn(
    call: Call,
    concurrent: number,
    location: Location,
    script: LoadedScript,
    deployment: Deployment,
  ): Promise<void> {
    const release = await slotsOf(deployment, script.file).take(call, concurrent);
    if (release === null) {
      if (!call.isAnswered) {
        call.refuse("OVERLOADED", "denied");
      }
      return;
    }
    try {
      await runNow(call, location, script, deployment);
    } finally {
      release();
    }
  }

  function slotsOf(deployment: Deployment, file: string): Slots {
    let files = slots.get(deployment);
    if (files === undefined) {
      files = new Map();
      slots.set(deployment, files);
    }
    let found = files.get(file);
    if (found === undefined) {
      found = createSlots();
      files.set(file, found);
    }
    return found;
  }

  async function runNow(
    call: Call,
    location: Location,
    script: LoadedScript,
    deployment: Deployment,
  ): Promise<void> {
    const { envelope } = call;
    // Of their own: a post script may run when the call has let go of them.
    const messages = { req: call.req, res: call.res };
    const received = receiveBody(call, messages.req, script);
    // Each `await` costs a call what its shortest scripts cost: there is none where nothing is waited for.
    const bodyState = received instanceof Promise ? await received : received;
    if (bodyState === null) {
      return;
    }
    const hook = envelope.kind === "hook" ? toHook(call, envelope, bodyState) : undefined;
    const metadata = createMetadata(call, location.script.parameters, hook);
    const { pre, post } = location;
    let result: unknown;
    let isStopped = false;
    if (pre !== null) {
      const first = deps.deployments.script(deployment, pre);
      result = await runOne(call, messages, first, metadata, deployment);
      isStopped = (result !== undefined && result !== null) || call.isAnswered;
    }
    if (!isStopped) {
      result = await runOne(call, messages, script, metadata, deployment);
    }
    if (post !== null) {
      const last = deps.deployments.script(deployment, post);
      const extended = withMainResult(metadata, result);
      const replaced = await runOne(call, messages, last, extended, deployment, result);
      result = replaced ?? result;
    }
    if (!call.isAnswered) {
      await respondWith(call, result);
    }
  }

  async function runOne(
    call: Call,
    { req, res }: Messages,
    script: LoadedScript,
    metadata: ScriptMetadata,
    deployment: Deployment,
    mainResult?: unknown,
  ): Promise<unknown> {
    const { shared } = deployment;
    const ran = script.run({ req, res, metadata, shared, mainResult });
    const { value } = ran instanceof Promise ? await ran : ran;
    if (script.directives.awaitPromises || !isThenable(value)) {
      return await value;
    }
    Promise.resolve(value).catch((error: unknown) => {
      journal.log(call, "error", `not awaited: ${describeError(error)}`);
    });
    return undefined;
  }

  /** Buffers what is to be buffered. Null when the call ended over it. */
  function receiveBody(
    call: Call,
    req: HostRequest,
    script: LoadedScript,
  ): BodyState | null | Promise<BodyState | null> {
    const isRaw = script.directives.rawBody;
    const hasBody = isBodyAnnounced(req);
    const isNeverRead = req.method === "GET" || req.method === "HEAD";
    const state = { isExpected: hasBody && !isNeverRead, isRaw, isTaken: false };
    if (hasBody && isNeverRead) {
      req.resume();
    } else if (hasBody && !isRaw) {
      return receiveWhole(call, req).then((isThere) => (isThere ? state : null));
    }
    return state;
  }

  /** False when the call ended over its body. */
  async function receiveWhole(call: Call, req: HostRequest): Promise<boolean> {
    const bytes = await bufferBody(req, options.limits.maxBufferedBodyBytes);
    if (bytes === null || call.isAnswered) {
      return false; // the client left, or the deadline came first
    }
    if (bytes === "too-large") {
      call.refuse("BODY_TOO_LARGE", "denied");
      return false;
    }
    presentBody(req, bytes);
    if (call.envelope.kind === "ordinary" && isMalformedJson(req, bytes)) {
      call.refuse("BAD_REQUEST", "denied");
      return false;
    }
    return true;
  }

  function toHook(
    call: Call,
    envelope: Extract<Envelope, { kind: "hook" }>,
    bodyState: BodyState,
  ): HookMetadata {
    return createHookMetadata({
      call,
      envelope,
      origPath: toPathText(envelope.path),
      bodyState,
      upstream: deps.upstream,
      desk: call.desk,
      setTimer: (ms, task) => clock.after(ms, task),
      log: (level, text) => journal.log(call, level, text),
      logError: (what, error) => journal.log(call, "error", `${what}: ${describeError(error)}`),
    });
  }

  /** An uncaught error of the script, or of loading it. */
  function fail(call: Call, error: unknown): void {
    const isHook = call.envelope.kind === "hook";
    if (call.isAnswered && (call.isGone || call.isRefused || call.res.writableEnded)) {
      // Too late to matter to anybody: the client left, or has its whole answer.
      journal.log(call, "debug", `after the answer: ${describeError(error)}`);
      return;
    }
    journal.log(call, isPathRefusal(error) ? "warn" : "error", describeError(error));
    if (call.pathRefused && !isHeadOut(call.res)) {
      call.refuse("HOOK_BAD_PATH");
      return;
    }
    call.refuse(isHook ? "HOOK_SCRIPT_ERROR" : "SCRIPT_ERROR");
  }

  return execute;
}

/** Careful with the value: a script may throw anything, a proxy that throws in its turn included. */
function isPathRefusal(error: unknown): boolean {
  try {
    return error instanceof HookUpstreamError && error.kind === "unforwardable-path";
  } catch {
    return false; // whatever it is, it is none of ours
  }
}

function isThenable(value: unknown): boolean {
  return (
    typeof value === "object" &&
    value !== null &&
    typeof (value as { then?: unknown }).then === "function"
  );
}

function pathOf(url: string): string {
  const at = url.indexOf("?");
  return at < 0 ? url : url.slice(0, at);
}
