import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import type { JsonObject, ToolResult } from "../agent/seams.ts";
import { isWithin } from "./confinement.ts";
import type { OpenedDir, OpenedFile } from "./files.ts";
import { failed, integer, MAX_RESULT_BYTES, ok, text } from "./tool.ts";
import type { Tool, ToolContext } from "./tool.ts";

const DEFAULT_RESULTS = 200;
const TIMEOUT_MS = 30_000;
const MAX_LINE = 500;

/** What a search engine is asked; both engines mean the same by it. */
export interface GrepRequest {
  /** Root by descriptor. */
  readonly at: string;
  readonly rootPath: string;
  readonly isFile: boolean;
  readonly pattern: string;
  readonly glob: string | null;
  readonly ignoreCase: boolean;
  readonly maxResults: number;
  readonly protectedDirs: readonly string[];
}

/** Lines that fit, `path:line:text`, in path order; or why the search could not be made. */
export type GrepAnswer =
  | { readonly kind: "lines"; readonly lines: readonly string[]; readonly more: boolean }
  | { readonly kind: "failed"; readonly code: string; readonly text: string };

/**
 * Searches file contents with ripgrep's habits: hidden and binary files and what `.gitignore` names are left out, links
 * are not followed. Uses the system's `rg` where there is one, otherwise a worker thread that can be ended in mid-match.
 */
export const grepTool: Tool = {
  name: "grep",
  description:
    "Search file contents by regular expression, below a folder within the directory scope.",
  readOnly: true,
  inputSchema: {
    type: "object",
    properties: {
      pattern: {
        type: "string",
        minLength: 1,
        maxLength: 1000,
        description: "Regular expression.",
      },
      path: {
        type: "string",
        description: "Folder or file to search; the working directory unless said.",
      },
      glob: {
        type: "string",
        maxLength: 512,
        description: "Only files that fit; without a slash it is about base names.",
      },
      ignore_case: { type: "boolean", description: "Do not tell upper from lower case." },
      max_results: {
        type: "integer",
        minimum: 1,
        maximum: 10_000,
        description: "Lines to return, 200 unless said.",
      },
    },
    required: ["pattern"],
    additionalProperties: false,
  },
  paths: (params) => [{ path: text(params, "path") || ".", use: "read" }],
  async run(params, context) {
    const path = text(params, "path") || ".";
    if (text(params, "glob").startsWith("!")) {
      return failed("bad_pattern", "The glob says which files to search, not which to leave out.");
    }
    const folder = await context.files.openDir(path);
    const opened =
      folder.kind === "refused" && folder.code === "not_regular"
        ? await context.files.openFile(path)
        : folder;
    if (opened.kind === "refused") {
      return failed(opened.code, opened.text);
    }
    try {
      return toResult(
        await search(toRequest(params, opened, context), context, rgProgram(context)),
      );
    } finally {
      await opened.handle.close();
    }
  },
};

function toRequest(
  params: JsonObject,
  opened: OpenedDir | OpenedFile,
  context: ToolContext,
): GrepRequest {
  const glob = text(params, "glob");
  return {
    at: opened.kind === "dir" ? opened.at : `/proc/self/fd/${opened.handle.fd}`,
    rootPath: opened.physical,
    isFile: opened.kind === "file",
    pattern: text(params, "pattern"),
    glob: glob === "" ? null : glob,
    ignoreCase: params["ignore_case"] === true,
    maxResults: integer(params, "max_results", DEFAULT_RESULTS),
    protectedDirs: context.files.scope.protectedDirs,
  };
}

/** Makes a search with one engine; `rg` null takes the built-in one. */
export function search(
  request: GrepRequest,
  context: Pick<ToolContext, "clock" | "signal">,
  rg: string | null,
): Promise<GrepAnswer> {
  // a single file is cheap, and handing a descriptor to a child process is not
  return rg === null || request.isFile
    ? searchInWorker(request, context)
    : searchWithRg(request, context, rg);
}

/** Where `rg` is on the session's PATH, or null. */
export function rgProgram(context: Pick<ToolContext, "searchPath">): string | null {
  for (const dir of context.searchPath.split(":")) {
    if (!dir.startsWith("/")) {
      continue;
    }
    try {
      accessSync(`${dir}/rg`, constants.X_OK);
      return `${dir}/rg`;
    } catch {
      // not in this folder
    }
  }
  return null;
}

