import {
  call,
  type AnswerOf,
  type BodyOf,
  type CallOptions,
  type OperationName,
} from "./operations.ts";
import { writeExtras, type WriteOptions } from "./precondition.ts";
import type { Transport } from "./transport.ts";

const ALL = "/api/v1/containers/{}/proxy/hooks";
const SERVICE = `${ALL}/{}` as const;
const ONE = `${SERVICE}/{}` as const;

/** A hook rule as it is written; `position` only counts when it is created. */
export type HookInput = BodyOf<`POST ${typeof SERVICE}`>;
/** A hook rule as it is stored. */
export type Hook = AnswerOf<`GET ${typeof ONE}`>["data"]["hook"];

type Answer<N extends OperationName> = Promise<AnswerOf<N>>;

/** Hook rules of containers: `client.api.proxy.hooks`. Every write needs the version it is based on. */
export interface HooksApi {
  /** All hook rules of a container by service; only services that have some. */
  list(containerId: string, options?: CallOptions): Answer<`GET ${typeof ALL}`>;
  /** The rules of one service, in order. */
  listByService(
    containerId: string,
    service: string,
    options?: CallOptions,
  ): Answer<`GET ${typeof SERVICE}`>;
  get(
    containerId: string,
    service: string,
    hookId: string,
    options?: CallOptions,
  ): Answer<`GET ${typeof ONE}`>;
  /** Appends a rule, or inserts it before `position`. */
  create(
    containerId: string,
    service: string,
    rule: HookInput,
    options: WriteOptions,
  ): Answer<`POST ${typeof SERVICE}`>;
  /** Replaces a rule whole; id and position stay. */
  set(
    containerId: string,
    service: string,
    hookId: string,
    rule: HookInput,
    options: WriteOptions,
  ): Answer<`PUT ${typeof ONE}`>;
  move(
    containerId: string,
    service: string,
    hookId: string,
    to: { readonly position: number },
    options: WriteOptions,
  ): Answer<`PATCH ${typeof ONE}/position`>;
  delete(
    containerId: string,
    service: string,
    hookId: string,
    options: WriteOptions,
  ): Answer<`DELETE ${typeof ONE}`>;
  /** Removes every rule of a service; `removed` tells how many. */
  clear(
    containerId: string,
    service: string,
    options: WriteOptions,
  ): Answer<`DELETE ${typeof SERVICE}`>;
}

/** The hook methods over a transport. */
export function createHooksApi(transport: Transport): HooksApi {
  return {
    list: (c, options) => call(transport, `GET ${ALL}`, [c], options),
    listByService: (c, s, options) => call(transport, `GET ${SERVICE}`, [c, s], options),
    get: (c, s, h, options) => call(transport, `GET ${ONE}`, [c, s, h], options),
    create: async (c, s, rule, options) =>
      call(transport, `POST ${SERVICE}`, [c, s], { body: rule, ...writeExtras(options) }),
    set: async (c, s, h, rule, options) =>
      call(transport, `PUT ${ONE}`, [c, s, h], { body: rule, ...writeExtras(options) }),
    move: async (c, s, h, to, options) =>
      call(transport, `PATCH ${ONE}/position`, [c, s, h], { body: to, ...writeExtras(options) }),
    delete: async (c, s, h, options) =>
      call(transport, `DELETE ${ONE}`, [c, s, h], writeExtras(options)),
    clear: async (c, s, options) =>
      call(transport, `DELETE ${SERVICE}`, [c, s], writeExtras(options)),
  };
}
