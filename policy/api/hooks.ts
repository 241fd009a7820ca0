import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import { z } from "zod";
import {
  countRules,
  usableGroups,
  HOOKABLE_SERVICES,
  rulesOf,
  unreadableReason,
  withRules,
  type ContainerDocument,
} from "../documents/container-document.ts";
import {
  allowed,
  decodeHookInput,
  HOOK_ID,
  hookInputSchema,
  ruleJson,
  type HookRule,
  type HookRuleBody,
  type StoredRule,
} from "../documents/hook.ts";
import {
  capProblem,
  findRule,
  insertRule,
  moveRule,
  removeRule,
  replaceRule,
} from "../documents/hooks-edit.ts";
import type { Clock } from "../kernel/clock.ts";
import { newUlid } from "../kernel/ids.ts";
import { formatIssues, toIssues, type Issue } from "../kernel/issues.ts";
import { ApiError, envelope, issuesError, readBody } from "../kernel/json-api.ts";
import { isJsonObject } from "../kernel/strict-json.ts";
import type { PolicyStore } from "../store/store.ts";
import {
  changeDocument,
  CONTAINERS,
  loadDocument,
  OBJECT_ID,
  unusable,
  versionMembers,
  type ContainerInfo,
  type Edit,
} from "./context.ts";
import { addEndpoint, type Endpoint } from "./endpoint.ts";
import { hookPath, SERVICE_FORM, servicePath } from "./hook-path.ts";
import { expectedVersion } from "./if-match.ts";

/** What the hook endpoints build on. */
export interface HooksApiDeps {
  readonly store: PolicyStore;
  readonly clock: Clock;
  readonly maxBodyBytes: number;
  /** The container that the path names; throws an ApiError for a malformed or unknown id. */
  readonly container: (context: Context) => ContainerInfo;
}

const POSITION_RULE = "a whole number from 0";
const positionSchema = z
  .int({ error: allowed(POSITION_RULE) })
  .min(0, { error: allowed(POSITION_RULE) });
const moveSchema = z.strictObject({ position: positionSchema });
const createSchema = hookInputSchema.extend({ position: positionSchema.optional() });
const hookSchema = hookInputSchema
  .extend({ id: z.string().regex(HOOK_ID), position: z.int().min(0) })
  .meta({ id: "Hook" });
const version = { file_version: z.int(), etag: z.string() };
const oneHook = z.object({ hook: hookSchema, ...version });

const params = { id: z.string().regex(OBJECT_ID) };
const serviceParams = { ...params, service: z.string().regex(SERVICE_FORM) };
const hookParams = { ...serviceParams, hookId: z.string().regex(HOOK_ID) };
const BASE = "/api/v1/containers/{id}/proxy/hooks";

/** Adds the hook endpoints (edge-proxy.md 6.3). */
export function addHookEndpoints(app: OpenAPIHono, deps: HooksApiDeps): void {
  for (const endpoint of [...readEndpoints(deps), ...writeEndpoints(deps)]) {
    addEndpoint(app, { tag: "hooks", ...endpoint });
  }
}

function readEndpoints({ store, container }: HooksApiDeps): Omit<Endpoint, "tag">[] {
  return [
    {
      methods: ["get"],
      path: BASE,
      operationId: "listHooks",
      summary: "List the hooks of a container by service",
      params,
      data: z.object({ hooks: z.record(z.string(), z.array(hookSchema)), ...version }),
      errors: [400, 404, 503],
      async handle(context) {
        const { document } = await loadDocument(store, CONTAINERS, container(context));
        const hooks = HOOKABLE_SERVICES.filter(
          (service) => rulesOf(document, service).length > 0,
        ).map((service) => [service, rulesOf(document, service).map(hookJson)] as const);
        const broken = HOOKABLE_SERVICES.filter(
          (service) => unreadableReason(document, service) !== null,
        );
        return envelope(
          context,
          broken.length === 0
            ? "Proxy hooks listed successfully"
            : `Proxy hooks listed; those of ${broken.join(", ")} cannot be read`,
          { hooks: Object.fromEntries(hooks), ...versionMembers(context, document.version) },
        );
      },
    },
    {
      methods: ["get"],
      path: `${BASE}/{service}`,
      operationId: "listServiceHooks",
      summary: "List the hooks of one service in order",
      params: serviceParams,
      data: z.object({ service: z.string(), hooks: z.array(hookSchema), ...version }),
      errors: [400, 404, 422, 503],
      async handle(context) {
        const [info, service] = servicePath(context, container);
        const { document } = await loadDocument(store, CONTAINERS, info);
        return envelope(context, "Service hooks listed successfully", {
          service,
          hooks: readableRules(document, service).map(hookJson),
          ...versionMembers(context, document.version),
        });
      },
    },
    {
      methods: ["get"],
      path: `${BASE}/{service}/{hookId}`,
      operationId: "getHook",
      summary: "Read one hook",
      params: hookParams,
      data: oneHook,
      errors: [400, 404, 422, 503],
      async handle(context) {
        const [id, info, service] = hookPath(context, container);
        const { document } = await loadDocument(store, CONTAINERS, info);
        const rules = readableRules(document, service);
        const position = findRule(rules, id);
        return envelope(context, "Hook retrieved successfully", {
          hook: hookJson(existing(rules[position]), position),
          ...versionMembers(context, document.version),
        });
      },
    },
  ];
}

