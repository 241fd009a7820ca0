import type { Context } from "hono";
import { compileAccess } from "../compile/access.ts";
import { accessTables, namedGroups, type AccessTables } from "../documents/access-edit.ts";
import {
  HOOKABLE_SERVICES,
  rulesOf,
  type AccessPart,
  type ContainerDocument,
} from "../documents/container-document.ts";
import { GROUP_NAME } from "../documents/hook.ts";
import type { ProjectDocument } from "../documents/project-document.ts";
import { ApiError, envelope, readBody } from "../kernel/json-api.ts";
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
import { hookJson } from "./hooks.ts";
import { expectedVersion } from "./if-match.ts";

/** What the permission endpoints build on. */
export interface PermissionsApiDeps {
  readonly store: PolicyStore;
  readonly maxBodyBytes: number;
  /** The container that the path names; throws an ApiError for a malformed or unknown id. */
  readonly container: (context: Context) => ContainerInfo;
  /** The project that the path names, likewise. */
  readonly project: (context: Context) => string;
}

/** A document with a permission side. */
export interface Guarded {
  readonly version: number;
  readonly access: AccessPart;
}

/** What differs between the permissions of a container and those of a project. */
export interface Level<D extends Guarded, T> {
  readonly base: string;
  readonly name: "Container" | "Project";
  readonly kind: DocumentKind<D, T>;
  readonly target: (context: Context) => T;
  /** Identities that a written document must have when it names them. */
  readonly ids: (target: T) => Readonly<Record<string, string>>;
  /** Groups that cells may name beside the document's own. */
  readonly otherGroups: (target: T) => Promise<ReadonlySet<string>>;
  /** Throws an ApiError (422) while stored hooks name a group that is there now and would not be `after`. */
  readonly guard: (document: D, after: AccessPart) => void;
  readonly render: (target: T, document: D) => Promise<Record<string, unknown>>;
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
function guardHooks(document: ContainerDocument, after: AccessPart): void {
  const names = ({ groups }: AccessPart): string[] =>
    isJsonObject(groups) ? Object.keys(groups) : [];
  const going = new Set(names(document.access)).difference(new Set(names(after)));
  for (const [service, part] of document.hooks) {
    for (const rule of part.kind === "rules" ? part.rules : []) {
      const gone = namedGroups(rule).find((name) => going.has(name));
      if (gone !== undefined) {
        const message = `the group "${gone}" is named by applies_to of hook ${rule.id ?? "(without id)"} of ${service}; change or delete that hook first`;
        throw new ApiError("VALIDATION_ERROR", `Invalid permissions: ${message}`, [
          { path: "/groups", message },
        ]);
      }
    }
  }
}

/** Permissions of containers. */
export function containerLevel({
  store,
  container,
}: PermissionsApiDeps): Level<ContainerDocument, ContainerInfo> {
  return {
    base: "/api/v1/containers/{id}/proxy/permissions",
    name: "Container",
    kind: CONTAINERS,
    target: container,
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
  };
}

/** Permissions of projects. */
export function projectLevel({ project }: PermissionsApiDeps): Level<ProjectDocument, string> {
  return {
    base: "/api/v1/projects/{id}/proxy/permissions",
    name: "Project",
    kind: PROJECTS,
    target: project,
    ids: (id) => ({ project: id }),
    otherGroups: () => Promise.resolve(new Set()),
    guard: () => {},
    render(id, document) {
      const { enableProxy, defaultAllow } = compileAccess(null, document.access);
      return Promise.resolve({
        project: id,
        ...renderAccess(document.access),
        default: defaultAllow ? "allow" : "deny",
        enable_proxy: enableProxy,
        schema_version: 2,
      });
    },
  };
}

/** Form of a program in a path. */
export const PROGRAM_FORM = /^[a-z0-9][a-z0-9_-]{0,49}$/;

/** A write: the checks in their order, the change, the document after it. */
export function writer<D extends Guarded, T>(
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

/** What a change is given. */
export interface WriteCall<D, T> {
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
