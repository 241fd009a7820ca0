import type { Clock } from "../../../policy/kernel/clock.ts";
import type { Log } from "../../../policy/kernel/log.ts";
import type { JudgeOptions } from "../seams.ts";
import { isObject, ownMember } from "../settings/canonical-json.ts";
import { toJudgeMessages } from "./judge-prompt.ts";
import type { JudgeQuestion } from "./judge-prompt.ts";

/** Why there is no answer. */
export type JudgeFailure = "late" | "unreachable" | "refused" | "too_large" | "unusable";

/** The judge's word: for each asked id the probability of yes, or why there is none. */
export type JudgeAnswer =
  | { readonly kind: "answer"; readonly yes: ReadonlyMap<string, number> }
  | { readonly kind: "none"; readonly reason: JudgeFailure };

/** Asks whether rules apply to a call. Never rejects. */
export interface Judge {
  /**
   * @param budgetMs for everything, a retry included.
   * @param signal aborts when nobody waits any more.
   */
  ask(question: JudgeQuestion, budgetMs: number, signal: AbortSignal): Promise<JudgeAnswer>;
}

const MAX_ANSWER_BYTES = 262_144;
const MAX_ATTEMPTS = 2;

/**
 * A judge behind an OpenAI-compatible chat endpoint (decision 50). An unusable answer is asked for once more within the
 * budget; anything but a number for every asked id is no answer. Neither the key nor texts of the conversation are logged.
 */
export function createChatJudge(
  deps: { readonly clock: Clock; readonly log: Log },
  options: JudgeOptions,
): Judge {
  async function attempt(
    body: string,
    ids: readonly string[],
    signal: AbortSignal,
  ): Promise<JudgeAnswer> {
    let response: Response;
    try {
      response = await fetch(options.url, {
        method: "POST",
        headers: {
          "Content-Type": "application/json",
          Accept: "application/json",
          ...(options.apiKey === null ? {} : { Authorization: `Bearer ${options.apiKey}` }),
        },
        body,
        signal,
        redirect: "error", // the key and the call's input go to the configured address only
      });
    } catch {
      return none(signal.aborted ? "late" : "unreachable");
    }
    try {
      if (response.status !== 200) {
        return none(response.status >= 400 && response.status < 500 ? "refused" : "unreachable");
      }
      const text = await readBounded(response);
      return text === null ? none("too_large") : readAnswer(text, ids);
    } catch {
      return none(signal.aborted ? "late" : "unreachable");
    } finally {
      await response.body?.cancel().catch(() => {}); // an unread rest is of no interest, however it ends
    }
  }

  return {
    async ask(question, budgetMs, signal) {
      const limit = new AbortController();
      const timer = deps.clock.after(budgetMs, () => limit.abort());
      const started = deps.clock.monotonic();
      const joined = AbortSignal.any([signal, limit.signal]);
      const ids = question.rules.map(({ key }) => key);
      const body = JSON.stringify({
        model: options.model,
        messages: toJudgeMessages(question),
        temperature: 0,
        stream: false,
        response_format: { type: "json_object" },
      });
      let answer: JudgeAnswer = none("late");
      try {
        for (let i = 0; i < MAX_ATTEMPTS && !joined.aborted; i++) {
          answer = await attempt(body, ids, joined);
          if (answer.kind === "answer" || answer.reason === "refused") {
            break;
          }
        }
      } finally {
        timer.cancel();
      }
      // an answer that came in the same moment as the end of the budget is late
      const final = answer.kind === "answer" && joined.aborted ? none("late") : answer;
      deps.log[final.kind === "answer" ? "debug" : "warn"](
        {
          tool: question.tool,
          rules: ids.length,
          outcome: final.kind === "answer" ? "answered" : final.reason,
          durationMs: Math.round(deps.clock.monotonic() - started),
        },
        "rules judge",
      );
      return final;
    },
  };
}

function none(reason: JudgeFailure): JudgeAnswer {
  return { kind: "none", reason };
}

async function readBounded(response: Response): Promise<string | null> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) {
      return null;
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** Strict: the first choice's content is a JSON object with `{"yes": 0..1}` for every asked id. */
function readAnswer(text: string, ids: readonly string[]): JudgeAnswer {
  const completion = parse(text);
  const choices = isObject(completion) ? ownMember(completion, "choices") : undefined;
  const first: unknown = Array.isArray(choices) ? (choices as unknown[])[0] : undefined;
  const message = isObject(first) ? ownMember(first, "message") : undefined;
  const content = isObject(message) ? ownMember(message, "content") : undefined;
  const verdicts = typeof content === "string" ? parse(content) : undefined;
  if (!isObject(verdicts)) {
    return none("unusable");
  }
  const yes = new Map<string, number>();
  for (const id of ids) {
    const verdict = ownMember(verdicts, id);
    const probability = isObject(verdict) ? ownMember(verdict, "yes") : undefined;
    if (typeof probability !== "number" || !(probability >= 0 && probability <= 1)) {
      return none("unusable");
    }
    yes.set(id, probability);
  }
  return { kind: "answer", yes };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
