import type { ScriptScope } from "./load.ts";

/** The `fetch` and `Bun.fetch` of scripts. */
export function createScriptFetch(): ScriptScope {
  const fetch_ = (input: unknown, init?: unknown): Promise<Response> =>
    fetch(input as string, init as RequestInit);
  return { fetch: fetch_, Bun: { fetch: fetch_ } };
}
