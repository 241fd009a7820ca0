import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { type Answer, ask, type Ask } from "./ask.ts";
import { CONTAINER, openTestEdge, type TestEdge, type TestEdgeOptions } from "./edge.ts";
import { startUpstream, type TestUpstream } from "./start-upstream.ts";

/**
 * A whole edge whose terminal service is hooked by one script that each test rewrites: what the document for script
 * authors promises is tried the way a client meets it. Opened once per file, since a worker's start is slow.
 */
export interface DocumentEdge {
  readonly edge: TestEdge;
  readonly upstream: TestUpstream;
  /** Runs `body` as the script of one dispatch: `async (req, res, metadata, shared) => { const hook = metadata.hook; body }`. */
  run(body: string, request?: Partial<Ask>): Promise<Answer>;
  /** One request for the hooked service; the script stays. */
  send(request?: Partial<Ask>): Promise<Answer>;
  close(): Promise<void>;
}

export async function openDocumentEdge(
  handler?: Parameters<typeof startUpstream>[0],
  options: Omit<TestEdgeOptions, "upstream"> & { readonly timeout?: number } = {},
): Promise<DocumentEdge> {
  const upstream = await startUpstream(handler);
  const { timeout = 15_000, ...rest } = options;
  const edge = await openTestEdge({ ...rest, upstream: upstream.port });
  const methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
  await edge.hook("terminal", { match: { method: methods }, script: { path: "/case" }, timeout });
  const send = (request: Partial<Ask> = {}) =>
    ask(edge.port, { host: edge.host("terminal-1"), ...request });
  return {
    edge,
    upstream,
    send,
    async run(body, request) {
      // A directive stands in the first line, before any code.
      const [first = ""] = body.split("\n");
      const directive = first.startsWith("// @") ? `${first}\n` : "";
      edge.script(
        "case.js",
        `${directive}module.exports = async (req, res, metadata, shared) => { const hook = metadata.hook;\n${body}\n};`,
      );
      return send(request);
    },
    async close() {
      await edge.close();
      await upstream.stop();
    },
  };
}

/** Path of the hook routes of the first container. */
export const HOOKS = `/api/v1/containers/${CONTAINER}/proxy/hooks`;

/**
 * The published document, when it lies beside the checkout; the samples in it are read at test time and kept nowhere
 * else. Empty otherwise.
 */
export function publishedHooksDocument(): string {
  const folder = resolve(import.meta.dirname, "../../../shared/seeds");
  const name = existsSync(folder)
    ? readdirSync(folder).find((file) => file.startsWith("proxy-hooks"))
    : undefined;
  return name === undefined ? "" : readFileSync(join(folder, name), "utf8");
}
