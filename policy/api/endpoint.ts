import type { OpenAPIHono, RouteConfig } from "@hono/zod-openapi";
import type { Context } from "hono";
import { z } from "zod";
import type { Issue } from "../kernel/issues.ts";

type Method = "get" | "post" | "put" | "patch" | "delete";

/** One operation of the API: what answers it, and what the OpenAPI document says about it. */
export interface Endpoint {
  /** The first is the main verb; the others are its twins. */
  readonly methods: readonly [Method, ...Method[]];
  /** Path with `{name}` parameters. */
  readonly path: string;
  readonly operationId: string;
  readonly summary: string;
  readonly tag: string;
  /** Schemas of path parameters, by name. */
  readonly params?: Readonly<Record<string, z.ZodType>>;
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;
  /** Schema of `data`. */
  readonly data: z.ZodType;
  readonly status?: number;
  /** Whether If-Match is needed. */
  readonly conditional?: boolean;
  /** Whether the call is open to everyone. */
  readonly open?: boolean;
  /** Statuses of errors beside 401. */
  readonly errors: readonly number[];
  readonly handle: (context: Context) => Response | Promise<Response>;
}

const issueSchema: z.ZodType<Issue> = z.object({ path: z.string(), message: z.string() });

const errorSchema = z
  .object({
    statusCode: z.int(),
    error: z.string(),
    code: z.string(),
    message: z.string(),
    data: z.array(issueSchema).optional(),
  })
  .meta({ id: "Error" });

/**
 * Adds an operation. The handler validates the body itself, with the schema that is documented here: the order of
 * checks (decision 36) puts others before it.
 */
export function addEndpoint(app: OpenAPIHono, endpoint: Endpoint): void {
  const path = endpoint.path.replaceAll(/\{(\w+)\}/g, ":$1");
  endpoint.methods.forEach((method, index) => {
    app.on(method.toUpperCase(), path, endpoint.handle);
    app.openAPIRegistry.registerPath(describeRoute(endpoint, method, index > 0));
  });
}

function describeRoute(endpoint: Endpoint, method: Method, twin: boolean): RouteConfig {
  const json = (schema: z.ZodType) => ({ "application/json": { schema } });
  const status = endpoint.status ?? 200;
  const success = z.object({
    statusCode: z.literal(status),
    message: z.string(),
    data: endpoint.data,
  });
  const responses: RouteConfig["responses"] = {
    [status]: { description: endpoint.summary, content: json(success) },
  };
  for (const error of endpoint.open === true ? endpoint.errors : [401, ...endpoint.errors]) {
    responses[error] = { description: ERROR_WORDS[error] ?? "Error", content: json(errorSchema) };
  }
  return {
    method,
    path: endpoint.path,
    operationId: twin ? `${endpoint.operationId}_${method}` : endpoint.operationId,
    summary: endpoint.summary,
    tags: [endpoint.tag],
    security: endpoint.open === true ? [] : [{ bearer: [] }],
    request: {
      ...(endpoint.params === undefined ? {} : { params: z.object(endpoint.params) }),
      ...(endpoint.query === undefined ? {} : { query: endpoint.query }),
      ...(endpoint.conditional === true
        ? {
            headers: z.object({
              "If-Match": z.string().meta({ description: "ETag of the last read, `file:v<N>`" }),
            }),
          }
        : {}),
      ...(endpoint.body === undefined
        ? {}
        : { body: { content: json(endpoint.body), required: true } }),
    },
    responses,
  } as RouteConfig;
}

const ERROR_WORDS: Readonly<Record<number, string>> = {
  400: "A path parameter or the body cannot be read",
  401: "No valid token",
  404: "No such resource",
  409: "In use already",
  412: "If-Match is not current",
  413: "The body is too large",
  422: "The content is not valid; data lists every problem",
  428: "If-Match is missing",
  503: "The stored document cannot be read or written",
};
