import { OpenAPIHono } from "@hono/zod-openapi";
import type { Context, Env } from "hono";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { formatIssues, toIssues, toPointer, type Issue } from "./issues.ts";
import type { Log } from "./log.ts";
import { isJsonObject, isSpecialName, parseStrictJson, StrictJsonError } from "./strict-json.ts";

/** Deepest nesting of a request body. */
const MAX_BODY_DEPTH = 32;

/** Errors of the control API: status, and the words that go into `error`. */
const API_ERRORS = {
  BAD_REQUEST: { status: 400, error: "Bad Request" },
  PORT_REQUIRED: { status: 400, error: "Bad Request" },
  UNAUTHORIZED: { status: 401, error: "Unauthorized" },
  NOT_FOUND: { status: 404, error: "Not Found" },
  ALIAS_IN_USE: { status: 409, error: "Conflict" },
  PRECONDITION_FAILED: { status: 412, error: "Precondition Failed" },
  BODY_TOO_LARGE: { status: 413, error: "Payload Too Large" },
  VALIDATION_ERROR: { status: 422, error: "Validation Error" },
  PRECONDITION_REQUIRED: { status: 428, error: "Precondition Required" },
  INTERNAL_ERROR: { status: 500, error: "Internal Server Error" },
  SERVICE_UNAVAILABLE: { status: 503, error: "Service Unavailable" },
} as const satisfies Record<string, { status: ContentfulStatusCode; error: string }>;

/** A code of the control API. */
export type ApiErrorCode = keyof typeof API_ERRORS;

/** Ends a call with an error answer. `issues` go into `data`; the message must be enough without them. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly code: ApiErrorCode;
  readonly issues: readonly Issue[] | undefined;
  constructor(code: ApiErrorCode, message: string, issues?: readonly Issue[]) {
    super(message);
    this.code = code;
    this.issues = issues;
  }
}

/** An ApiError whose message lists every issue: `Invalid hook: /match/path: must be …`. */
export function issuesError(code: ApiErrorCode, what: string, issues: readonly Issue[]): ApiError {
  return new ApiError(code, `${what}: ${formatIssues(issues)}`, issues);
}

/** How a JSON API tells failures. */
export interface JsonApiOptions {
  readonly log: Log;
  /** The answer to a failure that the caller shall hear of; null for all others. */
  readonly translate?: (cause: unknown) => ApiError | null;
}

/**
 * A Hono app in which every error has the same JSON shape: `{statusCode, error, code, message, data?}`. What is
 * thrown and is no ApiError is logged and answered 500 without a word about its cause.
 */
export function createJsonApi<E extends Env = Env>({
  log,
  translate,
}: JsonApiOptions): OpenAPIHono<E> {
  const app = new OpenAPIHono<E>({
    defaultHook: (result) => {
      if (!result.success) {
        throw issuesError("BAD_REQUEST", "Invalid request", toIssues(result.error));
      }
    },
  });
  app.onError((cause, context) => {
    if (cause instanceof ApiError) {
      return errorAnswer(context, cause);
    }
    const known = translate?.(cause) ?? null;
    if (known !== null) {
      log.warn({ err: cause, method: context.req.method, path: context.req.path }, "call refused");
      return errorAnswer(context, known);
    }
    log.error({ err: cause, method: context.req.method, path: context.req.path }, "call failed");
    return errorAnswer(context, new ApiError("INTERNAL_ERROR", "The call failed."));
  });
  app.notFound((context) => errorAnswer(context, new ApiError("NOT_FOUND", "Resource not found")));
  return app;
}

/** The success envelope (edge-proxy.md 9.3): always status, message and data. */
export function envelope(
  context: Context,
  message: string,
  data: unknown,
  status: ContentfulStatusCode = 200,
): Response {
  context.header("Cache-Control", "no-store");
  return context.json({ statusCode: status, message, data } as object, status);
}

/** The answer that an ApiError stands for. */
export function errorAnswer(context: Context, cause: ApiError): Response {
  const { status, error } = API_ERRORS[cause.code];
  context.header("Cache-Control", "no-store");
  const { code, message, issues } = cause;
  return context.json(
    {
      statusCode: status,
      error,
      code,
      message,
      ...(issues === undefined ? {} : { data: issues }),
    } as object,
    status,
  );
}

/** A request body, read but not looked into: some answers come before those about the body. */
export interface UnreadBody {
  /** The JSON value. Throws an ApiError (400) for anything that is not unambiguous JSON. */
  json(): unknown;
}

/** Reads a body of at most `maxBytes`; a longer one throws an ApiError (413) and is not read to its end. */
export async function readBody(context: Context, maxBytes: number): Promise<UnreadBody> {
  const tooLarge = () =>
    new ApiError("BODY_TOO_LARGE", `The body may have at most ${maxBytes} bytes.`);
  if (Number(context.req.header("content-length") ?? 0) > maxBytes) {
    throw tooLarge();
  }
  const chunks: Uint8Array[] = [];
  let size = 0;
  const stream = context.req.raw.body;
  if (stream !== null) {
    for await (const chunk of stream) {
      size += chunk.length;
      if (size > maxBytes) {
        throw tooLarge();
      }
      chunks.push(chunk);
    }
  }
  const type = context.req.header("content-type");
  return { json: () => decodeBody(Buffer.concat(chunks), type) };
}

/** Decodes body bytes: JSON in UTF-8, each member once, no special names, not too deep. Throws an ApiError (400). */
export function decodeBody(bytes: Uint8Array, contentType: string | undefined): unknown {
  if (
    contentType !== undefined &&
    !/^application\/json\s*(?:;\s*charset="?utf-8"?\s*)?$/i.test(contentType)
  ) {
    throw new ApiError(
      "BAD_REQUEST",
      "The body must be sent as Content-Type: application/json in UTF-8.",
    );
  }
  if (bytes.length === 0) {
    throw new ApiError("BAD_REQUEST", "The body is missing; it must be a JSON object.");
  }
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new ApiError("BAD_REQUEST", "The body is not valid UTF-8.");
  }
  let json;
  try {
    json = parseStrictJson(text, { maxDepth: MAX_BODY_DEPTH });
  } catch (cause) {
    if (cause instanceof StrictJsonError) {
      throw new ApiError("BAD_REQUEST", `The body is not valid JSON: ${cause.message}.`);
    }
    throw cause;
  }
  if (json.duplicates.length > 0) {
    throw issuesError(
      "BAD_REQUEST",
      "Invalid body",
      json.duplicates.map((path) => ({ path: toPointer(path), message: "occurs twice" })),
    );
  }
  const special = findSpecialName(json.value, []);
  if (special !== null) {
    throw issuesError("BAD_REQUEST", "Invalid body", [
      { path: toPointer(special), message: "is not an allowed name" },
    ]);
  }
  return json.value;
}

function findSpecialName(value: unknown, path: readonly string[]): readonly string[] | null {
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) {
      const found = findSpecialName(item, [...path, String(index)]);
      if (found !== null) {
        return found;
      }
    }
  } else if (isJsonObject(value)) {
    for (const [name, member] of Object.entries(value)) {
      const here = [...path, name];
      const found = isSpecialName(name) ? here : findSpecialName(member, here);
      if (found !== null) {
        return found;
      }
    }
  }
  return null;
}
