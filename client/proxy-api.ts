import { ConnectionError } from "./errors.ts";
import { createHooksApi, type HooksApi } from "./hooks-api.ts";
import {
  call,
  type AnswerOf,
  type BodyOf,
  type CallOptions,
  type OperationName,
} from "./operations.ts";
import { createPermissionsApi, type PermissionsApi } from "./permissions-api.ts";
import { writeExtras, type WriteOptions } from "./precondition.ts";
import { escapePath, type QueryValue, type Transport } from "./transport.ts";

const CONTAINER = "/api/v1/containers/{}";
const PROXY = `${CONTAINER}/proxy` as const;
const ALIASES = "/api/v1/proxy/aliases";
const ALIAS = `${ALIASES}/{}` as const;

type Answer<N extends OperationName> = Promise<AnswerOf<N>>;

/** What an alias list can be narrowed to. */
export interface AliasFilter extends CallOptions {
  readonly project_id?: string;
  readonly container_id?: string;
  readonly realm_id?: string;
  readonly enabled?: boolean;
  readonly expired?: boolean;
}

/** One record of the dispatch audit. */
export type AuditRecord = AnswerOf<`GET ${typeof PROXY}/audit`>["data"]["records"][number];

/** An event of the live audit. */
export interface AuditEvent {
  /** The record's `audit_id`. */
  readonly id: string;
  readonly record: AuditRecord;
}

/** `client.api.proxy`: everything about how the edge treats containers. */
export interface ProxyApi {
  readonly hooks: HooksApi;
  readonly containerPermissions: PermissionsApi<"containers">;
  readonly projectPermissions: PermissionsApi<"projects">;
  readonly settings: {
    get(containerId: string, options?: CallOptions): Answer<`GET ${typeof PROXY}/settings`>;
    /** Takes `enable_proxy`, `default` or both. */
    update(
      containerId: string,
      body: BodyOf<`PUT ${typeof PROXY}/settings`>,
      options: WriteOptions,
    ): Answer<`PUT ${typeof PROXY}/settings`>;
  };
  readonly groups: {
    list(containerId: string, options?: CallOptions): Answer<`GET ${typeof PROXY}/groups`>;
  };
  readonly services: {
    list(containerId: string, options?: CallOptions): Answer<`GET ${typeof PROXY}/services`>;
    get(
      containerId: string,
      service: string,
      options?: CallOptions,
    ): Answer<`GET ${typeof PROXY}/services/{}`>;
  };
  readonly aliases: {
    list(filter?: AliasFilter): Answer<`GET ${typeof ALIASES}`>;
    get(aliasId: string, options?: CallOptions): Answer<`GET ${typeof ALIAS}`>;
    create(
      body: BodyOf<`POST ${typeof ALIASES}`>,
      options?: CallOptions,
    ): Answer<`POST ${typeof ALIASES}`>;
    /** Changes the members that are given. */
    update(
      aliasId: string,
      body: BodyOf<`PATCH ${typeof ALIAS}`>,
      options?: CallOptions,
    ): Answer<`PATCH ${typeof ALIAS}`>;
    enable(aliasId: string, options?: CallOptions): Answer<`PATCH ${typeof ALIAS}/state`>;
    disable(aliasId: string, options?: CallOptions): Answer<`PATCH ${typeof ALIAS}/state`>;
    delete(aliasId: string, options?: CallOptions): Answer<`DELETE ${typeof ALIAS}`>;
  };
  readonly audit: {
    /** Dispatch records, newest first; `after` continues behind that `audit_id`. */
    list(
      containerId: string,
      page?: CallOptions & { readonly limit?: number; readonly after?: string },
    ): Answer<`GET ${typeof PROXY}/audit`>;
    /** Live records. Resolves when connected; the iteration ends when the server closes the stream. */
    stream(
      containerId: string,
      options?: CallOptions & { readonly lastEventId?: string; readonly onHeartbeat?: () => void },
    ): Promise<AsyncIterable<AuditEvent>>;
  };
  /** Which rule would take a request, and why each other one would not. Sends nothing to the container. */
  explain(
    containerId: string,
    request: BodyOf<`POST ${typeof PROXY}/explain`>,
    options?: CallOptions,
  ): Answer<`POST ${typeof PROXY}/explain`>;
}

