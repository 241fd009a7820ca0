import type { SimpleCommand, Word } from "./syntax.ts";

/** What a command turns out to start once its wrappers are taken off. */
export type Unwrapped =
  | { readonly kind: "command"; readonly words: readonly Word[] }
  | { readonly kind: "script"; readonly text: string }
  | { readonly kind: "opaque"; readonly reason: string }
  | { readonly kind: "stdin_script" };

/** How a wrapper's own words are skipped. */
interface Wrapper {
  /** Letters of short options that take a value. */
  readonly short: string;
  /** Letters of short options without a value. */
  readonly flags: string;
  /** Long options that take their value in the next word. */
  readonly long?: readonly string[];
  /** Words of its own before the command: a duration, a mask. */
  readonly positional?: number;
  /** `NAME=value` words before the command. */
  readonly assignments?: boolean;
  /** Words that are not known are put behind the command's own. */
  readonly appends?: boolean;
}

const WRAPPERS: ReadonlyMap<string, Wrapper> = new Map<string, Wrapper>([
  ["timeout", { short: "sk", flags: "vfp", long: ["signal", "kill-after"], positional: 1 }],
  ["nice", { short: "n", flags: "0123456789", long: ["adjustment"] }],
  ["nohup", { short: "", flags: "" }],
  ["setsid", { short: "", flags: "cfw" }],
  ["stdbuf", { short: "ioe", flags: "", long: ["input", "output", "error"] }],
  ["ionice", { short: "cn", flags: "t", long: ["class", "classdata"] }],
  ["taskset", { short: "", flags: "ac", positional: 1 }],
  ["chrt", { short: "TPD", flags: "abdfimorvR", positional: 1 }],
  ["env", { short: "uC", flags: "i0v", long: ["unset", "chdir"], assignments: true }],
  [
    "sudo",
    {
      short: "ugpChrtTUDR",
      flags: "nEHkbABSPKi",
      long: ["user", "group", "prompt", "chdir", "host"],
      assignments: true,
    },
  ],
  ["doas", { short: "uC", flags: "nL" }],
  [
    "xargs",
    {
      short: "adEILnPs",
      flags: "0rtpxo",
      long: [
        "arg-file",
        "delimiter",
        "max-lines",
        "max-args",
        "max-procs",
        "max-chars",
        "replace",
        "eof",
      ],
      appends: true,
    },
  ],
  ["time", { short: "fo", flags: "apvV", long: ["format", "output"] }],
  ["command", { short: "", flags: "pvV" }],
  ["builtin", { short: "", flags: "" }],
  ["exec", { short: "a", flags: "cl" }],
  ["busybox", { short: "", flags: "" }],
  ["toybox", { short: "", flags: "" }],
  ["caffeinate", { short: "tw", flags: "dimsu" }],
  ["unbuffer", { short: "", flags: "p" }],
  ["fakeroot", { short: "", flags: "" }],
]);

/** Programs that start others in ways this file does not follow. */
const OPAQUE: ReadonlySet<string> = new Set(
  (
    "alias at batch bind chroot complete coproc dbus-run-session enable expect gdb ltrace mapfile nsenter parallel " +
    "pkexec readarray runuser screen script strace systemd-run tmux unshare"
  ).split(" "),
);

const SHELLS: ReadonlySet<string> = new Set([
  "sh",
  "bash",
  "dash",
  "zsh",
  "ksh",
  "mksh",
  "ash",
  "fish",
  "tcsh",
  "csh",
  "rbash",
]);
const STDIN_NAMES = /^(?:-|\/dev\/(?:stdin|fd\/\d+)|\/proc\/self\/fd\/\d+)$/;

/** The last part of a command's name: `/bin/rm` is `rm`. */
export function baseName(word: Word): string {
  return word.text.slice(word.text.lastIndexOf("/") + 1);
}

/** True for a shell that runs what it is given. */
export function isShell(name: string): boolean {
  return SHELLS.has(name);
}

/**
 * Takes one layer off a command: a wrapper, a shell with `-c`, `eval`, `find -exec`, … Several results where a command
 * starts several others; an empty list means that the command itself is what runs.
 */
