import { ValidationError } from "./errors.ts";
import type { CallOptions } from "./operations.ts";

/** Options of a write to a versioned document. */
export interface WriteOptions extends CallOptions {
  /**
   * The version the change is based on, `file:v<N>`: the `etag` of the last read, `file:v0` before the first write.
   * `null` sends the write without one, which the server refuses with 428.
   */
  readonly ifMatch: string | null;
}

/**
 * The call options of a write, its precondition as a header.
 *
 * @throws ValidationError when `ifMatch` was left out (a write from plain JavaScript): nothing is sent then.
 */
export function writeExtras(options: WriteOptions | undefined): {
  headers: Record<string, string | undefined>;
  signal?: AbortSignal;
} {
  const ifMatch: unknown = options?.ifMatch;
  if (ifMatch !== null && (typeof ifMatch !== "string" || ifMatch === "")) {
    throw new ValidationError(
      "a write needs { ifMatch }: the etag of the last read, such as file:v1",
    );
  }
  return {
    headers: { "if-match": ifMatch ?? undefined },
    ...(options?.signal === undefined ? {} : { signal: options.signal }),
  };
}
