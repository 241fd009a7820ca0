import { AsyncLocalStorage } from "node:async_hooks";
import { ENVELOPE_FIELDS, type HookEnvelope, withDepth } from "../../dispatcher/envelope.ts";
import type { BodySource, FieldLines } from "../../policy/kernel/exchange.ts";
import { sweepHopByHop } from "../../policy/kernel/fields.ts";
import type {
  AnswerHandler,
  Http1Client,
  OutgoingCall,
  OutgoingRequest,
  UpstreamFailure,
} from "../../policy/kernel/http1/types.ts";
import {
  encodeForwardPath,
  encodeForwardQuery,
  isForwardablePath,
  joinTarget,
  splitTarget,
} from "../../policy/kernel/target.ts";
import type { Call } from "./call.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import {
  areFieldsReceived,
  areFieldsUnread,
  receivedFields,
  type HostRequest,
} from "./host-request.ts";
import { NO_OVERRIDES, type HeaderOverride, type Overrides } from "./overrides.ts";
import { clientBody, LiveBody, type BodyState } from "./request-body.ts";
import { requestFields } from "./request-fields.ts";

/** What the helpers need of the worker. */
export interface UpstreamDeps {
  readonly client: Http1Client;
  readonly limits: OutgoingRequest["limits"];
}

/** Body of an override in sendable form, with the type that belongs to it. */
export interface EncodedBody {
  readonly source: BodySource | null;
  readonly contentType: string | null;
}

/**
 * The upstream request of a helper call. Host and port come from the envelope or a checked override, never from a
 * path. Checks come in the order of exec-host.md 5.6.
 *
 * @param origPath the client's path as text (`metadata.hook.origPath`).
 * @param encodeBody turns an override body into bytes; loaded only when one is given.
 * @throws HookUpstreamError `unforwardable-path`, `no-body`, `body-consumed`.
 */
export function planRequest(
  call: Call,
  envelope: HookEnvelope,
  origPath: string,
  req: HostRequest,
  state: BodyState,
  overrides: Overrides,
  encodedBody: EncodedBody | null,
  limits: OutgoingRequest["limits"],
): PlannedRequest {
  const target = overrides.target ?? clientTarget(call, origPath, req);
  const method = overrides.method ?? req.method ?? envelope.method;
  const mayCarryBody = method !== "GET" && method !== "HEAD";
  let body: BodySource | null = null;
  if (mayCarryBody) {
    body = encodedBody === null ? clientBody(req, state) : encodedBody.source;
  }
  const isUnread = areFieldsUnread(req);
  const lines = isUnread ? [] : requestFields(req);
  const isReceived =
    overrides === NO_OVERRIDES && (isUnread || lines === req.rawHeaders) && areFieldsReceived(req);
  const complete = (from: FieldLines): FieldLines =>
    withOurs(
      toFields(from, overrides.headers, encodedBody?.contentType ?? null),
      call,
      envelope,
      overrides,
    );
  const origin = {
    kind: "tcp",
    host: overrides.host ?? envelope.upstreamHost,
    port: overrides.port ?? envelope.upstreamPort,
  } as const;
  const shared = { origin, method, target, body, limits };
  // As received: what is sent of it is made up when it is needed, from what nobody can change.
  return isReceived
    ? new PlannedRequest(shared, null, () => complete(receivedFields(req)))
    : new PlannedRequest(shared, complete(isUnread ? receivedFields(req) : lines), null);
}

/** A request that is ready to be sent. */
export class PlannedRequest implements OutgoingRequest {
  readonly origin: OutgoingRequest["origin"];
  readonly method: string;
  readonly target: string;
  readonly body: BodySource | null;
  readonly limits: OutgoingRequest["limits"];
  #fields: FieldLines | null;
  readonly #complete: (() => FieldLines) | null;

  constructor(
    { origin, method, target, body, limits }: Omit<OutgoingRequest, "fields">,
    fields: FieldLines | null,
    complete: (() => FieldLines) | null,
  ) {
    this.origin = origin;
    this.method = method;
    this.target = target;
    this.body = body;
    this.limits = limits;
    this.#fields = fields;
    this.#complete = complete;
  }

  /** The fields are those of the client's request, which the edge has too. */
  get isAsReceived(): boolean {
    return this.#complete !== null;
  }

