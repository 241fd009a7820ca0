import { Argument, type Command } from "commander";
import { SERVICES } from "../../policy/documents/services.ts";
import { commandPath } from "./command-kit.ts";
import {
  bashScript,
  fishScript,
  zshScript,
  type CompletionPlace,
  type ValueOptions,
} from "./completion-scripts.ts";
import type { CommandIo } from "./io.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;
const HOOKABLE_NAMES = SERVICES.filter(({ hookable }) => hookable).map(({ name }) => name);

/** `completion bash|zsh|fish`: a script for the shell, made from the commands that are registered when it runs. */
export function registerCompletionCommand(program: Command, io: CommandIo): void {
  program
    .command("completion")
    .description("print a completion script for a shell")
    .showHelpAfterError(false)
    .addArgument(new Argument("<shell>", "shell to complete in").choices(SHELLS))
    .addHelpText(
      "after",
      `
Examples:
  $ source <(interpose completion bash)
  $ source <(interpose completion zsh)
  $ interpose completion fish > ~/.config/fish/completions/interpose.fish`,
    )
    .action((shell: (typeof SHELLS)[number]) => {
      const script = { bash: bashScript, zsh: zshScript, fish: fishScript }[shell];
      io.stdout.write(script(program.name(), placesOf(program), valueOptionsOf(program)));
    });
}

function placesOf(command: Command): CompletionPlace[] {
  const first = command.registeredArguments[0];
  const place: CompletionPlace = {
    at: commandPath(command).slice(1).join(" "),
    commands: command.commands.map((sub) => sub.name()),
    options: [
      ...command.options.filter((option) => !option.hidden).flatMap((option) => option.long ?? []),
      "--help",
    ],
    values: first?.argChoices ?? (first?.name() === "service" ? HOOKABLE_NAMES : []),
  };
  return [place, ...command.commands.flatMap(placesOf)];
}

function valueOptionsOf(program: Command): ValueOptions {
  const found = new Map<string, readonly string[]>();
  const visit = (command: Command): void => {
    for (const option of command.options) {
      for (const spelling of [option.long, option.short]) {
        if (spelling != null && option.required) {
          const known = found.get(spelling) ?? [];
          found.set(spelling, [...new Set([...known, ...(option.argChoices ?? [])])]);
        }
      }
    }
    command.commands.forEach(visit);
  };
  visit(program);
  return found;
}
