import { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import type { z } from "zod";
import { toPointer } from "../../policy/kernel/issues.ts";
import type { Log } from "../../policy/kernel/log.ts";
import { AgentError, agentStatus, retryAfterOf } from "./errors.ts";
import type { AgentErrorCode } from "./errors.ts";
import { readScope } from "./scope.ts";
import type { HeaderRow, RequestScope } from "./scope.ts";

/** Where every route of the gateway lives. */
export const AGENT_PREFIX = "/api/v1/agent";

/** Variables that the middleware before the routes sets. */
export interface AgentEnv {
  Variables: {
    /** The whole body, already counted against the cap; undefined on GET and HEAD. */
    bodyBytes: Buffer | undefined;
    /** Resolved client address, the key of rate and stream limits. */
    client: string;
  };
}

/** One route: what the OpenAPI document says about it, and what is checked before its handler runs. */
export interface RouteSpec<Body> {
  readonly method: "get" | "post" | "put" | "delete";
  /** Below the prefix, with `{name}` parameters. */
  readonly path: string;
  readonly operationId: string;
  readonly summary: string;
  /** Row of the realm and container matrix. */
  readonly row: HeaderRow;
  /** Documented query parameters; handlers read `request.query` themselves. */
  readonly query?: Readonly<Record<string, string>>;
  /** Decoder of the JSON body. An empty body counts as `{}`. Absent: the body is ignored. */
  readonly body?: z.ZodType<Body>;
  /** Success status, 200 unless said. */
  readonly status?: 200 | 202;
  /** `text/event-stream` for event streams. */
  readonly produces?: "application/json" | "text/event-stream";
  /** Codes beyond 403, 413, 429 and 500. */
  readonly errors?: readonly AgentErrorCode[];
}

/** What a handler gets. */
export interface RouteRequest<Body> {
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  header(name: string): string | undefined;
  readonly scope: RequestScope;
  readonly body: Body;
  /** Size of the body as received. */
  readonly bodyBytes: number;
  readonly client: string;
  /** Aborted when the caller goes away before the answer is complete. */
  readonly signal: AbortSignal;
}

/** Registers routes; see `RouteSpec`. Order matters: the first registered pattern that fits is taken. */
export interface Router {
  add<Body = undefined>(
    spec: RouteSpec<Body>,
    handler: (request: RouteRequest<Body>) => Promise<Response> | Response,
  ): void;
}

/** A JSON answer with the headers that every answer of the gateway carries. */
export function jsonAnswer(
  body: unknown,
  status = 200,
  headers: Readonly<Record<string, string>> = {},
): Response {
  return new Response(JSON.stringify(body), {
    status,
    headers: { "Content-Type": "application/json", "Cache-Control": "no-store", ...headers },
  });
}

/** The answer to a refusal: `{code, message, details?}` and `Retry-After` where the table has one. */
export function errorAnswer(error: AgentError, retryAfterSeconds?: number): Response {
  const retryAfter = retryAfterSeconds ?? retryAfterOf(error.code);
  return jsonAnswer(
    {
      code: error.code,
      message: error.message,
      ...(error.details === undefined ? {} : { details: error.details }),
    },
    agentStatus(error.code),
    retryAfter === undefined ? {} : { "Retry-After": String(retryAfter) },
  );
}

/** Turns anything thrown into an answer; what is not an AgentError is logged and becomes `internal_error`. */
function toErrorAnswer(error: unknown, log: Log): Response {
  if (error instanceof AgentError) {
    return errorAnswer(error);
  }
  log.error({ err: error }, "agent request failed");
  return errorAnswer(new AgentError("internal_error"));
}

interface Registered {
  readonly method: string;
  readonly pattern: RegExp;
}

/**
 * The Hono application of a gateway with its router. Routes are entered into the OpenAPI document by hand instead of
 * through Hono's validators, because the order of checks (scope, then body, then look-ups) and the treatment of an
 * empty body are fixed by the specification.
 *
 * @param realms realms served besides `global`.
 */
export function createRouter(deps: { readonly log: Log }, realms: readonly string[]) {
  const app = new OpenAPIHono<AgentEnv>();
  const registered: Registered[] = [];

  const router: Router = {
    add(spec, handler) {
      const path = AGENT_PREFIX + spec.path;
      registered.push({ method: spec.method.toUpperCase(), pattern: toPattern(path) });
      app.openAPIRegistry.registerPath(toOpenApi(path, spec));
      app.on(spec.method.toUpperCase(), path.replaceAll(/\{(\w+)\}/g, ":$1"), async (c) => {
        try {
          return await handler(decodeRequest(c, spec, realms));
        } catch (error) {
          return toErrorAnswer(error, deps.log);
        }
      });
    },
  };

  app.notFound((c) => {
    const methods = registered
      .filter((route) => route.pattern.test(c.req.path))
      .map((route) => route.method);
    if (methods.length === 0) {
      return errorAnswer(new AgentError("not_found"));
    }
    const answer = errorAnswer(new AgentError("method_not_allowed"));
    answer.headers.set("Allow", [...new Set(methods)].join(", "));
    return answer;
  });
  app.onError((error) => toErrorAnswer(error, deps.log));
  return { app, router };
}

function toPattern(path: string): RegExp {
  const source = path
    .replaceAll(/[.*+?^$()[\]\\|]/g, String.raw`\$&`)
    .replaceAll(/\{\w+\}/g, "[^/]+");
  return new RegExp(`^${source}$`);
}

function decodeRequest<Body>(
  c: Context<AgentEnv>,
  spec: RouteSpec<Body>,
  realms: readonly string[],
): RouteRequest<Body> {
  const query = new URL(c.req.url).searchParams;
  const header = (name: string): string | undefined => c.req.header(name);
  const scope = readScope({ header, query }, spec.row, realms);
  return {
    params: c.req.param() as Record<string, string>,
    query,
    header,
    scope,
    // a route without a decoder declares `Body` as undefined
    body: (spec.body === undefined ? undefined : decodeBody(c.get("bodyBytes"), spec.body)) as Body,
    bodyBytes: c.get("bodyBytes")?.length ?? 0,
    client: c.get("client"),
    signal: c.req.raw.signal,
  };
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Parses and decodes a JSON body; an empty one is `{}`.
 *
 * @throws AgentError `bad_request` with `details.field` (JSON pointer of the first problem) and `details.issues`.
 */
export function decodeBody<Body>(bytes: Buffer | undefined, decoder: z.ZodType<Body>): Body {
  let value: unknown = {};
  if (bytes !== undefined && bytes.length > 0) {
    if (isTooDeep(bytes)) {
      throw new AgentError("bad_request", "The body is nested too deeply.");
    }
    try {
      value = JSON.parse(utf8.decode(bytes));
    } catch {
      throw new AgentError("bad_request", "The body is not valid JSON.");
    }
  }
  const decoded = decoder.safeParse(value);
  if (decoded.success) {
    return decoded.data;
  }
  const issues = decoded.error.issues.map((issue) => ({
    path: toPointer(issue.path),
    message: issue.message,
  }));
  const field = decoded.error.issues[0]?.path.map(String).join(".") ?? "";
  throw new AgentError("bad_request", issues[0]?.message ?? "The body is not valid.", {
    field,
    issues,
  });
}

const MAX_NESTING = 256;

/** True for JSON text nested so deeply that walking it could exhaust the stack. Looks at bytes: quotes and brackets are ASCII. */
function isTooDeep(bytes: Buffer): boolean {
  let depth = 0;
  let inString = false;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (inString) {
      if (byte === 0x5c) {
        i += 1; // the escaped character
      } else if (byte === 0x22) {
        inString = false;
      }
    } else if (byte === 0x22) {
      inString = true;
    } else if (byte === 0x5b || byte === 0x7b) {
      depth += 1;
      if (depth > MAX_NESTING) {
        return true;
      }
    } else if (byte === 0x5d || byte === 0x7d) {
      depth -= 1;
    }
  }
  return false;
}

const HEADER_DOCS: readonly (readonly [name: string, text: string])[] = [
  ["X-Hoody-Cwd", "Absolute working directory."],
  ["X-Hoody-Config-Dir", "Absolute folder that replaces .hoody."],
  ["X-Hoody-Container", "Bound remote container."],
  ["X-Hoody-Realm", 'Realm selector, "global" or 24 hex digits; also ?realm=.'],
];

function toOpenApi<Body>(path: string, spec: RouteSpec<Body>) {
  const text = { schema: { type: "string" as const } };
  const parameters = [
    ...[...path.matchAll(/\{(\w+)\}/g)].map((match) => ({
      in: "path" as const,
      name: match[1] ?? "",
      required: true,
      ...text,
    })),
    ...Object.entries(spec.query ?? {}).map(([name, description]) => ({
      in: "query" as const,
      name,
      description,
      ...text,
    })),
    ...HEADER_DOCS.map(([name, description]) => ({
      in: "header" as const,
      name,
      description,
      ...text,
    })),
    ...(spec.row === "R5"
      ? ["X-Hoody-Tool-Mode", "X-Hoody-Dir-Scope"].map((name) => ({
          in: "header" as const,
          name,
          ...text,
        }))
      : []),
  ];
  const codes: AgentErrorCode[] = [
    "forbidden",
    "rate_limited",
    "internal_error",
    ...(spec.errors ?? []),
  ];
  if (spec.body !== undefined) {
    codes.push("payload_too_large");
  }
  const responses: Record<
    string,
    {
      description: string;
      content?: Record<string, { schema: { type: "object" } | { type: "string" } }>;
    }
  > = {};
  const produces = spec.produces ?? "application/json";
  responses[String(spec.status ?? 200)] = {
    description: spec.summary,
    content: {
      [produces]: {
        schema: produces === "application/json" ? { type: "object" } : { type: "string" },
      },
    },
  };
  for (const code of codes) {
    const status = String(agentStatus(code));
    const known = responses[status]?.description;
    responses[status] = {
      description: known === undefined ? code : `${known}, ${code}`,
      content: { "application/json": { schema: { type: "object" } } },
    };
  }
  return {
    method: spec.method,
    path,
    operationId: spec.operationId,
    summary: spec.summary,
    parameters,
    ...(spec.body === undefined
      ? {}
      : { request: { body: { content: { "application/json": { schema: spec.body } } } } }),
    responses,
  };
}
