import type { PlainCommand, PlainWord } from "./plain-line.ts";

/** What makes a use of a listed command more than reading. */
interface Bans {
  /** Letters of short options; a bundle that holds one is refused. */
  readonly short?: string;
  /** Long options; every abbreviation of one is refused. */
  readonly long?: readonly string[];
  /** Whole words, anywhere. */
  readonly words?: readonly RegExp[];
  /** Short options that hold a banned letter and are harmless all the same. */
  readonly except?: RegExp;
  /** Options whose next word is a value and no operand. */
  readonly valued?: readonly string[];
  /** Operands allowed at most. */
  readonly maxOperands?: number;
  /** True where a glob could expand to one of the above and must not begin a word (decision 57). */
  readonly noBareGlob?: boolean;
}

/** How a command's words name files. */
type Operands = "none" | "paths" | "pattern_first" | "find";

interface Entry {
  readonly operands: Operands;
  readonly bans: Bans;
}

const NOTHING: Bans = {};

/** The allow-list of 13.1. A command that is not here is not read-only. */
const COMMANDS: ReadonlyMap<string, Entry> = new Map<string, Entry>([
  // -L tells about what links outside lead to
  ["ls", { operands: "paths", bans: { short: "L", long: ["dereference"] } }],
  ["cat", { operands: "paths", bans: NOTHING }],
  ["head", { operands: "paths", bans: NOTHING }],
  ["tail", { operands: "paths", bans: NOTHING }],
  // a list of names read from a file escapes the check of operands
  ["wc", { operands: "paths", bans: { long: ["files0-from"] } }],
  // -R follows links out of the tree, -d recurse is -r by another name, a glued -f hides its file
  [
    "grep",
    {
      operands: "pattern_first",
      bans: { short: "Rd", long: ["dereference-recursive", "directories"], words: [/^-[^-]*f./] },
    },
  ],
  // --pre and --hostname-bin run programs, -z starts decompressors
  [
    "rg",
    {
      operands: "pattern_first",
      bans: {
        short: "zL",
        long: ["pre", "hostname-bin", "search-zip", "follow"],
        words: [/^-[^-]*f./],
        noBareGlob: true,
      },
    },
  ],
  [
    "find",
    {
      operands: "find",
      bans: {
        // -L and its like follow links out of the tree, -D and -xtype tell about what they lead to
        words: [
          /^-(?:exec|execdir|ok|okdir|delete|fls|fprint0?|fprintf|files0-from|follow|xtype)/,
          /^-[LD]/,
        ],
        noBareGlob: true,
      },
    },
  ],
  // -T names a folder for spill files
  [
    "sort",
    {
      operands: "paths",
      bans: {
        short: "oT",
        long: ["output", "compress-program", "files0-from", "temporary-directory"],
        noBareGlob: true,
      },
    },
  ],
  ["uniq", { operands: "paths", bans: { maxOperands: 1, noBareGlob: true } }],
  ["cut", { operands: "paths", bans: NOTHING }],
  ["tr", { operands: "none", bans: NOTHING }],
  ["stat", { operands: "paths", bans: NOTHING }],
  // -C writes a compiled database, -f takes names from a file, -z starts decompressors
  [
    "file",
    {
      operands: "paths",
      bans: {
        short: "CfmzZ",
        long: ["compile", "files-from", "magic-file", "uncompress", "uncompress-noreport"],
        noBareGlob: true,
      },
    },
  ],
  [
    "du",
    {
      operands: "paths",
      bans: { short: "LX", long: ["files0-from", "dereference", "exclude-from"] },
    },
  ],
  ["df", { operands: "paths", bans: NOTHING }],
  ["pwd", { operands: "none", bans: NOTHING }],
  ["echo", { operands: "none", bans: NOTHING }],
  // %n assigns to a variable, whose subscript can hold a command
  [
    "printf",
    {
      operands: "none",
      bans: { short: "v", words: [/%[-+ #0'*.\d]*[hlLjzt]*n/], noBareGlob: true },
    },
  ],
  // an operand without a plus sign sets the clock
  [
    "date",
    {
      operands: "none",
      bans: {
        short: "sfr",
        long: ["set", "file", "reference"],
        except: /^-I(?:date|hours|minutes|seconds|ns)?$/,
        words: [/^[^-+]/],
        valued: ["-d", "--date"],
        noBareGlob: true,
      },
    },
  ],
  ["id", { operands: "none", bans: NOTHING }],
  ["whoami", { operands: "none", bans: NOTHING }],
  ["uname", { operands: "none", bans: NOTHING }],
  ["which", { operands: "paths", bans: NOTHING }],
  // -v and -R evaluate a subscript, which can hold a command
  ["test", { operands: "paths", bans: { words: [/^-[vR]$/], noBareGlob: true } }],
  ["[", { operands: "paths", bans: { words: [/^-[vR]$/], noBareGlob: true } }],
  ["true", { operands: "none", bans: NOTHING }],
  ["false", { operands: "none", bans: NOTHING }],
  ["basename", { operands: "none", bans: NOTHING }],
  ["dirname", { operands: "none", bans: NOTHING }],
  ["realpath", { operands: "paths", bans: NOTHING }],
  ["readlink", { operands: "paths", bans: NOTHING }],
  // --check reads whatever a list names
  ["md5sum", { operands: "paths", bans: { short: "c", long: ["check"] } }],
  ["sha256sum", { operands: "paths", bans: { short: "c", long: ["check"] } }],
  // --paginate starts pr
  // … and a recursive one follows links
  [
    "diff",
    { operands: "paths", bans: { short: "lrX", long: ["paginate", "recursive", "exclude-from"] } },
  ],
  ["cmp", { operands: "paths", bans: NOTHING }],
  // -R makes tree write a page per folder, -l follows links
  [
    "tree",
    {
      operands: "paths",
      bans: { short: "oRl", long: ["output", "fromfile", "fromtabfile"], noBareGlob: true },
    },
  ],
]);

/** Commands whose read of a folder means every file below it. */
const DEEP: ReadonlyMap<string, RegExp> = new Map([
  ["grep", /^-[a-zA-Z]*r|^--r/],
  ["rg", /^/],
]);

/** A word that may name a file or, as a glob, several. */
export interface PathOperand {
  readonly word: PlainWord;
  /** The part of the word that is the path: all of it, or what follows an option's `=` or letter. */
  readonly text: string;
  /** True when the whole tree below it is read. */
  readonly deep: boolean;
}

/** Read-only with the paths it reads, or the reason why it is not. */
export type PlainVerdict =
  | { readonly kind: "read_only"; readonly operands: readonly PathOperand[] }
  | { readonly kind: "mutating"; readonly reason: string };

/** Names of the commands that may count as read-only. */
export const READ_ONLY_COMMANDS: readonly string[] = [...COMMANDS.keys()];

/** Judges one command of a plain line against the allow-list and its bans. */
export function judgePlainCommand(command: PlainCommand): PlainVerdict {
  const [name, ...args] = command;
  const entry = name === undefined || name.glob || name.tilde ? undefined : COMMANDS.get(name.text);
  if (name === undefined || entry === undefined) {
    return { kind: "mutating", reason: `${describe(name)} is not on the read-only list` };
  }
  const reason = banned(name.text, args, entry.bans);
  if (reason !== null) {
    return { kind: "mutating", reason };
  }
  return { kind: "read_only", operands: operandsOf(name.text, args, entry.operands) };
}

function describe(name: PlainWord | undefined): string {
  return name === undefined ? "an empty command" : name.text.slice(0, 80);
}

function banned(name: string, args: readonly PlainWord[], bans: Bans): string | null {
  let operands = 0;
  for (const [i, arg] of args.entries()) {
    const { text } = arg;
    if (bans.valued?.includes(args[i - 1]?.text ?? "") === true && !arg.glob) {
      continue;
    }
    if (bans.noBareGlob === true && arg.glob && !/^[^*?[]*\//.test(text)) {
      return `a glob given to ${name} may expand to an option`;
    }
    if (bans.words?.some((word) => word.test(text)) === true) {
      return `${name} ${text.slice(0, 40)} does more than read`;
    }
    if (text.startsWith("--") && text.length > 2) {
      const option = text.slice(2).split("=", 1)[0] ?? "";
      if (bans.long?.some((long) => long.startsWith(option)) === true) {
        return `${name} --${option} does more than read`;
      }
    } else if (text.startsWith("-") && text.length > 1) {
      const letters = (bans.short ?? "").split("");
      if (letters.some((letter) => text.includes(letter)) && bans.except?.test(text) !== true) {
        return `${name} ${text.slice(0, 40)} does more than read`;
      }
    } else if (text !== "--") {
      operands += 1;
    }
  }
  if (bans.maxOperands !== undefined && operands > bans.maxOperands) {
    return `${name} writes to its second operand`;
  }
  return null;
}

function operandsOf(name: string, args: readonly PlainWord[], kind: Operands): PathOperand[] {
  if (kind === "none") {
    // the shell looks a glob up whatever the command does with the names
    return args.filter((arg) => arg.glob).map((word) => ({ word, text: word.text, deep: false }));
  }
  const deepOption = DEEP.get(name);
  const deep =
    deepOption !== undefined && (name === "rg" || args.some((arg) => deepOption.test(arg.text)));
  const operands: PathOperand[] = [];
  let patternDue = kind === "pattern_first" && !args.some(givesPattern);
  let named = false;
  for (const [i, word] of args.entries()) {
    const { text } = word;
    if (kind === "find" && /^-[HP]$|^-O\d$/.test(text)) {
      continue;
    }
    if (kind === "find" && (text.startsWith("-") || FIND_SIGNS.has(text))) {
      // starting points come first; of the tests only -samefile opens what it names
      operands.push(...findTests(args.slice(i)));
      break;
    }
    if (text.startsWith("-") && text.length > 1 && text !== "--") {
      operands.push(...optionValue(word));
      continue;
    }
    if (text === "--" || (name === "[" && text === "]")) {
      continue;
    }
    if (patternDue && !word.glob) {
      patternDue = false;
      continue;
    }
    named = true;
    operands.push({ word, text, deep });
  }
  if (!named && deep) {
    operands.push({ word: { pieces: [], text: ".", glob: false, tilde: false }, text: ".", deep });
  }
  return operands;
}

const FIND_SIGNS = new Set(["(", ")", ",", "!"]);

/** True for an option that brings the pattern itself, or that might: then every operand counts as a file. */
function givesPattern(word: PlainWord): boolean {
  const { text } = word;
  if (text.startsWith("--")) {
    return text.length > 2 && !text.includes("=")
      ? !HARMLESS_LONG.has(text)
      : /^--(?:r|f)/.test(text);
  }
  return /^-[^-]*[ef]/.test(text);
}

const HARMLESS_LONG = new Set([
  "--color",
  "--count",
  "--extended-regexp",
  "--fixed-strings",
  "--hidden",
  "--ignore-case",
  "--invert-match",
  "--line-number",
  "--line-regexp",
  "--no-filename",
  "--no-heading",
  "--no-ignore",
  "--no-messages",
  "--only-matching",
  "--perl-regexp",
  "--quiet",
  "--recursive",
  "--files-with-matches",
  "--files-without-match",
  "--with-filename",
  "--word-regexp",
]);

function findTests(args: readonly PlainWord[]): PathOperand[] {
  return args.flatMap((word, i) => {
    const opened = args[i - 1]?.text === "-samefile";
    return opened || word.glob ? [{ word, text: word.text, deep: false }] : [];
  });
}

/** The value inside an option word: after `=`, or glued to a short option. */
function optionValue(word: PlainWord): PathOperand[] {
  const { text } = word;
  const value = text.startsWith("--")
    ? text.slice(text.indexOf("=") + 1 || text.length)
    : text.slice(2);
  return value === "" ? [] : [{ word, text: value, deep: false }];
}
