import { ok } from "./tool.ts";
import type { Tool } from "./tool.ts";

/** Records what the agent claims to have achieved; the claims go to the session's stream. */
export const reportOutcomeTool: Tool = {
  name: "report_outcome",
  description: "Report what was achieved, as a list of claims.",
  readOnly: false,
  inputSchema: {
    type: "object",
    properties: {
      claims: {
        type: "array",
        minItems: 1,
        maxItems: 64,
        items: { type: "string", minLength: 1, maxLength: 2000 },
      },
    },
    required: ["claims"],
    additionalProperties: false,
  },
  run(params, context) {
    const claims = Array.isArray(params["claims"]) ? params["claims"] : [];
    context.session.emit("event.outcome", { claims });
    return Promise.resolve(ok(`Recorded ${claims.length} claim${claims.length === 1 ? "" : "s"}.`));
  },
};