function searchInWorker(
  request: GrepRequest,
  context: Pick<ToolContext, "clock" | "signal">,
): Promise<GrepAnswer> {
  return new Promise((resolve) => {
    const file = fileURLToPath(import.meta.url);
    // the built package has .js beside .js, the sources .ts beside .ts
    const worker = new Worker(
      new URL(`./grep-worker${file.slice(file.lastIndexOf("."))}`, import.meta.url),
      {
        workerData: request,
        resourceLimits: { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 16 },
        env: {},
        execArgv: [],
      },
    );
    const settle = (answer: GrepAnswer): void => {
      timer.cancel();
      context.signal.removeEventListener("abort", onAbort);
      void worker.terminate();
      resolve(answer);
    };
    const onAbort = (): void => settle({ kind: "failed", code: "cancelled", text: "[cancelled]" });
    const timer = context.clock.after(TIMEOUT_MS, () =>
      settle({ kind: "failed", code: "timeout", text: "The search took too long." }),
    );
    context.signal.addEventListener("abort", onAbort, { once: true });
    worker.once("message", (answer: GrepAnswer) => settle(answer));
    worker.once("error", () => settle({ kind: "failed", code: "io", text: "The search failed." }));
    worker.once("exit", () =>
      settle({ kind: "failed", code: "io", text: "The search ended early." }),
    );
    if (context.signal.aborted) {
      onAbort();
    }
  });
}

function searchWithRg(
  request: GrepRequest,
  context: Pick<ToolContext, "clock" | "signal">,
  rg: string,
): Promise<GrepAnswer> {
  const flags = [
    "--no-config",
    "--no-follow",
    "--no-require-git",
    "--no-ignore-global",
    "--no-ignore-parent",
    "--no-ignore-exclude",
    "--no-ignore-dot",
    "--color=never",
    "--no-heading",
    "--with-filename",
    "--line-number",
    "--null",
    "--sort=path",
    "--no-messages",
    "--max-filesize=16M",
    request.ignoreCase ? "--ignore-case" : "--case-sensitive",
    ...(request.glob === null ? [] : [`--glob=${request.glob}`]),
    ...request.protectedDirs.flatMap((dir) => excludeFlag(request.rootPath, dir)),
    `--regexp=${request.pattern}`,
    "--",
    ".",
  ];
  return new Promise((resolve) => {
    // the folder by descriptor: the child resolves it through its parent's table before anything can be swapped
    const child = spawn(rg, flags, {
      cwd: request.at.replace("/proc/self/", `/proc/${process.pid}/`),
      env: { LC_ALL: "C.UTF-8" },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    const lines: string[] = [];
    let rest = "";
    let stderr = "";
    let bytes = 0;
    let settled = false;
    const settle = (answer: GrepAnswer): void => {
      if (settled) {
        return;
      }
      settled = true;
      timer.cancel();
      context.signal.removeEventListener("abort", onAbort);
      child.kill("SIGKILL");
      child.stdout.destroy();
      child.stderr.destroy();
      resolve(answer);
    };
    const onAbort = (): void => settle({ kind: "failed", code: "cancelled", text: "[cancelled]" });
    const timer = context.clock.after(TIMEOUT_MS, () =>
      settle({ kind: "failed", code: "timeout", text: "The search took too long." }),
    );
    context.signal.addEventListener("abort", onAbort, { once: true });
    const takeLine = (line: string): boolean => {
      const end = line.indexOf("\0");
      const formatted = formatHit(line.slice(2, end), line.slice(end + 1));
      if (lines.length === request.maxResults || bytes > MAX_RESULT_BYTES) {
        settle({ kind: "lines", lines, more: true });
        return false;
      }
      lines.push(formatted);
      bytes += formatted.length + 1;
      return true;
    };
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
      const parts = (rest + chunk).split("\n");
      rest = parts.pop() ?? "";
      for (const line of parts) {
        if (line.includes("\0") && !takeLine(line)) {
          return;
        }
      }
      if (rest.length > 1_048_576) {
        rest = rest.slice(0, 4096); // one endless line: its beginning is all that is shown
      }
    });
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
      stderr = (stderr + chunk).slice(0, 2000);
    });
    child.once("error", () =>
      settle({ kind: "failed", code: "not_launched", text: "The search could not be started." }),
    );
    child.once("close", (code) => {
      if (code === 2 && lines.length === 0 && stderr !== "") {
        settle({
          kind: "failed",
          code: "bad_pattern",
          text: "The pattern is not a valid regular expression.",
        });
        return;
      }
      settle({ kind: "lines", lines, more: false });
    });
    if (context.signal.aborted) {
      onAbort();
    }
  });
}

/** Keeps a protected folder below the root out of a search; credential files are hidden names and so left out anyway. */
function excludeFlag(root: string, dir: string): string[] {
  if (!isWithin(root, dir)) {
    return [];
  }
  const relative = dir
    .slice(root === "/" ? 0 : root.length)
    .replaceAll(/[\\*?[\]{}!]/g, String.raw`\$&`);
  return [`--glob=!${relative}`];
}

/** One line of an answer; `rest` is `line:text`. */
export function formatHit(path: string, rest: string): string {
  return `${path}:${rest.length > MAX_LINE ? `${rest.slice(0, MAX_LINE)}…` : rest}`;
}

function toResult(answer: GrepAnswer): ToolResult {
  if (answer.kind === "failed") {
    return failed(answer.code, answer.text);
  }
  if (answer.lines.length === 0) {
    return ok("[no line fits]");
  }
  return ok(answer.lines.join("\n") + (answer.more ? "\n[cut: more lines fit]" : ""));
}
