import type { Readable } from "node:stream";
import { foregroundClock, type Clock } from "../../policy/kernel/clock.ts";

/** Somewhere text can be written. */
export interface TextSink {
  write(text: string): unknown;
}

/** All that a command touches outside itself; tests hand in their own. */
export interface CommandIo {
  readonly stdout: TextSink;
  readonly stderr: TextSink;
  /** `isTTY` decides whether questions are asked. */
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Absent: the client's own choice. */
  readonly fetch?: typeof fetch;
  readonly clock: Clock;
  /** Ends commands that follow something; absent where the process itself is ended instead. */
  readonly signal?: AbortSignal;
  /** 0 fine, 1 failure, 2 wrong usage. */
  setExitCode(code: number): void;
}

/** The outside of a real process. A reader of its output that goes away (`| head`) ends it quietly. */
export function createProcessIo(host: NodeJS.Process): CommandIo {
  for (const stream of [host.stdout, host.stderr]) {
    stream.on("error", (cause: NodeJS.ErrnoException) => {
      if (cause.code !== "EPIPE") {
        throw cause;
      }
      host.exit();
    });
  }
  return {
    stdout: host.stdout,
    stderr: host.stderr,
    get stdin() {
      return host.stdin; // opened only by a command that reads it: an open stdin keeps the process alive
    },
    env: host.env,
    clock: foregroundClock,
    setExitCode: (code) => {
      host.exitCode = code;
    },
  };
}

/** Wrong usage: exit code 2. The message says what is expected, in one sentence. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** A command that cannot go on for a reason of its own: exit code 1. */
export class CommandFailure extends Error {
  override readonly name = "CommandFailure";
}

/**
 * Everything on standard input.
 *
 * @throws CommandFailure when it is longer than `maxBytes`.
 */
export async function readStdin(io: CommandIo, maxBytes: number): Promise<string> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of io.stdin as AsyncIterable<Buffer | string>) {
    const bytes = typeof part === "string" ? Buffer.from(part) : part;
    length += bytes.length;
    if (length > maxBytes) {
      throw new CommandFailure(`standard input is longer than ${maxBytes} bytes`);
    }
    parts.push(bytes);
  }
  return Buffer.concat(parts).toString("utf8");
}

/** Longest answer to a question that is kept. */
const MAX_ANSWER_LENGTH = 1024;

/** Asks on stderr and reads one line; true only for `y` or `yes`. The end of input counts as no. */
export async function askYesNo(io: CommandIo, question: string): Promise<boolean> {
  io.stderr.write(`${question} [y/N] `);
  let answer = "";
  for await (const part of io.stdin as AsyncIterable<Buffer | string>) {
    answer += String(part);
    if (/[\r\n]/.test(answer) || answer.length > MAX_ANSWER_LENGTH) {
      break; // leaving the loop closes stdin, which lets the process end
    }
  }
  return /^\s*y(?:es)?\s*(?:[\r\n]|$)/i.test(answer);
}
