import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import { z } from "zod";
import { compileAccess } from "../compile/access.ts";
import {
  accessRuleSchema,
  defaultSchema,
  GROUP_FIELDS,
  groupConfigSchema,
  groupsSchema,
  permissionsSchema,
  programBySpelling,
  sealGroup,
} from "../documents/access.ts";
import {
  accessTables,
  deleteCell,
  deleteCells,
  deleteGroup,
  MAX_GROUPS,
  namedGroups,
  replaceAccess,
  setCell,
  setGroup,
  type AccessTables,
} from "../documents/access-edit.ts";
import {
  HOOKABLE_SERVICES,
  rulesOf,
  type AccessPart,
  type ContainerDocument,
} from "../documents/container-document.ts";
import { GROUP_NAME } from "../documents/hook.ts";
import { toIssues } from "../kernel/issues.ts";
import { ApiError, envelope, issuesError, readBody } from "../kernel/json-api.ts";
import { isJsonObject } from "../kernel/strict-json.ts";
import type { PolicyStore } from "../store/store.ts";
import {
  changeDocument,
  CONTAINERS,
  loadDocument,
  OBJECT_ID,
  pathParameter,
  PROJECTS,
  unusable,
  versionMembers,
  type ContainerInfo,
  type DocumentKind,
} from "./context.ts";
import { addEndpoint, type Endpoint } from "./endpoint.ts";
import { hookJson } from "./hooks.ts";
import { expectedVersion } from "./if-match.ts";

export interface PermissionsApiDeps {
  readonly store: PolicyStore;
  readonly maxBodyBytes: number;
  /** The container that the path names; throws an ApiError for a malformed or unknown id. */
  readonly container: (context: Context) => ContainerInfo;
  /** The project that the path names, likewise. */
  readonly project: (context: Context) => string;
}

/** A document with a permission side. */
interface Guarded {
  readonly version: number;
  readonly access: AccessPart;
}

/** What differs between the permissions of a container and those of a project. */
interface Level<D extends Guarded, T> {
  readonly base: string;
  readonly name: "Container" | "Project";
  readonly kind: DocumentKind<D, T>;
  readonly target: (context: Context) => T;
  /** Identities that a written document must have when it names them. */
  readonly ids: (target: T) => Readonly<Record<string, string>>;
  /** Groups that cells may name beside the document's own. */
  readonly otherGroups: (target: T) => Promise<ReadonlySet<string>>;
  /** Throws an ApiError (422) while stored hooks name one of the groups that would go. */
  readonly guard: (document: D, staying: ReadonlySet<string>) => void;
  readonly render: (target: T, document: D) => Promise<Record<string, unknown>>;
}

// What the decoders of names and groups look like from outside; they are functions, which nothing can describe.
const GROUP_REF = { $ref: "#/components/schemas/Group" };
const GROUPS = {
  type: "object",
  description: "One configuration per group, or several of which any satisfies it",
  additionalProperties: { anyOf: [GROUP_REF, { type: "array", items: GROUP_REF, minItems: 1 }] },
} as const;
const ACCESS_RULE = {
  description: "All instances or none, one, several, or a range such as 8000-8100",
  anyOf: [
    { type: "boolean" },
    { type: "integer", minimum: 0, maximum: 65_535 },
    { type: "array", items: { type: "integer", minimum: 0, maximum: 65_535 } },
    { type: "string", pattern: "^(\\*|\\d+-\\d+)$" },
  ],
} as const;
const PERMISSIONS = {
  type: "object",
  description: "By group, then by program",
  additionalProperties: { type: "object", additionalProperties: ACCESS_RULE },
} as const;

const version = { file_version: z.int(), etag: z.string() };
const documentSchema = z.looseObject({
  project: z.string(),
  groups: z.record(z.string(), z.unknown()).meta(GROUPS),
  permissions: z.record(z.string(), z.record(z.string(), z.unknown())).meta(PERMISSIONS),
  default: defaultSchema,
  enable_proxy: z.boolean(),
  schema_version: z.int(),
  ...version,
});
const CONTAINER_DOCUMENT = documentSchema
  .extend({ container: z.string(), hooks: z.record(z.string(), z.array(z.unknown())) })
  .meta({ id: "ContainerPermissions" });
