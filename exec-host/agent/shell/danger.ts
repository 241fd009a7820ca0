import { normalize } from "node:path";
import { isWithin } from "../../tools/confinement.ts";
import type { DangerousShape } from "../dangerous-shapes.ts";
import type { SimpleCommand, Word } from "./syntax.ts";
import { baseName, gitSubcommand, isShell } from "./unwrap.ts";

/** Where a command line runs. */
export interface Place {
  readonly cwd: string;
  readonly home: string;
}

/** What is wrong with one command; `unclear` asks for a confirmation because it cannot be told. */
export type Danger =
  | { readonly kind: "shape"; readonly shape: DangerousShape; readonly reason: string }
  | { readonly kind: "unclear"; readonly reason: string };

const DOWNLOADERS = new Set([
  "curl",
  "wget",
  "fetch",
  "aria2c",
  "http",
  "https",
  "xh",
  "lynx",
  "w3m",
  "nc",
  "ncat",
  "socat",
]);
const INTERPRETERS =
  /^(?:python[\d.]*|perl|ruby|node|nodejs|php|lua[\d.]*|tclsh|Rscript|deno|bun)$/;

/** Judges one simple command, wrappers already taken off. `cdTo` are the folders that the line changes to. */
export function dangerOf(
  command: SimpleCommand,
  place: Place,
  cdTo: readonly Word[],
): Danger | null {
  const [name, ...args] = command.words;
  if (name === undefined || name.dynamic) {
    return null;
  }
  const base = baseName(name);
  if (base === "rm") {
    return removeDanger(args, place, cdTo);
  }
  if (
    base === "find" &&
    args.some((arg) => arg.text === "-delete" || /(?:^|\/)rm$/.test(arg.text))
  ) {
    const starts = args.slice(
      0,
      Math.max(
        0,
        args.findIndex((arg) => arg.text.startsWith("-")),
      ),
    );
    if (starts.some((start) => isRootLike(start, place))) {
      return { kind: "shape", shape: "remove_root", reason: "find deletes below the root or home" };
    }
  }
  if (
    (base === "chmod" || base === "chown" || base === "chgrp") &&
    args.some((arg) => /^-[a-zA-Z]*R|^--rec/.test(arg.text))
  ) {
    if (args.some((arg) => isRootLike(arg, place))) {
      return {
        kind: "shape",
        shape: "remove_root",
        reason: `${base} changes everything below the root or home`,
      };
    }
  }
  if (base === "git") {
    return pushDanger(args);
  }
  if (
    base.startsWith("mkfs") ||
    (base === "dd" && args.some((arg) => /^of=\/dev\/(?!null$|zero$|tty)/.test(arg.text)))
  ) {
    return { kind: "shape", shape: "destroy_device", reason: `${base} overwrites a device` };
  }
  return pipeDanger(command, base, args);
}

function removeDanger(args: readonly Word[], place: Place, cdTo: readonly Word[]): Danger | null {
  const recursive = args.some((arg) => /^-[a-zA-Z]*[rR]|^--r/.test(arg.text));
  if (!recursive && !args.some((arg) => arg.text.startsWith("--no-p"))) {
    return args.some((arg) => arg.dynamic && arg.text === "" && !arg.process)
      ? unclearRemove(args)
      : null;
  }
  const operands = args.filter((arg) => arg.dynamic || !arg.text.startsWith("-"));
  if (operands.some((arg) => isRootLike(arg, place))) {
    return {
      kind: "shape",
      shape: "remove_root",
      reason: "rm removes the root, the home or what holds it",
    };
  }
  if (operands.some((arg) => arg.dynamic)) {
    return { kind: "unclear", reason: "what rm removes is only known when it runs" };
  }
  const away = cdTo.some((dir) => dir.dynamic || isRootLike(dir, place));
  if (away && operands.some((arg) => !/^[/~$]/.test(arg.text))) {
    return {
      kind: "shape",
      shape: "remove_root",
      reason: "rm runs in a folder the line changes to",
    };
  }
  return null;
}

/** `rm $x`: the flags may come from the variable as well. */
function unclearRemove(args: readonly Word[]): Danger | null {
  return args.every((arg) => arg.dynamic)
    ? { kind: "unclear", reason: "what rm removes is only known when it runs" }
    : null;
}

