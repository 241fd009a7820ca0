import { ConnectionError, ValidationError } from "./errors.ts";
import type { List, Page, RunScope } from "./agent-types.ts";
import { escapePath, type QueryValue, type Transport } from "./transport.ts";

/** The scope fields of a call, of any kind of route. */
export type AnyScope = RunScope;

/** One call of the agent gateway; `path` is below `/api/v1/agent`, `{}` takes the next argument. */
export interface AgentCall {
  readonly method: string;
  readonly path: string;
  readonly args?: readonly string[];
  readonly query?: Readonly<Record<string, QueryValue>>;
  readonly body?: unknown;
  readonly scope?: AnyScope | undefined;
  readonly headers?: Readonly<Record<string, string | undefined>>;
}

/** The transport request of an agent call: scope members become fields, the realm a query member. */
export function agentRequest(call: AgentCall) {
  const scope = call.scope ?? {};
  return {
    method: call.method,
    path: escapePath(`/api/v1/agent${call.path}`, call.args ?? []),
    query: { ...call.query, realm: scope.realm },
    headers: {
      "x-hoody-cwd": pathField(scope.cwd),
      "x-hoody-config-dir": pathField(scope.configDir),
      "x-hoody-container": scope.container,
      "x-hoody-tool-mode": scope.toolMode,
      "x-hoody-dir-scope": scope.dirScope,
      ...call.headers,
    },
    body: call.body,
    signal: scope.signal,
  };
}

/** A path as a field value: `fetch` takes one character per byte, and paths are UTF-8. */
function pathField(path: string | undefined): string | undefined {
  return path === undefined
    ? undefined
    : Array.from(new TextEncoder().encode(path), (byte) => String.fromCharCode(byte)).join("");
}

/** Sends an agent call; the answer is the bare payload. */
export async function send<T>(transport: Transport, call: AgentCall): Promise<T> {
  return (await transport.request(agentRequest(call))) as T;
}

/** The page members of a list call, and the rest as its scope. */
export function pageOf(options: Page | undefined): {
  query: Record<string, QueryValue>;
  scope: AnyScope;
} {
  const { page, limit, ...scope } = options ?? {};
  return { query: { page, limit }, scope };
}

/**
 * Every entry of a list from `page` on, one request per page and none before the first entry is asked for.
 * Ends at the last page; a server that answers another page than the one asked for ends it with an error,
 * as it could otherwise be endless.
 */
export async function* iterate<T>(
  list: (window: Page) => Promise<List<T>>,
  options: Page = {},
): AsyncGenerator<T, void, undefined> {
  for (let page = options.page ?? 1; ; page++) {
    const answer = await list({ ...options, page });
    yield* answer.items;
    const { total, limit } = answer.meta;
    if (options.limit === undefined || options.limit === 0 || answer.items.length === 0) {
      return;
    }
    if (answer.meta.page !== page) {
      throw new ConnectionError(
        { method: "GET", path: "/api/v1/agent" },
        `asked for page ${page} of the list, got page ${answer.meta.page}`,
      );
    }
    if (answer.has_more === false || page * limit >= total) {
      return;
    }
  }
}

/** @throws ValidationError when a body has a member that belongs to another method, or lacks one of its own. */
export function requireMembers(
  body: unknown,
  method: string,
  present: readonly string[],
  absent: readonly string[] = [],
): void {
  const members = (typeof body === "object" && body !== null ? body : {}) as Record<
    string,
    unknown
  >;
  for (const name of present) {
    if (members[name] === undefined) {
      throw new ValidationError(`${method} needs ${name}`);
    }
  }
  for (const name of absent) {
    if (members[name] !== undefined) {
      throw new ValidationError(`${method} does not take ${name}`);
    }
  }
}