  get fields(): FieldLines {
    return (this.#fields ??= this.#complete?.() ?? []);
  }
}

/**
 * The edge's own way to a service asks for its token; no other address gets to see it. Another address may lead back
 * to the edge, which then has to know how deep the call stands.
 */
function withOurs(
  fields: FieldLines,
  call: Call,
  envelope: HookEnvelope,
  overrides: Overrides,
): FieldLines {
  if (overrides.host !== null || overrides.port !== null) {
    return withDepth(fields, call.depth);
  }
  const { upstreamToken } = envelope;
  return upstreamToken === undefined
    ? fields
    : [...fields, ENVELOPE_FIELDS.upstreamToken, upstreamToken];
}

function clientTarget(call: Call, origPath: string, req: HostRequest): string {
  if (!isForwardablePath(origPath)) {
    call.pathRefused = true;
    throw new HookUpstreamError(
      "unforwardable-path",
      "the client's path cannot be forwarded as it is",
    );
  }
  const { query } = splitTarget(req.url ?? "");
  return joinTarget(encodeForwardPath(origPath), query === null ? null : encodeForwardQuery(query));
}

/** The client's fields without those of the connection, with the overrides in place. */
function toFields(
  received: FieldLines,
  overrides: ReadonlyMap<string, HeaderOverride>,
  contentType: string | null,
): FieldLines {
  const swept = sweepHopByHop(received);
  if (overrides.size === 0 && contentType === null) {
    return swept;
  }
  const typed = contentType !== null && !overrides.has("content-type");
  const fields: string[] = [];
  for (let i = 0; i < swept.length; i += 2) {
    const lower = swept[i]!.toLowerCase();
    if (!overrides.has(lower) && !(typed && lower === "content-type")) {
      fields.push(swept[i]!, swept[i + 1]!);
    }
  }
  for (const { name, values } of overrides.values()) {
    for (const value of values ?? []) {
      fields.push(name, value);
    }
  }
  if (typed) {
    fields.push("Content-Type", contentType);
  }
  return fields;
}

/** What a helper hears of its upstream request; `fail` comes at most once and last. */
export interface UpstreamListener extends Pick<AnswerHandler, "head" | "data"> {
  end(): void;
  fail(error: HookUpstreamError): void;
}

/**
 * Sends a planned request and ties it to the client, to `overrides.signal` and to `overrides.timeoutMs`: whatever
 * comes first ends it, also in mid-body.
 */
export function sendUpstream(
  deps: UpstreamDeps,
  call: Call,
  request: OutgoingRequest,
  overrides: Overrides,
  setTimer: (ms: number, task: () => void) => { cancel(): void },
  listener: UpstreamListener,
): OutgoingCall {
  const { signal, timeoutMs } = overrides;
  const sentAt = performance.now();
  let isOver = false;
  let outgoing: OutgoingCall | null = null;
  let stopListening = (): void => {};
  let timer: { cancel(): void } | null = null;
  const finish = (): boolean => {
    if (isOver) {
      return false;
    }
    isOver = true;
    stopListening();
    timer?.cancel();
    signal?.removeEventListener("abort", onSignal);
    return true;
  };
  const giveUp = (kind: "abort" | "timeout", message: string, cause?: unknown): void => {
    if (finish()) {
      outgoing?.abort();
      listener.fail(new HookUpstreamError(kind, message, cause));
    }
  };
  const onSignal = (): void => giveUp("abort", "overrides.signal was aborted", signal?.reason);
  // A kept connection tells its events where it was made, which may have been for another call.
  const within = AsyncLocalStorage.snapshot();
  const handler: AnswerHandler = {
    interim() {}, // interim answers end here: the script sees one answer
    head(head, length, isBodyless) {
      call.upstreamMs = (call.upstreamMs ?? 0) + performance.now() - sentAt;
      if (!isOver) {
        within(() => listener.head(head, length, isBodyless));
      }
    },
    data: (chunk) => (isOver ? true : within(() => listener.data(chunk))),
    end() {
      if (finish()) {
        within(() => listener.end());
      }
    },
    tunnel(_head, stream) {
      stream.destroy();
      if (finish()) {
        listener.fail(new HookUpstreamError("network", "the service switched protocols unasked"));
      }
    },
    fail(failure) {
      if (finish()) {
        within(() => listener.fail(toHookError(failure, call)));
      }
    },
  };
  if (signal?.aborted === true) {
    // Later, so that the caller holds the returned call before its listener hears anything.
    queueMicrotask(() => onSignal());
    return { resume() {}, abort: () => void finish() };
  }
  signal?.addEventListener("abort", onSignal, { once: true });
  if (timeoutMs !== null) {
    timer = setTimer(timeoutMs, () => giveUp("timeout", `no complete answer in ${timeoutMs} ms`));
  }
  try {
    if (request.body instanceof LiveBody) {
      request.body.listen();
    }
    outgoing = deps.client.send(request, handler);
  } catch (cause) {
    finish();
    throw new HookUpstreamError("network", "the request cannot be sent as one message", cause);
  }
  stopListening = call.onGone(() => giveUp("abort", "the client is gone"));
  const sent = outgoing;
  return {
    resume: () => sent.resume(),
    abort() {
      finish();
      sent.abort();
    },
  };
}

/** The error a script sees; addresses and system texts stay in `cause`, for its own log. */
export function toHookError(failure: UpstreamFailure, call: Call): HookUpstreamError {
  if (failure.kind === "body" && call.hasLeft) {
    return new HookUpstreamError("abort", "the client left in mid-upload", failure);
  }
  const message =
    failure.kind === "connect" ? "the service cannot be reached" : "the service broke off";
  return new HookUpstreamError("network", message, failure);
}
