import { isBuiltin } from "node:module";
import { parseDirectives, type DirectiveWarning, type Directives } from "../scripts/directives.ts";
import { ModuleNotFound, resolveModule } from "../scripts/resolve-module.ts";
import { parseSource, SourceError, type ParsedSource } from "../scripts/source.ts";

/** One finding about a script's text. */
export interface Finding {
  readonly kind: "syntax" | "dependency" | "directive" | "json";
  readonly message: string;
  readonly line?: number;
  readonly column?: number;
}

/** What was found in a script's text. */
export interface Validation {
  readonly valid: boolean;
  readonly errors: readonly Finding[];
  readonly warnings: readonly Finding[];
  readonly magicComments: Readonly<Record<string, unknown>>;
}

/** How the file is checked; other extensions are stored as they are. */
export function kindOf(path: string): "js" | "ts" | "json" | "other" {
  const extension = /\.(js|ts|json)$/.exec(path)?.[1];
  return (extension as "js" | "ts" | "json" | undefined) ?? "other";
}

/**
 * Checks a script's text: syntax (after type stripping for TypeScript), directives, and whether what it requires
 * is there. A missing module is a warning when writing and an error when asked for validity (exec-host.md 7).
 *
 * @param root scripts root, free of links.
 * @param at where the file is or will be, below the root.
 */
export function validateScript(
  text: string,
  isTypeScript: boolean,
  root: string,
  at: string,
  strictModules: boolean,
): Validation {
  const errors: Finding[] = [];
  const warnings: Finding[] = [];
  const { directives, warnings: directiveWarnings } = parseDirectives(text);
  for (const warning of directiveWarnings) {
    warnings.push({ kind: "directive", ...toFinding(warning) });
  }
  let parsed: ParsedSource | null = null;
  try {
    parsed = parseSource(text, isTypeScript);
  } catch (error) {
    errors.push(
      error instanceof SourceError
        ? { kind: "syntax", message: error.message, line: error.line, column: error.column }
        : { kind: "syntax", message: "The text nests too deeply to be parsed" },
    );
  }
  if (parsed !== null) {
    for (const specifier of specifiersOf(parsed)) {
      const problem = missingModule(specifier, root, at);
      if (problem !== null) {
        (strictModules ? errors : warnings).push({ kind: "dependency", message: problem });
      }
    }
  }
  return {
    valid: errors.length === 0,
    errors,
    warnings,
    magicComments: toMagicComments(directives),
  };
}

/** JSON files must parse. */
export function validateJson(text: string): Validation {
  try {
    JSON.parse(text);
    return { valid: true, errors: [], warnings: [], magicComments: {} };
  } catch (error) {
    const message = error instanceof Error ? error.message : "not JSON";
    return { valid: false, errors: [{ kind: "json", message }], warnings: [], magicComments: {} };
  }
}

/** Directives under the names of the API; tokens are counted, never shown. */
export function toMagicComments(directives: Directives): Record<string, unknown> {
  const { tokens, concurrent, ...plain } = directives;
  return {
    ...plain,
    concurrent: concurrent === Number.POSITIVE_INFINITY ? true : concurrent,
    token: tokens.length > 0 ? "[REDACTED]" : null,
  };
}

/** Token values in directive lines replaced; the rest of the text is as it was. */
export function redactTokens(text: string): string {
  return text.replace(/^([ \t]*\/\/\s*@token[ \t]+).*$/gm, "$1[REDACTED]");
}

/** Warnings of directives as findings. */
export function toFinding(warning: DirectiveWarning): { message: string; line: number } {
  return { message: `@${warning.directive}: ${warning.message}`, line: warning.line };
}

/** Specifiers of import declarations and of plain `require("…")` and `import("…")` calls. */
function specifiersOf(parsed: ParsedSource): Set<string> {
  const found = new Set(parsed.imports.map((entry) => entry.specifier));
  const calls = /\b(?:require|import)\s*\(\s*(?:"([^"\n\\]{1,200})"|'([^'\n\\]{1,200})')\s*\)/g;
  for (const match of parsed.code.matchAll(calls)) {
    found.add(match[1] ?? match[2] ?? "");
  }
  if (parsed.shape === "esm") {
    const froms = /\bfrom\s*(?:"([^"\n\\]{1,200})"|'([^'\n\\]{1,200})')/g;
    for (const match of parsed.code.matchAll(froms)) {
      found.add(match[1] ?? match[2] ?? "");
    }
  }
  return found;
}

function missingModule(specifier: string, root: string, at: string): string | null {
  if (isBuiltin(specifier)) {
    return null;
  }
  try {
    resolveModule(root, `${root}/${at}`, specifier, "require");
    return null;
  } catch (error) {
    return error instanceof ModuleNotFound
      ? error.message
      : `Cannot find module ${JSON.stringify(specifier)}`;
  }
}
