import { failed, ok, text } from "./tool.ts";
import type { Tool } from "./tool.ts";

/** Parks a question on the session and waits for the answer. */
export const askQuestionTool: Tool = {
  name: "ask_question_to_user",
  description: "Ask the user a question and wait for the answer.",
  readOnly: false,
  inputSchema: {
    type: "object",
    properties: {
      question: { type: "string", minLength: 1, maxLength: 4000, description: "The question." },
      options: {
        type: "array",
        maxItems: 16,
        items: { type: "string", maxLength: 400 },
        description: "Answers to choose from.",
      },
      placeholder: {
        type: "string",
        maxLength: 400,
        description: "Hint shown in an empty answer field.",
      },
    },
    required: ["question"],
    additionalProperties: false,
  },
  async run(params, context) {
    const answer = await context.ask({
      question: text(params, "question"),
      ...(params["options"] === undefined ? {} : { options: params["options"] }),
      ...(params["placeholder"] === undefined ? {} : { placeholder: params["placeholder"] }),
    });
    if (answer === null) {
      return context.signal.aborted
        ? failed("cancelled", "[cancelled]")
        : failed("no_answer", "Nobody can be asked here.");
    }
    return ok(answer);
  },
};
