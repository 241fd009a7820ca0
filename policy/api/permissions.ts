import type { OpenAPIHono } from "@hono/zod-openapi";
import { z } from "zod";
import {
  accessRuleSchema,
  GROUP_FIELDS,
  groupConfigSchema,
  programBySpelling,
  sealGroup,
} from "../documents/access.ts";
import {
  deleteCell,
  deleteCells,
  deleteGroup,
  MAX_GROUPS,
  replaceAccess,
  setCell,
  setGroup,
} from "../documents/access-edit.ts";
import type { AccessPart } from "../documents/container-document.ts";
import { GROUP_NAME } from "../documents/hook.ts";
import { toIssues } from "../kernel/issues.ts";
import { ApiError, envelope, issuesError } from "../kernel/json-api.ts";
import { isJsonObject } from "../kernel/strict-json.ts";
import { loadDocument, OBJECT_ID, versionMembers } from "./context.ts";
import { addEndpoint, type Endpoint } from "./endpoint.ts";
import {
  containerLevel,
  PROGRAM_FORM,
  projectLevel,
  writer,
  type Guarded,
  type Level,
  type PermissionsApiDeps,
  type WriteCall,
} from "./permission-levels.ts";
import {
  BULK,
  cellBody,
  checkedBody,
  CONTAINER_DOCUMENT,
  defaultBody,
  groupComponent,
  PROJECT_DOCUMENT,
  stateBody,
} from "./permission-schemas.ts";

/** Types that have a single-group call; the others are written with the whole document (edge-proxy.md 2.2). */
const SINGLE_GROUP_TYPES = ["ip", "jwt", "password", "token"] as const;

/** Adds the permission endpoints of containers and of projects (edge-proxy.md 2.6). */
export function addPermissionEndpoints(app: OpenAPIHono, deps: PermissionsApiDeps): void {
  app.openAPIRegistry.registerComponent("schemas", "Group", groupComponent());
  addLevel(app, deps, containerLevel(deps));
  addLevel(app, deps, projectLevel(deps));
}

function addLevel<D extends Guarded, T>(
  app: OpenAPIHono,
  deps: PermissionsApiDeps,
  level: Level<D, T>,
): void {
  for (const endpoint of [
    ...documentEndpoints(deps, level),
    ...groupEndpoints(deps, level),
    ...cellEndpoints(deps, level),
  ]) {
    addEndpoint(app, { tag: `${level.name.toLowerCase()} permissions`, ...endpoint });
  }
}

type Draft = Omit<Endpoint, "tag">;
const params = { id: z.string().regex(OBJECT_ID) };
const groupParams = { ...params, name: z.string().regex(GROUP_NAME) };

function documentEndpoints<D extends Guarded, T>(
  deps: PermissionsApiDeps,
  level: Level<D, T>,
): Draft[] {
  const { base, name } = level;
  const data = name === "Container" ? CONTAINER_DOCUMENT : PROJECT_DOCUMENT;
  const write = { params, data, conditional: true, errors: [400, 404, 412, 413, 422, 428, 503] };
  return [
    {
      methods: ["get"],
      path: base,
      operationId: `get${name}Permissions`,
      summary: "Read the permissions document; the switches are those in force",
      params,
      data,
      errors: [400, 404, 503],
      async handle(context) {
        const target = level.target(context);
        const { document } = await loadDocument(deps.store, level.kind, target);
        return envelope(context, "Proxy permissions retrieved successfully", {
          ...(await level.render(target, document)),
          ...versionMembers(context, document.version),
        });
      },
    },
    {
      ...write,
      methods: ["put", "patch"],
      path: base,
      operationId: `set${name}Permissions`,
      summary: "Replace groups, permissions and switches; hooks stay",
      body: BULK[name],
      handle: writer(deps, level, "Proxy permissions updated successfully", replaceAll(level)),
    },
    {
      ...write,
      methods: ["delete"],
      path: base,
      operationId: `delete${name}Permissions`,
      summary: "Reset groups, permissions and switches; hooks stay",
      handle: writer(
        deps,
        level,
        "Proxy permissions reset successfully; hooks were kept",
        ({ document, exists }) => {
          if (!exists) {
            throw new ApiError("NOT_FOUND", "Resource not found: nothing is stored here");
          }
          level.guard(document, {});
          return {};
        },
      ),
    },
    {
      ...write,
      methods: ["patch"],
      path: `${base}/default`,
      operationId: `set${name}Default`,
      summary: "Say what happens to callers in no group",
      body: defaultBody,
      handle: writer(deps, level, "Default access updated successfully", ({ document, json }) => ({
        ...document.access,
        ...checkedBody(defaultBody, json()),
      })),
    },
    {
      ...write,
      methods: ["patch"],
      path: `${base}/state`,
      operationId: `set${name}State`,
      summary: "Close everything, or open it again for those who may",
      body: stateBody,
      handle: writer(deps, level, "Proxy state updated successfully", ({ document, json }) => ({
        ...document.access,
        ...checkedBody(stateBody, json()),
      })),
    },
  ];
}

