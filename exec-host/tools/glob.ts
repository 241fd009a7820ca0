import { compileGlob, matchesGlob } from "./glob-match.ts";
import { failed, integer, MAX_RESULT_BYTES, ok, text } from "./tool.ts";
import type { Tool } from "./tool.ts";
import { walkTree } from "./walk.ts";

const DEFAULT_LIMIT = 500;
const MAX_ENTRIES = 200_000;
/** Entries between two looks at the event loop. */
const SLICE = 2000;

/** Finds files by name. Links are not followed, hidden names only when the pattern begins with a dot somewhere. */
export const globTool: Tool = {
  name: "glob",
  description: "Find files whose path fits a glob, below a folder within the directory scope.",
  readOnly: true,
  inputSchema: {
    type: "object",
    properties: {
      pattern: {
        type: "string",
        minLength: 1,
        maxLength: 512,
        description: "Glob, relative to the folder: *, ?, [a-z], {a,b}, **.",
      },
      path: {
        type: "string",
        description: "Folder to start in; the working directory unless said.",
      },
      limit: {
        type: "integer",
        minimum: 1,
        maximum: 10_000,
        description: "Paths to return, 500 unless said.",
      },
    },
    required: ["pattern"],
    additionalProperties: false,
  },
  paths: (params) => [{ path: text(params, "path") || ".", use: "read" }],
  async run(params, context) {
    const pattern = text(params, "pattern").replace(/^\.\//, "");
    const glob = compileGlob(pattern);
    if (glob === null || pattern.startsWith("/")) {
      return failed(
        "bad_pattern",
        "The pattern must be relative and not expand to more than 64 alternatives.",
      );
    }
    const opened = await context.files.openDir(text(params, "path") || ".");
    if (opened.kind === "refused") {
      return failed(opened.code, opened.text);
    }
    try {
      const limit = integer(params, "limit", DEFAULT_LIMIT);
      const walk = walkTree(opened.at, {
        hidden: /(?:^|\/)\./.test(pattern),
        ignoreFiles: false,
        rootPath: opened.physical,
        protectedDirs: context.files.scope.protectedDirs,
        maxEntries: MAX_ENTRIES,
      });
      const found: string[] = [];
      let bytes = 0;
      let looked = 0;
      for (const entry of walk) {
        looked += 1;
        if (looked % SLICE === 0) {
          await new Promise<void>((resolve) => {
            setImmediate(resolve);
          });
          context.signal.throwIfAborted();
        }
        if (!entry.isFile || !matchesGlob(glob, entry.path)) {
          continue;
        }
        if (found.length === limit || bytes > MAX_RESULT_BYTES) {
          return ok(`${found.join("\n")}\n[cut: more paths fit]`);
        }
        found.push(entry.path);
        bytes += entry.path.length + 1;
      }
      return ok(found.length === 0 ? "[no file fits]" : found.join("\n"));
    } finally {
      await opened.handle.close();
    }
  },
};
