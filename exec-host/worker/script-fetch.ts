import type { Clock } from "../../policy/kernel/clock.ts";
import { createHttp1Client } from "../../policy/kernel/http1/client.ts";
import type { Http1Client } from "../../policy/kernel/http1/types.ts";
import type { FetchRequest } from "./fetch-exchange.ts";
import type { ScriptScope } from "./load.ts";
import { readRequestBody, type RequestContent } from "./fetch-request-body.ts";

/**
 * The `fetch` and `Bun.fetch` of scripts (exec-host.md 5.7). The runtime's own cannot be used: it decodes chains of
 * codings, has no `decompress`, and does not tell afterwards whether it decoded. Arguments are read by the
 * runtime's `Request`, so what is accepted is what the standard says; the exchange itself goes over our own
 * HTTP/1.1 client. (undici as a dependency was the alternative: its `Request`, `Response` and `FormData` are other
 * classes than the runtime's, so every argument and result would have to be converted, and the codings hidden from it.)
 */
export function createScriptFetch(clock: Clock): ScriptScope {
  const scriptFetch = createFetch(clock, true);
  return { fetch: scriptFetch, Bun: Object.freeze({ fetch: scriptFetch }) };
}

/**
 * The `fetch` of everything that is not the script itself: helper modules, packages, `import("bun")`. It takes the
 * same arguments, `decompress` included, but its responses do not know what was done to their bytes, so that they
 * count as decoded.
 */
export function createForeignFetch(clock: Clock): ScriptFetch {
  return createFetch(clock, false);
}

type ScriptFetch = (input: unknown, init?: unknown) => Promise<Response>;

/** Taken before ours becomes the global. */
const runtimeFetch = globalThis.fetch;

function createFetch(clock: Clock, isScripts: boolean): ScriptFetch {
  let client: Http1Client | null = null;
  const connect = (): Http1Client =>
    (client ??= createHttp1Client({ clock, tls: { rejectUnauthorized: true } }));

  // Not async: everything that can be read is read before it returns, whatever happens to the arguments later.
  function scriptFetch(input: unknown, init?: unknown): Promise<Response> {
    try {
      const decodes = wantsDecoding(input, init);
      const { request, content } = readArguments(input, init);
      return run(connect, request, content, { decodes, isScripts });
    } catch (error) {
      return Promise.reject(error instanceof Error ? error : new TypeError(String(error)));
    }
  }
  Object.defineProperty(scriptFetch, "name", { value: "fetch" });
  return scriptFetch;
}

async function run(
  connect: () => Http1Client,
  request: Request,
  content: RequestContent | null,
  kind: { readonly decodes: boolean; readonly isScripts: boolean },
): Promise<Response> {
  const url = new URL(request.url);
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    return runtimeFetch(request); // data: and blob: have no exchange
  }
  const described: FetchRequest = {
    url,
    method: request.method,
    headers: [...request.headers],
    content: content === null ? null : await content,
    redirect: request.redirect,
    signal: request.signal,
    ...kind,
  };
  // Loaded at the first fetch: most workers never make one, and a worker's start is short of time.
  const { exchange } = await import("./fetch-exchange.ts");
  return exchange(connect(), described);
}

type Arguments = { readonly request: Request; readonly content: RequestContent | null };

function readArguments(input: unknown, init: unknown): Arguments {
  const options = withDuplex(init);
  if (isOptionsObject(input)) {
    // `fetch({ url, method, … })`: the object is the address and the options in one; a second argument wins over it.
    const { url } = input;
    const first = new Request(String(url), withDuplex(input) as RequestInit);
    const request = options === undefined ? first : new Request(first, options as RequestInit);
    return { request, content: readRequestBody(request, bodyOf(init) ?? bodyOf(input)) };
  }
  const request = new Request(input as string, options as RequestInit);
  return { request, content: readRequestBody(request, bodyOf(init)) };
}

function bodyOf(options: unknown): unknown {
  return isObject(options) ? (options as { body?: unknown }).body : undefined;
}

/** The runtime asks for `duplex: "half"` with a stream as body; there is no other way, so scripts need not say it. */
function withDuplex(init: unknown): unknown {
  if (!isObject(init) || (init as { duplex?: unknown }).duplex !== undefined) {
    return init ?? undefined;
  }
  return Object.create(init, { duplex: { value: "half", enumerable: true } }) as object;
}

/** A plain `{ url }`, as Bun takes it. */
function isOptionsObject(input: unknown): input is { readonly url: unknown } {
  return (
    isObject(input) && !(input instanceof URL) && !(input instanceof Request) && "url" in input
  );
}

/**
 * `decompress` of the options when it is a boolean or a number there, else of the input; a `URL` or a text has none.
 * Anything else says nothing, and decoding is the default.
 */
function wantsDecoding(input: unknown, init: unknown): boolean {
  const isAddress = input instanceof URL || input instanceof String;
  return readSwitch(init) ?? (isAddress ? undefined : readSwitch(input)) ?? true;
}

function readSwitch(holder: unknown): boolean | undefined {
  if (!isObject(holder)) {
    return undefined;
  }
  const { decompress } = holder as { decompress?: unknown };
  if (typeof decompress === "boolean") {
    return decompress;
  }
  return typeof decompress === "number" ? Math.abs(decompress) >= 1 : undefined; // NaN: off
}

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}
