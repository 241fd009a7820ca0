import { argumentsOf, baseName, hasOption, roughCommands } from "./shell-words.ts";
import type { RoughCommand } from "./shell-words.ts";

const SHELLS = new Set(["sh", "bash", "zsh", "dash", "ksh", "ash"]);
const DOWNLOADERS = ["curl", "wget"];
const ROOTS = /^(?:\/|~|\$HOME|\$\{HOME\})\/?\*?\/?$/;

/**
 * True for a command of a shape that needs a deliberate yes: removing the root or the home, running what was just downloaded or
 * decoded, a forced push, a raw network connection of the shell (sections 10 and 13.3). Rough and cautious on purpose, and
 * linear in the text, because a settings file may hold many commands of 64 KiB.
 */
export function isHighRisk(text: string): boolean {
  const commands = roughCommands(text);
  return (
    commands.some((command) => removesRoot(command) || isForcedPush(command)) ||
    pipesIntoShell(commands) ||
    runsDownload(text) ||
    /\/dev\/(?:tcp|udp)\//.test(text)
  );
}

function removesRoot(command: RoughCommand): boolean {
  const words = argumentsOf(command, "rm");
  return (
    words !== null &&
    hasOption(words, "rR", ["--recursive"]) &&
    hasOption(words, "f", ["--force"]) &&
    words.some((word) => ROOTS.test(word))
  );
}

/** True for a push that may overwrite what others have pushed. */
export function isForcedPush(command: RoughCommand): boolean {
  const words = argumentsOf(command, "git");
  if (words === null || !words.includes("push")) {
    return false;
  }
  const after = words.slice(words.indexOf("push") + 1);
  return (
    hasOption(after, "f", ["--force", "--force-with-lease", "--force-if-includes"]) ||
    after.some((word) => word.startsWith("+") && word.length > 1)
  );
}

function pipesIntoShell(commands: readonly RoughCommand[]): boolean {
  return commands.some((command, index) => {
    const next = commands
      .slice(index + 1, index + 32)
      .filter((other) => other.pipeline === command.pipeline);
    const feeds =
      command.words.some((word) => DOWNLOADERS.includes(baseName(word))) ||
      (argumentsOf(command, "base64") !== null && next.length > 0);
    return feeds && next.some((other) => other.words.some((word) => SHELLS.has(baseName(word))));
  });
}

function runsDownload(text: string): boolean {
  return (
    /(?:<\(|\$\(|`)\s{0,20}(?:curl|wget)\b/.test(text) &&
    /\b(?:ba|z|da|k|a)?sh\b|\beval\b/.test(text)
  );
}
