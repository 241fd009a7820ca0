import {
  call,
  type AnswerOf,
  type BodyOf,
  type CallOptions,
  type OperationName,
} from "./operations.ts";
import type { AccessRule, JwtGroup, PermissionsInput } from "./permission-types.ts";
import { writeExtras, type WriteOptions } from "./precondition.ts";
import type { Transport } from "./transport.ts";

/** Whose permissions document: a container's, or a project's that all its containers share. */
export type Owner = "containers" | "projects";

type Path<O extends Owner> = `/api/v1/${O}/{}/proxy/permissions`;
type Answer<N> = Promise<N extends OperationName ? AnswerOf<N> : unknown>;
type Body<N> = N extends OperationName ? BodyOf<N> : never;

/**
 * Permissions documents: `client.api.proxy.containerPermissions` and `.projectPermissions`. `id` is the
 * container's or the project's. Hooks never travel here, see `hooks`.
 */
export interface PermissionsApi<O extends Owner> {
  get(id: string, options?: CallOptions): Answer<`GET ${Path<O>}`>;
  /** Replaces settings, groups and permissions: an omitted `default` is deny, an omitted `enable_proxy` true. */
  set(id: string, document: PermissionsInput, options: WriteOptions): Answer<`PUT ${Path<O>}`>;
  /** Resets settings, groups and permissions; hooks stay. */
  delete(id: string, options: WriteOptions): Answer<`DELETE ${Path<O>}`>;
  setDefault(
    id: string,
    body: Body<`PATCH ${Path<O>}/default`>,
    options: WriteOptions,
  ): Answer<`PATCH ${Path<O>}/default`>;
  /** Opens the address again: groups and default decide. */
  enable(id: string, options: WriteOptions): Answer<`PATCH ${Path<O>}/state`>;
  /** Closes the address for everybody. */
  disable(id: string, options: WriteOptions): Answer<`PATCH ${Path<O>}/state`>;
  setIpGroup(
    id: string,
    group: string,
    body: Body<`PUT ${Path<O>}/groups/{}/ip`>,
    options: WriteOptions,
  ): Answer<`PUT ${Path<O>}/groups/{}/ip`>;
  setJwtGroup(
    id: string,
    group: string,
    body: Omit<JwtGroup, "type">,
    options: WriteOptions,
  ): Answer<`PUT ${Path<O>}/groups/{}/jwt`>;
  setPasswordGroup(
    id: string,
    group: string,
    body: Body<`PUT ${Path<O>}/groups/{}/password`>,
    options: WriteOptions,
  ): Answer<`PUT ${Path<O>}/groups/{}/password`>;
  setTokenGroup(
    id: string,
    group: string,
    body: Body<`PUT ${Path<O>}/groups/{}/token`>,
    options: WriteOptions,
  ): Answer<`PUT ${Path<O>}/groups/{}/token`>;
  deleteAuthGroup(
    id: string,
    group: string,
    options: WriteOptions,
  ): Answer<`DELETE ${Path<O>}/groups/{}`>;
  /** Sets one cell: which instances of `program` the group may use. */
  setGroupPermission(
    id: string,
    group: string,
    body: { readonly program: string; readonly access: AccessRule },
    options: WriteOptions,
  ): Answer<`PUT ${Path<O>}/permissions/{}`>;
  deleteGroupPermission(
    id: string,
    group: string,
    program: string,
    options: WriteOptions,
  ): Answer<`DELETE ${Path<O>}/permissions/{}/{}`>;
  /** Removes all cells of a group. */
  clearGroupPermissions(
    id: string,
    group: string,
    options: WriteOptions,
  ): Answer<`DELETE ${Path<O>}/permissions/{}`>;
}

/** The permission methods of containers or projects over a transport. */
export function createPermissionsApi<O extends Owner>(
  transport: Transport,
  owner: O,
): PermissionsApi<O> {
  const base = `/api/v1/${owner}/{}/proxy/permissions`;
  // One function for both owners: the names below exist in the description for each of them, and the
  // interface above is what callers are held to.
  const send = async (
    verb: "PUT" | "PATCH" | "DELETE",
    path: string,
    args: readonly string[],
    options: WriteOptions,
    body?: unknown,
  ) =>
    (await call(transport, `${verb} ${base}${path}` as OperationName, args, {
      body,
      ...writeExtras(options),
    })) as never;
  return {
    get: async (id, options) =>
      (await call(transport, `GET ${base}` as OperationName, [id], options)) as never,
    set: (id, document, options) => send("PUT", "", [id], options, document),
    delete: (id, options) => send("DELETE", "", [id], options),
    setDefault: (id, body, options) => send("PATCH", "/default", [id], options, body),
    enable: (id, options) => send("PATCH", "/state", [id], options, { enable_proxy: true }),
    disable: (id, options) => send("PATCH", "/state", [id], options, { enable_proxy: false }),
    setIpGroup: (id, group, body, options) =>
      send("PUT", "/groups/{}/ip", [id, group], options, body),
    setJwtGroup: (id, group, body, options) =>
      send("PUT", "/groups/{}/jwt", [id, group], options, body),
    setPasswordGroup: (id, group, body, options) =>
      send("PUT", "/groups/{}/password", [id, group], options, body),
    setTokenGroup: (id, group, body, options) =>
      send("PUT", "/groups/{}/token", [id, group], options, body),
    deleteAuthGroup: (id, group, options) => send("DELETE", "/groups/{}", [id, group], options),
    setGroupPermission: (id, group, body, options) =>
      send("PUT", "/permissions/{}", [id, group], options, body),
    deleteGroupPermission: (id, group, program, options) =>
      send("DELETE", "/permissions/{}/{}", [id, group, program], options),
    clearGroupPermissions: (id, group, options) =>
      send("DELETE", "/permissions/{}", [id, group], options),
  };
}
