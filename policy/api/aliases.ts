import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import { z } from "zod";
import {
  aliasCreateSchema,
  aliasProblem,
  aliasStateSchema,
  aliasUpdateSchema,
  rooted,
  type AliasRecord,
  type AliasUpdate,
} from "../documents/alias.ts";
import type { Clock } from "../kernel/clock.ts";
import { newHex } from "../kernel/ids.ts";
import { ApiError, envelope, issuesError, readBody } from "../kernel/json-api.ts";
import type { Aliases } from "../store/aliases.ts";
import { OBJECT_ID, pathParameter, type ContainerInfo } from "./context.ts";
import { addEndpoint } from "./endpoint.ts";
import { checkedBody } from "./permission-schemas.ts";

/** What the alias endpoints build on. */
export interface AliasesApiDeps {
  /** null where no aliases are kept: the calls then answer 503. */
  readonly aliases: Aliases | null;
  readonly clock: Clock;
  readonly maxBodyBytes: number;
  readonly containers: () => ReadonlyMap<string, ContainerInfo>;
  readonly node: string;
  /** Address of an alias for browsers. */
  readonly aliasUrl: (alias: string) => string;
}

const BASE = "/api/v1/proxy/aliases";
const params = { id: z.string().regex(OBJECT_ID) };

const aliasSchema = z
  .object({
    id: z.string(),
    user_id: z.string().nullable(),
    project_id: z.string(),
    container_id: z.string(),
    server_id: z.string(),
    server_name: z.string(),
    alias: z.string(),
    program: z.string(),
    port: z.int().nullable(),
    index: z.int(),
    target_path: z.string().nullable(),
    allow_path_override: z.boolean(),
    expires_at: z.string().nullable(),
    enabled: z.boolean(),
    url: z.string(),
    created_at: z.string(),
    updated_at: z.string(),
  })
  .meta({ id: "Alias" });

const flag = z.enum(["true", "false"], { error: "expected true or false" }).optional();
const id = z
  .string()
  .regex(OBJECT_ID, { error: "expected 24 lower-case hex characters" })
  .optional();
const listQuery = z.object({
  project_id: id,
  container_id: id,
  realm_id: z.string().optional(),
  enabled: flag,
  expired: flag,
});

/** Adds the alias endpoints (edge-proxy.md 4.2). They have no If-Match; each write is one step of its own. */
export function addAliasEndpoints(app: OpenAPIHono, deps: AliasesApiDeps): void {
  addReads(app, deps);
  addWrites(app, deps);
}

function addReads(app: OpenAPIHono, deps: AliasesApiDeps): void {
  const { clock } = deps;
  addEndpoint(app, {
    methods: ["get"],
    path: BASE,
    operationId: "listAliases",
    summary: "List aliases",
    tag: "aliases",
    query: listQuery,
    data: z.object({ aliases: z.array(aliasSchema), count: z.int() }),
    errors: [400],
    handle(context) {
      const query = checkedBody(listQuery, context.req.query());
      const found = kept(deps)
        .list()
        .filter(
          (record) =>
            (query.project_id ?? record.project) === record.project &&
            (query.container_id ?? record.container) === record.container &&
            (query.enabled === undefined || String(record.enabled) === query.enabled) &&
            (query.expired === undefined || String(isExpired(record, clock)) === query.expired),
        );
      return envelope(context, "Aliases listed successfully", {
        aliases: found.map((record) => toJson(record, deps)),
        count: found.length,
      });
    },
  });
  addEndpoint(app, {
    methods: ["get"],
    path: `${BASE}/{id}`,
    operationId: "getAlias",
    summary: "Read one alias",
    tag: "aliases",
    params,
    data: aliasSchema,
    errors: [400, 404],
    handle(context) {
      const wanted = pathParameter(context, "id", OBJECT_ID);
      const record = existing(
        kept(deps)
          .list()
          .find((each) => each.id === wanted),
      );
      return envelope(context, "Alias retrieved successfully", toJson(record, deps));
    },
  });
}

