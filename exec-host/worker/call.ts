import { AsyncLocalStorage } from "node:async_hooks";
import {
  formatOutcome,
  type DispatchOutcomeName,
  type Envelope,
} from "../../dispatcher/envelope.ts";
import type { Timer } from "../../policy/kernel/clock.ts";
import { errorBody, errorFields, statusOf, type ErrorCode } from "../../policy/kernel/errors.ts";
import type { LogSubject } from "./journal.ts";
import { HostRequest } from "./host-request.ts";
import type { OrderDesk } from "./order-forward.ts";
import { answerInstead, HostResponse, isHeadOut } from "./host-response.ts";

/** Whose code is running: found by `console`, `process.env` and the handlers of stray failures. */
export const currentCall = new AsyncLocalStorage<Call>();

/** What the audit record says of an answer the host made itself. */
const OUTCOME_OF: Partial<Record<ErrorCode, DispatchOutcomeName>> = {
  HOOK_TIMEOUT: "timed_out",
  SCRIPT_TIMEOUT: "timed_out",
  HOOK_SCRIPT_ERROR: "script_error",
  SCRIPT_ERROR: "script_error",
  HOOK_SCRIPT_NOT_FOUND: "not_found",
  SCRIPT_NOT_FOUND: "not_found",
  HOOK_TARGET_UNAVAILABLE: "target_unavailable",
  HOOK_BAD_PATH: "bad_path",
  HOOK_UPSTREAM_UNAVAILABLE: "upstream_failed",
};

/** Stands in a call that is over for its request and response. */
const OVER = makeOver();

function makeOver(): HostResponse {
  const parts = { method: "GET", target: "/", fields: "", hasBody: false, want() {} };
  const res = new HostResponse(new HostRequest(undefined, parts));
  res.on("error", () => {}); // what comes after the end is nobody's affair
  res.end();
  res.destroy();
  return res;
}

/** One request that runs a script, from its head to the end of its answer. */
export class Call implements LogSubject {
  readonly executionId: string;
  readonly envelope: Envelope;
  req: HostRequest;
  res: HostResponse;
  /** The call's audit id; null for an ordinary call. */
  readonly auditId: string | null;
  /** ms, wall clock and monotonic. */
  readonly startedAt: number;
  readonly started: number;
  /** Name of the script below the root, once it is known. */
  script = "";
  logLevel: LogSubject["logLevel"] = "standard";
  /** Environment of the script, once it is loaded. */
  env: Record<string, string> | null = null;
  /** A helper refused to forward the client's path: an uncaught error is then a 400 (exec-host.md 5.3). */
  pathRefused = false;
  /** Where the edge takes orders for it. */
  desk: OrderDesk | null = null;
  /** The edge answers in the script's place (`order-forward.ts`). */
  isLent = false;
  /** Called once when the response is closed. */
  onEnd: (() => void) | null = null;
  /** How deep it stands in calls of other hooks; what its script sends elsewhere carries that. */
  depth = 0;
  /** What goes out is a service's own answer. */
  isForwarded = false;
  /** ms that helpers waited for heads of services, in all; null when none came. */
  upstreamMs: number | null = null;
  /** Ends the call when it takes too long; goes with the call. */
  deadline: Timer | null = null;
  /** How the call ended when that is not told by its status. */
  #outcome: DispatchOutcomeName | null = null;
  #headOutcome: DispatchOutcomeName | null = null;
  #status = 0;
  #isCut = false;
  #isGone = false;
  #isOver = false;
  #isRefused = false;
  #listeners: Set<() => void> | null = null;
  #controller: AbortController | null = null;

  constructor(
    executionId: string,
    envelope: Envelope,
    req: HostRequest,
    res: HostResponse,
    now: { readonly wall: number; readonly monotonic: number },
  ) {
    this.executionId = executionId;
    this.envelope = envelope;
    this.req = req;
    this.res = res;
    this.auditId = envelope.kind === "hook" ? envelope.auditId : null;
    this.startedAt = now.wall;
    this.started = now.monotonic;
  }

  /** A final head is about to be sent. Only a hook's outcome is of interest to the edge; an ordinary call is recorded by its status. */
  tellHead(status: number): string | null {
    this.#status = status;
    this.#headOutcome = this.#outcome ?? this.#ownOutcome(status);
    return this.envelope.kind === "hook" ? formatOutcome(this.#headOutcome, this.upstreamMs) : null;
  }

  #ownOutcome(status: number): DispatchOutcomeName {
    if (this.isForwarded) {
      return "forwarded";
    }
    return status >= 400 && status < 500 ? "denied" : "answered";
  }

