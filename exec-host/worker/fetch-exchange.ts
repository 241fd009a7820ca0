import { withDepth } from "../../dispatcher/envelope.ts";
import { isHopByHop } from "../../policy/kernel/fields.ts";
import type { FieldLines, ResponseHead } from "../../policy/kernel/exchange.ts";
import type { Http1Client, Origin, OutgoingCall } from "../../policy/kernel/http1/types.ts";
import { currentCall } from "./call.ts";
import { decodeBody } from "./decode-body.ts";
import { toSource, type FetchContent } from "./fetch-request-body.ts";
import { attachBody, IncomingBody } from "./incoming-body.ts";
import { DECODABLE, listCodings, trackResponse } from "./response-origin.ts";

/** A fetch, with everything read from its arguments. */
export interface FetchRequest {
  readonly url: URL;
  readonly method: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly content: FetchContent | null;
  readonly redirect: "follow" | "error" | "manual";
  readonly signal: AbortSignal;
  readonly decodes: boolean;
  /** Made by the script itself, whose responses know whether they were decoded. */
  readonly isScripts: boolean;
}

const MAX_REDIRECTS = 20;
const LIMITS = { connectMs: 10_000, idleMs: 300_000, maxHeaderBytes: 65_536 } as const;
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
/** Fields that describe a body, gone with it (Fetch standard, HTTP-redirect fetch). */
const BODY_FIELDS: ReadonlySet<string> = new Set([
  "content-encoding",
  "content-language",
  "content-location",
  "content-type",
]);
/** Fields meant for one origin. */
const ORIGIN_FIELDS: ReadonlySet<string> = new Set([
  "authorization",
  "proxy-authorization",
  "cookie",
  "host",
]);

/** Runs a fetch, redirects included (Fetch standard 4.4). Rejects as the standard says: TypeError, or the signal's reason. */
export async function exchange(client: Http1Client, first: FetchRequest): Promise<Response> {
  let request = first;
  for (let count = 0; ; count++) {
    const { head, body } = await ask(client, request);
    const location = locationOf(head);
    if (location === null || request.redirect === "manual") {
      return toResponse(request, head, body, count > 0);
    }
    body?.cancel();
    if (request.redirect === "error" || count >= MAX_REDIRECTS) {
      throw failed(
        new Error(count >= MAX_REDIRECTS ? "too many redirects" : "unexpected redirect"),
      );
    }
    request = redirected(request, head.status, location);
  }
}

function locationOf(head: ResponseHead): string | null {
  if (!REDIRECTS.has(head.status)) {
    return null;
  }
  for (let i = 0; i + 1 < head.fields.length; i += 2) {
    if (head.fields[i]!.toLowerCase() === "location") {
      return Buffer.from(head.fields[i + 1]!, "latin1").toString("utf8");
    }
  }
  return null;
}

function redirected(request: FetchRequest, status: number, location: string): FetchRequest {
  let url: URL;
  try {
    url = new URL(location, request.url);
  } catch (cause) {
    throw failed(cause);
  }
  if ((url.protocol !== "http:" && url.protocol !== "https:") || url.username || url.password) {
    throw failed(new Error("a redirect to an address that cannot be followed"));
  }
  if (url.hash === "") {
    url.hash = request.url.hash;
  }
  const becomesGet =
    (status === 303 && request.method !== "GET" && request.method !== "HEAD") ||
    ((status === 301 || status === 302) && request.method === "POST");
  if (!becomesGet && request.content?.kind === "stream") {
    throw failed(new Error("a body that was streamed cannot be sent again"));
  }
  const isElsewhere = url.origin !== request.url.origin;
  return {
    ...request,
    url,
    method: becomesGet ? "GET" : request.method,
    content: becomesGet ? null : request.content,
    headers: request.headers.filter(
      ([name]) =>
        !(isElsewhere && ORIGIN_FIELDS.has(name)) && !(becomesGet && BODY_FIELDS.has(name)),
    ),
  };
}

