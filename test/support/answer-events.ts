import type { FieldLines, ResponseHead } from "../../policy/kernel/exchange.ts";
import { AnswerParser } from "../../policy/kernel/http1/answer-parser.ts";

export interface ParsedAnswer {
  interims: ResponseHead[];
  head: ResponseHead | null;
  length: number | null;
  bodyless: boolean;
  body: string;
  trailers: FieldLines;
  ended: boolean;
  reusable: boolean;
  /** Bytes behind a 101. */
  rest: string | null;
  failure: string | null;
  /** The connection ended inside the answer. */
  cut: boolean;
}

/** Everything the parser says about one answer that arrives in `pieces`; `eof`: then the connection ends. */
export function parseAnswer(
  method: string,
  pieces: readonly (string | Buffer)[],
  eof = false,
  upgrade = false,
): ParsedAnswer {
  const seen: ParsedAnswer = {
    interims: [],
    head: null,
    length: null,
    bodyless: false,
    body: "",
    trailers: [],
    ended: false,
    reusable: false,
    rest: null,
    failure: null,
    cut: false,
  };
  const parser = new AnswerParser({
    onInterim: (head) => void seen.interims.push(head),
    onHead(head, length, bodyless) {
      Object.assign(seen, { head, length, bodyless });
    },
    onData(chunk) {
      seen.body += chunk.toString("latin1");
    },
    onEnd(trailers, reusable) {
      Object.assign(seen, { trailers, reusable, ended: true });
    },
    onSwitch(head, rest) {
      Object.assign(seen, { head, rest: rest.toString("latin1") });
    },
  });
  parser.begin(method, upgrade, 32_768);
  for (const piece of pieces) {
    const bytes = typeof piece === "string" ? Buffer.from(piece, "latin1") : piece;
    if (seen.rest !== null) {
      seen.rest += bytes.toString("latin1");
      continue;
    }
    if (seen.ended) {
      seen.reusable &&= bytes.length === 0;
      continue;
    }
    seen.failure = parser.push(bytes, bytes.length);
    if (seen.failure !== null) {
      return seen;
    }
  }
  if (eof && !seen.ended && seen.rest === null) {
    seen.cut = !parser.finish();
  }
  return seen;
}
