import type { JsonObject } from "../agent/seams.ts";
import { failed, ok, text } from "./tool.ts";
import type { Tool } from "./tool.ts";

/** Runs several calls one after the other, each through the whole gate; stops at the first that does not succeed. */
export const toolOrchestratorTool: Tool = {
  name: "tool_orchestrator",
  description: "Run several tool calls in order; each passes the same checks as a call of its own.",
  readOnly: false,
  inputSchema: {
    type: "object",
    properties: {
      calls: {
        type: "array",
        minItems: 1,
        maxItems: 32,
        items: {
          type: "object",
          properties: { tool: { type: "string", minLength: 1 }, params: { type: "object" } },
          required: ["tool"],
          additionalProperties: false,
        },
      },
    },
    required: ["calls"],
    additionalProperties: false,
  },
  async run(params, context) {
    const outcomes: JsonObject[] = [];
    let stopped = false;
    for (const call of callsOf(params)) {
      if (context.signal.aborted) {
        return failed("cancelled", "[cancelled]");
      }
      const outcome = await context.runInner(call.tool, call.params);
      outcomes.push({
        tool: call.tool,
        is_error: outcome.result.isError,
        output: outcome.result.text,
        ...(outcome.result.errorCode === undefined ? {} : { error_code: outcome.result.errorCode }),
        ...(outcome.needsConfirmation === undefined
          ? {}
          : { needs_confirmation: outcome.needsConfirmation }),
      });
      if (outcome.result.isError) {
        stopped = true;
        break;
      }
    }
    const report = JSON.stringify(outcomes, null, 2);
    return stopped ? failed("inner_call", report) : ok(report);
  },
};

/** The inner calls of parameters that fit the schema. */
function callsOf(params: JsonObject): { readonly tool: string; readonly params: JsonObject }[] {
  const calls = Array.isArray(params["calls"]) ? (params["calls"] as JsonObject[]) : [];
  return calls.map((call) => ({
    tool: text(call, "tool"),
    params: (call["params"] ?? {}) as JsonObject,
  }));
}
