import { ApiError, ConnectionError, ValidationError } from "./errors.ts";
import { fetchFor } from "./localhost-fetch.ts";
import { readSse, type SseFrame } from "./sse.ts";

/** What a transport needs; times in ms, sizes in bytes. */
export interface TransportOptions {
  /** Address of the server, with a path prefix where it has one. http or https, no credentials in it. */
  readonly baseURL: string;
  /** Fields of every request; a bearer token among them. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Longest wait for a whole answer; streams are not bound by it. 0 = none. Default 30,000. */
  readonly timeoutMs?: number;
  /** Longest answer that is read. Default 64 MiB. */
  readonly maxAnswerBytes?: number;
  /** The runtime's own `fetch` by default; on Node, hosts under `.localhost` are reached without a resolver. */
  readonly fetch?: typeof fetch;
}

/** One request. `path` begins with `/` and is already escaped, see {@link escapePath}. */
export interface TransportRequest {
  readonly method: string;
  readonly path: string;
  readonly query?: Readonly<Record<string, QueryValue>>;
  readonly headers?: Readonly<Record<string, string | undefined>>;
  /** Sent as JSON; undefined sends no body. */
  readonly body?: unknown;
  readonly signal?: AbortSignal | undefined;
}

/** What may stand in a query; `null` and `undefined` are left out. */
export type QueryValue = string | number | boolean | null | undefined;

/** Sends requests to one server and reads its JSON or event streams. */
export interface Transport {
  /** The answer's JSON object. Throws {@link ApiError}, {@link ConnectionError}; an abort by the caller's signal as that signal's reason. */
  request(request: TransportRequest): Promise<unknown>;
  /** Opens an event stream; resolves when its head has arrived. Throws like `request`, and so does the iteration. */
  stream(request: TransportRequest, onComment?: () => void): Promise<AsyncIterable<SseFrame>>;
}

const DEFAULTS = { timeoutMs: 30_000, maxAnswerBytes: 67_108_864 };
/** An error answer is small; more of it is not worth reading. */
const MAX_ERROR_BYTES = 1_048_576;

/** A transport over `fetch`. Throws {@link ValidationError} for an unusable `baseURL`. */
export function createTransport(options: TransportOptions): Transport {
  const base = parseBase(options.baseURL);
  const send = options.fetch ?? fetchFor(base);
  const timeoutMs = options.timeoutMs ?? DEFAULTS.timeoutMs;
  const maxAnswerBytes = options.maxAnswerBytes ?? DEFAULTS.maxAnswerBytes;

  async function open(request: TransportRequest, accept: string, signal: AbortSignal | null) {
    const headers = new Headers(options.headers);
    headers.set("accept", accept);
    headers.set("content-type", "application/json");
    for (const [name, value] of Object.entries(request.headers ?? {})) {
      if (value !== undefined) {
        headers.set(name, value);
      }
    }
    const response = await send(base + request.path + queryText(request.query), {
      method: request.method,
      headers,
      body: request.body === undefined ? null : JSON.stringify(request.body),
      // An API never redirects; following one would carry the body to an address nobody chose.
      redirect: "manual",
      signal,
    });
    if (!response.ok) {
      const bytes = await readBody(response, MAX_ERROR_BYTES).catch(() => new Uint8Array());
      const retryAfter = response.headers.get("retry-after") ?? "";
      throw new ApiError(request, {
        status: response.status,
        statusText: response.statusText,
        body: parseBody(response, bytes),
        retryAfterSeconds: /^\d{1,9}$/.test(retryAfter) ? Number(retryAfter) : null,
      });
    }
    return response;
  }

  return {
    async request(request) {
      const timeout = timeoutMs > 0 ? AbortSignal.timeout(timeoutMs) : undefined;
      const signals = [timeout, request.signal].filter((signal) => signal !== undefined);
      try {
        const response = await open(
          request,
          "application/json",
          signals.length === 0 ? null : AbortSignal.any(signals),
        );
        const answer = parseBody(response, await readBody(response, maxAnswerBytes));
        if (typeof answer !== "object" || answer === null) {
          throw new ConnectionError(request, `the answer from ${base} is no JSON object`);
        }
        return answer;
      } catch (cause) {
        throw translate(cause, request, base, timeoutMs, timeout);
      }
    },

    async stream(request, onComment) {
      // The timeout covers the head only: a live stream has no end.
      const head = new AbortController();
      const timeout = timeoutMs > 0 ? AbortSignal.timeout(timeoutMs) : undefined;
      const stop = () => head.abort(timeout?.reason);
      timeout?.addEventListener("abort", stop, { once: true });
      const signals = [head.signal, request.signal].filter((signal) => signal !== undefined);
      let response: Response;
      try {
        response = await open(request, "text/event-stream", AbortSignal.any(signals));
      } catch (cause) {
        throw translate(cause, request, base, timeoutMs, timeout);
      } finally {
        timeout?.removeEventListener("abort", stop);
      }
      const type = response.headers.get("content-type") ?? "";
      if (!type.startsWith("text/event-stream") || response.body === null) {
        await response.body?.cancel();
        throw new ConnectionError(request, "the answer is no event stream");
      }
      return frames(response.body, request, base, onComment);
    },
  };
}