export function unwrap(command: SimpleCommand): Unwrapped[] {
  const [name, ...args] = command.words;
  if (name === undefined) {
    return [];
  }
  if (name.dynamic || name.glob) {
    return [{ kind: "opaque", reason: "the command's name is only known when it runs" }];
  }
  const base = baseName(name);
  const wrapper = WRAPPERS.get(base);
  if (wrapper !== undefined) {
    return unwrapWrapper(base, args, wrapper);
  }
  if (SHELLS.has(base)) {
    return [unwrapShell(args)];
  }
  switch (base) {
    case "eval":
      return [joined(args, "eval")];
    case ".":
    case "source":
      return args[0] !== undefined && (args[0].process || STDIN_NAMES.test(args[0].text))
        ? [{ kind: "stdin_script" }]
        : [];
    case "trap":
      return args.length < 2 || args[0]?.text === "-" ? [] : [joined(args.slice(0, 1), "trap")];
    case "watch":
      return [
        joined(
          args.filter((arg) => !arg.text.startsWith("-")),
          "watch",
        ),
      ];
    case "su":
      return [scriptAfter(args, "-c", "--command")];
    case "flock":
      return [{ kind: "opaque", reason: "flock starts another command" }];
    case "hash":
      return args.some((arg) => /^-\w*p/.test(arg.text))
        ? [{ kind: "opaque", reason: "hash -p renames commands" }]
        : [];
    case "find":
    case "fd":
    case "fdfind":
      return findCommands(args);
    case "git":
      return gitCommands(args);
    default:
      return OPAQUE.has(base)
        ? [{ kind: "opaque", reason: `${base} starts commands that are not followed` }]
        : [];
  }
}

function unwrapWrapper(name: string, args: readonly Word[], wrapper: Wrapper): Unwrapped[] {
  let positional = wrapper.positional ?? 0;
  let i = 0;
  for (; i < args.length; i++) {
    const arg = args[i];
    if (arg === undefined) {
      break;
    }
    const { text } = arg;
    if (arg.dynamic && (text.startsWith("-") || text === "")) {
      return [{ kind: "opaque", reason: `an option of ${name} is only known when it runs` }];
    }
    if (text === "--") {
      i += 1;
      break;
    }
    if (text.startsWith("--")) {
      const [option = "", value] = text.slice(2).split("=", 2);
      if (
        (name === "env" && option.startsWith("split")) ||
        (name === "xargs" && option === "process-slot-var")
      ) {
        return [{ kind: "opaque", reason: `${name} splits its own command` }];
      }
      i += value === undefined && wrapper.long?.includes(option) === true ? 1 : 0;
    } else if (text.startsWith("-") && text.length > 1) {
      const step = shortOptions(text.slice(1), wrapper);
      if (step === null) {
        return [{ kind: "opaque", reason: `option ${text.slice(0, 20)} of ${name} is not known` }];
      }
      i += step;
    } else if (wrapper.assignments === true && /^[A-Za-z_]\w*=/.test(text)) {
      continue;
    } else if (positional > 0) {
      positional -= 1;
    } else {
      break;
    }
  }
  // words of its own may also follow the end of options
  const words = args.slice(i + (args[i - 1]?.text === "--" ? positional : 0));
  if (words.length === 0) {
    return [];
  }
  return [{ kind: "command", words: wrapper.appends === true ? [...words, UNKNOWN_WORD] : words }];
}

const UNKNOWN_WORD: Word = {
  text: "",
  dynamic: true,
  glob: false,
  tilde: false,
  inner: [],
  process: false,
};

/** Words to skip after a bundle of short options (0 or 1); null for a letter that is not known. */
function shortOptions(letters: string, wrapper: Wrapper): number | null {
  for (let at = 0; at < letters.length; at++) {
    const letter = letters.charAt(at);
    if (wrapper.short.includes(letter)) {
      return at === letters.length - 1 ? 1 : 0;
    }
    if (!wrapper.flags.includes(letter)) {
      return null;
    }
  }
  return 0;
}