function addWrites(app: OpenAPIHono, deps: AliasesApiDeps): void {
  const { clock, maxBodyBytes } = deps;
  addEndpoint(app, {
    methods: ["post"],
    path: BASE,
    operationId: "createAlias",
    summary: "Give a program of a container a name of its own",
    tag: "aliases",
    body: aliasCreateSchema,
    data: aliasSchema,
    status: 201,
    errors: [400, 404, 409, 413, 503],
    async handle(context) {
      const body = checkedBody(aliasCreateSchema, (await readBody(context, maxBodyBytes)).json());
      const now = new Date(clock.now()).toISOString();
      const record = checked(
        {
          id: newHex(12),
          alias: body.alias === false ? newHex(24) : (body.alias ?? newHex(24)),
          ...ownerOf(body.container_id, deps),
          program: body.program,
          port: body.port ?? null,
          index: body.index ?? null,
          target_path: rooted(body.target_path),
          allow_path_override: body.allow_path_override ?? true,
          expires_at: futureTime(body.expires_at, clock),
          enabled: body.enabled ?? true,
          created_at: now,
          updated_at: now,
        },
        [],
      );
      await kept(deps).update((records) => {
        checked(record, records);
        return { records: [...records, record], value: null };
      });
      return envelope(context, "Alias created successfully", toJson(record, deps), 201);
    },
  });
  addEndpoint(app, {
    methods: ["patch"],
    path: `${BASE}/{id}`,
    operationId: "updateAlias",
    summary: "Change fields of an alias",
    tag: "aliases",
    params,
    body: aliasUpdateSchema,
    data: aliasSchema,
    errors: [400, 404, 409, 413, 503],
    handle: (context) => change(context, deps, aliasUpdateSchema),
  });
  addEndpoint(app, {
    methods: ["patch"],
    path: `${BASE}/{id}/state`,
    operationId: "setAliasState",
    summary: "Switch an alias on or off",
    tag: "aliases",
    params,
    body: aliasStateSchema,
    data: aliasSchema,
    errors: [400, 404, 413, 503],
    handle: (context) => change(context, deps, aliasStateSchema),
  });
  addEndpoint(app, {
    methods: ["delete"],
    path: `${BASE}/{id}`,
    operationId: "deleteAlias",
    summary: "Remove an alias",
    tag: "aliases",
    params,
    data: z.object({ id: z.string() }),
    errors: [400, 404, 503],
    async handle(context) {
      const wanted = pathParameter(context, "id", OBJECT_ID);
      await kept(deps).update((records) => {
        const record = existing(records.find((each) => each.id === wanted));
        return { records: records.filter((each) => each !== record), value: null };
      });
      return envelope(context, "Alias deleted successfully", { id: wanted });
    },
  });
}

async function change(
  context: Context,
  deps: AliasesApiDeps,
  schema: z.ZodType<AliasUpdate>,
): Promise<Response> {
  const wanted = pathParameter(context, "id", OBJECT_ID);
  const { clock } = deps;
  const body = await readBody(context, deps.maxBodyBytes);
  const record = await kept(deps).update((records) => {
    const before = existing(records.find((each) => each.id === wanted));
    const { container_id, expires_at, target_path, ...rest } = checkedBody(schema, body.json());
    const after: AliasRecord = {
      ...before,
      ...withoutUndefined(rest),
      ...(container_id === undefined ? {} : ownerOf(container_id, deps)),
      ...(expires_at === undefined ? {} : { expires_at: futureTime(expires_at, clock) }),
      ...(target_path === undefined ? {} : { target_path: rooted(target_path) }),
      updated_at: new Date(clock.now()).toISOString(),
    };
    checked(
      after,
      records.filter((each) => each !== before),
    );
    return { records: records.map((each) => (each === before ? after : each)), value: after };
  });
  return envelope(context, "Alias updated successfully", toJson(record, deps));
}

function kept({ aliases }: AliasesApiDeps): Aliases {
  if (aliases === null) {
    throw new ApiError("SERVICE_UNAVAILABLE", "No aliases are kept here.");
  }
  return aliases;
}

type Given<T> = { [K in keyof T]: Exclude<T[K], undefined> };

function withoutUndefined<T extends object>(members: T): Partial<Given<T>> {
  return Object.fromEntries(
    Object.entries(members).filter(([, value]) => value !== undefined),
  ) as Partial<Given<T>>;
}

/** The record, unless it clashes with another one or cannot serve. */
function checked(record: AliasRecord, others: readonly AliasRecord[]): AliasRecord {
  const problem = aliasProblem(record);
  if (problem !== null) {
    throw issuesError(problem.code, "Invalid alias", [problem.issue]);
  }
  if (others.some((other) => other.alias === record.alias)) {
    throw new ApiError("ALIAS_IN_USE", `The alias "${record.alias}" is in use already.`);
  }
  return record;
}

function ownerOf(
  container: string,
  { containers }: AliasesApiDeps,
): { container: string; project: string } {
  const info = containers().get(container);
  if (info === undefined) {
    throw new ApiError("NOT_FOUND", "Resource not found: no container has this id");
  }
  return { container, project: info.project };
}

function futureTime(time: string | null | undefined, clock: Clock): string | null {
  if (time == null) {
    return null;
  }
  if (!(Date.parse(time) > clock.now())) {
    throw issuesError("BAD_REQUEST", "Invalid alias", [
      { path: "/expires_at", message: "must be in the future" },
    ]);
  }
  return time;
}

function isExpired({ expires_at }: AliasRecord, clock: Clock): boolean {
  return expires_at !== null && !(Date.parse(expires_at) > clock.now());
}

function existing(record: AliasRecord | undefined): AliasRecord {
  if (record === undefined) {
    throw new ApiError("NOT_FOUND", "Resource not found: no alias has this id");
  }
  return record;
}

function toJson(
  record: AliasRecord,
  { node, aliasUrl }: AliasesApiDeps,
): z.infer<typeof aliasSchema> {
  return {
    id: record.id,
    user_id: null,
    project_id: record.project,
    container_id: record.container,
    server_id: node,
    server_name: node,
    alias: record.alias,
    program: record.program,
    port: record.port,
    index: record.index ?? 1,
    target_path: record.target_path,
    allow_path_override: record.allow_path_override,
    expires_at: record.expires_at,
    enabled: record.enabled,
    url: aliasUrl(record.alias),
    created_at: record.created_at,
    updated_at: record.updated_at,
  };
}
