import { pino, type DestinationStream, type Logger } from "pino";

export type Log = Logger;

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
    // One write per log line costs as much as the request it tells of: lines are gathered for a tick of 50 ms.
    const stdout = pino.destination({ fd: 1, sync: false, minLength: 8192, periodicFlush: 50 });
    process.on("exit", () => stdout.flushSync());
    return pino(base, stdout);
  }
  return pino({
    ...base,
    transport: {
      target: "pino-pretty",
      options: {
        colorize: true,
        singleLine: true,
        translateTime: "HH:MM:ss.l",
        ignore: "pid,hostname",
      },
    },
  });
}

/**
 * A child for lines whose members are all known to hold no secret: redaction walks every member of every line, and
 * costs more than writing it.
 */
export function plainChild(log: Log): Log {
  return log.child({}, { redact: [] });
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
