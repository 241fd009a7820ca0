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
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label: string) => ({ level: label }) },
    redact: { paths: SECRET_KEYS.flatMap((key) => [key, `*.${key}`]), censor: "[redacted]" },
  };
  if (destination) {
    return pino(base, destination);
  }
  if (!options.pretty) {
    return pino(base, pino.destination({ fd: 1, sync: false }));
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

/** A logger that writes nothing. */
export function silentLog(): Log {
  return pino({ level: "silent" });
}
