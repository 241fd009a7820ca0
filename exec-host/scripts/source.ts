import { createRequire, stripTypeScriptTypes } from "node:module";
import type * as AcornModule from "acorn";
import type { Node, Options, Program } from "acorn";

/**
 * How a file is to be run (decision 46). `module`: it assigns `module.exports` or `exports.default`; evaluated
 * once. `esm`: it has `export`; evaluated once. `body`: anything else; its top level runs per request.
 */
export type SourceShape = "module" | "esm" | "body";

/** A script's text, parsed and ready to be loaded. */
export interface ParsedSource {
  readonly shape: SourceShape;
  /** JavaScript with the author's lines; `import.meta` reads the variable `IMPORT_META`, except in `esm`. */
  readonly code: string;
  /** JavaScript with everything the author wrote in it, for an ES module. */
  readonly javascript: string;
  /** Names declared at the top level; a name that the host would inject must not clash with them. */
  readonly declared: ReadonlySet<string>;
  /** For `body` and `module`: `import` declarations, taken out of the code. */
  readonly imports: readonly ImportBinding[];
  readonly hasDefaultExport: boolean;
}

/** `import {imported as local} from "specifier"`; `imported` is `*` for the namespace, null for no name at all. */
export interface ImportBinding {
  readonly specifier: string;
  readonly imported: string | null;
  readonly local: string | null;
}

/** A file that cannot be parsed: where, in the author's words. */
export class SourceError extends Error {
  override readonly name = "SyntaxError";
  readonly line: number;
  readonly column: number;
  constructor(message: string, line: number, column: number) {
    super(message);
    this.line = line;
    this.column = column;
  }
}

/** Stands for `import.meta` outside ES modules; as long as what it replaces, so that columns stay. */
export const IMPORT_META = "importMeta_";

type Acorn = typeof AcornModule;
let acorn: Acorn | null = null;

/** The parser, loaded at first use: a worker says it is ready before it needs one. */
export function loadParser(): Acorn {
  acorn ??= createRequire(import.meta.url)("acorn") as Acorn;
  return acorn;
}

/**
 * Reads a script's text.
 *
 * @param isTypeScript whether type annotations are to be stripped first.
 * @throws SourceError with line and column.
 */
export function parseSource(text: string, isTypeScript: boolean): ParsedSource {
  const source = isTypeScript ? stripTypes(text) : text;
  const program = parseProgram(source);
  const body = program.body as unknown as AnyNode[];
  const found = inspect(body);
  if (body.some((node) => node.type.startsWith("Export"))) {
    return {
      shape: "esm",
      code: source,
      javascript: source,
      declared: declaredNames(body),
      imports: [],
      hasDefaultExport: body.some(isDefaultExport),
    };
  }
  const importNodes = body.filter((node) => node.type === "ImportDeclaration");
  const code = edit(source, [
    ...found.metas.map((node) => ({ node, text: IMPORT_META })),
    ...importNodes.map((node) => ({ node, text: blank(source.slice(node.start, node.end)) })),
  ]);
  return {
    shape: found.assignsExports ? "module" : "body",
    code,
    javascript: source,
    declared: declaredNames(body),
    imports: importNodes.flatMap(toBindings),
    hasDefaultExport: false,
  };
}

interface AnyNode extends Node {
  readonly [key: string]: unknown;
}

const OPTIONS: Options = {
  ecmaVersion: "latest",
  allowReturnOutsideFunction: true,
  allowAwaitOutsideFunction: true,
  allowImportExportEverywhere: true,
  allowHashBang: true,
};

function parseProgram(source: string): Program {
  const { parse } = loadParser();
  try {
    return parse(source, { ...OPTIONS, sourceType: "script" });
  } catch (error) {
    throw toSourceError(error, source);
  }
}

function toSourceError(error: unknown, source: string): SourceError {
  const { message, loc } = error as { message: string; loc?: { line: number; column: number } };
  const text = message.replace(/ \(\d+:\d+\)$/, "");
  return new SourceError(text, loc?.line ?? source.split("\n").length, (loc?.column ?? 0) + 1);
}

