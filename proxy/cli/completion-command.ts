import { Argument, type Command } from "commander";
import { SERVICES } from "../../policy/documents/services.ts";
import { commandPath } from "./command-kit.ts";
import type { CommandIo } from "./io.ts";

const HOOKABLE_NAMES = SERVICES.filter((service) => service.hookable).map(
  (service) => service.name,
);

const SHELLS = ["bash", "zsh", "fish"] as const;

/** What can follow at one place of the command line. */
interface Place {
  /** Command words before it, without the program's name; "" at the start. */
  readonly at: string;
  readonly commands: readonly string[];
  readonly options: readonly string[];
  /** Values of the first argument, where they are known. */
  readonly values: readonly string[];
}

/** `completion bash|zsh|fish`: a script for the shell, made from the commands that are registered. */
export function registerCompletionCommand(program: Command, io: CommandIo): void {
  program
    .command("completion")
    .description("print a completion script for a shell")
    .showHelpAfterError(false)
    .addArgument(new Argument("<shell>", "shell to complete in").choices(SHELLS))
    .addHelpText(
      "after",
      "\nExamples:\n  $ source <(interpose completion bash)\n  $ interpose completion fish > ~/.config/fish/completions/interpose.fish",
    )
    .action((shell: (typeof SHELLS)[number]) => {
      const places = placesOf(program);
      const script = { bash: bashScript, zsh: zshScript, fish: fishScript }[shell];
      io.stdout.write(script(program.name(), places));
    });
}

function placesOf(command: Command): Place[] {
  const visible = command.commands.filter((sub) => !(sub as { _hidden?: boolean })._hidden);
  const first = command.registeredArguments[0];
  const place: Place = {
    at: commandPath(command).slice(1).join(" "),
    commands: visible.map((sub) => sub.name()),
    options: [
      ...command.options.filter((option) => !option.hidden).flatMap((option) => option.long ?? []),
      "--help",
    ],
    values: first?.argChoices ?? (first?.name() === "service" ? HOOKABLE_NAMES : []),
  };
  return [place, ...visible.flatMap(placesOf)];
}

/** Every word below is one of our own command, option or service names: letters, digits and dashes only. */
function wordsOf(place: Place): string {
  return [...place.commands, ...place.values, ...place.options].join(" ");
}

function pathCases(places: readonly Place[], line: (path: string) => string): string {
  return places
    .filter((place) => place.at !== "")
    .map((place) => line(place.at))
    .join("\n");
}

function bashScript(name: string, places: readonly Place[]): string {
  return `# bash completion of ${name}
_${name}() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" at="" word words=""
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "\${at:+$at }$word" in
${pathCases(places, (path) => `      "${path}") at="${path}" ;;`)}
    esac
  done
  case "$at" in
${places.map((place) => `    "${place.at}") words="${wordsOf(place)}" ;;`).join("\n")}
  esac
  if [[ "$cur" != -* ]]; then
    local plain=""
    for word in $words; do [[ "$word" == -* ]] || plain+=" $word"; done
    words="$plain"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _${name} ${name}
`;
}

function zshScript(name: string, places: readonly Place[]): string {
  return `#compdef ${name}
# zsh completion of ${name}
_${name}() {
  local at="" word known=""
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "\${at:+$at }$word" in
${pathCases(places, (path) => `      "${path}") at="${path}" ;;`)}
    esac
  done
  case "$at" in
${places.map((place) => `    "${place.at}") known="${wordsOf(place)}" ;;`).join("\n")}
  esac
  if [[ "$PREFIX" == -* ]]; then
    compadd -- \${(M)\${=known}:#-*}
  else
    compadd -- \${\${=known}:#-*} || _files
  fi
}
if [ "$funcstack[1]" = "_${name}" ]; then
  _${name} "$@"
else
  compdef _${name} ${name}
fi
`;
}

function fishScript(name: string, places: readonly Place[]): string {
  const lines = places.flatMap((place) => {
    const condition = `-n "__${name}_at '${place.at}'"`;
    const plain = [...place.commands, ...place.values];
    return [
      ...(plain.length === 0
        ? []
        : [`complete -c ${name} -f ${condition} -a "${plain.join(" ")}"`]),
      ...place.options.map((option) => `complete -c ${name} ${condition} -l ${option.slice(2)}`),
    ];
  });
  return `# fish completion of ${name}
function __${name}_at
    set -l at ""
    for word in (commandline -opc)[2..-1]
        switch (string trim -- "$at $word")
            case ${places
              .filter((place) => place.at !== "")
              .map((place) => `'${place.at}'`)
              .join(" ")}
                set at (string trim -- "$at $word")
        end
    end
    test "$at" = "$argv[1]"
end
${lines.join("\n")}
`;
}
