import { format, inspect } from "node:util";
import type { LogLevel } from "../protocol.ts";
import { currentCall } from "./call.ts";
import type { Journal } from "./journal.ts";

/** Lines of the host's own code and of the runtime say nothing to an author. */
const HOST_FRAME = /\(?(?:file:\/\/|node:|[^\s(]*\/exec-host\/worker\/)/;
const MAX_ERROR_TEXT = 8000;

/**
 * Puts a console in place whose lines go to the log of the call that runs, whichever module writes them: scripts,
 * helpers and packages alike.
 */
export function installConsole(journal: Journal): void {
  const write = (level: LogLevel, args: readonly unknown[]): void => {
    const call = currentCall.getStore();
    const text = format(...args);
    if (call === undefined) {
      journal.logHost(level, "", text);
    } else {
      journal.log(call, level, text);
    }
  };
  const at =
    (level: LogLevel) =>
    (...args: unknown[]): void =>
      write(level, args);
  const plain = globalThis.console;
  const replacements = {
    log: at("info"),
    info: at("info"),
    debug: at("debug"),
    warn: at("warn"),
    error: at("error"),
    trace: (...args: unknown[]) =>
      write("debug", [`Trace: ${format(...args)}\n${ownFrames(new Error("trace").stack ?? "")}`]),
    dir: (value: unknown, options?: object) => write("info", [inspect(value, options ?? {})]),
    dirxml: at("info"),
    assert: (condition: unknown, ...args: unknown[]) => {
      if (!condition) {
        write("error", args.length === 0 ? ["Assertion failed"] : ["Assertion failed:", ...args]);
      }
    },
    group: at("info"),
    groupCollapsed: at("info"),
    groupEnd: () => {},
    table: (value: unknown) => write("info", [inspect(value)]),
  };
  for (const [name, value] of Object.entries(replacements)) {
    Object.defineProperty(plain, name, { value, writable: true, configurable: true });
  }
}

/**
 * An error as text for its author: name, message, their own stack frames, causes. Never throws, whatever the
 * thrown value does when it is looked at.
 */
export function describeError(error: unknown): string {
  try {
    return describe(error, 0).slice(0, MAX_ERROR_TEXT);
  } catch {
    return "a value was thrown that cannot be shown";
  }
}

function describe(error: unknown, depth: number): string {
  if (!(error instanceof Error)) {
    return `thrown: ${inspect(error, { depth: 2, maxStringLength: 2000 })}`;
  }
  const isOurs = error.name === "ScriptLoadError";
  const text = isOurs
    ? error.message
    : ownFrames(String(error.stack ?? `${error.name}: ${error.message}`));
  if (error.cause === undefined || isOurs || depth >= 3) {
    return text;
  }
  return `${text}\ncaused by ${describe(error.cause, depth + 1)}`;
}

function ownFrames(stack: string): string {
  return stack
    .split("\n")
    .filter(
      (line) => !(/^\s+at /.test(line) && HOST_FRAME.test(line.replace(/^\s+at (?:async )?/, ""))),
    )
    .join("\n");
}
