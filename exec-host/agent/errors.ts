/** One row of the gateway's error table: HTTP status, text for the caller, seconds for `Retry-After`. */
interface ErrorEntry {
  readonly status: 400 | 403 | 404 | 405 | 409 | 413 | 422 | 429 | 500 | 503;
  readonly message: string;
  readonly retryAfterSeconds?: number;
}

/** Every error code the gateway answers with (agent-gateway specification, section 4). */
export const AGENT_ERRORS = {
  bad_request: { status: 400, message: "The request is malformed." },
  realm_scope_unsupported: { status: 400, message: "This route cannot be scoped that way." },
  invalid_realm: { status: 400, message: 'A realm is "global" or 24 lower-case hex digits.' },
  invalid_tool_mode: { status: 400, message: "This tool mode is not known." },
  invalid_dir_scope: { status: 400, message: "This directory scope is not known." },
  tool_mutation_refused: {
    status: 400,
    message: "A run without a session may only read unless it opts in.",
  },
  rule_tools_not_allowed: { status: 400, message: "Only checked rules can be limited to tools." },
  forbidden: { status: 403, message: "The agent is reached through the edge only." },
  human_only: { status: 403, message: "Only a person may do this." },
  not_found: { status: 404, message: "There is nothing at this address." },
  tool_not_found: { status: 404, message: "There is no tool of this name." },
  method_not_allowed: { status: 405, message: "This path does not take that method." },
  tool_needs_confirmation: {
    status: 409,
    message: "Nothing was run: the call must be confirmed first.",
  },
  turn_in_flight: { status: 409, message: "The session is busy with another run." },
  gate_parked: { status: 409, message: "The session waits for an answer to an open gate." },
  revision_conflict: { status: 409, message: "The settings changed since they were read." },
  trust_hash_mismatch: { status: 409, message: "This is not the current trust hash." },
  no_pending_gate: { status: 409, message: "No gate is open." },
  stale_gate: { status: 409, message: "That gate is no longer the open one." },
  gate_already_answered: { status: 409, message: "The gate has been answered." },
  gate_type_mismatch: { status: 409, message: "The open gate takes another kind of answer." },
  job_not_cancellable: { status: 409, message: "This job cannot be cancelled." },
  payload_too_large: { status: 413, message: "The request body is too large." },
  unknown_model: { status: 422, message: "This model is not known." },
  rate_limited: { status: 429, message: "Too many requests.", retryAfterSeconds: 1 },
  internal_error: { status: 500, message: "The gateway failed on this request." },
  service_unavailable: { status: 503, message: "The gateway is too busy.", retryAfterSeconds: 1 },
} as const satisfies Record<string, ErrorEntry>;

/** A code of the table. */
export type AgentErrorCode = keyof typeof AGENT_ERRORS;

/**
 * A refusal with a code of the table; the router turns it into `{code, message, details?}`. Anything else that
 * is thrown becomes `internal_error` and is logged with its cause.
 *
 * @param details goes to the caller as it is: never put secrets, stacks or outside paths into it.
 */
export class AgentError extends Error {
  override readonly name = "AgentError";
  readonly code: AgentErrorCode;
  readonly details: Readonly<Record<string, unknown>> | undefined;
  constructor(code: AgentErrorCode, message?: string, details?: Readonly<Record<string, unknown>>) {
    super(message ?? AGENT_ERRORS[code].message);
    this.code = code;
    this.details = details;
  }
}

/** HTTP status of a code. */
export function agentStatus(code: AgentErrorCode): ErrorEntry["status"] {
  return AGENT_ERRORS[code].status;
}

/** Seconds for `Retry-After`, or undefined where the code has none. */
export function retryAfterOf(code: AgentErrorCode): number | undefined {
  const entry: ErrorEntry = AGENT_ERRORS[code];
  return entry.retryAfterSeconds;
}
