/**
 * Characters that move the cursor, change colours, reorder text or end lines in a terminal: C0 and C1 controls,
 * DEL, line separators, bidirectional controls. Paths, names and messages come from strangers and tenants, and
 * an operator's terminal must show them, not obey them.
 */
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** Whether `text` has no unsafe character but line feeds. */
export function isSafe(text: string): boolean {
  return text.replaceAll("\n", "").search(UNSAFE) < 0;
}

/** `text` on one line with every unsafe character written as its escape (`\x1b`, `\u202e`). */
export function safeText(text: string): string {
  return text.toWellFormed().replaceAll(UNSAFE, escapeCharacter);
}

/** Like {@link safeText} for text of several lines and JSON: line feeds stay, escapes are `\uXXXX`. */
export function safeLines(text: string): string {
  return text
    .toWellFormed()
    .replaceAll(UNSAFE, (character) => (character === "\n" ? "\n" : unicodeEscape(character)));
}

/** Text parts between the stacks of errors, whose line ends are shown (and indented) as such. */
const STACK = /("stack":"(?:[^"\\]|\\.)*")/;
const ESCAPES = /\\(?:u[0-9a-fA-F]{4}|.)/g;

/**
 * A line of JSON whose strings show unsafe characters instead of having them, so that whoever parses and prints it
 * need not care. Line feeds stay in `stack` members alone.
 */
export function safeJsonLine(line: string): string {
  return line
    .split(STACK)
    .map((part, at) =>
      part.replaceAll(ESCAPES, (escape) => {
        const isKept = escape === '\\"' || escape === "\\\\" || escape === "\\/";
        return isKept || (escape === "\\n" && at % 2 === 1) ? escape : `\\${escape}`;
      }),
    )
    .join("")
    .replaceAll(UNSAFE, (character) =>
      character === "\n" ? "\n" : `\\${unicodeEscape(character)}`,
    );
}

function escapeCharacter(character: string): string {
  const code = character.charCodeAt(0);
  return code <= 0xff ? `\\x${code.toString(16).padStart(2, "0")}` : unicodeEscape(character);
}

function unicodeEscape(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
