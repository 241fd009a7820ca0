import { failed, ok, text } from "./tool.ts";
import type { Tool } from "./tool.ts";

const MAX_FILE_BYTES = 16 * 1024 * 1024;

/** Replaces text in a file that the session has read. */
export const editFileTool: Tool = {
  name: "edit_file",
  description:
    "Replace one text by another in a file that was read before; the text must occur once unless all are meant.",
  readOnly: false,
  inputSchema: {
    type: "object",
    properties: {
      path: {
        type: "string",
        description: "File to edit; relative paths start at the working directory.",
      },
      old_string: {
        type: "string",
        minLength: 1,
        description: "The text to replace, byte for byte.",
      },
      new_string: { type: "string", description: "What stands there afterwards." },
      replace_all: { type: "boolean", description: "Replace every occurrence." },
    },
    required: ["path", "old_string", "new_string"],
    additionalProperties: false,
  },
  paths: (params) => [{ path: text(params, "path"), use: "write" }],
  async run(params, context) {
    const path = text(params, "path");
    const opened = await context.files.openFile(path);
    if (opened.kind === "refused") {
      return failed(opened.code, opened.text);
    }
    let content: string;
    try {
      if (opened.stat.size > MAX_FILE_BYTES) {
        return failed("too_large", "The file is too large to edit.");
      }
      // an ephemeral session has no history to compare with
      if (context.session.kind === "live") {
        const seen = context.reads.check(opened.physical, await opened.handle.stat());
        if (seen !== "current") {
          return failed(
            "read_before_edit",
            seen === "unread"
              ? "Read the file before editing it."
              : "The file changed since it was read.",
          );
        }
      }
      const bytes = await opened.handle.readFile();
      content = bytes.toString("utf8");
      if (!Buffer.from(content, "utf8").equals(bytes)) {
        return failed("binary", "The file is not UTF-8 text.");
      }
    } finally {
      await opened.handle.close();
    }
    const before = text(params, "old_string");
    const parts = content.split(before);
    const found = parts.length - 1;
    if (found === 0) {
      return failed("no_match", "The text does not occur in the file.");
    }
    if (found > 1 && params["replace_all"] !== true) {
      return failed(
        "several_matches",
        `The text occurs ${found} times; give more of it or set replace_all.`,
      );
    }
    const written = await context.files.writeFile(path, parts.join(text(params, "new_string")));
    if (written.kind === "refused") {
      return failed(written.code, written.text);
    }
    const now = await context.files.openFile(path);
    if (now.kind === "file") {
      context.reads.note(now.physical, now.stat);
      await now.handle.close();
    }
    return ok(`Replaced ${found} occurrence${found === 1 ? "" : "s"} in ${path}.`);
  },
};
