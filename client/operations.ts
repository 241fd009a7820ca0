import { ConnectionError } from "./errors.ts";
import type { Operations } from "./schema.ts";
import { escapePath, type QueryValue, type Transport } from "./transport.ts";

/** `METHOD /path` with `{}` for each path argument, as in the API's own description. */
export type OperationName = keyof Operations;

/** The JSON body that an operation takes. */
export type BodyOf<N extends OperationName> = Operations[N] extends { body: infer B }
  ? B
  : undefined;

/** The whole answer of an operation, envelope included. */
export type AnswerOf<N extends OperationName> = Operations[N] extends { answer: infer A }
  ? A
  : unknown;

/** What else a call may carry. */
export interface CallOptions {
  /** Ends the call; it rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

interface CallExtras extends CallOptions {
  readonly query?: Readonly<Record<string, QueryValue>>;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string | undefined>>;
}

/** Calls one described operation; the answer is what the server sent, typed as the description says. */
export async function call<N extends OperationName>(
  transport: Transport,
  name: N,
  args: readonly string[],
  extras: CallExtras = {},
): Promise<AnswerOf<N>> {
  const space = name.indexOf(" ");
  const { signal, ...rest } = extras;
  const request = {
    method: name.slice(0, space),
    path: escapePath(name.slice(space + 1), args),
    ...rest,
    signal,
  };
  const answer = (await transport.request(request)) as { readonly data?: unknown };
  if (answer.data === undefined) {
    throw new ConnectionError(request, "the answer is not one of the control API");
  }
  return answer as AnswerOf<N>;
}
