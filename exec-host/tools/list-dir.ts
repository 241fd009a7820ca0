import { readdir } from "node:fs/promises";
import { placePath } from "./confinement.ts";
import { failed, ok, text } from "./tool.ts";
import type { Tool } from "./tool.ts";

const MAX_ENTRIES = 2000;

/** Lists a folder, folders first marked with a slash, links with an at sign. */
export const listDirTool: Tool = {
  name: "list_dir",
  description: "List a folder within the directory scope.",
  readOnly: true,
  inputSchema: {
    type: "object",
    properties: {
      path: { type: "string", description: "Folder to list; the working directory unless said." },
    },
    additionalProperties: false,
  },
  paths: (params) => [{ path: text(params, "path") || ".", use: "read" }],
  async run(params, context) {
    const opened = await context.files.openDir(text(params, "path") || ".");
    if (opened.kind === "refused") {
      return failed(opened.code, opened.text);
    }
    try {
      const entries = await readdir(opened.at, { withFileTypes: true });
      const names = entries
        .filter((entry) => {
          const path = `${opened.physical === "/" ? "" : opened.physical}/${entry.name}`;
          return placePath(context.files.scope, path, path, "read") !== "credential";
        })
        .map(
          (entry) =>
            `${entry.name}${entry.isDirectory() ? "/" : entry.isSymbolicLink() ? "@" : ""}`,
        )
        .toSorted();
      const more = names.length - MAX_ENTRIES;
      return ok(names.slice(0, MAX_ENTRIES).join("\n") + (more > 0 ? `\n[${more} more]` : ""));
    } finally {
      await opened.handle.close();
    }
  },
};
