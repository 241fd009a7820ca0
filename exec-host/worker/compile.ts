import { Script, type Module } from "node:vm";
import { SourceError } from "../scripts/source.ts";

/** A file that could not be loaded. The message names the author's file and line. */
export class ScriptLoadError extends Error {
  override readonly name = "ScriptLoadError";
}

/** Compiles so that stack traces show the author's lines and columns; `shift` = characters put before line 1. */
export function compileScript(
  code: string,
  name: string,
  shift: number,
  importModule: (specifier: string) => Promise<Module>,
): Script {
  return withPlace(
    name,
    () =>
      new Script(code, {
        filename: name,
        columnOffset: -shift,
        importModuleDynamically: (specifier) => importModule(specifier),
      }),
  );
}

/** A shebang or byte order mark is fine in a file, not inside the function we make of it. */
export function neutralHead(code: string): string {
  const text = code.startsWith("\uFEFF") ? code.slice(1) : code;
  return text.startsWith("#!") ? `//${text.slice(2)}` : text;
}

/** Runs a parser and turns what it throws into an error with file, line and column. */
export function withPlace<T>(name: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    if (error instanceof SourceError) {
      const place = `${name}:${error.line}:${error.column}`;
      throw new ScriptLoadError(`${place}: SyntaxError: ${error.message}`, { cause: error });
    }
    if (error instanceof SyntaxError) {
      // V8 puts `file:line` on the stack's first line.
      const place = /^(.*:\d+)\n/.exec(error.stack ?? "")?.[1] ?? name;
      throw new ScriptLoadError(`${place}: SyntaxError: ${error.message}`, { cause: error });
    }
    throw error;
  }
}
