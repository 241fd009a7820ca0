import { readdir } from "node:fs/promises";
import { isCredentialPath, placeCallerPath } from "../../tools/confinement.ts";
import type { FileScope } from "../../tools/confinement.ts";
import { matchesName } from "../../tools/glob-match.ts";
import { dangerousShapeOf } from "../dangerous-shapes.ts";
import { dangerOf, downloads } from "./danger.ts";
import { readPlainLine } from "./plain-line.ts";
import type { PlainCommand } from "./plain-line.ts";
import { judgePlainCommand } from "./read-only.ts";
import type { PathOperand } from "./read-only.ts";
import { parseShell } from "./parser.ts";
import type { ShellLine, SimpleCommand, Word } from "./syntax.ts";
import { baseName, unwrap } from "./unwrap.ts";

/** What the gate needs to know about a command line. Every part has its reason. */
export interface ShellJudgement {
  /** null: the line only reads. Otherwise why it does not count as reading. */
  readonly mutating: string | null;
  /** Refused whatever is confirmed. */
  readonly denied: {
    readonly code: "credential" | "outside_scope";
    readonly reason: string;
  } | null;
  /** Must be confirmed by a person; denied where nobody can be asked. */
  readonly risk: { readonly risk: "destructive" | "unknown"; readonly reason: string } | null;
}

const MAX_STEPS = 2000;
/** Wrappers and shells inside each other. */
const MAX_WRAPPERS = 32;
const MAX_GLOB_MATCHES = 2000;
const MAX_DEEP_ENTRIES = 20_000;

/**
 * Judges a bash command line (13.1, 13.3, decision 57): every simple command anywhere in it, wrappers taken off. What
 * is not understood is never taken for reading, and asks for a confirmation.
 *
 * @param cwd physical folder the line runs in.
 */
export async function judgeShell(
  command: string,
  scope: FileScope,
  cwd: string,
): Promise<ShellJudgement> {
  const line = await parseShell(command);
  const all = line === null ? null : await followAll(line, { cwd, home: scope.home });
  const plain = line !== null && line.odd === null && line.plain ? readPlainLine(command) : null;
  const reading =
    line !== null && plain !== null && sameWords(line, plain) ? judgePlain(plain) : null;
  const shape = dangerousShapeOf(command);

  // a line that is odd is asked about anyway; looking every word of a flood up on disk would only cost time
  const credential = await credentialWord(
    line?.odd === null ? (all?.commands ?? []) : [],
    scope,
    cwd,
  );
  if (credential !== null) {
    return {
      mutating:
        reading === null || typeof reading === "string"
          ? (reading ?? "more than a plain list of commands")
          : null,
      denied: { code: "credential", reason: credential },
      risk: null,
    };
  }
  if (reading !== null && typeof reading !== "string" && all?.danger == null) {
    const placed = await placeOperands(reading, scope, cwd);
    if (placed.mutating === null) {
      return { mutating: null, denied: placed.denied, risk: null };
    }
    return { mutating: placed.mutating, denied: null, risk: null };
  }
  const mutating =
    typeof reading === "string"
      ? reading
      : line === null
        ? "the line cannot be parsed"
        : "more than a plain list of commands";
  if (all?.danger?.kind === "shape" || shape !== null) {
    const reason =
      all?.danger?.kind === "shape"
        ? all.danger.reason
        : `the text has a dangerous shape (${String(shape)})`;
    return { mutating, denied: null, risk: { risk: "destructive", reason } };
  }
  const unclear =
    line === null ? "the line cannot be parsed" : (line.odd ?? all?.danger?.reason ?? null);
  return {
    mutating,
    denied: null,
    risk: unclear === null ? null : { risk: "unknown", reason: unclear },
  };
}

interface Followed {
  readonly commands: readonly SimpleCommand[];
  readonly danger: { readonly kind: "shape" | "unclear"; readonly reason: string } | null;
}