const PROJECT_DOCUMENT = documentSchema.meta({ id: "ProjectPermissions" });

const ignored = z.unknown().optional();
const bulkMembers = {
  project: z.string().optional(),
  groups: groupsSchema.meta(GROUPS),
  permissions: permissionsSchema.meta(PERMISSIONS),
  default: defaultSchema.optional(),
  enable_proxy: z.boolean({ error: "expected true or false" }).optional(),
  hooks: ignored,
  schema_version: ignored,
  file_version: ignored,
  etag: ignored,
};
const BULK = {
  Container: z.strictObject({ ...bulkMembers, container: z.string().optional() }),
  Project: z.strictObject(bulkMembers),
};

const defaultBody = z.strictObject({ default: defaultSchema });
const stateBody = z.strictObject({ enable_proxy: z.boolean({ error: "expected true or false" }) });
const cellBody = z.strictObject({
  program: z.string({ error: "expected a program name" }),
  access: z
    .unknown()
    .refine((access) => access !== undefined, { error: "is missing" })
    .meta(ACCESS_RULE),
});

/** Types that have a single-group call; the others are written with the whole document (edge-proxy.md 2.2). */
const SINGLE_GROUP_TYPES = ["ip", "jwt", "password", "token"] as const;

const PROGRAM_FORM = /^[a-z0-9][a-z0-9_-]{0,49}$/;

/** Adds the permission endpoints of containers and of projects (edge-proxy.md 2.6). */
export function addPermissionEndpoints(app: OpenAPIHono, deps: PermissionsApiDeps): void {
  const { $schema: _dialect, ...group } = z.toJSONSchema(groupConfigSchema, {
    io: "input",
    unrepresentable: "any",
  });
  app.openAPIRegistry.registerComponent("schemas", "Group", group as object);
  const { store } = deps;
  addLevel(app, deps, {
    base: "/api/v1/containers/{id}/proxy/permissions",
    name: "Container",
    kind: CONTAINERS,
    target: deps.container,
    ids: ({ id, project }) => ({ project, container: id }),
    async otherGroups({ project }) {
      const { document } = await loadDocument(store, PROJECTS, project);
      return new Set(
        isJsonObject(document.access.groups) ? Object.keys(document.access.groups) : [],
      );
    },
    guard: guardHooks,
    async render(info, document) {
      const { enableProxy, defaultAllow } = await effectiveSwitches(store, info, document);
      const hooks = HOOKABLE_SERVICES.filter(
        (service) => rulesOf(document, service).length > 0,
      ).map((service) => [service, rulesOf(document, service).map(hookJson)] as const);
      return {
        project: info.project,
        container: info.id,
        ...renderAccess(document.access),
        default: defaultAllow ? "allow" : "deny",
        enable_proxy: enableProxy,
        hooks: Object.fromEntries(hooks),
        schema_version: 2,
      };
    },
  });
  addLevel(app, deps, {
    base: "/api/v1/projects/{id}/proxy/permissions",
    name: "Project",
    kind: PROJECTS,
    target: deps.project,
    ids: (project) => ({ project }),
    otherGroups: () => Promise.resolve(new Set()),
    guard: () => {},
    render(project, document) {
      const { enableProxy, defaultAllow } = compileAccess(null, document.access);
      return Promise.resolve({
        project,
        ...renderAccess(document.access),
        default: defaultAllow ? "allow" : "deny",
        enable_proxy: enableProxy,
        schema_version: 2,
      });
    },
  });
}

/** The two switches as they are in force, the project's document counted (edge-proxy.md 2.4). */
export async function effectiveSwitches(
  store: PolicyStore,
  info: ContainerInfo,
  document: ContainerDocument,
): Promise<{ readonly enableProxy: boolean; readonly defaultAllow: boolean }> {
  const project = await loadDocument(store, PROJECTS, info.project);
  return compileAccess(document.access, project.document.access);
}

function renderAccess(access: AccessPart): Record<string, unknown> {
  return { groups: access.groups ?? {}, permissions: access.permissions ?? {} };
}