/** `client.api`: the control API. */
export interface ControlApi {
  readonly proxy: ProxyApi;
  readonly containers: {
    list(options?: CallOptions): Answer<"GET /api/v1/containers">;
    get(containerId: string, options?: CallOptions): Answer<`GET ${typeof CONTAINER}`>;
  };
  readonly meta: {
    publicKey(options?: CallOptions): Answer<"GET /api/v1/meta/public-key">;
    limits(options?: CallOptions): Answer<"GET /api/v1/meta/limits">;
  };
}

/** The control API over a transport. */
export function createControlApiClient(transport: Transport): ControlApi {
  return {
    proxy: createProxyApi(transport),
    containers: {
      list: (options) => call(transport, "GET /api/v1/containers", [], options),
      get: (c, options) => call(transport, `GET ${CONTAINER}`, [c], options),
    },
    meta: {
      publicKey: (options) => call(transport, "GET /api/v1/meta/public-key", [], options),
      limits: (options) => call(transport, "GET /api/v1/meta/limits", [], options),
    },
  };
}

function createProxyApi(transport: Transport): ProxyApi {
  return {
    hooks: createHooksApi(transport),
    containerPermissions: createPermissionsApi(transport, "containers"),
    projectPermissions: createPermissionsApi(transport, "projects"),
    settings: {
      get: (c, options) => call(transport, `GET ${PROXY}/settings`, [c], options),
      update: async (c, body, options) =>
        call(transport, `PUT ${PROXY}/settings`, [c], { body, ...writeExtras(options) }),
    },
    groups: {
      list: (c, options) => call(transport, `GET ${PROXY}/groups`, [c], options),
    },
    services: {
      list: (c, options) => call(transport, `GET ${PROXY}/services`, [c], options),
      get: (c, s, options) => call(transport, `GET ${PROXY}/services/{}`, [c, s], options),
    },
    aliases: {
      list: ({ signal, ...filter } = {}) =>
        call(transport, `GET ${ALIASES}`, [], {
          query: filter as Record<string, QueryValue>,
          ...(signal === undefined ? {} : { signal }),
        }),
      get: (id, options) => call(transport, `GET ${ALIAS}`, [id], options),
      create: (body, options) => call(transport, `POST ${ALIASES}`, [], { body, ...options }),
      update: (id, body, options) => call(transport, `PATCH ${ALIAS}`, [id], { body, ...options }),
      enable: (id, options) =>
        call(transport, `PATCH ${ALIAS}/state`, [id], { body: { enabled: true }, ...options }),
      disable: (id, options) =>
        call(transport, `PATCH ${ALIAS}/state`, [id], { body: { enabled: false }, ...options }),
      delete: (id, options) => call(transport, `DELETE ${ALIAS}`, [id], options),
    },
    audit: {
      list: (c, { signal, ...page } = {}) =>
        call(transport, `GET ${PROXY}/audit`, [c], {
          query: page,
          ...(signal === undefined ? {} : { signal }),
        }),
      stream: (c, options = {}) => streamAudit(transport, c, options),
    },
    explain: (c, request, options) =>
      call(transport, `POST ${PROXY}/explain`, [c], { body: request, ...options }),
  };
}

async function streamAudit(
  transport: Transport,
  containerId: string,
  options: CallOptions & { readonly lastEventId?: string; readonly onHeartbeat?: () => void },
): Promise<AsyncIterable<AuditEvent>> {
  const request = {
    method: "GET",
    path: escapePath(`${PROXY}/audit/stream`, [containerId]),
    headers: { "last-event-id": options.lastEventId },
    signal: options.signal,
  };
  const frames = await transport.stream(request, options.onHeartbeat);
  return (async function* () {
    for await (const frame of frames) {
      if (frame.event !== "message") {
        continue; // kinds of event that a later server may add
      }
      let record: unknown;
      try {
        record = JSON.parse(frame.data);
      } catch (cause) {
        throw new ConnectionError(request, "the stream has an event that is no JSON", cause);
      }
      yield { id: frame.id, record: record as AuditRecord };
    }
  })();
}