function unwrapShell(args: readonly Word[]): Unwrapped {
  let script = false;
  for (let i = 0; i < args.length; i++) {
    const arg = args[i];
    if (arg === undefined) {
      break;
    }
    if (arg.dynamic && !arg.process) {
      return { kind: "opaque", reason: "a word given to the shell is only known when it runs" };
    }
    if (/^-[a-zA-Z]*c[a-zA-Z]*$/.test(arg.text)) {
      script = true;
    } else if (/^-[a-zA-Z]*s[a-zA-Z]*$/.test(arg.text)) {
      return { kind: "stdin_script" };
    } else if (
      /^[-+][oO]$/.test(arg.text) ||
      arg.text === "--rcfile" ||
      arg.text === "--init-file"
    ) {
      i += 1;
    } else if (!/^[-+]./.test(arg.text)) {
      if (arg.process || STDIN_NAMES.test(arg.text)) {
        return { kind: "stdin_script" };
      }
      return script ? { kind: "script", text: arg.text } : { kind: "command", words: [] };
    }
  }
  return script ? { kind: "command", words: [] } : { kind: "stdin_script" };
}

function joined(words: readonly Word[], name: string): Unwrapped {
  if (words.some((word) => word.dynamic)) {
    return { kind: "opaque", reason: `the text given to ${name} is only known when it runs` };
  }
  return { kind: "script", text: words.map((word) => word.text).join(" ") };
}

function scriptAfter(args: readonly Word[], ...options: string[]): Unwrapped {
  const at = args.findIndex((arg) => options.includes(arg.text));
  const script = args[at + 1];
  return at === -1 || script === undefined
    ? { kind: "opaque", reason: "another user's shell is started" }
    : joined([script], "su");
}

function findCommands(args: readonly Word[]): Unwrapped[] {
  const found: Unwrapped[] = [];
  for (const [i, arg] of args.entries()) {
    if (!/^-(?:exec|execdir|ok|okdir)$|^(?:-x|-X|--exec|--exec-batch)$/.test(arg.text)) {
      continue;
    }
    const rest = args.slice(i + 1);
    const end = rest.findIndex((word) => word.text === ";" || word.text === "+");
    const words = (end === -1 ? rest : rest.slice(0, end)).map((word) =>
      word.text.includes("{}") ? { ...word, dynamic: true } : word,
    );
    found.push({ kind: "command", words });
  }
  return found;
}

const GIT_VALUE_OPTIONS = new Set([
  "-C",
  "-c",
  "--git-dir",
  "--work-tree",
  "--namespace",
  "--exec-path",
  "--super-prefix",
  "--config-env",
]);

/** Words of a git call behind its global options; null when one of them is only known at run time or defines an alias. */
export function gitSubcommand(args: readonly Word[]): readonly Word[] | null {
  for (let i = 0; i < args.length; i++) {
    const arg = args[i];
    if (arg === undefined || arg.dynamic) {
      return null;
    }
    if (GIT_VALUE_OPTIONS.has(arg.text)) {
      const value = args[i + 1];
      if (
        (arg.text === "-c" || arg.text === "--config-env") &&
        (value === undefined || value.dynamic || /^(?:alias|include)/i.test(value.text))
      ) {
        return null;
      }
      i += 1;
    } else if (!arg.text.startsWith("-")) {
      return args.slice(i);
    }
  }
  return [];
}

function gitCommands(args: readonly Word[]): Unwrapped[] {
  const words = gitSubcommand(args);
  if (words === null) {
    return [{ kind: "opaque", reason: "what git is asked to do is only known when it runs" }];
  }
  const [sub, ...rest] = words;
  if (sub?.text === "submodule" && rest[0]?.text === "foreach") {
    return [
      joined(
        rest.slice(1).filter((word) => word.text !== "--recursive" && word.text !== "--quiet"),
        "git submodule foreach",
      ),
    ];
  }
  if (sub?.text === "bisect" && rest[0]?.text === "run") {
    return [{ kind: "command", words: rest.slice(1) }];
  }
  if (sub?.text === "rebase") {
    return rest.flatMap((word, i) => {
      const next = rest[i + 1];
      if ((word.text === "-x" || word.text === "--exec") && next !== undefined) {
        return [joined([next], "git rebase --exec")];
      }
      const glued = /^(?:-x|--exec=)(.+)$/s.exec(word.text);
      return glued === null
        ? []
        : [joined([{ ...word, text: glued[1] ?? "" }], "git rebase --exec")];
    });
  }
  return [];
}
