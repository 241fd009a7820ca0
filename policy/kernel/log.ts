import { pino, symbols, type DestinationStream, type Logger } from "pino";
import { safeJsonLine } from "./safe-text.ts";
import { createLogSink, type LogSink } from "./log-sink.ts";

/** Writes JSON lines. */
export type Log = Logger;

/** Level and form of the lines. */
export interface LogOptions {
  readonly level: string;
  /** Human-readable lines instead of JSON. */
  readonly pretty: boolean;
}

/** Keys that may carry credentials; their values never reach the log. */
const SECRET_KEYS = [
  "authorization",
  "cookie",
  "token",
  "secret",
  "password",
  "claim",
  "nonce",
  "confirmToken",
];

/**
 * The root logger of a process. Components take `log.child({ component })`. Field names are camelCase and
 * stable; paths are logged without their query.
 *
 * @param destination for tests; the default is standard output.
 */
export function createLog(options: LogOptions, destination?: DestinationStream): Log {
  const base = {
    level: options.level,
    base: null,
    timestamp: () => `,"time":"${isoNow()}"`,
    formatters: { level: (label: string) => ({ level: label }) },
    redact: { paths: SECRET_KEYS.flatMap((key) => [key, `*.${key}`]), censor: "[redacted]" },
  };
  if (destination) {
    return pino(base, destination);
  }
  if (!options.pretty) {
    const stdout = createLogSink(1);
    process.on("exit", () => stdout.flushSync());
    return pino(base, stdout);
  }
  // A stream of lines, not a destination by name: lines are made safe to look at before they are taken apart again.
  const readable = pino.transport({
    target: "pino-pretty",
    options: {
      colorize: true,
      singleLine: true,
      translateTime: "HH:MM:ss.l",
      ignore: "pid,hostname",
    },
  }) as DestinationStream;
  return pino(base, { write: (line) => readable.write(safeJsonLine(line)) });
}

/**
 * Writes info lines whose members are already JSON text, beside the logger's own ones and in the same form: for the
 * one line that every request has. Nothing is redacted here, so no member may hold a secret.
 *
 * @returns a function of the members (`"a":1,"b":"x"`, at least one) and the message.
 */
export function lineWriter(log: Log): (members: string, message: string) => void {
  const inner = log as unknown as { [key: symbol]: unknown };
  const stream = inner[symbols.streamSym] as DestinationStream | LogSink;
  const bindings = (inner[symbols.chindingsSym] as string | undefined) ?? "";
  const put = (line: string): void => {
    if ("gather" in stream) {
      stream.gather(line);
    } else {
      stream.write(line);
    }
  };
  return (members, message) =>
    put(
      `{"level":"info","time":"${isoNow()}"${bindings},${members},"msg":${JSON.stringify(message)}}\n`,
    );
}

let isoAt = 0;
let iso = "";

/** Now as RFC 3339; formatted once per millisecond. */
function isoNow(): string {
  const now = Date.now();
  if (now !== isoAt) {
    isoAt = now;
    iso = new Date(now).toISOString();
  }
  return iso;
}

/** A logger that writes nothing. */
export function silentLog(): Log {
  return pino({ level: "silent" });
}
