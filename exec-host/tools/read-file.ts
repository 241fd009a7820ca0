import { failed, integer, MAX_RESULT_BYTES, ok, text } from "./tool.ts";
import type { Tool } from "./tool.ts";

const DEFAULT_LINES = 2000;
const CHUNK = 65_536;
/** Bytes read before giving up on finding the asked lines. */
const MAX_SCAN_BYTES = 64 * 1024 * 1024;

/** Reads lines of a text file. */
export const readFileTool: Tool = {
  name: "read_file",
  description: "Read the lines of a text file within the directory scope.",
  readOnly: true,
  inputSchema: {
    type: "object",
    properties: {
      path: {
        type: "string",
        description: "File to read; relative paths start at the working directory.",
      },
      max_lines: {
        type: "integer",
        minimum: 1,
        maximum: 100_000,
        description: "Lines to return, 2000 unless said.",
      },
      offset: { type: "integer", minimum: 1, description: "First line to return, counted from 1." },
    },
    required: ["path"],
    additionalProperties: false,
  },
  paths: (params) => [{ path: text(params, "path"), use: "read" }],
  async run(params, context) {
    const opened = await context.files.openFile(text(params, "path"));
    if (opened.kind === "refused") {
      return failed(opened.code, opened.text);
    }
    const { handle } = opened;
    try {
      const first = integer(params, "offset", 1);
      const wanted = integer(params, "max_lines", DEFAULT_LINES);
      const kept: Buffer[] = [];
      let keptBytes = 0;
      let line = 1;
      let position = 0;
      const chunk = Buffer.alloc(CHUNK);
      while (line < first + wanted && position < MAX_SCAN_BYTES && keptBytes <= MAX_RESULT_BYTES) {
        context.signal.throwIfAborted();
        const { bytesRead } = await handle.read(chunk, 0, CHUNK, position);
        if (bytesRead === 0) {
          break;
        }
        const bytes = chunk.subarray(0, bytesRead);
        if (position === 0 && bytes.includes(0)) {
          return failed("binary", "This is a binary file.");
        }
        position += bytesRead;
        let from = 0;
        while (from < bytes.length && line < first + wanted) {
          const newline = bytes.indexOf(10, from);
          const to = newline === -1 ? bytes.length : newline + 1;
          if (line >= first) {
            kept.push(Buffer.from(bytes.subarray(from, to)));
            keptBytes += to - from;
          }
          line += newline === -1 ? 0 : 1;
          from = to;
        }
      }
      const whole = Buffer.concat(kept);
      const cut = whole.length > MAX_RESULT_BYTES;
      context.reads.note(opened.physical, opened.stat);
      return ok(
        whole.subarray(0, MAX_RESULT_BYTES).toString("utf8") +
          (cut ? "\n[cut: the rest is too long]" : ""),
      );
    } finally {
      await handle.close();
    }
  },
};