function writeEndpoints(deps: HooksApiDeps): Omit<Endpoint, "tag">[] {
  const { clock, container } = deps;
  const { change, changeByBody } = conditionalWrites(deps);
  return [
    {
      methods: ["post"],
      path: `${BASE}/{service}`,
      operationId: "createHook",
      summary: "Append a hook, or insert it at a position",
      params: serviceParams,
      body: createSchema,
      data: oneHook,
      status: 201,
      conditional: true,
      errors: [400, 404, 412, 413, 422, 428, 503],
      async handle(context) {
        const [info, service] = servicePath(context, container);
        const { value, version } = await changeByBody(context, info, (document, written) => {
          const rules = readableRules(document, service);
          const position = positionSchema
            .optional()
            .safeParse(written["position"], { reportInput: true });
          const rule = decodedRule(
            document,
            written,
            position.success ? [] : atPosition(toIssues(position.error)),
          );
          const cap = capProblem(rules.length, countRules(document));
          if (cap !== null) {
            throw new ApiError("VALIDATION_ERROR", `Invalid hook: ${cap}`, [
              { path: "", message: cap },
            ]);
          }
          const hook: HookRule = { id: newUlid(clock.now()), ...rule };
          const edited = insertRule(rules, hook, position.data);
          return {
            document: withRules(document, service, edited.rules),
            value: { ...hook, position: edited.position },
          };
        });
        return envelope(
          context,
          "Hook created successfully",
          { hook: value, ...versionMembers(context, version) },
          201,
        );
      },
    },
    {
      methods: ["delete"],
      path: `${BASE}/{service}`,
      operationId: "clearServiceHooks",
      summary: "Remove all hooks of a service, unreadable ones too",
      params: serviceParams,
      data: z.object({ removed: z.int().min(0), ...version }),
      conditional: true,
      errors: [400, 404, 412, 422, 428, 503],
      async handle(context) {
        const [info, service] = servicePath(context, container);
        const { value, version } = await change(context, info, (document) => {
          if (document.brokenHooks !== null) {
            // Clearing one service cannot tell its part from the others', whose gates must not vanish with it.
            throw unusable(`${document.brokenHooks.reason}; the file has to be repaired by hand`);
          }
          const stored = document.hooks.has(service);
          return {
            document: stored ? withRules(document, service, []) : null,
            value: rulesOf(document, service).length,
          };
        });
        return envelope(context, "Hooks cleared successfully", {
          removed: value,
          ...versionMembers(context, version),
        });
      },
    },
    {
      methods: ["put", "patch"],
      path: `${BASE}/{service}/{hookId}`,
      operationId: "replaceHook",
      summary: "Replace a hook; it keeps its id and position",
      params: hookParams,
      body: hookInputSchema,
      data: oneHook,
      conditional: true,
      errors: [400, 404, 412, 413, 422, 428, 503],
      async handle(context) {
        const [id, info, service] = hookPath(context, container);
        const { value, version } = await changeByBody(context, info, (document, written) => {
          const rules = readableRules(document, service);
          existing(rules[findRule(rules, id)]);
          const hook: HookRule = { id, ...decodedRule(document, written, []) };
          const edited = existing(replaceRule(rules, hook));
          return {
            document: withRules(document, service, edited.rules),
            value: { ...hook, position: edited.position },
          };
        });
        return envelope(context, "Hook updated successfully", {
          hook: value,
          ...versionMembers(context, version),
        });
      },
    },
    {
      methods: ["delete"],
      path: `${BASE}/{service}/{hookId}`,
      operationId: "deleteHook",
      summary: "Remove a hook",
      params: hookParams,
      data: z.object(version),
      conditional: true,
      errors: [400, 404, 412, 422, 428, 503],
      async handle(context) {
        const [id, info, service] = hookPath(context, container);
        const { version } = await change(context, info, (document) => {
          const edited = existing(removeRule(readableRules(document, service), id));
          return { document: withRules(document, service, edited.rules), value: null };
        });
        return envelope(context, "Hook removed successfully", versionMembers(context, version));
      },
    },
    {
      methods: ["patch"],
      path: `${BASE}/{service}/{hookId}/position`,
      operationId: "moveHook",
      summary: "Move a hook to another position of its service",
      params: hookParams,
      body: moveSchema,
      data: oneHook,
      conditional: true,
      errors: [400, 404, 412, 413, 422, 428, 503],
      async handle(context) {
        const [id, info, service] = hookPath(context, container);
        const { value, version } = await changeByBody(context, info, (document, written) => {
          const rules = readableRules(document, service);
          existing(rules[findRule(rules, id)]);
          const move = moveSchema.safeParse(written, { reportInput: true });
          if (!move.success) {
            throw issuesError("VALIDATION_ERROR", "Invalid position", toIssues(move.error));
          }
          const edited = existing(moveRule(rules, id, move.data.position));
          return {
            document: withRules(document, service, edited.rules),
            value: hookJson(existing(edited.rules[edited.position]), edited.position),
          };
        });
        return envelope(context, "Hook moved successfully", {
          hook: value,
          ...versionMembers(context, version),
        });
      },
    },
  ];
}

