/**
 * A rough reading of shell text for warnings and risk marks: simple commands as lists of words, with quotes and
 * backslashes taken away. It is a safety net that may err on the side of caution, not a parser; the gate of the shell
 * tool has a real one.
 */
export interface RoughCommand {
  readonly words: readonly string[];
  /** Number of the pipeline it belongs to. */
  readonly pipeline: number;
}

/** Splits shell text into simple commands; linear in its length. */
export function roughCommands(text: string): readonly RoughCommand[] {
  const joined = text.replaceAll("\\\n", "");
  const commands: RoughCommand[] = [];
  let pipeline = 0;
  for (const part of joined.split(/(\|\||&&|[;&\n|()`])/)) {
    if (/^(?:\|\||&&|[;&\n])$/.test(part)) {
      pipeline += 1;
    } else if (!/^[|()`]$/.test(part)) {
      const words = part
        .split(/\s+/)
        .map((word) => word.replaceAll(/["'\\]/g, ""))
        .filter((word) => word !== "");
      if (words.length > 0) {
        commands.push({ words, pipeline });
      }
    }
  }
  return commands;
}

/** The arguments after the first word that names that program; null when it is not named. */
export function argumentsOf(command: RoughCommand, program: string): readonly string[] | null {
  const index = command.words.findIndex((word) => baseName(word) === program);
  return index === -1 ? null : command.words.slice(index + 1);
}

/** Last part of a path. */
export function baseName(word: string): string {
  return word.slice(word.lastIndexOf("/") + 1);
}

/** True when an argument is that short option, alone or in a bundle, or one of the long ones. */
export function hasOption(
  words: readonly string[],
  shorts: string,
  longs: readonly string[],
): boolean {
  return words.some((word) => {
    if (word.startsWith("--")) {
      return longs.includes(word.split("=")[0] ?? "");
    }
    return (
      word.startsWith("-") && shorts.split("").some((letter) => word.slice(1).includes(letter))
    );
  });
}
