/** A request that was answered with an error, or with something that is no answer of this API. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  /** HTTP status. */
  readonly status: number;
  /** The machine-readable word of the answer: `PRECONDITION_FAILED`, `tool_not_found`, …; `HTTP_<status>` where it has none. */
  readonly code: string;
  /** The whole body: an object when it was JSON, otherwise its text. */
  readonly response: unknown;
  /** The request it belongs to. */
  readonly method: string;
  readonly path: string;
  /** Seconds of `Retry-After`, where the answer had it in that form. */
  readonly retryAfterSeconds: number | null;

  constructor(request: { method: string; path: string }, answer: ErrorAnswer) {
    super(messageOf(answer));
    this.method = request.method;
    this.path = request.path;
    this.status = answer.status;
    this.code = stringMember(answer.body, "code") ?? `HTTP_${answer.status}`;
    this.response = answer.body;
    this.retryAfterSeconds = answer.retryAfterSeconds;
  }

  /** `details` of an agent's answer (a parked tool's confirm token, for one); undefined where there are none. */
  get details(): Record<string, unknown> | undefined {
    const details = member(this.response, "details");
    return typeof details === "object" && details !== null && !Array.isArray(details)
      ? (details as Record<string, unknown>)
      : undefined;
  }
}

/** What an {@link ApiError} is made of. */
export interface ErrorAnswer {
  readonly status: number;
  readonly statusText: string;
  readonly body: unknown;
  readonly retryAfterSeconds: number | null;
}

/** A call that cannot be sent as it is: a path argument that is no name, a write without its precondition. */
export class ValidationError extends Error {
  override readonly name = "ValidationError";
}

/** No answer arrived: refused, reset, timed out, cut off, or longer than the client takes. `cause` has the reason. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
  readonly method: string;
  readonly path: string;

  constructor(request: { method: string; path: string }, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.method = request.method;
    this.path = request.path;
  }
}

function messageOf(answer: ErrorAnswer): string {
  return (
    stringMember(answer.body, "message") ??
    stringMember(answer.body, "error") ??
    (answer.statusText === "" ? `HTTP status ${answer.status}` : answer.statusText)
  );
}

function member(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null && Object.hasOwn(value, key)
    ? (value as Record<string, unknown>)[key]
    : undefined;
}

function stringMember(value: unknown, key: string): string | undefined {
  const found = member(value, key);
  return typeof found === "string" && found !== "" ? found : undefined;
}