/** Takes every command apart until nothing is left to unwrap. A dangerous shape outranks what is merely unclear. */
async function followAll(line: ShellLine, place: { cwd: string; home: string }): Promise<Followed> {
  const queue = line.commands.map((command) => ({ command, depth: 0 }));
  const seen: SimpleCommand[] = [];
  const cdTo: Word[] = [];
  let unclear: string | null = line.odd;
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    const { command, depth } = next;
    seen.push(command);
    if (seen.length > MAX_STEPS || depth > MAX_WRAPPERS) {
      unclear ??= "the line starts too many commands";
      break;
    }
    const [name, ...args] = command.words;
    if (name !== undefined && (name.text === "cd" || name.text === "pushd")) {
      cdTo.push(args.find((arg) => !arg.text.startsWith("-")) ?? HOME_WORD);
    }
    const danger = dangerOf(command, place, cdTo);
    if (danger?.kind === "shape") {
      return { commands: seen, danger };
    }
    unclear ??= danger?.reason ?? null;
    const found: SimpleCommand[] = [];
    for (const part of unwrap(command)) {
      switch (part.kind) {
        case "command":
          if (part.words.length > 0) {
            found.push({ ...command, words: part.words });
          }
          break;
        case "opaque":
          unclear ??= part.reason;
          break;
        case "script":
        case "stdin_script": {
          const script = await followScript(part, command);
          if (typeof script === "string") {
            if (
              command.upstream.some(downloads) ||
              command.words.some((word) => word.inner.some(downloads))
            ) {
              return {
                commands: seen,
                danger: { kind: "shape", reason: "a shell runs what is downloaded" },
              };
            }
            unclear ??= script;
          } else {
            found.push(...script);
          }
        }
      }
    }
    // at the front: what runs first is looked at first, so that a folder change counts for what follows it
    queue.unshift(...found.map((inner) => ({ command: inner, depth: depth + 1 })));
  }
  return { commands: seen, danger: unclear === null ? null : { kind: "unclear", reason: unclear } };
}

const HOME_WORD: Word = {
  text: "~",
  dynamic: false,
  glob: false,
  tilde: true,
  inner: [],
  process: false,
};

/** The commands of a script that a shell is given as text, or why they cannot be known. */
async function followScript(
  next: { readonly kind: "script"; readonly text: string } | { readonly kind: "stdin_script" },
  outer: SimpleCommand,
): Promise<readonly SimpleCommand[] | string> {
  const text = next.kind === "script" ? next.text : (outer.input?.text ?? null);
  if (text === null) {
    return "a shell runs what it reads";
  }
  const inner = await parseShell(text);
  if (inner === null || inner.odd !== null) {
    return "a shell is given text that cannot be parsed";
  }
  return inner.commands.map((command) => ({
    ...command,
    upstream: [...outer.upstream, ...command.upstream],
  }));
}

/** Both readings must agree word by word. */
function sameWords(line: ShellLine, plain: readonly PlainCommand[]): boolean {
  return (
    line.commands.length === plain.length &&
    line.commands.every((command, i) => {
      const words = plain[i] ?? [];
      return (
        command.words.length === words.length &&
        command.words.every(
          (word, w) => !word.dynamic && word.text === words[w]?.text && word.glob === words[w].glob,
        )
      );
    })
  );
}

/** Operands to place when every command only reads; otherwise the reason why one does not. */
function judgePlain(plain: readonly PlainCommand[]): PathOperand[] | string {
  const operands: PathOperand[] = [];
  for (const command of plain) {
    const verdict = judgePlainCommand(command);
    if (verdict.kind === "mutating") {
      return verdict.reason;
    }
    operands.push(...verdict.operands);
  }
  return operands;
}

async function placeOperands(operands: readonly PathOperand[], scope: FileScope, cwd: string) {
  for (const operand of operands) {
    const paths = operand.word.glob
      ? await expandGlob(operand, scope, cwd)
      : [relativeTo(operand.text, operand.word.tilde, scope, cwd)];
    if (paths === null) {
      return { mutating: "a glob fits too many files to check", denied: null };
    }
    for (const path of paths) {
      if (operand.word.glob && path.startsWith(`${cwd}/-`) && !/^[/~]/.test(operand.text)) {
        return { mutating: "a glob expands to an option", denied: null };
      }
      const placed = await placeCallerPath(scope, path, "read");
      if (placed.placement === "outside") {
        return {
          mutating: null,
          denied: {
            code: "outside_scope" as const,
            reason: "a path is outside the directory scope",
          },
        };
      }
      const below = operand.deep ? await credentialsBelow(placed.physical) : "none";
      if (below === "unknown") {
        return { mutating: "the tree is too large to check for credential files", denied: null };
      }
      if (placed.placement === "credential" || below === "some") {
        return {
          mutating: null,
          denied: { code: "credential" as const, reason: "credential files are not open to tools" },
        };
      }
    }
  }
  return { mutating: null, denied: null };
}

function relativeTo(text: string, tilde: boolean, scope: FileScope, cwd: string): string {
  if (tilde) {
    return scope.home + text.slice(1);
  }
  return text.startsWith("/") ? text : `${cwd}/${text}`;
}