async function* frames(
  body: ReadableStream<Uint8Array>,
  request: TransportRequest,
  base: string,
  onComment?: () => void,
): AsyncGenerator<SseFrame, void, undefined> {
  try {
    yield* readSse(body, onComment);
  } catch (cause) {
    throw translate(cause, request, base, 0, undefined);
  }
}

/**
 * Joins escaped path parts: `{}` in the pattern takes the next argument.
 *
 * @throws ValidationError for an argument that is empty or a dot segment: an URL parser would take that for
 *   a step to another resource.
 */
export function escapePath(pattern: string, args: readonly string[]): string {
  let next = 0;
  const path = pattern.replaceAll("{}", () => {
    const arg = args[next++];
    if (typeof arg !== "string" || arg === "" || arg === "." || arg === "..") {
      throw new ValidationError(`${JSON.stringify(arg ?? null)} cannot be part of ${pattern}`);
    }
    if (!arg.isWellFormed()) {
      throw new ValidationError(`a part of ${pattern} is not well-formed text`);
    }
    return encodeURIComponent(arg);
  });
  return path;
}

function parseBase(text: string): string {
  const url = URL.parse(text);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw new ValidationError(`the base URL must be an http or https address, not ${quote(text)}`);
  }
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") {
    throw new ValidationError("the base URL must have no credentials, query or fragment in it");
  }
  return url.origin + url.pathname.replace(/\/+$/, "");
}

function quote(text: string): string {
  return JSON.stringify(text.length > 100 ? `${text.slice(0, 97)}...` : text);
}

function queryText(query: Readonly<Record<string, QueryValue>> | undefined): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null) {
      pairs.append(name, String(value));
    }
  }
  const text = pairs.toString();
  return text === "" ? "" : `?${text}`;
}

class AnswerTooLong extends Error {}

async function readBody(response: Response, maxBytes: number): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const part of response.body ?? []) {
    length += part.byteLength;
    if (length > maxBytes) {
      throw new AnswerTooLong(`the answer is longer than ${maxBytes} bytes`);
    }
    parts.push(part);
  }
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.byteLength;
  }
  return whole;
}

function parseBody(response: Response, bytes: Uint8Array): unknown {
  const text = new TextDecoder().decode(bytes);
  if (!(response.headers.get("content-type") ?? "").includes("json")) {
    return text;
  }
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text; // a broken body is shown as it is; a success that is no JSON fails at its reader
  }
}

/** Failures of fetch, told apart by what the caller can do about them. */
function translate(
  cause: unknown,
  request: TransportRequest,
  base: string,
  timeoutMs: number,
  timeout: AbortSignal | undefined,
): unknown {
  if (cause instanceof ApiError || cause instanceof ConnectionError) {
    return cause;
  }
  if (request.signal?.aborted === true) {
    return request.signal.reason;
  }
  if (timeout?.aborted === true) {
    return new ConnectionError(request, `no answer from ${base} within ${timeoutMs} ms`, cause);
  }
  if (cause instanceof AnswerTooLong) {
    return new ConnectionError(request, cause.message);
  }
  return new ConnectionError(request, `no answer from ${base}: ${reasonOf(cause)}`, cause);
}

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection reset",
  ENOTFOUND: "no such host",
  EAI_AGAIN: "the host's name cannot be looked up",
  ETIMEDOUT: "connection timed out",
  EHOSTUNREACH: "no route to the host",
  UND_ERR_CONNECT_TIMEOUT: "connection timed out",
  UND_ERR_SOCKET: "the connection broke off",
};

/** fetch wraps the real failure, at times twice and in an AggregateError; its code says most. */
function reasonOf(cause: unknown): string {
  for (let error: unknown = cause, depth = 0; error instanceof Error && depth < 4; depth++) {
    const code = (error as { code?: unknown }).code;
    if (typeof code === "string" && Object.hasOwn(REASONS, code)) {
      return REASONS[code] ?? code;
    }
    if (error.cause === undefined) {
      return error.message === "terminated" ? "the connection broke off" : error.message;
    }
    error = error.cause;
  }
  return "no connection";
}
