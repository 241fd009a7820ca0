import { stat } from "node:fs/promises";
import type { CommandOutcome } from "../agent/process.ts";
import type { ToolResult } from "../agent/seams.ts";
import { placeCallerPath } from "./confinement.ts";
import { failed, integer, MAX_RESULT_BYTES, ok, text } from "./tool.ts";
import type { Tool } from "./tool.ts";

const BASH_DEFAULT_TIMEOUT_MS = 120_000;
const BASH_MAX_TIMEOUT_MS = 600_000;

/** Runs a command line in a process group of its own. */
export const bashTool: Tool = {
  name: "bash",
  description: "Run a shell command line under the session's tool mode.",
  readOnly: false,
  program: "bash",
  inputSchema: {
    type: "object",
    properties: {
      cmd: { type: "string", minLength: 1, description: "Command line to run." },
      cwd: { type: "string", description: "Working directory; the session's unless said." },
      timeout_ms: {
        type: "integer",
        minimum: 1,
        description: "Longest run, 120000 unless said, 600000 at most.",
      },
    },
    required: ["cmd"],
    additionalProperties: false,
  },
  paths: (params) =>
    params["cwd"] === undefined ? [] : [{ path: text(params, "cwd"), use: "read" }],
  async run(params, context) {
    const placed = await placeCallerPath(context.files.scope, text(params, "cwd") || ".", "read");
    if (placed.placement !== "allowed") {
      return failed("outside_scope", "The working directory is outside the directory scope.");
    }
    if (!(await isFolder(placed.physical))) {
      return failed("not_found", "The working directory does not exist.");
    }
    const timeoutMs = Math.min(
      integer(params, "timeout_ms", BASH_DEFAULT_TIMEOUT_MS),
      BASH_MAX_TIMEOUT_MS,
    );
    return toResult(
      await context.runCommand(text(params, "cmd"), placed.physical, timeoutMs, MAX_RESULT_BYTES),
      timeoutMs,
    );
  },
};

function toResult(outcome: CommandOutcome, timeoutMs: number): ToolResult {
  const output = (outcome.truncated ? "[cut: earlier output left out]\n" : "") + outcome.stdout;
  const glue = output === "" || output.endsWith("\n") ? output : `${output}\n`;
  switch (outcome.kind) {
    case "exited":
      if (outcome.exitCode === 0) {
        return ok(output);
      }
      return failed(
        "exit_code",
        outcome.exitCode === null
          ? `${glue}[ended by ${outcome.signal ?? "a signal"}]`
          : `${glue}[exit code ${outcome.exitCode}]`,
      );
    case "timed_out":
      return failed("timeout", `${glue}[stopped after ${timeoutMs} ms]`);
    case "cancelled":
      return failed("cancelled", `${glue}[cancelled]`);
    case "not_launched":
      return failed(
        "not_launched",
        `The command could not be started (${outcome.cause ?? "unknown"}).`,
      );
  }
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}