/** What a glob can expand to, or more: classes count as any character. null when that is too much. */
async function expandGlob(
  operand: PathOperand,
  scope: FileScope,
  cwd: string,
): Promise<string[] | null> {
  const pattern = operand.word.pieces
    .map((piece) =>
      piece.quoted
        ? piece.text.replaceAll(/[\\*?[\]]/g, String.raw`\$&`)
        : piece.text.replaceAll(/\[[^\]]*\]?/g, "?"),
    )
    .join("");
  const absolute = relativeTo(pattern, operand.word.tilde, scope, cwd);
  // nothing is looked up in folders that are out of reach anyway
  const fixed = absolute.slice(0, absolute.lastIndexOf("/", absolute.search(/(?<!\\)[*?]/))) || "/";
  if ((await placeCallerPath(scope, fixed, "read")).placement === "outside") {
    return [fixed];
  }
  let found = [""];
  for (const segment of absolute.split("/").filter((part) => part !== "")) {
    const next: string[] = [];
    for (const base of found) {
      if (segment === "**") {
        next.push(base, ...(await namesBelow(base, MAX_GLOB_MATCHES - next.length)));
        continue;
      }
      if (!hasWildcard(segment)) {
        next.push(`${base}/${segment.replaceAll(/\\(.)/g, "$1")}`);
        continue;
      }
      for (const name of await namesOf(base === "" ? "/" : base)) {
        if ((!name.startsWith(".") || segment.startsWith(".")) && matchesName(segment, name)) {
          next.push(`${base}/${name}`);
        }
      }
      if (next.length > MAX_GLOB_MATCHES) {
        return null;
      }
    }
    found = next;
  }
  // without a match the shell hands over the pattern itself
  return found.length === 0 ? [relativeTo(operand.text, operand.word.tilde, scope, cwd)] : found;
}

/** Everything in a tree, hidden names and what links lead to left out, as the shell has it; stops behind `most`. */
async function namesBelow(root: string, most: number): Promise<string[]> {
  const found: string[] = [];
  const queue = [root];
  for (let dir = queue.shift(); dir !== undefined && found.length <= most; dir = queue.shift()) {
    const entries = await readdir(dir === "" ? "/" : dir, { withFileTypes: true }).catch(() => []);
    for (const entry of entries.filter(({ name }) => !name.startsWith("."))) {
      found.push(`${dir}/${entry.name}`);
      if (entry.isDirectory()) {
        queue.push(`${dir}/${entry.name}`);
      }
    }
  }
  return found;
}

/** True for an unescaped star or question mark; a backslash that is escaped itself escapes nothing. */
function hasWildcard(segment: string): boolean {
  return /[*?]/.test(segment.replaceAll(/\\./gs, ""));
}

async function namesOf(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch {
    return [];
  }
}

/** Whether a tree that a command would read through holds credential files; `unknown` when it is too large to tell. */
async function credentialsBelow(root: string): Promise<"none" | "some" | "unknown"> {
  const queue = [root];
  let looked = 0;
  for (let dir = queue.shift(); dir !== undefined; dir = queue.shift()) {
    let entries;
    try {
      entries = await readdir(dir, { withFileTypes: true });
    } catch {
      continue; // a file, or unreadable for the command too
    }
    for (const entry of entries) {
      looked += 1;
      const path = `${dir === "/" ? "" : dir}/${entry.name}`;
      if (isCredentialPath(path)) {
        return "some";
      }
      if (looked > MAX_DEEP_ENTRIES) {
        return "unknown";
      }
      if (entry.isDirectory()) {
        queue.push(path);
      }
    }
  }
  return "none";
}

/** Commands whose words are text and not files. */
const TEXT_ONLY = new Set(["echo", "printf", "alias", "export"]);

/** The first word anywhere in the line that names a credential file; in every mode, as far as words can show it. */
async function credentialWord(
  commands: readonly SimpleCommand[],
  scope: FileScope,
  cwd: string,
): Promise<string | null> {
  for (const command of commands) {
    const [name] = command.words;
    const words = name !== undefined && TEXT_ONLY.has(baseName(name)) ? [] : command.words;
    for (const word of [...words, ...command.redirects.map((redirect) => redirect.target)]) {
      for (const path of pathForms(word)) {
        const lexical = path.startsWith("$HOME")
          ? scope.home + path.slice(5)
          : relativeTo(path, path.startsWith("~"), scope, cwd);
        if (
          isCredentialPath(lexical) ||
          (/[/~]/.test(path) &&
            (await placeCallerPath(scope, lexical, "read")).placement === "credential")
        ) {
          return "the line names a credential file";
        }
      }
    }
  }
  return null;
}

/** The command's own streams, which are links into /proc. */
const STREAMS = /^\/dev\/(?:stdin|stdout|stderr|fd(?:\/\d+)?)$/;

/** The ways in which a word can hold a path: as a whole, behind `=`, `:` or `@`, glued to a short option. */
function pathForms(word: Word): string[] {
  const { text } = word;
  const forms = [text, ...text.split(/[=:@]/).slice(1)];
  if (/^-[a-zA-Z]./.test(text)) {
    forms.push(text.slice(2));
  }
  return forms.filter(
    (form) => form !== "" && form.length <= 4096 && !/\s/.test(form) && !STREAMS.test(form),
  );
}
