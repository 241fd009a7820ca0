/** A word of a command as far as its text is known before the shell runs. */
export interface Word {
  /** The literal text, quotes taken off; what is only known at run time is left out. */
  readonly text: string;
  /** True when expansion can change the text: variables, substitutions, braces, arithmetic. */
  readonly dynamic: boolean;
  /** True when it holds an unquoted glob. */
  readonly glob: boolean;
  /** True when it begins with an unquoted tilde; `text` then begins with `~`. */
  readonly tilde: boolean;
  /** Commands inside its substitutions. */
  readonly inner: readonly SimpleCommand[];
  /** True when the word is or holds a process substitution. */
  readonly process: boolean;
}

/** Where a command's standard input comes from, beyond its pipeline. */
export interface InputText {
  /** Text of a here-document or here-string; null when it is not known before the run or comes from a file. */
  readonly text: string | null;
}

/** A redirection with a file name. */
export interface Redirect {
  readonly operator: string;
  readonly target: Word;
}

/** One simple command anywhere in a line: in lists, pipelines, groups, loops, functions, substitutions. */
export interface SimpleCommand {
  readonly words: readonly Word[];
  readonly redirects: readonly Redirect[];
  readonly input: InputText | null;
  /** Commands of the earlier stages of its pipeline, nested ones included. */
  readonly upstream: readonly SimpleCommand[];
}

/** A parsed line. `commands` has every simple command once; `odd` says what could not be followed. */
export interface ShellLine {
  readonly commands: readonly SimpleCommand[];
  /** True when the line is nothing but pipelines of simple commands joined by `&&`, `||`, `;` and newlines. */
  readonly plain: boolean;
  readonly odd: string | null;
}

interface AstNode {
  readonly type: string;
  readonly [key: string]: unknown;
}

/** The parser's entry point. */
export type Parse = (text: string) => unknown;

const MAX_TEXT = 65_536;
const MAX_COMMANDS = 1000;
const MAX_WORDS = 5000;
/** Brackets and braces: the parser's time grows with the square of their number (64 KiB of them took it half a minute). */
const MAX_BRACKETS = 4000;
const MAX_DEPTH = 200;

/**
 * Parses a bash command line with a parser that yields just-bash's tree.
 *
 * @returns null when the text cannot be parsed with certainty: too long, control characters, syntax errors.
 */
export function toShellLine(parse: Parse, text: string): ShellLine | null {
  return parseWith(parse, text, 0);
}

function parseWith(parse: Parse, text: string, depth: number): ShellLine | null {
  // control characters mean different things to different parsers; a lone CR is not a blank to bash
  if (
    text.length > MAX_TEXT ||
    depth > 8 ||
    countOf(text, "[") > MAX_BRACKETS ||
    countOf(text, "{") > MAX_BRACKETS ||
    /[\0-\b\v-\x1f\x7f]/.test(text)
  ) {
    return null;
  }
  let script: unknown;
  try {
    script = parse(text);
  } catch {
    return null;
  }
  if (!isNode(script)) {
    return null;
  }
  const walk: Walk = { parse, depth, commands: [], words: 0, plain: true, odd: null };
  walkNode(walk, script, [], 0);
  return {
    commands: walk.commands,
    plain: walk.plain,
    odd: walk.commands.length > MAX_COMMANDS ? "too many commands" : walk.odd,
  };
}

function countOf(text: string, char: string): number {
  let count = 0;
  for (let at = text.indexOf(char); at !== -1; at = text.indexOf(char, at + 1)) {
    count += 1;
  }
  return count;
}

interface Walk {
  readonly parse: Parse;
  readonly depth: number;
  readonly commands: SimpleCommand[];
  words: number;
  plain: boolean;
  odd: string | null;
}

const PLAIN_NODES = new Set(["Script", "Statement", "Pipeline", "SimpleCommand"]);

/** Visits a node; whatever has no case of its own is searched for commands member by member. */
function walkNode(
  walk: Walk,
  node: AstNode,
  upstream: readonly SimpleCommand[],
  level: number,
): void {
  if (level > MAX_DEPTH || walk.commands.length > MAX_COMMANDS) {
    walk.odd ??= "nested too deeply";
    return;
  }
  walk.plain &&= PLAIN_NODES.has(node.type);
  switch (node.type) {
    case "Statement":
      if (node["deferredError"] !== undefined) {
        walk.odd ??= "syntax error";
      }
      walk.plain &&= node["background"] !== true;
      break;
    case "Pipeline":
      walkPipeline(walk, node, upstream, level);
      return;
    case "SimpleCommand":
      walkSimple(walk, node, upstream, level);
      return;
    case "Word":
      toWord(walk, node, level);
      return;
    default:
      noteRawText(walk, node);
  }
  walkMembers(walk, node, upstream, level);
}

function walkMembers(
  walk: Walk,
  node: AstNode,
  upstream: readonly SimpleCommand[],
  level: number,
): void {
  for (const value of Object.values(node)) {
    for (const item of Array.isArray(value) ? (value as unknown[]) : [value]) {
      if (isNode(item)) {
        walkNode(walk, item, upstream, level + 1);
      } else if (typeof item === "object" && item !== null) {
        // clauses and brace items are plain records around nodes
        walkMembers(walk, item as AstNode, upstream, level + 1);
      }
    }
  }
}

