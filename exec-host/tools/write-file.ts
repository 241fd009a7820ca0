import { failed, ok, text } from "./tool.ts";
import type { Tool } from "./tool.ts";

/** Creates or replaces a whole file. */
export const writeFileTool: Tool = {
  name: "write_file",
  description: "Write a whole file, replacing what was there; missing folders are made.",
  readOnly: false,
  inputSchema: {
    type: "object",
    properties: {
      path: {
        type: "string",
        description: "File to write; relative paths start at the working directory.",
      },
      content: { type: "string", description: "The new content." },
    },
    required: ["path", "content"],
    additionalProperties: false,
  },
  paths: (params) => [{ path: text(params, "path"), use: "write" }],
  async run(params, context) {
    const content = text(params, "content");
    const written = await context.files.writeFile(text(params, "path"), content);
    if (written.kind === "refused") {
      return failed(written.code, written.text);
    }
    const opened = await context.files.openFile(text(params, "path"));
    if (opened.kind === "file") {
      context.reads.note(opened.physical, opened.stat);
      await opened.handle.close();
    }
    return ok(
      `${written.created ? "Created" : "Replaced"} ${text(params, "path")} (${Buffer.byteLength(content)} bytes).`,
    );
  },
};
