import type { Context } from "hono";
import { HOOK_ID } from "../documents/hook.ts";
import { PROTOCOLS, serviceByName, serviceBySpelling } from "../documents/services.ts";
import { ApiError } from "../kernel/json-api.ts";
import { OBJECT_ID, pathParameter, type ContainerInfo } from "./context.ts";

/** Form of a service in a path. */
export const SERVICE_FORM = /^[a-z0-9][a-z0-9_-]{0,49}$/;

type FindContainer = (context: Context) => ContainerInfo;

/** The container and the service that the path names; malformed parts come before unknown ones (decision 36). */
export function servicePath(context: Context, container: FindContainer): [ContainerInfo, string] {
  pathParameter(context, "id", OBJECT_ID);
  const name = pathParameter(context, "service", SERVICE_FORM);
  return [container(context), hookableService(name)];
}

/** Hook id, container and service that the path names. */
export function hookPath(
  context: Context,
  container: FindContainer,
): [string, ContainerInfo, string] {
  const id = pathParameter(context, "hookId", HOOK_ID);
  return [id, ...servicePath(context, container)];
}

/** The hookable service that the path names (edge-proxy.md 6.2): 404 reject-listed, 422 otherwise. */
function hookableService(name: string): string {
  const service = serviceByName(name);
  if (service?.hookable) {
    return name;
  }
  if (service !== undefined || serviceBySpelling(name)?.rejectListed === true) {
    throw new ApiError("NOT_FOUND", `Hooks cannot be saved for ${name}; it is a platform service.`);
  }
  const meant = serviceBySpelling(name);
  const message =
    meant !== undefined
      ? `"${name}" is a short name; use the canonical name "${meant.name}"`
      : PROTOCOLS.some((protocol) => protocol === name)
        ? `"${name}" is a protocol, not a service; hooks of a port belong to the service that owns it`
        : `"${name}" is not a service`;
  throw new ApiError("VALIDATION_ERROR", `Invalid service: ${message}`, [
    { path: "/service", message },
  ]);
}
