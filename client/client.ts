import { createAgentApi, type AgentApi } from "./agent-api.ts";
import { ValidationError } from "./errors.ts";
import { createControlApiClient, type ControlApi } from "./proxy-api.ts";
import { createTransport, type TransportOptions } from "./transport.ts";

export type { AgentApi } from "./agent-api.ts";
export type * from "./agent-types.ts";
export { ApiError, ConnectionError, ValidationError } from "./errors.ts";
export type { Hook, HookInput } from "./hooks-api.ts";
export type * from "./permission-types.ts";
export type { WriteOptions } from "./precondition.ts";
export type { AuditEvent, AuditRecord, ControlApi } from "./proxy-api.ts";
export type { Operations } from "./schema.ts";

/** Where and how a client calls; times in ms. */
export interface ClientOptions {
  /** Address of the control API. For a client that only calls an agent: the agent's host. */
  readonly baseURL: string;
  /** Bearer token for `baseURL`. It is sent there and nowhere else. */
  readonly token?: string | undefined;
  /**
   * The agent's host, where it is another than `baseURL`: the address of the edge with the container's agent in
   * its name. Its credentials go into `headers`; the token above is never sent to it, as that host is the
   * tenant's.
   */
  readonly agent?: {
    readonly baseURL: string;
    readonly headers?: Readonly<Record<string, string>>;
  };
  /** Longest wait for an answer; 0 = none. Default 30,000. Streams are not bound by it. */
  readonly timeoutMs?: number;
  readonly fetch?: typeof fetch;
}

/**
 * Client of the control API (`client.api`) and of a container's agent gateway (`client.agent`).
 *
 * Control answers are whole envelopes (`{ statusCode, message, data }`), agent answers bare payloads. Every call
 * rejects with `ApiError` when the server refused it and with `ConnectionError` when no answer came; nothing is
 * retried and nothing is kept between calls.
 *
 * @example
 * const client = new InterposeClient({ baseURL: "http://127.0.0.1:8081", token });
 * const { data } = await client.api.proxy.hooks.list(containerId);
 */
export class InterposeClient {
  readonly api: ControlApi;
  readonly agent: AgentApi;

  constructor(options: ClientOptions) {
    const shared: Omit<TransportOptions, "baseURL"> = {
      ...(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }),
      ...(options.fetch === undefined ? {} : { fetch: options.fetch }),
    };
    const base = createTransport({
      ...shared,
      baseURL: options.baseURL,
      headers: bearer(options.token),
    });
    this.api = createControlApiClient(base);
    this.agent = createAgentApi(
      options.agent === undefined ? base : createTransport({ ...shared, ...options.agent }),
    );
  }
}

/** Checked here because the runtime's own complaint about a bad field value would show the token. */
function bearer(token: string | undefined): Record<string, string> {
  if (token === undefined) {
    return {};
  }
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new ValidationError("the token must be visible ASCII characters without spaces");
  }
  return { authorization: `Bearer ${token}` };
}

/** The same class under the name that existing programs import, so that only their import path changes. */
export { InterposeClient as HoodyClient };
