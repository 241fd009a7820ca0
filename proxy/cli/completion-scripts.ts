/** What can follow at one place of the command line. */
export interface CompletionPlace {
  /** Command words before it, without the program's name; "" at the start. */
  readonly at: string;
  readonly commands: readonly string[];
  readonly options: readonly string[];
  /** Values of the first argument, where they are known. */
  readonly values: readonly string[];
}

/** Options that take a value, by their spelling; the known values, or none for any text. */
export type ValueOptions = ReadonlyMap<string, readonly string[]>;

/*
 * Every word that goes into the scripts is one of our own command, option or service names: letters, digits and
 * dashes only. Nothing of a command line or a server is ever evaluated by them.
 */

/** The script for bash. */
export function bashScript(
  name: string,
  places: readonly CompletionPlace[],
  valued: ValueOptions,
): string {
  return `# bash completion of ${name}
_${name}() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" at="" of="" word words=""
  COMPREPLY=()
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
${walk(places, valued)}
  done
  if [[ -n "$of" ]]; then
    case "$of" in
${valueCases(valued)}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    return
  fi
${wordCases(places)}
  local fitting=""
  for word in $words; do
    if [[ "$word" == -* && "$cur" == -* || "$word" != -* && "$cur" != -* ]]; then
      fitting+=" $word"
    fi
  done
  COMPREPLY=($(compgen -W "$fitting" -- "$cur"))
}
complete -o default -F _${name} ${name}
`;
}

/** The script for zsh: to be sourced, or a file \`_<name>\` on fpath. */
export function zshScript(
  name: string,
  places: readonly CompletionPlace[],
  valued: ValueOptions,
): string {
  // "words" is zsh's own array of the line, hence the other name inside.
  const inner = (text: string) => text.replaceAll(/\bwords=/g, "offer=");
  return `#compdef ${name}
# zsh completion of ${name}
_${name}() {
  local at="" of="" word offer=""
  for word in "\${(@)words[2,CURRENT-1]}"; do
${walk(places, valued)}
  done
  if [[ -n "$of" ]]; then
    case "$of" in
${inner(valueCases(valued))}
    esac
    if [[ -n "$offer" ]]; then compadd -- \${=offer}; else _files; fi
    return
  fi
${inner(wordCases(places))}
  if [[ "$PREFIX" == -* ]]; then
    compadd -- \${(M)\${=offer}:#-*}
  else
    compadd -- \${\${=offer}:#-*} || _files
  fi
}
if [[ "\${funcstack[1]}" == "_${name}" ]]; then
  _${name} "$@"
elif (( $+functions[compdef] )); then
  compdef _${name} ${name}
fi
`;
}

/** The script for fish. */
export function fishScript(
  name: string,
  places: readonly CompletionPlace[],
  valued: ValueOptions,
): string {
  const lines = places.flatMap((place) => {
    const condition = `-n "__${name}_at '${place.at}'"`;
    const plain = [...place.commands, ...place.values];
    return [
      ...(plain.length === 0
        ? []
        : [`complete -c ${name} -f ${condition} -a "${plain.join(" ")}"`]),
      ...place.options.map((option) => {
        const values = valued.get(option);
        const value = values === undefined ? "" : ` -r${choices(values)}`;
        return `complete -c ${name} ${condition} -l ${option.slice(2)}${value}`;
      }),
    ];
  });
  return `# fish completion of ${name}
function __${name}_at
    set -l at ""
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        switch $word
            case ${[...valued.keys()].join(" ")}
                set skip 1
                continue
        end
        set -l next (string trim -- "$at $word")
        switch $next
            case ${paths(places)
              .map((path) => `'${path}'`)
              .join(" ")}
                set at $next
        end
    end
    test "$at" = "$argv[1]"
end
${lines.join("\n")}
`;
}

function choices(values: readonly string[]): string {
  return values.length === 0 ? "" : ` -f -a "${values.join(" ")}"`;
}

function paths(places: readonly CompletionPlace[]): string[] {
  return places.map((place) => place.at).filter((path) => path !== "");
}

/** Body of the loop over the words before the cursor: `at` is the command so far, `of` an option without its value yet. */
function walk(places: readonly CompletionPlace[], valued: ValueOptions): string {
  return `    if [[ -n "$of" ]]; then of=""; continue; fi
    case "$word" in
      ${[...valued.keys()].join("|")}) of="$word"; continue ;;
    esac
    case "\${at:+$at }$word" in
${paths(places)
  .map((path) => `      "${path}") at="${path}" ;;`)
  .join("\n")}
    esac`;
}

function valueCases(valued: ValueOptions): string {
  return [...valued]
    .filter(([, values]) => values.length > 0)
    .map(([option, values]) => `      ${option}) words="${values.join(" ")}" ;;`)
    .join("\n");
}

function wordCases(places: readonly CompletionPlace[]): string {
  const cases = places.map((place) => {
    const words = [...place.commands, ...place.values, ...place.options].join(" ");
    return `    "${place.at}") words="${words}" ;;`;
  });
  return `  case "$at" in\n${cases.join("\n")}\n  esac`;
}