/** A gate must not vanish as a side effect (decision 4): hooks that name a group keep it. */
function guardHooks(document: ContainerDocument, staying: ReadonlySet<string>): void {
  for (const [service, part] of document.hooks) {
    for (const rule of part.kind === "rules" ? part.rules : []) {
      const gone = namedGroups(rule).find((name) => !staying.has(name));
      if (gone !== undefined) {
        const message = `the group "${gone}" is named by applies_to of hook ${rule.id ?? "(without id)"} of ${service}; change or delete that hook first`;
        throw new ApiError("VALIDATION_ERROR", `Invalid permissions: ${message}`, [
          { path: "/groups", message },
        ]);
      }
    }
  }
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

/** A write: the checks in their order, the change, the document after it. */
function writer<D extends Guarded, T>(
  { store, maxBodyBytes }: PermissionsApiDeps,
  level: Level<D, T>,
  message: string,
  change: (call: WriteCall<D, T>) => AccessPart,
) {
  return async (context: Context): Promise<Response> => {
    for (const name of ["name", "program"]) {
      if (context.req.param(name) !== undefined) {
        pathParameter(context, name, name === "name" ? GROUP_NAME : PROGRAM_FORM);
      }
    }
    pathParameter(context, "id", OBJECT_ID);
    const target = level.target(context);
    const expected = expectedVersion(context.req.header("if-match"));
    const body = await readBody(context, maxBodyBytes);
    const otherGroups = await level.otherGroups(target);
    const { document, version } = await changeDocument(
      store,
      level.kind,
      target,
      expected,
      (stored, exists) => {
        const access = change({
          target,
          document: stored,
          exists,
          otherGroups,
          group: context.req.param("name") ?? "",
          program: context.req.param("program") ?? "",
          json: () => body.json(),
          tables: () => tablesOf(stored.access),
        });
        return { document: { ...stored, access }, value: null };
      },
    );
    return envelope(context, message, {
      ...(await level.render(target, document)),
      ...versionMembers(context, version),
    });
  };
}

interface WriteCall<D, T> {
  readonly target: T;
  readonly document: D;
  readonly exists: boolean;
  readonly otherGroups: ReadonlySet<string>;
  /** Path parameters; empty where the path has none. */
  readonly group: string;
  readonly program: string;
  readonly json: () => unknown;
  readonly tables: () => Extract<AccessTables, { ok: true }>;
}

function tablesOf(access: AccessPart): Extract<AccessTables, { ok: true }> {
  const tables = accessTables(access);
  if (!tables.ok) {
    throw unusable(tables.reason);
  }
  return tables;
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
          level.guard(document, new Set());
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
    level.guard(document, own);
    return replaceAccess({
      enable_proxy: content.enable_proxy ?? true,
      default: content.default ?? "deny",
      groups: content.groups,
      permissions: content.permissions,
    });
  };
}

function groupEndpoints<D extends Guarded, T>(
  deps: PermissionsApiDeps,
  level: Level<D, T>,
): Draft[] {
  const { base, name } = level;
  const data = name === "Container" ? CONTAINER_DOCUMENT : PROJECT_DOCUMENT;
  const write = {
    params: groupParams,
    data,
    conditional: true,
    errors: [400, 404, 412, 413, 422, 428, 503],
  };
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
        const before = tables();
        const next = existing(
          deleteGroup(document.access, before, group),
          "there is no group of this name",
        );
        level.guard(document, new Set(Object.keys(before.groups).filter((each) => each !== group)));
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
  const data = name === "Container" ? CONTAINER_DOCUMENT : PROJECT_DOCUMENT;
  const write = {
    params: groupParams,
    data,
    conditional: true,
    errors: [400, 404, 412, 413, 422, 428, 503],
  };
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

/** Decodes a body that is not about hooks; every problem is a 400 (edge-proxy.md 2.6). */
export function checkedBody<V>(schema: z.ZodType<V>, body: unknown): V {
  const parsed = schema.safeParse(body);
  if (!parsed.success) {
    throw issuesError("BAD_REQUEST", "Invalid body", toIssues(parsed.error));
  }
  return parsed.data;
}

function existing<V>(found: V | null, what: string): V {
  if (found === null) {
    throw new ApiError("NOT_FOUND", `Resource not found: ${what}`);
  }
  return found;
}
