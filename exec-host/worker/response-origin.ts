/**
 * Where a `Response` came from decides what may be said about its bytes (exec-host.md 5.7).
 *
 * `raw`: bytes as the service sent them. `decoded`: our fetch took the coding off. `foreign`: some other fetch made
 * it, which decodes by default. `built`: the script made it itself.
 */
export type ResponseOrigin = "raw" | "decoded" | "foreign" | "built";

/** The codings a fetch takes off. */
export const DECODABLE: ReadonlySet<string> = new Set(["gzip", "x-gzip", "deflate", "br", "zstd"]);

const origins = new WeakMap<Response, ResponseOrigin>();
/** Answers of the service behind the hook: what is sent of them counts as forwarded. */
const fromService = new WeakSet<Response>();
let isPatched = false;

/** Notes the origin of a response we made, and of the copies its own `clone()` makes. */
export function trackResponse(
  response: Response,
  origin: "raw" | "decoded" | "foreign",
  described: { readonly isService: boolean; readonly url?: string; readonly redirected?: boolean },
): Response {
  patchPrototype();
  origins.set(response, origin);
  if (described.isService) {
    fromService.add(response);
  }
  const own: Record<string, unknown> = {
    clone: () => trackResponse(plainClone(response), origin, described),
  };
  if (described.url !== undefined) {
    own["url"] = described.url;
    own["redirected"] = described.redirected ?? false;
    own["type"] = "basic";
  }
  for (const [name, value] of Object.entries(own)) {
    Object.defineProperty(response, name, { value, configurable: true, writable: true });
  }
  return response;
}

let plainClone = (response: Response): Response => response.clone();

/**
 * The prototype's `clone`, called on one of ours directly, gives a copy that nobody knows the origin of: the hook
 * document takes such a copy for decoded. Node's own would look built, since ours are built underneath.
 */
function patchPrototype(): void {
  if (isPatched) {
    return;
  }
  isPatched = true;
  const { clone } = Response.prototype as { clone: (this: Response) => Response };
  plainClone = (response) => clone.call(response);
  Object.defineProperty(Response.prototype, "clone", {
    configurable: true,
    enumerable: true,
    writable: true,
    value: function cloneResponse(this: Response): Response {
      const copy = clone.call(this);
      if (origins.has(this)) {
        origins.set(copy, "foreign");
      }
      return copy;
    },
  });
}

/** The origin of any response a script hands us. */
export function originOf(response: Response): ResponseOrigin {
  const known = origins.get(response);
  if (known === undefined && response.url === "") {
    return "built";
  }
  return known === undefined || known === "foreign" ? foreignOrigin(response) : known;
}

/** A foreign fetch decodes one coding that it knows; without one, or with several, its bytes are as they were. */
function foreignOrigin(response: Response): ResponseOrigin {
  const codings = listCodings(response.headers.get("content-encoding"));
  return codings.length === 1 && DECODABLE.has(codings[0]!) ? "foreign" : "built";
}

export function isFromService(response: Response): boolean {
  return fromService.has(response);
}

/** Codings in order, lower case, without empty and `identity` entries. */
export function listCodings(field: string | null): string[] {
  return (field ?? "")
    .split(",")
    .map((coding) => coding.trim().toLowerCase())
    .filter((coding) => coding !== "" && coding !== "identity");
}
