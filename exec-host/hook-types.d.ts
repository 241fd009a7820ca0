/**
 * Types for authors of hook scripts: `/** @type {import("interpose/hook").HookScript} *\/` in JavaScript, or
 * `import type { HookScript } from "interpose/hook"` in TypeScript.
 */
import type { IncomingMessage, ServerResponse } from "node:http";

/** What a script may export: called once per request. What it returns is sent when it has not answered itself. */
export type HookScript<Shared extends object = Record<string, unknown>> = (
  req: ScriptRequest,
  res: ScriptResponse,
  metadata: ScriptMetadata,
  shared: Shared,
) => unknown;

/** A file of a form upload. Empty files and files of the same name are all there. */
export interface UploadedFile {
  readonly fieldName: string;
  readonly filename: string;
  /** As the upload declares it; empty when it does not. */
  readonly type: string;
  /** Bytes. */
  readonly size: number;
  readonly data: Buffer;
}

/**
 * Node's own request. With `// @rawBody` it is the unread stream and has none of the three members below; without,
 * the host has read the body already.
 */
export interface ScriptRequest extends IncomingMessage {
  readonly method: string;
  /** Path and query as the client sent them, with the proxy's additions to the query. */
  readonly url: string;
  /**
   * The body by its `content-type`: a parsed value for JSON, an object of texts for forms, otherwise the bytes; the
   * bytes too when it does not parse. Absent for GET and HEAD.
   */
  body?: unknown;
  /** The body's exact bytes. Assign it to change what the helpers send; clear it and they throw `no-body`. */
  rawBody?: Buffer | undefined;
  /** Files of a `multipart/form-data` body. */
  files?: readonly UploadedFile[];
}

/** Node's own response, with three shorthands. */
export interface ScriptResponse extends ServerResponse {
  /** Sets the status; chainable. */
  status(code: number): this;
  /** Answers with JSON. */
  json(value: unknown): this;
  /** Answers with a text, with bytes, or with JSON for anything else. */
  send(value?: unknown): this;
}

/** What a script is told about the request. */
export interface ScriptMetadata {
  /** Names this run in the log. */
  readonly executionId: string;
  /** Parameters of a dynamic route; a catch-all gives an array. */
  readonly parameters: Readonly<Record<string, string | readonly string[]>>;
  /** The query, form-decoded, the last value of a repeated name, route parameters over it. */
  readonly query: Readonly<Record<string, string | readonly string[]>>;
  /** The client's address. */
  readonly clientIp: string;
  /** The client's path, without query. */
  readonly path: string;
  /** The client's method. */
  readonly method: string;
  /** Same as `req.url`. */
  readonly url: string;
  /** Set on a hook dispatch; undefined when the script was called by its own address. */
  readonly hook: HookMetadata | undefined;
  /** In a `post` file: what the script returned. */
  readonly mainResult?: unknown;
}

/** The hook dispatch. Only the first five members are data; `JSON.stringify` shows these. */
export interface HookMetadata {
  /** Names the audit record; the text `none` when there is none. */
  readonly auditId: string;
  /** The client's method. A rule that lists GET also fires on HEAD. */
  readonly origMethod: string;
  /** The client's path without query, as text; bytes that are not UTF-8 as `%XX`. */
  readonly origPath: string;
  /** Canonical name of the service the client asked for. */
  readonly service: string;
  /** Where that service listens: the only address to forward to. */
  readonly upstream: { readonly host: string; readonly port: number };
  /**
   * Sends the request on and the answer back, byte for byte apart from fields of one connection. An unreachable
   * service becomes a 502, or what `onUpstreamError` says; a path that cannot be forwarded faithfully a 400.
   *
   * @throws HookUpstreamError `invalid-override`, `no-body`, `body-consumed`, `duplex-unsupported`,
   *   `bytes-already-sent`, and `stream-aborted` when the service breaks off in mid-answer.
   */
  forward(
    req: ScriptRequest,
    res: ScriptResponse,
    overrides?: ForwardOverrides | null,
  ): Promise<void>;
  /**
   * The request side of `forward()`; the answer is yours to look at, change, pipe or return. Its body is the
   * service's bytes as sent, still coded. `res` is not touched.
   *
   * @throws HookUpstreamError of any kind but `bytes-already-sent`.
   */
  fetchUpstream(req: ScriptRequest, overrides?: UpstreamOverrides | null): Promise<Response>;
  /**
   * Sends a response as the client's answer: status, fields without those of one connection, bytes.
   *
   * @throws HookUpstreamError `bytes-already-sent`, `stream-aborted`, `invalid-override`; TypeError when the body was
   *   read already.
   */
  pipeResponse(
    upstream: Response,
    res: ScriptResponse,
    options?: PipeOptions | null,
  ): Promise<void>;
  /** The same class as the global. */
  readonly HookUpstreamError: typeof HookUpstreamError;
}

