import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import { z } from "zod";
import { explainHooks } from "../../dispatcher/select.ts";
import type {
  CompiledPolicy,
  CompiledRule,
  RuleRequest,
  ScriptTarget,
} from "../compile/compiled-policy.ts";
import { serviceBySpelling } from "../documents/services.ts";
import { statusOf, type ErrorCode } from "../kernel/errors.ts";
import { isReserved } from "../kernel/fields.ts";
import { toIssues } from "../kernel/issues.ts";
import { envelope, issuesError, readBody } from "../kernel/json-api.ts";
import { canonicalForms, readTarget, splitTarget } from "../kernel/target.ts";
import type { PolicyCache } from "../store/cache.ts";
import { OBJECT_ID, type ContainerInfo } from "./context.ts";
import { addEndpoint } from "./endpoint.ts";

const FIELD_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}$/;

const requestSchema = z.strictObject({
  service: z.string({ error: "expected a service name" }),
  instance: z
    .int({ error: "expected a whole number" })
    .min(0, { error: "must not be negative" })
    .max(65_535, { error: "must be at most 65535" })
    .optional(),
  method: z.string({ error: "expected a method" }).regex(/^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}$/, {
    error: "is not a valid method",
  }),
  path: z
    .string({ error: "expected a path" })
    .max(16_384, { error: "must have at most 16384 characters" }),
  headers: z
    .record(
      z.string().regex(FIELD_NAME, { error: "is not a valid header name" }),
      z.string({ error: "expected a string" }),
      {
        error: "expected an object of header names and values",
      },
    )
    .optional(),
  groups: z
    .array(z.string({ error: "expected a group name" }), {
      error: "expected an array of group names",
    })
    .optional(),
  upgrade: z.boolean({ error: "expected true or false" }).optional(),
});

/** A request to explain, as the API takes it (contract.md 4). */
export type ExplainRequest = z.infer<typeof requestSchema>;

const answerSchema = z.object({
  outcome: z.enum(["dispatch", "forward", "refuse"]),
  status: z.int().optional(),
  code: z.string().optional(),
  hook_id: z.string().optional(),
  script: z
    .object({ subdomain: z.string().optional(), execId: z.string().optional(), path: z.string() })
    .optional(),
  rules: z.array(
    z.object({
      hook_id: z.string(),
      position: z.int(),
      fits: z.boolean(),
      failed: z.enum(["method", "path", "headers", "groups", "invalid"]).nullable(),
      detail: z.string(),
    }),
  ),
});

/** What would happen to a request, rule by rule. */
export type Explanation = z.infer<typeof answerSchema>;

/**
 * Says which rule would take a request, and why each other one would not, by the code that decides real requests
 * (decision 41). The given groups count as granting; permissions are not simulated.
 */
function explainRequest(policy: CompiledPolicy, request: ExplainRequest): Explanation {
  if (policy.unavailable !== null) {
    return refusal("POLICY_UNAVAILABLE", null, []);
  }
  const service = serviceBySpelling(request.service);
  const hooks = service?.hookable === true ? policy.hooks.get(service.name) : undefined;
  const reading = readTarget(request.method, request.path);
  if (reading.kind !== "origin") {
    return refusal("BAD_TARGET", null, []);
  }
  const { path } = splitTarget(reading.target);
  const headers = new Map<string, string>();
  for (const [name, value] of Object.entries(request.headers ?? {})) {
    if (!isReserved(name)) {
      headers.set(name.toLowerCase(), value);
    }
  }
  const upgrade = request.upgrade ?? false;
  const asked: RuleRequest = {
    method: upgrade ? "GET" : request.method,
    paths: canonicalForms(path),
    header: (name) => headers.get(name),
  };
  const { selection, verdicts } = explainHooks(
    hooks,
    asked,
    new Set(request.groups),
    upgrade,
    path.length,
  );
  const rules = verdicts.map(({ rule, failed }) => ({
    hook_id: rule.id,
    position: rule.position,
    fits: failed === null,
    // A broken rule that fits refuses; that is what there is to know about it.
    failed: failed ?? (rule.invalid === null ? null : ("invalid" as const)),
    detail: detailOf(rule, failed, selection.kind !== "none" && selection.rule === rule),
  }));
  switch (selection.kind) {
    case "none":
      return { outcome: "forward", rules };
    case "dispatch":
      return {
        outcome: "dispatch",
        hook_id: selection.rule.id,
        script: scriptJson(selection.rule.script),
        rules,
      };
    case "refuse":
      return refusal(selection.code, selection.rule, rules);
  }
}

function refusal(
  code: ErrorCode,
  rule: CompiledRule | null,
  rules: Explanation["rules"],
): Explanation {
  return {
    outcome: "refuse",
    status: statusOf(code),
    code,
    ...(rule === null ? {} : { hook_id: rule.id }),
    rules,
  };
}

function detailOf(
  rule: CompiledRule,
  failed: "method" | "path" | "headers" | "groups" | null,
  chosen: boolean,
): string {
  switch (failed) {
    case "method":
      return "the rule does not cover this method";
    case "path":
      return "no reading of the path fits the rule";
    case "headers":
      return "a header that the rule names is missing or has another value";
    case "groups":
      return `none of the groups that let the request in is one of ${[...(rule.groups ?? [])].join(", ")}`;
    case null:
      return `${chosen ? "takes the request" : "fits, but an earlier rule takes the request"}${rule.invalid === null ? "" : `; the rule is not valid: ${rule.invalid}`}`;
  }
}

function scriptJson({ subdomain, execId, path }: ScriptTarget): NonNullable<Explanation["script"]> {
  return {
    ...(subdomain === null ? {} : { subdomain }),
    ...(execId === null ? {} : { execId }),
    path,
  };
}

/** What the explain endpoint builds on. */
export interface ExplainApiDeps {
  readonly cache: PolicyCache;
  readonly maxBodyBytes: number;
  readonly container: (context: Context) => ContainerInfo;
}

/** Adds the explain endpoint. It reads, sends nothing and leaves no audit record. */
export function addExplainEndpoint(
  app: OpenAPIHono,
  { cache, container, maxBodyBytes }: ExplainApiDeps,
): void {
  addEndpoint(app, {
    methods: ["post"],
    path: "/api/v1/containers/{id}/proxy/explain",
    operationId: "explainRequest",
    summary: "Say which hook would take a request, and why each other one would not",
    tag: "explain",
    params: { id: z.string().regex(OBJECT_ID) },
    body: requestSchema,
    data: answerSchema,
    errors: [400, 404, 413, 422],
    async handle(context) {
      const info = container(context);
      const body = (await readBody(context, maxBodyBytes)).json();
      const request = requestSchema.safeParse(body);
      if (!request.success) {
        throw issuesError("VALIDATION_ERROR", "Invalid request", toIssues(request.error));
      }
      if (serviceBySpelling(request.data.service) === undefined) {
        throw issuesError("VALIDATION_ERROR", "Invalid request", [
          { path: "/service", message: `"${request.data.service}" is not a service` },
        ]);
      }
      const policy = await cache.get(info.project, info.id);
      return envelope(
        context,
        "Request explained successfully",
        explainRequest(policy, request.data),
      );
    },
  });
}
