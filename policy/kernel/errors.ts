/**
 * Every answer that the edge, the dispatcher or the exec host makes itself. `error` is the text of the
 * body's `error` member; it equals the code except where the source documents fix other words.
 */
interface ErrorEntry {
  readonly status: number;
  readonly error?: string;
  readonly message: string;
  readonly retryAfterSeconds?: number;
}

/** Every answer that we make ourselves, by its code (docs/errors.md). */
export const ERRORS = {
  BAD_REQUEST: { status: 400, message: "The request cannot be read." },
  BAD_TARGET: { status: 400, message: "The request target cannot be read." },
  BAD_HOST: { status: 400, message: "The request needs exactly one valid Host." },
  UNAUTHORIZED: { status: 401, message: "Credentials are missing or not valid." },
  FORBIDDEN: { status: 403, message: "Access is not allowed." },
  NOT_FOUND: { status: 404, message: "Nothing is served at this address." },
  UNKNOWN_HOST: { status: 404, error: "NOT_FOUND", message: "No service has this host name." },
  ALIAS_PATH_PINNED: { status: 404, message: "This address serves one path only." },
  REQUEST_TIMEOUT: { status: 408, message: "The request did not arrive in time." },
  BODY_TOO_LARGE: { status: 413, message: "The request body is too large." },
  TARGET_TOO_LONG: { status: 414, message: "The request target is too long." },
  HOOK_PATH_TOO_LONG: {
    status: 414,
    message: "The path is too long for the hook that matches it.",
  },
  EXPECTATION_FAILED: { status: 417, message: "Only the expectation 100-continue is known." },
  HEAD_TOO_LARGE: { status: 431, message: "The request head is too large." },
  INTERNAL_ERROR: { status: 500, message: "The edge failed on this request." },
  HOOK_CRASHED: { status: 500, message: "The hook's worker ended before it answered." },
  HOOK_SCRIPT_ERROR: { status: 500, message: "The hook script failed." },
  SCRIPT_ERROR: { status: 500, message: "The script failed." },
  UPSTREAM_UNREACHABLE: { status: 502, message: "The service did not accept the connection." },
  UPSTREAM_FAILED: { status: 502, message: "The service broke off before it answered." },
  EXEC_UNREACHABLE: { status: 502, message: "The exec host did not accept the request." },
  HOOK_UPSTREAM_UNAVAILABLE: {
    status: 502,
    message: "The service behind the hook is not available.",
  },
  CONTAINER_UNAVAILABLE: {
    status: 503,
    message: "The container is not running.",
    retryAfterSeconds: 2,
  },
  SERVICE_UNAVAILABLE: { status: 503, message: "This service is not available in the container." },
  POLICY_UNAVAILABLE: {
    status: 503,
    message: "The access rules of this container cannot be read.",
  },
  DRAINING: { status: 503, message: "The edge is shutting down.", retryAfterSeconds: 2 },
  OVERLOADED: { status: 503, message: "Too many connections.", retryAfterSeconds: 1 },
  HOOK_UNAVAILABLE: {
    status: 503,
    message: "The hook rule that matches this request is not valid.",
  },
  HOOK_TARGET_UNAVAILABLE: {
    status: 503,
    error: "hook target unavailable",
    message: "The hook's script target cannot be used.",
  },
  HOOK_WEBSOCKET_UNSUPPORTED: { status: 403, message: "WebSocket connections cannot be hooked." },
  HOOK_SCRIPT_NOT_FOUND: { status: 404, message: "The hook's script does not exist." },
  SCRIPT_NOT_FOUND: { status: 404, message: "No script is at this path." },
  HOOK_BAD_PATH: {
    status: 400,
    error: "bad request path",
    message: "The request path cannot be forwarded faithfully.",
  },
  HOOK_TIMEOUT: { status: 504, error: "hook timeout", message: "The hook did not answer in time." },
  SCRIPT_TIMEOUT: { status: 504, message: "The script did not answer in time." },
  UPSTREAM_TIMEOUT: { status: 504, message: "The service did not answer in time." },
  HOOK_LOOP: { status: 508, message: "Hooks called each other too deeply." },
  REQUEST_BUDGET_SPENT: { status: 504, message: "The request took longer than its budget." },
} as const satisfies Record<string, ErrorEntry>;

/** One of those codes. */
export type ErrorCode = keyof typeof ERRORS;

/** Status of an error answer. */
export function statusOf(code: ErrorCode): number {
  return ERRORS[code].status;
}

/**
 * The JSON body of an answer we make ourselves (decision 32): `statusCode`, `error`, `code`, `message`, and
 * `auditId` where there is one. `message` replaces the table's text; never pass peer-controlled text or addresses.
 */
export function errorBody(code: ErrorCode, message?: string, auditId?: string): string {
  const entry: ErrorEntry = ERRORS[code];
  return JSON.stringify({
    statusCode: entry.status,
    error: entry.error ?? code,
    code,
    message: message ?? entry.message,
    ...(auditId === undefined ? {} : { auditId }),
  });
}

/** Fields that belong to an error answer besides its framing: type, `no-store`, `Retry-After` where the table has one. */
export function errorFields(code: ErrorCode): string[] {
  const entry: ErrorEntry = ERRORS[code];
  const fields = ["Content-Type", "application/json", "Cache-Control", "no-store"];
  if (entry.retryAfterSeconds !== undefined) {
    fields.push("Retry-After", String(entry.retryAfterSeconds));
  }
  return fields;
}

/** A failure with a code of the table; anything else that is thrown becomes INTERNAL_ERROR at the boundary. */
export class EdgeError extends Error {
  override readonly name = "EdgeError";
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message?: string, cause?: unknown) {
    super(message ?? ERRORS[code].message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}