function replaceAll<D extends Guarded, T>(level: Level<D, T>) {
  return ({ target, document, json, otherGroups }: WriteCall<D, T>): AccessPart => {
    const body = json();
    const hooks = isJsonObject(body) ? body["hooks"] : undefined;
    if (
      hooks !== undefined &&
      (level.name === "Project" || !isJsonObject(hooks) || Object.keys(hooks).length > 0)
    ) {
      const message =
        level.name === "Project"
          ? "a project has no hooks; they belong to containers"
          : "hooks are written through /proxy/hooks only; leave them out, or send {}";
      throw new ApiError("VALIDATION_ERROR", `Invalid permissions: ${message}`, [
        { path: "/hooks", message },
      ]);
    }
    const content = checkedBody<z.infer<(typeof BULK)["Container"]>>(BULK[level.name], body);
    const wrong = Object.entries(level.ids(target)).find(
      ([name, id]) =>
        (content as Record<string, unknown>)[name] !== undefined &&
        (content as Record<string, unknown>)[name] !== id,
    );
    if (wrong !== undefined) {
      throw issuesError("BAD_REQUEST", "Invalid permissions", [
        { path: `/${wrong[0]}`, message: `must be ${wrong[1]}, as in the path` },
      ]);
    }
    const own = new Set(Object.keys(content.groups));
    const unknown = Object.keys(content.permissions).filter(
      (name) => !own.has(name) && !otherGroups.has(name),
    );
    if (unknown.length > 0) {
      throw issuesError(
        "BAD_REQUEST",
        "Invalid permissions",
        unknown.map((name) => ({
          path: `/permissions/${name}`,
          message: "no group has this name",
        })),
      );
    }
    const after = replaceAccess({
      enable_proxy: content.enable_proxy ?? true,
      default: content.default ?? "deny",
      groups: content.groups,
      permissions: content.permissions,
    });
    level.guard(document, after);
    return after;
  };
}

/** What all writes below a group's name have in common. */
function groupWrite(name: "Container" | "Project") {
  return {
    params: groupParams,
    data: name === "Container" ? CONTAINER_DOCUMENT : PROJECT_DOCUMENT,
    conditional: true,
    errors: [400, 404, 412, 413, 422, 428, 503],
  };
}

function groupEndpoints<D extends Guarded, T>(
  deps: PermissionsApiDeps,
  level: Level<D, T>,
): Draft[] {
  const { base, name } = level;
  const write = groupWrite(name);
  return [
    ...SINGLE_GROUP_TYPES.map((type): Draft => ({
      ...write,
      methods: ["put", "patch"],
      path: `${base}/groups/{name}/${type}`,
      operationId: `set${name}${type[0]?.toUpperCase()}${type.slice(1)}Group`,
      summary: `Add or replace a group of type ${type}`,
      body: GROUP_FIELDS[type],
      handle: writer(
        deps,
        level,
        "Group updated successfully",
        ({ document, group, json, tables }) => {
          const body = json();
          checkedBody<unknown>(GROUP_FIELDS[type], body);
          const config = groupConfigSchema.parse({ ...(body as object), type });
          const next = setGroup(document.access, tables(), group, sealGroup(config));
          if (next === null) {
            throw issuesError("BAD_REQUEST", "Invalid group", [
              { path: "", message: `at most ${MAX_GROUPS} groups` },
            ]);
          }
          return next;
        },
      ),
    })),
    {
      ...write,
      methods: ["delete"],
      path: `${base}/groups/{name}`,
      operationId: `delete${name}Group`,
      summary: "Remove a group and its cells",
      handle: writer(deps, level, "Group removed successfully", ({ document, group, tables }) => {
        const next = existing(
          deleteGroup(document.access, tables(), group),
          "there is no group of this name",
        );
        level.guard(document, next);
        return next;
      }),
    },
  ];
}

function cellEndpoints<D extends Guarded, T>(
  deps: PermissionsApiDeps,
  level: Level<D, T>,
): Draft[] {
  const { base, name } = level;
  const write = groupWrite(name);
  return [
    {
      ...write,
      methods: ["put", "patch"],
      path: `${base}/permissions/{name}`,
      operationId: `set${name}GroupPermission`,
      summary: "Say which instances of a program a group may use",
      body: cellBody,
      handle: writer(deps, level, "Group permission updated successfully", (call) => {
        const { program: spelling, access } = checkedBody(cellBody, call.json());
        const program = programBySpelling(spelling);
        if (program === undefined) {
          throw issuesError("BAD_REQUEST", "Unknown program name", [
            { path: "/program", message: "is neither a service nor http, https or ssh" },
          ]);
        }
        const rule = accessRuleSchema(program).safeParse(access);
        if (!rule.success) {
          throw issuesError(
            "BAD_REQUEST",
            "Invalid permission",
            toIssues(rule.error).map(({ path, message }) => ({ path: `/access${path}`, message })),
          );
        }
        const tables = call.tables();
        if (!Object.hasOwn(tables.groups, call.group) && !call.otherGroups.has(call.group)) {
          throw issuesError("BAD_REQUEST", "Invalid permission", [
            { path: "", message: "no group has this name" },
          ]);
        }
        return setCell(call.document.access, tables, call.group, program, rule.data);
      }),
    },
    {
      ...write,
      methods: ["delete"],
      path: `${base}/permissions/{name}`,
      operationId: `clear${name}GroupPermissions`,
      summary: "Remove every cell of a group",
      handle: writer(
        deps,
        level,
        "Group permissions removed successfully",
        ({ document, group, tables }) =>
          existing(deleteCells(document.access, tables(), group), "the group has no permissions"),
      ),
    },
    {
      ...write,
      params: { ...groupParams, program: z.string().regex(PROGRAM_FORM) },
      methods: ["delete"],
      path: `${base}/permissions/{name}/{program}`,
      operationId: `delete${name}GroupPermission`,
      summary: "Remove one cell",
      handle: writer(
        deps,
        level,
        "Group permission removed successfully",
        ({ document, group, program, tables }) =>
          existing(
            deleteCell(document.access, tables(), group, programBySpelling(program) ?? program),
            "the group has no permission for this program",
          ),
      ),
    },
  ];
}

function existing<V>(found: V | null, what: string): V {
  if (found === null) {
    throw new ApiError("NOT_FOUND", `Resource not found: ${what}`);
  }
  return found;
}
