import { askQuestionTool } from "./ask-question-to-user.ts";
import { bashTool } from "./bash.ts";
import { editFileTool } from "./edit-file.ts";
import { globTool } from "./glob.ts";
import { grepTool } from "./grep.ts";
import { listDirTool } from "./list-dir.ts";
import { readFileTool } from "./read-file.ts";
import { reportOutcomeTool } from "./report-outcome.ts";
import type { Tool } from "./tool.ts";
import { toolOrchestratorTool } from "./tool-orchestrator.ts";
import { writeFileTool } from "./write-file.ts";

/** Built-in tools in catalogue order. No tool may be called `read-only`: that is a route. */
export const CATALOGUE: readonly Tool[] = [
  readFileTool,
  listDirTool,
  bashTool,
  writeFileTool,
  editFileTool,
  globTool,
  grepTool,
  askQuestionTool,
  reportOutcomeTool,
  toolOrchestratorTool,
];

const BY_NAME = new Map(CATALOGUE.map((tool) => [tool.name, tool]));

/** A built-in tool by its exact name. */
export function builtinTool(name: string): Tool | undefined {
  return BY_NAME.get(name);
}