/** True for the root, its direct children, the home, and every folder the home lies in; for globs, what they can reach. */
function isRootLike(word: Word, place: Place): boolean {
  if (word.dynamic && !word.text.startsWith("/") && !word.text.startsWith("$HOME")) {
    return false;
  }
  const absolute = toPlace(word.text, word.tilde, place);
  if (!word.glob) {
    return !word.dynamic && isTop(absolute, place);
  }
  const segments = absolute.split("/");
  const at = segments.findIndex((segment) => /[*?[]/.test(segment));
  const above = normalize(segments.slice(0, at).join("/") || "/").replace(/(.)\/$/, "$1");
  if (above === "/" || (isWithin(above, place.home) && above !== place.home)) {
    return true;
  }
  return above === place.home && /^[.*?[\]]+$/.test(segments[at] ?? "");
}

function isTop(path: string, place: Place): boolean {
  const clean = normalize(path).replace(/(.)\/+$/, "$1");
  return isWithin(clean, place.home) || /^\/[^/]*$/.test(clean);
}

function toPlace(text: string, tilde: boolean, place: Place): string {
  if (text.startsWith("$HOME")) {
    return place.home + text.slice("$HOME".length);
  }
  if (tilde) {
    return /^~(?:\/|$)/.test(text) ? place.home + text.slice(1) : "/home";
  }
  return text.startsWith("/") ? text : `${place.cwd}/${text}`;
}

const GIT_COMMANDS = new Set(
  (
    "add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap checkout cherry cherry-pick " +
    "clean clone commit commit-graph commit-tree config count-objects credential describe diff diff-files diff-index diff-tree difftool " +
    "fast-export fast-import fetch filter-branch fmt-merge-msg for-each-ref format-patch fsck gc grep gui hash-object help init init-db " +
    "interpret-trailers log ls-files ls-remote ls-tree maintenance merge merge-base merge-file merge-tree mergetool mktag mktree multi-pack-index " +
    "mv name-rev notes pack-objects pack-refs prune pull push range-diff read-tree rebase reflog remote repack replace request-pull rerere reset " +
    "restore rev-list rev-parse revert rm send-email shortlog show show-branch show-ref sparse-checkout stash status stripspace submodule switch " +
    "symbolic-ref tag update-index update-ref var verify-commit verify-pack verify-tag version whatchanged worktree write-tree lfs"
  ).split(" "),
);

function pushDanger(args: readonly Word[]): Danger | null {
  const words = gitSubcommand(args);
  const [sub, ...rest] = words ?? [];
  if (sub === undefined) {
    return null;
  }
  if (!GIT_COMMANDS.has(sub.text)) {
    return { kind: "unclear", reason: "git may know this command as an alias" };
  }
  if (sub.text !== "push") {
    return null;
  }
  if (rest.some((arg) => /^--f(?!ol)|^-[a-zA-Z]*f|^\+.|^--mirror$/.test(arg.text))) {
    return { kind: "shape", shape: "forced_push", reason: "git push overwrites remote history" };
  }
  return rest.some((arg) => arg.dynamic)
    ? { kind: "unclear", reason: "what git pushes is only known when it runs" }
    : null;
}

function pipeDanger(command: SimpleCommand, base: string, args: readonly Word[]): Danger | null {
  const runsText = isShell(base) || base === "eval" || base === "source" || base === ".";
  if (runsText && args.some((arg) => arg.inner.some(downloads))) {
    return { kind: "shape", shape: "download_to_shell", reason: "a shell runs what is downloaded" };
  }
  const script =
    INTERPRETERS.test(base) &&
    args.every((arg) => arg.text === "-" || /^-[^cemEpr-]*$/.test(arg.text));
  if ((script || isShell(base)) && command.upstream.some(downloads) && readsProgram(base, args)) {
    return {
      kind: "shape",
      shape: "download_to_shell",
      reason: "a download is piped into an interpreter",
    };
  }
  return null;
}

function readsProgram(base: string, args: readonly Word[]): boolean {
  if (!isShell(base)) {
    return true;
  }
  // a script file or -c takes the program from elsewhere, but the download may still be what it runs: err on asking
  return (
    !args.some((arg) => /^-[a-z]*c$/.test(arg.text)) ||
    args.some((arg) => /\bcat\b|\bread\b|eval|\/dev\/stdin/.test(arg.text))
  );
}

/** True when a command fetches something from elsewhere, wrappers or not. */
export function downloads(command: SimpleCommand): boolean {
  return command.words.some((word) => DOWNLOADERS.has(baseName(word)));
}
