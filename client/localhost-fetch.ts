/**
 * `fetch` for names under `.localhost`. RFC 6761 6.3 says that they all mean the loopback address, and browsers and
 * curl go there by themselves, but on many systems the resolver that Node asks does not know them. Only the address
 * is ours: the name stays in Host and in the certificate check.
 */
const LOCALHOST = /^(?:[^/]+\.)?localhost\.?$/i;

/** A `fetch` that reaches `baseURL`: the runtime's own, or the one above where that could not find the host. */
export function fetchFor(baseURL: string): typeof fetch {
  const host = URL.parse(baseURL)?.hostname ?? "";
  const needed = LOCALHOST.test(host) && host !== "localhost" && runsOnNode();
  return needed ? localhostFetch : (input, init) => fetch(input, init);
}

function runsOnNode(): boolean {
  return typeof process === "object" && typeof process.versions?.node === "string";
}

const localhostFetch: typeof fetch = async (input, init) => {
  const request = new Request(input, { ...init, ...(init?.body ? { duplex: "half" } : {}) });
  const url = new URL(request.url);
  // Loaded here, so that a bundle for browsers needs none of them.
  const [{ request: send }, { Readable }] = await Promise.all([
    url.protocol === "https:" ? import("node:https") : import("node:http"),
    import("node:stream"),
  ]);
  const body = request.body === null ? undefined : Buffer.from(await request.arrayBuffer());
  return new Promise<Response>((resolve, reject) => {
    const outgoing = send(
      url,
      {
        method: request.method,
        headers: {
          ...Object.fromEntries(request.headers),
          ...(body === undefined ? {} : { "content-length": String(body.length) }),
        },
        signal: request.signal,
        agent: false,
        lookup: (_host, options, done) =>
          options.all === true
            ? done(null, [{ address: "127.0.0.1", family: 4 }])
            : done(null, "127.0.0.1", 4),
      },
      (incoming) => {
        const status = incoming.statusCode ?? 502;
        const headers = new Headers();
        for (let at = 0; at + 1 < incoming.rawHeaders.length; at += 2) {
          headers.append(incoming.rawHeaders[at] ?? "", incoming.rawHeaders[at + 1] ?? "");
        }
        const empty = status === 204 || status === 205 || status === 304;
        if (empty) {
          incoming.resume();
        }
        resolve(
          new Response(empty ? null : (Readable.toWeb(incoming) as ReadableStream<Uint8Array>), {
            status,
            statusText: incoming.statusMessage ?? "",
            headers,
          }),
        );
      },
    );
    outgoing.once("error", (cause) =>
      reject(request.signal.aborted ? request.signal.reason : cause),
    );
    outgoing.end(body);
  });
};
