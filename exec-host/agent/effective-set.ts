import { accessSync, constants } from "node:fs";
import { CATALOGUE } from "../tools/catalogue.ts";
import type { Tool } from "../tools/tool.ts";
import type { McpTool } from "./mcp.ts";
import type { JsonObject, Session, ToolSettings } from "./seams.ts";

/** Tools that talk to the user: nobody is there in a headless session. */
const CONVERSATIONAL = "ask_question_to_user";
const OPT_IN = "report_outcome";

/**
 * The tools a session offers: enabled by the settings, their program on the PATH, allowed by mode, headless state and
 * opt-in; the catalogue first, then MCP tools by name (section 12). A `read_only` session keeps `bash`, which is judged
 * per call (decision 61). An ephemeral session offers the whole catalogue.
 */
export function effectiveTools(
  session: Session,
  settings: Pick<ToolSettings, "disabledTools">,
  mcpTools: readonly McpTool[],
  options: { readonly reportsOutcome: boolean; readonly searchPath: string },
): Map<string, Tool | McpTool> {
  const disabled = new Set(settings.disabledTools);
  const offered = [...CATALOGUE, ...mcpTools].filter((tool) => {
    if (
      disabled.has(tool.name) ||
      (tool.program !== undefined && !isOnPath(tool.program, options.searchPath))
    ) {
      return false;
    }
    if (session.kind === "ephemeral") {
      return true;
    }
    if (session.toolMode === "read_only" && !tool.readOnly && tool.name !== "bash") {
      return false;
    }
    return (
      !(session.headless && tool.name === CONVERSATIONAL) &&
      (tool.name !== OPT_IN || options.reportsOutcome)
    );
  });
  return new Map(offered.map((tool) => [tool.name, tool]));
}

/** A catalogue entry as the API shows it. */
export function describeTool(tool: Tool): JsonObject {
  return {
    name: tool.name,
    description: tool.description,
    read_only: tool.readOnly,
    input_schema: tool.inputSchema,
  };
}

function isOnPath(program: string, searchPath: string): boolean {
  return searchPath.split(":").some((dir) => {
    if (!dir.startsWith("/")) {
      return false;
    }
    try {
      accessSync(`${dir}/${program}`, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