/** What may stand in front of a top-level `return`: blank lines, comments, imports. */
const LEAD =
  /^(?:\s+|\/\/[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/|import\s(?:[^'";]*?\sfrom\s*)?["'][^"'\n]*["'][^\S\n]*;?|import\s+type\s[^'";]*?["'][^"'\n]*["'][^\S\n]*;?)*/;

/**
 * Takes the types out and leaves every other character where it was. The stripper reads a file as a module, where
 * a `return` cannot stand at the top level; such a file is read as the body of a function, its imports apart.
 */
function stripTypes(text: string): string {
  try {
    return strip(text);
  } catch (error) {
    if (!isMessage(error, "Return statement is not allowed")) {
      throw toStripError(error, 0);
    }
  }
  const lead = LEAD.exec(text)?.[0] ?? "";
  const head = "async function f(){";
  const tail = "\n}";
  try {
    const body = strip(head + text.slice(lead.length) + tail);
    return strip(lead) + body.slice(head.length, -tail.length);
  } catch (error) {
    throw toStripError(error, lead.split("\n").length - 1);
  }
}

function strip(text: string): string {
  return stripTypeScriptTypes(text, { mode: "strip" });
}

function isMessage(error: unknown, start: string): boolean {
  return error instanceof Error && error.message.startsWith(start);
}

/** The stripper puts `:line` and the line's text in front of the stack. */
function toStripError(error: unknown, linesBefore: number): SourceError {
  const { message, stack } = error as Error;
  const line = Number(/^[^\n]*:(\d+)\n/.exec(stack ?? "")?.[1] ?? 1);
  const mark = /^[^\n]*\n(?:[^\n]*\n)*?( *)\^/.exec(stack ?? "")?.[1] ?? "";
  return new SourceError(message, line + linesBefore, mark.length + 1);
}

interface Findings {
  assignsExports: boolean;
  readonly metas: AnyNode[];
}

/** Walks the whole tree once, iteratively: a deep one must not end in a stack overflow. */
function inspect(body: readonly AnyNode[]): Findings {
  const found: Findings = { assignsExports: false, metas: [] };
  const stack: AnyNode[] = [...body];
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    if (node.type === "MetaProperty" && nameOf(node["meta"]) === "import") {
      found.metas.push(node);
      continue;
    }
    if (node.type === "AssignmentExpression" && isExportsTarget(node["left"])) {
      found.assignsExports = true;
    }
    for (const value of Object.values(node)) {
      if (Array.isArray(value)) {
        for (const item of value as unknown[]) {
          if (isNode(item)) {
            stack.push(item);
          }
        }
      } else if (isNode(value)) {
        stack.push(value);
      }
    }
  }
  return found;
}

/** `module.exports`, `exports.default`, `module.exports.default`, also with brackets. */
function isExportsTarget(target: unknown): boolean {
  if (!isNode(target) || target.type !== "MemberExpression") {
    return false;
  }
  const property = propertyName(target);
  const object = target["object"];
  if (property === "exports") {
    return nameOf(object) === "module";
  }
  return property === "default" && (nameOf(object) === "exports" || isExportsTarget(object));
}

function propertyName(member: AnyNode): string | null {
  const property = member["property"];
  if (member["computed"] !== true) {
    return nameOf(property);
  }
  return isNode(property) && typeof property["value"] === "string" ? property["value"] : null;
}

function nameOf(node: unknown): string | null {
  return isNode(node) && node.type === "Identifier" ? (node["name"] as string) : null;
}

function isNode(value: unknown): value is AnyNode {
  return typeof value === "object" && value !== null && typeof (value as AnyNode).type === "string";
}

function isDefaultExport(node: AnyNode): boolean {
  if (node.type === "ExportDefaultDeclaration") {
    return true;
  }
  const specifiers =
    node.type === "ExportNamedDeclaration" ? (node["specifiers"] as AnyNode[]) : [];
  return specifiers.some((specifier) => exportedName(specifier["exported"]) === "default");
}

function exportedName(node: unknown): string | null {
  return nameOf(node) ?? (isNode(node) ? String(node["value"]) : null);
}

function declaredNames(body: readonly AnyNode[]): Set<string> {
  const names = new Set<string>();
  for (const statement of body) {
    const node = isNode(statement["declaration"]) ? statement["declaration"] : statement;
    if (node.type === "VariableDeclaration") {
      for (const declarator of node["declarations"] as AnyNode[]) {
        collectPattern(declarator["id"], names);
      }
    } else if (node.type === "FunctionDeclaration" || node.type === "ClassDeclaration") {
      collectPattern(node["id"], names);
    } else if (node.type === "ImportDeclaration") {
      for (const specifier of node["specifiers"] as AnyNode[]) {
        collectPattern(specifier["local"], names);
      }
    }
  }
  return names;
}

function collectPattern(node: unknown, names: Set<string>): void {
  if (!isNode(node)) {
    return;
  }
  const name = nameOf(node);
  if (name !== null) {
    names.add(name);
    return;
  }
  for (const child of [node["properties"], node["elements"]].flat()) {
    collectPattern(child, names);
  }
  for (const key of ["argument", "left", "value"]) {
    collectPattern(node[key], names);
  }
}

function toBindings(node: AnyNode): ImportBinding[] {
  const specifier = String((node["source"] as AnyNode)["value"]);
  const specifiers = node["specifiers"] as AnyNode[];
  if (specifiers.length === 0) {
    return [{ specifier, imported: null, local: null }];
  }
  return specifiers.map((part) => ({
    specifier,
    local: nameOf(part["local"]),
    imported:
      part.type === "ImportNamespaceSpecifier"
        ? "*"
        : part.type === "ImportDefaultSpecifier"
          ? "default"
          : exportedName(part["imported"]),
  }));
}

/** Spaces in place of text; its line ends stay, so that the lines behind it keep their numbers. */
function blank(text: string): string {
  return text.replace(/[^\n\r]/g, " ");
}

function edit(source: string, edits: readonly { node: AnyNode; text: string }[]): string {
  let result = source;
  for (const { node, text } of [...edits].sort((a, b) => b.node.start - a.node.start)) {
    result = result.slice(0, node.start) + text + result.slice(node.end);
  }
  return result;
}
