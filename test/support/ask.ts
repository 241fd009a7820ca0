import { request } from "node:http";

export interface Answer {
  readonly status: number;
  /** Lower-case names; repeats joined as Node joins them. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly rawHeaders: readonly string[];
  readonly body: string;
  readonly bytes: Buffer;
  // Parsed body of JSON answers; what is in it is what the test asserts.
  readonly json: Record<string, unknown>;
  /** The connection broke before the answer was complete. */
  readonly cut: boolean;
  readonly ms: number;
}

export interface Ask {
  readonly method?: string;
  readonly host: string;
  readonly path?: string;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: string | Buffer;
}

/** One request with a Host of the test's choice on a connection of its own. */
export function ask(
  port: number,
  { method = "GET", host, path = "/", headers = {}, body }: Ask,
): Promise<Answer> {
  const startedAt = performance.now();
  return new Promise((resolve, reject) => {
    const call = request(
      { host: "127.0.0.1", port, method, path, headers: { ...headers, host }, agent: false },
      (response) => {
        const chunks: Buffer[] = [];
        const done = (cut: boolean) => {
          const bytes = Buffer.concat(chunks);
          const text = bytes.toString();
          let json: Record<string, unknown> = {};
          if (!cut && String(response.headers["content-type"]).includes("json") && text !== "") {
            json = JSON.parse(text) as Record<string, unknown>;
          }
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            rawHeaders: response.rawHeaders,
            body: text,
            bytes,
            json,
            cut,
            ms: performance.now() - startedAt,
          });
        };
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("end", () => done(false));
        response.on("error", () => done(true));
      },
    );
    call.on("error", reject);
    call.end(body);
  });
}
