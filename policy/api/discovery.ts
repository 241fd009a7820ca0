import type { OpenAPIHono } from "@hono/zod-openapi";
import { z } from "zod";
import { defaultSchema, programBySpelling } from "../documents/access.ts";
import { HOOKABLE_SERVICES, rulesOf, unreadableReason } from "../documents/container-document.ts";
import { serviceByName } from "../documents/services.ts";
import { ApiError, envelope, readBody } from "../kernel/json-api.ts";
import { isJsonObject } from "../kernel/strict-json.ts";
import {
  changeDocument,
  CONTAINERS,
  loadDocument,
  OBJECT_ID,
  pathParameter,
  unusable,
  versionMembers,
} from "./context.ts";
import { addEndpoint } from "./endpoint.ts";
import { SERVICE_FORM } from "./hook-path.ts";
import { hookJson } from "./hooks.ts";
import { expectedVersion } from "./if-match.ts";
import { effectiveSwitches, type PermissionsApiDeps } from "./permission-levels.ts";
import { checkedBody } from "./permission-schemas.ts";

const BASE = "/api/v1/containers/{id}/proxy";
const params = { id: z.string().regex(OBJECT_ID) };
const version = { file_version: z.int(), etag: z.string() };
const settingsSchema = z.object({ enable_proxy: z.boolean(), default: defaultSchema, ...version });
const settingsBody = z
  .strictObject({
    enable_proxy: z.boolean({ error: "expected true or false" }).optional(),
    default: defaultSchema.optional(),
  })
  .refine((body) => Object.keys(body).length > 0, { error: "enable_proxy or default is needed" });

/** Adds settings, and what a container's document names (edge-proxy.md 2.6 and 4.1). */
export function addDiscoveryEndpoints(app: OpenAPIHono, deps: PermissionsApiDeps): void {
  addSettings(app, deps);
  addNames(app, deps);
}

function addSettings(
  app: OpenAPIHono,
  { store, container, maxBodyBytes }: PermissionsApiDeps,
): void {
  addEndpoint(app, {
    methods: ["get"],
    path: `${BASE}/settings`,
    operationId: "getSettings",
    summary: "Read the two switches as they are in force",
    tag: "settings",
    params,
    data: settingsSchema,
    errors: [400, 404, 503],
    async handle(context) {
      const info = container(context);
      const { document } = await loadDocument(store, CONTAINERS, info);
      const { enableProxy, defaultAllow } = await effectiveSwitches(store, info, document);
      return envelope(context, "Proxy settings retrieved successfully", {
        enable_proxy: enableProxy,
        default: defaultAllow ? "allow" : "deny",
        ...versionMembers(context, document.version),
      });
    },
  });
  addEndpoint(app, {
    methods: ["put", "patch"],
    path: `${BASE}/settings`,
    operationId: "updateSettings",
    summary: "Set one or both switches",
    tag: "settings",
    params,
    body: settingsBody,
    data: settingsSchema,
    conditional: true,
    errors: [400, 404, 412, 413, 428, 503],
    async handle(context) {
      const info = container(context);
      const expected = expectedVersion(context.req.header("if-match"));
      const body = await readBody(context, maxBodyBytes);
      const { document, version } = await changeDocument(
        store,
        CONTAINERS,
        info,
        expected,
        (stored) => ({
          document: {
            ...stored,
            access: { ...stored.access, ...checkedBody(settingsBody, body.json()) },
          },
          value: null,
        }),
      );
      const { enableProxy, defaultAllow } = await effectiveSwitches(store, info, document);
      return envelope(context, "Proxy settings updated successfully", {
        enable_proxy: enableProxy,
        default: defaultAllow ? "allow" : "deny",
        ...versionMembers(context, version),
      });
    },
  });
}

function addNames(app: OpenAPIHono, { store, container }: PermissionsApiDeps): void {
  const tag = "discovery";
  addEndpoint(app, {
    methods: ["get"],
    path: `${BASE}/groups`,
    operationId: "listGroups",
    summary: "List the container's groups",
    tag,
    params,
    data: z.object({
      groups: z.array(z.object({ name: z.string(), auth_rule_count: z.int() })),
      ...version,
    }),
    errors: [400, 404, 503],
    async handle(context) {
      const { document } = await loadDocument(store, CONTAINERS, container(context));
      const { groups } = document.access;
      return envelope(context, "Proxy groups listed successfully", {
        groups: Object.entries(isJsonObject(groups) ? groups : {}).map(([name, value]) => ({
          name,
          auth_rule_count: Array.isArray(value) ? value.length : 1,
        })),
        ...versionMembers(context, document.version),
      });
    },
  });
  addEndpoint(app, {
    methods: ["get"],
    path: `${BASE}/services`,
    operationId: "listServices",
    summary: "List the programs that a permission or a hook names",
    tag,
    params,
    data: z.object({ services: z.array(z.string()), ...version }),
    errors: [400, 404, 503],
    async handle(context) {
      const { document } = await loadDocument(store, CONTAINERS, container(context));
      const names = new Set<string>();
      for (const row of rowsOf(document.access.permissions).values()) {
        for (const program of Object.keys(row)) {
          names.add(programBySpelling(program) ?? program);
        }
      }
      for (const service of HOOKABLE_SERVICES) {
        if (rulesOf(document, service).length > 0 || unreadableReason(document, service) !== null) {
          names.add(service);
        }
      }
      return envelope(context, "Proxy services listed successfully", {
        services: [...names].toSorted(),
        ...versionMembers(context, document.version),
      });
    },
  });
  addEndpoint(app, {
    methods: ["get"],
    path: `${BASE}/services/{service}`,
    operationId: "getService",
    summary: "Read everything the document says about one program",
    tag,
    params: { ...params, service: z.string().regex(SERVICE_FORM) },
    data: z.object({
      service: z.string(),
      is_reject_listed: z.boolean(),
      permissions_raw: z.record(z.string(), z.unknown()),
      hooks: z.array(z.unknown()),
      effective_default: defaultSchema,
      ...version,
    }),
    errors: [400, 404, 503],
    async handle(context) {
      pathParameter(context, "id", OBJECT_ID);
      const spelling = pathParameter(context, "service", SERVICE_FORM);
      const info = container(context);
      const program = programBySpelling(spelling);
      if (program === undefined) {
        throw new ApiError("NOT_FOUND", `Resource not found: "${spelling}" is not a service`);
      }
      const { document } = await loadDocument(store, CONTAINERS, info);
      const reason = unreadableReason(document, program);
      if (reason !== null) {
        throw unusable(reason);
      }
      const { defaultAllow } = await effectiveSwitches(store, info, document);
      const cells = [...rowsOf(document.access.permissions)].flatMap(([group, row]) =>
        Object.entries(row).flatMap(([name, rule]) =>
          programBySpelling(name) === program ? [[group, rule] as const] : [],
        ),
      );
      return envelope(context, "Proxy service retrieved successfully", {
        service: program,
        is_reject_listed: serviceByName(program)?.rejectListed === true,
        permissions_raw: Object.fromEntries(cells),
        hooks: rulesOf(document, program).map(hookJson),
        effective_default: defaultAllow ? "allow" : "deny",
        ...versionMembers(context, document.version),
      });
    },
  });
}

function rowsOf(permissions: unknown): ReadonlyMap<string, Record<string, unknown>> {
  const rows = new Map<string, Record<string, unknown>>();
  for (const [group, row] of Object.entries(isJsonObject(permissions) ? permissions : {})) {
    if (isJsonObject(row)) {
      rows.set(group, row);
    }
  }
  return rows;
}
