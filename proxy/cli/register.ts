import type { Command } from "commander";
import { registerAliasCommands } from "./alias-commands.ts";
import { addGlobalOptions, addLeadingOptions } from "./command-kit.ts";
import { registerCompletionCommand } from "./completion-command.ts";
import { registerContainerCommands, registerProjectCommands } from "./container-commands.ts";
import { registerExplainCommand } from "./explain-command.ts";
import type { CommandIo } from "./io.ts";
import { safeText } from "../../policy/kernel/safe-text.ts";
import { registerTailCommand } from "./tail-command.ts";

/**
 * Adds every command that is a client of the control API, and shell completion, to the program. Register it last:
 * completion covers what is there when it runs, and options that follow a command's name belong to that command
 * from here on. A command writes its own errors (one sentence) and sets the exit code through `io`; wrong usage
 * is thrown by commander as a CommanderError, already written, for the caller to turn into exit code 2.
 */
export function registerApiCommands(program: Command, io: CommandIo): void {
  program.enablePositionalOptions().configureOutput({
    writeOut: (text) => io.stdout.write(text),
    writeErr: (text) => io.stderr.write(text),
    outputError: (text, write) => write(`${oneSentence(text)}\n`),
  });
  const others = new Set(program.commands);
  registerContainerCommands(program, io);
  registerProjectCommands(program, io);
  registerAliasCommands(program, io);
  registerExplainCommand(program, io);
  registerTailCommand(program, io);
  program.commands.filter((command) => !others.has(command)).forEach(addGlobalOptions);
  addLeadingOptions(program);
  registerCompletionCommand(program, io);
}

/** commander's `error: …` with a suggestion on a second line, as one line of ours. */
function oneSentence(text: string): string {
  return safeText(
    text
      .trim()
      .replace(/^error: /, "Error: ")
      .replaceAll(/\s*\n\s*/g, " "),
  );
}