function walkPipeline(
  walk: Walk,
  node: AstNode,
  upstream: readonly SimpleCommand[],
  level: number,
): void {
  walk.plain &&= node["negated"] !== true && node["timed"] !== true;
  const pipeStderr = node["pipeStderr"];
  walk.plain &&= !Array.isArray(pipeStderr) || !pipeStderr.includes(true);
  let before = upstream;
  for (const command of nodes(node["commands"])) {
    if (walk.commands.length > MAX_COMMANDS) {
      return; // noted as odd at the end; what is copied per stage must not grow further
    }
    const start = walk.commands.length;
    walkNode(walk, command, before, level + 1);
    before = [...before, ...walk.commands.slice(start)];
  }
}

function walkSimple(
  walk: Walk,
  node: AstNode,
  upstream: readonly SimpleCommand[],
  level: number,
): void {
  const assignments = nodes(node["assignments"]);
  walk.plain &&= assignments.length === 0;
  for (const assignment of assignments) {
    noteRawText(walk, assignment);
    walkMembers(walk, assignment, [], level);
  }
  const words = [...(isNode(node["name"]) ? [node["name"]] : []), ...nodes(node["args"])].map(
    (word) => toWord(walk, word, level),
  );
  walk.plain &&= words.length > 0;
  if (words.length === 0 && assignments.length === 0 && nodes(node["redirections"]).length === 0) {
    walk.odd ??= "an empty command";
  }
  const redirects: Redirect[] = [];
  let input: InputText | null = null;
  for (const redirection of nodes(node["redirections"])) {
    const operator = typeof redirection["operator"] === "string" ? redirection["operator"] : "";
    const target = redirection["target"];
    if (isNode(target) && target.type === "HereDoc" && isNode(target["content"])) {
      walk.plain = false;
      const content = toWord(walk, target["content"], level);
      input = { text: content.dynamic ? null : content.text };
      if (target["terminated"] === false) {
        walk.odd ??= "unfinished here-document";
      }
    } else if (isNode(target)) {
      const word = toWord(walk, target, level);
      if (operator === "<<<") {
        input = { text: word.dynamic ? null : word.text };
      } else if (operator === "<" || operator === "<>" || operator === "<&") {
        input = { text: null };
      }
      redirects.push({ operator: `${fdText(redirection["fd"])}${operator}`, target: word });
    }
  }
  walk.commands.push({ words, redirects, input, upstream });
}

function fdText(fd: unknown): string {
  return typeof fd === "number" ? String(fd) : "";
}

function toWord(walk: Walk, node: AstNode, level: number): Word {
  walk.words += 1;
  if (walk.words > MAX_WORDS) {
    walk.odd ??= "too many words";
  }
  const start = walk.commands.length;
  const parts = { text: "", dynamic: false, glob: false, tilde: false, process: false };
  for (const part of nodes(node["parts"])) {
    addPart(walk, part, parts, level);
  }
  return { ...parts, inner: walk.commands.slice(start) };
}

function addPart(
  walk: Walk,
  part: AstNode,
  word: { text: string; dynamic: boolean; glob: boolean; tilde: boolean; process: boolean },
  level: number,
): void {
  switch (part.type) {
    case "Literal":
    case "SingleQuoted":
    case "Escaped":
      word.text += String(part["value"]);
      return;
    case "Glob":
      word.text += String(part["pattern"]);
      word.glob ||= part["pattern"] !== "[";
      return;
    case "DoubleQuoted":
      for (const inner of nodes(part["parts"])) {
        addPart(walk, inner, word, level);
      }
      return;
    case "TildeExpansion":
      word.tilde ||= word.text === "";
      word.text += `~${typeof part["user"] === "string" ? part["user"] : ""}`;
      return;
    case "ParameterExpansion":
      if (part["parameter"] === "HOME" && part["operation"] == null) {
        // the session's home is known: a dangerous operand must not hide behind its variable
        walk.plain = false;
        word.text += "$HOME";
        return;
      }
      word.dynamic = true;
      break;
    case "ProcessSubstitution":
      word.process = true;
      word.dynamic = true;
      break;
    default:
      word.dynamic = true;
  }
  walk.plain = false;
  noteRawText(walk, part);
  walkMembers(walk, part, [], level + 1);
}

/** Members that keep shell text unparsed (subscripts, arithmetic): commands inside are parsed here or noted as odd. */
function noteRawText(walk: Walk, node: AstNode): void {
  if (node.type === "ArithCommandSubst" && typeof node["command"] === "string") {
    const inner = parseWith(walk.parse, node["command"], walk.depth + 1);
    if (inner === null || inner.odd !== null) {
      walk.odd ??= "command in arithmetic";
    } else {
      walk.commands.push(...inner.commands);
    }
    return;
  }
  if (node.type === "BadSubstitution" || node.type === "ArithSyntaxError") {
    walk.odd ??= "bad substitution";
  }
  for (const key of [
    "parameter",
    "content",
    "baseExpr",
    "array",
    "subscript",
    "stringKey",
    "name",
    "originalText",
  ]) {
    const value = node[key];
    if (typeof value === "string" && /`|\$\(/.test(value) && key !== "originalText") {
      walk.odd ??= "command in a subscript";
    }
  }
}

function nodes(value: unknown): AstNode[] {
  return Array.isArray(value) ? value.filter(isNode) : [];
}

function isNode(value: unknown): value is AstNode {
  return (
    typeof value === "object" && value !== null && "type" in value && typeof value.type === "string"
  );
}