/** What `overrides.body` may be. */
export type UpstreamBody =
  | string
  | ArrayBuffer
  | ArrayBufferView
  | Blob
  | FormData
  | URLSearchParams
  | ReadableStream
  | AsyncIterable<Uint8Array>;

/**
 * Changes to the upstream request. Every member is read once, when the call starts, and only from the object itself:
 * what it inherits does not count.
 */
export interface UpstreamOverrides {
  /** A token; its case is kept on the wire. */
  method?: string;
  /** Target, sent byte for byte. No `#`, `\`, blanks, controls, dot segments; starts with one `/`. */
  pathAndQuery?: string;
  /** An IPv4 address in plain form or a DNS name. The `Host` field stays the client's. */
  host?: string;
  /** 1 to 65535. */
  port?: number;
  /** A text replaces, several make several lines, `null` removes. */
  headers?: Readonly<Record<string, string | readonly string[] | null>>;
  /** Replaces the body; `null` sends none. */
  body?: UpstreamBody | null;
  /** Ends the request when it fires, besides the client's leaving and `timeoutMs`. */
  signal?: AbortSignal;
  /** For head and body together; 1 to 86400000 ms. */
  timeoutMs?: number;
}

export interface ForwardOverrides extends UpstreamOverrides {
  /** Makes the answer when the service cannot be reached or does not answer (`network`, `abort`, `timeout`). */
  onUpstreamError?: (
    error: HookUpstreamError,
  ) => UpstreamErrorAnswer | Promise<UpstreamErrorAnswer>;
}

/** An answer in place of the plain 502. */
export interface UpstreamErrorAnswer {
  /** 200 to 599. */
  status: number;
  headers?: Readonly<Record<string, string | readonly string[] | null>>;
  body?: UpstreamBody | null;
}

export interface PipeOptions {
  /** `HEAD` sends no body. Default: the client's method. */
  method?: string;
}

/** Why a helper gave up. */
export type HookUpstreamErrorKind =
  /** Refused, reset, not found. */
  | "network"
  /** The client left, or `overrides.signal` fired. */
  | "abort"
  /** `overrides.timeoutMs` ran out. */
  | "timeout"
  /** An override that cannot be used. */
  | "invalid-override"
  /** The client's own path has a dot segment or begins with `//`. */
  | "unforwardable-path"
  /** The response was started before. */
  | "bytes-already-sent"
  /** The service broke off in mid-answer. */
  | "stream-aborted"
  /** The body was read, or `rawBody` cleared, before the helper was called. */
  | "no-body"
  /** The live body was sent by an earlier call. */
  | "body-consumed"
  /** Never on this host. */
  | "duplex-unsupported";

/** Thrown by the helpers. */
export declare class HookUpstreamError extends Error {
  constructor(kind: HookUpstreamErrorKind, message?: string, cause?: unknown);
  readonly name: "HookUpstreamError";
  readonly kind: HookUpstreamErrorKind;
}

/** Options of the scripts' own `fetch`. */
export interface ScriptFetchOptions extends RequestInit {
  /** `false` (or a number of absolute value below 1) leaves a coded body as it is. */
  decompress?: boolean | number;
}

/** The scripts' own `fetch`. */
export type ScriptFetch = (
  input: string | URL | Request | (ScriptFetchOptions & { url: string }),
  init?: ScriptFetchOptions,
) => Promise<Response>;

/** The names every script finds, for `declare global`-style use in TypeScript scripts. */
export interface ScriptGlobals {
  readonly HookUpstreamError: typeof HookUpstreamError;
  readonly fetch: ScriptFetch;
  readonly Bun: { readonly fetch: ScriptFetch };
  readonly require: NodeJS.Require;
}