/** One conditional write: the version is asked for before the body is read (decision 36). */
function conditionalWrites({ store, maxBodyBytes }: HooksApiDeps) {
  return {
    change<V>(
      context: Context,
      info: ContainerInfo,
      edit: (document: ContainerDocument) => Edit<ContainerDocument, V>,
    ) {
      const expected = expectedVersion(context.req.header("if-match"));
      return changeDocument(store, CONTAINERS, info, expected, (document) => edit(document));
    },
    async changeByBody<V>(
      context: Context,
      info: ContainerInfo,
      edit: (
        document: ContainerDocument,
        written: Record<string, unknown>,
      ) => Edit<ContainerDocument, V>,
    ) {
      const expected = expectedVersion(context.req.header("if-match"));
      const body = await readBody(context, maxBodyBytes);
      return changeDocument(store, CONTAINERS, info, expected, (document) =>
        edit(document, objectBody(body.json())),
      );
    },
  };
}

/** A rule as the API shows it: what is stored, with its place. A broken one is shown as it is. */
export function hookJson(rule: StoredRule, position: number): unknown {
  const json = ruleJson(rule);
  const { id = rule.id, ...rest } = isJsonObject(json) ? json : { value: json };
  return {
    id,
    position,
    ...rest,
    ...(isJsonObject(json) && "position" in json ? { position } : {}),
  };
}

function readableRules(document: ContainerDocument, service: string): readonly StoredRule[] {
  const reason = unreadableReason(document, service);
  if (reason !== null) {
    throw unusable(reason);
  }
  return rulesOf(document, service);
}

function objectBody(body: unknown): Record<string, unknown> {
  if (!isJsonObject(body)) {
    throw new ApiError("VALIDATION_ERROR", "Invalid hook: the body must be a JSON object", [
      { path: "", message: "must be a JSON object" },
    ]);
  }
  return body;
}

function decodedRule(
  document: ContainerDocument,
  body: unknown,
  others: readonly Issue[],
): HookRuleBody {
  const decoded = decodeHookInput(body, usableGroups(document.access));
  const issues = [...(decoded.ok ? [] : decoded.issues), ...others];
  if (!decoded.ok || issues.length > 0) {
    throw new ApiError("VALIDATION_ERROR", `Invalid hook: ${formatIssues(issues)}`, issues);
  }
  return decoded.value;
}

function atPosition(issues: readonly Issue[]): Issue[] {
  return issues.map(({ path, message }) => ({ path: `/position${path}`, message }));
}

function existing<T>(found: T | null | undefined): T {
  if (found === null || found === undefined) {
    throw new ApiError("NOT_FOUND", "Resource not found: the service has no hook with this id");
  }
  return found;
}