interface Answer {
  readonly head: ResponseHead;
  readonly body: IncomingBody | null;
}

function ask(client: Http1Client, request: FetchRequest): Promise<Answer> {
  const { signal, url } = request;
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(reasonOf(signal));
      return;
    }
    const body = new IncomingBody();
    let outgoing: OutgoingCall | null = null;
    const onAbort = (): void => {
      outgoing?.abort();
      reject(reasonOf(signal));
      body.fail(reasonOf(signal));
    };
    const finish = (): void => signal.removeEventListener("abort", onAbort);
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      outgoing = client.send(
        {
          origin: originOf(url),
          method: request.method,
          target: url.pathname + url.search,
          fields: toFields(request),
          body: toSource(request.content),
          limits: LIMITS,
        },
        {
          interim() {},
          head: (head, _length, isBodyless) => resolve({ head, body: isBodyless ? null : body }),
          data: (chunk) => body.push(chunk),
          end() {
            finish();
            body.end();
          },
          tunnel(_head, stream) {
            finish();
            stream.destroy();
            reject(failed(new Error("the server switched protocols unasked")));
          },
          fail(failure) {
            finish();
            reject(failed(failure));
            body.fail(failed(failure));
          },
        },
      );
    } catch (cause) {
      finish();
      reject(failed(cause));
      return;
    }
    body.bind(outgoing);
  });
}

function originOf(url: URL): Origin {
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const isTls = url.protocol === "https:";
  const port = url.port === "" ? (isTls ? 443 : 80) : Number(url.port);
  return { kind: isTls ? "tls" : "tcp", host, port };
}

function toFields(request: FetchRequest): FieldLines {
  const given = new Set(request.headers.map(([name]) => name));
  const fields: string[] = [];
  const add = (name: string, value: string): void => {
    if (!given.has(name.toLowerCase())) {
      fields.push(name, value);
    }
  };
  add("Host", request.url.host);
  for (const [name, value] of request.headers) {
    if (!isHopByHop(name)) {
      fields.push(name, value);
    }
  }
  add("Accept", "*/*");
  add("User-Agent", "interpose");
  add("Accept-Encoding", "gzip, deflate, br, zstd");
  return withDepth(fields, currentCall.getStore()?.depth ?? 0);
}

function toResponse(
  request: FetchRequest,
  head: ResponseHead,
  body: IncomingBody | null,
  wasRedirected: boolean,
): Response {
  const headers = new Headers();
  for (let i = 0; i + 1 < head.fields.length; i += 2) {
    headers.append(head.fields[i]!, head.fields[i + 1]!);
  }
  const carries = body !== null && ![204, 205, 304].includes(head.status);
  if (!carries) {
    body?.cancel();
  }
  const codings = listCodings(headers.get("content-encoding"));
  const coding = codings.length === 1 && DECODABLE.has(codings[0]!) ? codings[0]! : null;
  const isDecoded = carries && request.decodes && coding !== null;
  let response: Response;
  let shownBody: IncomingBody | null = null;
  try {
    shownBody = carries ? (isDecoded ? decodeBody(body, coding) : body) : null;
    response = new Response(shownBody?.toStream() ?? null, {
      status: head.status,
      statusText: /^[\t\x20-\x7e\x80-\xff]*$/.test(head.reason) ? head.reason : "",
      headers,
    });
  } catch (cause) {
    body?.cancel();
    throw failed(cause);
  }
  if (shownBody !== null) {
    attachBody(response, shownBody);
  }
  const shown = new URL(request.url);
  shown.hash = "";
  const origin = isDecoded ? "decoded" : "raw";
  return trackResponse(response, request.isScripts ? origin : "foreign", {
    isService: false,
    url: shown.href,
    redirected: wasRedirected,
  });
}

/** What `fetch` rejects with; the cause is for the script's own log. */
function failed(cause: unknown): TypeError {
  return new TypeError("fetch failed", { cause });
}

function reasonOf(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new DOMException(String(reason), "AbortError");
}