  /** Status of the head, 0 before one. */
  get status(): number {
    return this.#status;
  }

  /** The outcome as the head told it, null before the head. */
  get headOutcome(): DispatchOutcomeName | null {
    return this.#headOutcome;
  }

  /** The client left, or the answer was cut: nothing that is written reaches anybody. */
  get isGone(): boolean {
    return this.#isGone;
  }

  /** The client is known to have left, be it only by an upload that broke off. */
  get hasLeft(): boolean {
    return this.#isGone || (this.req.destroyed && !this.req.complete);
  }

  /** The script has made its head, or nothing can be answered any more. */
  get isAnswered(): boolean {
    return this.#isOver || this.res.headersSent;
  }

  /** The host has answered in the script's place, or cut the answer off. */
  get isRefused(): boolean {
    return this.#isRefused;
  }

  /** How it ended; final once the response is closed. */
  get outcome(): DispatchOutcomeName {
    if (this.#isCut) {
      return this.#outcome ?? "truncated";
    }
    if (this.#isGone) {
      return "client_gone";
    }
    return this.#headOutcome ?? this.#outcome ?? "answered";
  }

  /** Marks how the call ends, before its head is made. */
  mark(outcome: DispatchOutcomeName): void {
    this.#outcome = outcome;
  }

  /** Runs `listener` once when the answer can reach nobody any more. Returns how to stop listening. */
  onGone(listener: () => void): () => void {
    if (this.#isGone) {
      listener();
      return () => {};
    }
    const listeners = (this.#listeners ??= new Set());
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
    };
  }

  /** Runs `listener` when the response closes; never for one that is closed already. */
  onClose(listener: () => void): void {
    if (this.res !== OVER) {
      this.res.once("close", listener);
    }
  }

  /** A signal for APIs that want one; made on demand, it costs more than a listener. */
  get signal(): AbortSignal {
    if (this.#controller === null) {
      const controller = new AbortController();
      this.#controller = controller;
      this.onGone(() => controller.abort());
    }
    return this.#controller.signal;
  }

  /** The response is closed, finished or not. */
  close(): void {
    this.#isOver = true;
    this.deadline?.cancel();
    this.deadline = null;
    if (!this.res.writableFinished) {
      this.#isGone = true;
      for (const listener of this.#listeners ?? []) {
        listener();
      }
    }
    this.#listeners = null;
    this.onEnd?.();
    this.onEnd = null;
  }

  /**
   * Lets go of request and response once the call is closed and recorded. Whatever a script left behind (a timer, a
   * promise, a kept connection) keeps the call; a call that kept its messages made the collector copy all of them.
   */
  release(): void {
    if (this.req.complete) {
      this.req = OVER.req;
      this.res = OVER;
    }
  }

  /**
   * Answers with one of the host's own errors in place of whatever the script staged. When a part of the script's
   * answer is already out, the connection is cut instead: truncation is the only honest signal left.
   */
  refuse(code: ErrorCode, outcome?: DispatchOutcomeName): void {
    const ends = outcome ?? OUTCOME_OF[code] ?? "script_error";
    if (isHeadOut(this.res) || this.res.destroyed) {
      this.cut(ends === "timed_out" ? "truncated" : ends);
      return;
    }
    this.#outcome = ends;
    this.#isOver = true;
    this.#isRefused = true;
    this.isLent = false;
    const fields = errorFields(code);
    if (this.auditId !== null) {
      fields.push("X-Hoody-Hook-Audit", this.auditId);
    }
    if (code === "UNAUTHORIZED") {
      fields.push("WWW-Authenticate", "Bearer");
    }
    const body = Buffer.from(errorBody(code, undefined, this.auditId ?? undefined));
    try {
      answerInstead(this.res, statusOf(code), fields, body);
    } catch {
      this.cut(ends); // a script broke its response beyond use; the client must not wait for it
    }
  }

  /** Destroys the response's connection; what was sent stays incomplete. */
  cut(outcome: DispatchOutcomeName): void {
    if (this.res.writableFinished || this.#isCut) {
      return;
    }
    this.#outcome = outcome;
    this.#isCut = true;
    this.#isOver = true;
    this.#isRefused = true;
    this.isLent = false;
    try {
      this.res.socket?.destroy();
      this.res.destroy();
    } catch {
      // a script froze its response; the socket, which ends the call, was not its to freeze
    }
  }
}
