/** A word of a plain line, in the pieces that decide how a glob is read. */
export interface PlainWord {
  readonly pieces: readonly { readonly text: string; readonly quoted: boolean }[];
  /** All pieces joined. */
  readonly text: string;
  /** True when an unquoted `*`, `?` or `[` stands in it. */
  readonly glob: boolean;
  /** True when it begins with an unquoted `~` (alone or before `/`). */
  readonly tilde: boolean;
}

/** Words of one command of a plain line. */
export type PlainCommand = readonly PlainWord[];

const QUOTABLE_IN_DOUBLE = new Set(["$", "`", '"', "\\"]);

/**
 * Reads a command line of the smallest useful grammar: words with quotes and globs, `|`, `&&`, `||`, `;`, newlines, and
 * the two redirections `2>/dev/null` and `2>&1`. It is a second opinion beside the full parser: only what both read the
 * same way can count as read-only, so a quirk of either costs a confirmation and nothing else.
 *
 * @returns null for anything outside the grammar, above all every expansion, substitution, assignment and background job.
 */
export function readPlainLine(line: string): readonly PlainCommand[] | null {
  // blanks other than space and tab separate words in some locales only
  if (/[\0-\b\v-\x1f\x7f]|(?! )\p{Z}/u.test(line)) {
    return null;
  }
  const commands: PlainCommand[] = [];
  let words: PlainWord[] = [];
  let needsCommand = true;
  let i = 0;

  const endCommand = (): boolean => {
    if (words.length === 0) {
      return false;
    }
    commands.push(words);
    words = [];
    return true;
  };

  while (i < line.length) {
    const char = line.charAt(i);
    if (char === " " || char === "\t") {
      i += 1;
      continue;
    }
    if (char === "\n" || char === ";") {
      if (char === ";" && (words.length === 0 || line.charAt(i + 1) === ";")) {
        return null;
      }
      // after an operator a newline only continues the line
      if (endCommand()) {
        needsCommand = false;
      }
      i += 1;
      continue;
    }
    if (char === "|" || char === "&") {
      const next = line.charAt(i + 1);
      const double = next === char;
      // one `&` is a background job, `|&` pipes errors too
      if ((char === "&" && !double) || (char === "|" && next === "&") || !endCommand()) {
        return null;
      }
      needsCommand = true;
      i += double ? 2 : 1;
      continue;
    }
    const silenced = /^2>(?:&1|[ \t]*\/dev\/null)(?=[ \t\n;|]|&&|$)/.exec(line.slice(i, i + 64));
    if (silenced !== null) {
      if (words.length === 0) {
        return null;
      }
      i += silenced[0].length;
      continue;
    }
    const word = readWord(line, i);
    if (word === null) {
      return null;
    }
    words.push(word.word);
    needsCommand = false;
    i = word.end;
  }
  endCommand();
  return needsCommand || commands.length === 0 ? null : commands;
}

function readWord(
  line: string,
  start: number,
): { readonly word: PlainWord; readonly end: number } | null {
  const pieces: { text: string; quoted: boolean }[] = [];
  let glob = false;
  let i = start;
  const add = (text: string, quoted: boolean): void => {
    const last = pieces.at(-1);
    if (last !== undefined && last.quoted === quoted) {
      last.text += text;
    } else {
      pieces.push({ text, quoted });
    }
  };
  for (; i < line.length; i++) {
    const char = line.charAt(i);
    if (" \t\n;|&".includes(char)) {
      break;
    }
    if ("$`(){}<>".includes(char) || (char === "#" && i === start)) {
      return null;
    }
    if (char === "~" && i === start && !/^~(?:[/ \t\n;|]|&&|$)/.test(line.slice(i, i + 3))) {
      return null;
    }
    if (char === "\\") {
      const next = line.charAt(i + 1);
      if (next === "" || next === "\n") {
        return null;
      }
      add(next, true);
      i += 1;
    } else if (char === "'") {
      const end = line.indexOf("'", i + 1);
      if (end === -1) {
        return null;
      }
      add(line.slice(i + 1, end), true);
      i = end;
    } else if (char === '"') {
      const quoted = readDoubleQuoted(line, i + 1);
      if (quoted === null) {
        return null;
      }
      add(quoted.text, true);
      i = quoted.end;
    } else {
      glob ||= char === "*" || char === "?" || char === "[";
      add(char, false);
    }
  }
  const text = pieces.map((piece) => piece.text).join("");
  const tilde = pieces[0]?.quoted === false && pieces[0].text.startsWith("~");
  return { word: { pieces, text, glob: glob && text !== "[", tilde }, end: i };
}

function readDoubleQuoted(
  line: string,
  start: number,
): { readonly text: string; readonly end: number } | null {
  let text = "";
  for (let i = start; i < line.length; i++) {
    const char = line.charAt(i);
    if (char === '"') {
      return { text, end: i };
    }
    if (char === "$" || char === "`") {
      return null;
    }
    if (char === "\\") {
      const next = line.charAt(i + 1);
      if (next === "\n" || next === "") {
        return null;
      }
      text += QUOTABLE_IN_DOUBLE.has(next) ? next : `\\${next}`;
      i += 1;
    } else {
      text += char;
    }
  }
  return null;
}
