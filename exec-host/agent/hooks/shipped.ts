import type { JsonObject } from "../seams.ts";
import type { HookEvent } from "./events.ts";
import { isForcedPush } from "./high-risk.ts";
import { argumentsOf, hasOption, roughCommands } from "./shell-words.ts";
import type { RoughCommand } from "./shell-words.ts";

/** What a shipped hook looks at. */
export interface ShippedSample {
  /** The command of a shell call, or the text a file tool would write. */
  readonly text: string;
  /** Exit code of a finished command; null before it ran or when it has none. */
  readonly exitCode: number | null;
}

/**
 * A hook that comes with the gateway. It is a test in our own code: it starts no process, so it needs no trust. Off until its
 * id is recorded in the first settings layer.
 */
export interface ShippedHook {
  readonly id: string;
  readonly event: Extract<HookEvent, "PreToolUse" | "PostToolUse">;
  readonly matcher: string;
  /** Internal names of the tools it looks at. */
  readonly tools: readonly string[];
  readonly name: string;
  readonly description: string;
  /** A sample that triggers it, the default of the dry run. */
  readonly example: string;
  /** What it does once triggered: ask first, or add a line to the result. */
  readonly effect: "ask" | "context";
  readonly message: string;
  triggers(sample: ShippedSample): boolean;
}

/** The catalogue, in the order it is listed. */
export const SHIPPED_HOOKS: readonly ShippedHook[] = [
  {
    id: "bash-usage-error",
    event: "PostToolUse",
    matcher: "Bash",
    tools: ["bash"],
    name: "Usage error of a command",
    description:
      "After a command that ended with 2 (wrong usage), suggests reading its help before trying again.",
    example: "grep --no-such-option",
    effect: "context",
    message:
      "The command ended with exit code 2, which usually means wrong usage. Read its help text before trying a variant.",
    triggers: ({ text, exitCode }) => text.trim() !== "" && exitCode === 2,
  },
  {
    id: "secret-in-file",
    event: "PreToolUse",
    matcher: "Write|Edit",
    tools: ["write_file", "edit_file"],
    name: "Secret in a written file",
    description:
      "Asks before a file is written with what looks like a private key or an access token.",
    example: "aws_access_key_id = AKIAIOSFODNN7EXAMPLE",
    effect: "ask",
    message: "The text to be written seems to contain a secret.",
    triggers: ({ text }) => SECRETS.some((pattern) => pattern.test(text)),
  },
  {
    id: "destructive-git",
    event: "PreToolUse",
    matcher: "Bash",
    tools: ["bash"],
    name: "Destructive git command",
    description:
      "Asks before git throws away work: hard resets, forced cleans and pushes, deleted branches and stashes.",
    example: "git reset --hard HEAD~1",
    effect: "ask",
    message: "This git command can throw away work that is not stored anywhere else.",
    triggers: ({ text }) => roughCommands(text).some(isDestructiveGit),
  },
];

/** The catalogue entry of an id. */
export function shippedHook(id: string): ShippedHook | undefined {
  return SHIPPED_HOOKS.find((hook) => hook.id === id);
}

/** What a shipped hook is shown of a call. */
export function sampleOf(params: JsonObject, exitCode: number | null): ShippedSample {
  const text = ["cmd", "content", "new_string"]
    .map((field) => params[field])
    .filter((value) => typeof value === "string")
    .join("\n");
  return { text, exitCode };
}

/** Bounded repetitions only: these run over whole files. */
const SECRETS: readonly RegExp[] = [
  /-----BEGIN (?:[A-Z]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----/,
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/,
  /\bgh[pousr]_[A-Za-z0-9]{36}/,
  /\bgithub_pat_[A-Za-z0-9_]{22}/,
  /\bglpat-[A-Za-z0-9_-]{20}/,
  /\bxox[abposr]-[A-Za-z0-9-]{10}/,
  /\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32}/,
  /\b[sr]k_live_[A-Za-z0-9]{20}/,
  /\bAIza[A-Za-z0-9_-]{35}/,
  /\bnpm_[A-Za-z0-9]{36}/,
];

const GLOBAL_WITH_VALUE = new Set(["-C", "-c", "--git-dir", "--work-tree", "--namespace"]);

function isDestructiveGit(command: RoughCommand): boolean {
  const all = argumentsOf(command, "git");
  if (all === null) {
    return false;
  }
  let at = 0;
  while (all[at]?.startsWith("-") === true) {
    at += GLOBAL_WITH_VALUE.has(all[at] ?? "") ? 2 : 1;
  }
  const verb = all[at];
  const words = all.slice(at + 1);
  switch (verb ?? "") {
    case "reset":
      return hasOption(words, "", ["--hard", "--merge"]);
    case "clean":
      return hasOption(words, "f", ["--force"]);
    case "checkout":
      return hasOption(words, "f", ["--force"]) || words.includes("--") || words.includes(".");
    case "restore":
      return !hasOption(words, "S", ["--staged"]) || hasOption(words, "W", ["--worktree"]);
    case "switch":
      return hasOption(words, "fC", ["--force", "--discard-changes", "--force-create"]);
    case "branch":
      return (
        hasOption(words, "D", []) ||
        (hasOption(words, "d", ["--delete"]) && hasOption(words, "f", ["--force"]))
      );
    case "stash":
      return words[0] === "drop" || words[0] === "clear";
    case "reflog":
      return words[0] === "expire" || words[0] === "delete";
    case "filter-branch":
    case "filter-repo":
      return true;
    case "update-ref":
      return hasOption(words, "d", ["--delete"]);
    case "worktree":
      return words[0] === "remove" && hasOption(words, "f", ["--force"]);
    case "push":
      return isForcedPush(command) || hasOption(words, "d", ["--delete", "--mirror", "--prune"]);
    default:
      return false;
  }
}
