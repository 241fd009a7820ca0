/**
 * Edits of the top level of a JSON object as text. Everything that is not replaced keeps its bytes: spelling of
 * numbers, order of keys, white space. A settings file is shared with people and other programs, so a write must
 * not reformat what it does not own.
 */

interface Member {
  readonly key: string;
  readonly keyStart: number;
  readonly valueStart: number;
  readonly valueEnd: number;
}

interface Scan {
  readonly open: number;
  readonly close: number;
  readonly members: readonly Member[];
}

/** Deepest nesting of a settings file; more is refused before anything recursive touches it. */
const MAX_JSON_DEPTH = 64;

/** True when `text` nests deeper than `MAX_JSON_DEPTH`. Linear, without recursion; `text` need not be valid. */
export function isTooDeep(text: string): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === 0x22) {
      at = stringEnd(text, at) - 1;
    } else if (char === 0x7b || char === 0x5b) {
      depth += 1;
      if (depth > MAX_JSON_DEPTH) {
        return true;
      }
    } else if (char === 0x7d || char === 0x5d) {
      depth -= 1;
    }
  }
  return false;
}

/**
 * Sets or removes a top-level member.
 *
 * @param text a valid JSON object.
 * @param value undefined removes the member. Where a key occurs twice the last one counts, as for `JSON.parse`; the others go.
 */
export function setMember(text: string, key: string, value: unknown): string {
  let result = text;
  for (;;) {
    const scan = scanObject(result);
    const found = scan.members.filter((member) => member.key === key);
    const [first] = found;
    if (first !== undefined && (found.length > 1 || value === undefined)) {
      result = removeMember(result, scan, first);
      continue;
    }
    if (value === undefined) {
      return result;
    }
    const indent = indentOf(result, scan);
    const json = formatValue(value, indent);
    if (first !== undefined) {
      return result.slice(0, first.valueStart) + json + result.slice(first.valueEnd);
    }
    return insertMember(
      result,
      scan,
      `${JSON.stringify(key)}:${indent === null ? "" : " "}${json}`,
      indent,
    );
  }
}

function removeMember(text: string, scan: Scan, member: Member): string {
  const index = scan.members.indexOf(member);
  const previous = scan.members[index - 1];
  if (previous !== undefined) {
    return text.slice(0, previous.valueEnd) + text.slice(member.valueEnd);
  }
  const next = scan.members[index + 1];
  if (next !== undefined) {
    return text.slice(0, member.keyStart) + text.slice(next.keyStart);
  }
  return text.slice(0, scan.open + 1) + text.slice(scan.close);
}

function insertMember(text: string, scan: Scan, member: string, indent: string | null): string {
  const last = scan.members.at(-1);
  if (last !== undefined) {
    const separator = indent === null ? "," : `,\n${indent}`;
    return text.slice(0, last.valueEnd) + separator + member + text.slice(last.valueEnd);
  }
  const inner = indent === null ? member : `\n${indent}${member}\n`;
  return text.slice(0, scan.open + 1) + inner + text.slice(scan.close);
}

/** The indentation of the file's first key; null for a file on one line; two spaces for an empty object. */
function indentOf(text: string, scan: Scan): string | null {
  const [first] = scan.members;
  if (first === undefined) {
    return "  ";
  }
  const lead = text.slice(scan.open + 1, first.keyStart);
  const newline = lead.lastIndexOf("\n");
  return newline === -1 ? null : lead.slice(newline + 1);
}

function formatValue(value: unknown, indent: string | null): string {
  if (indent === null) {
    return JSON.stringify(value);
  }
  return JSON.stringify(value, null, indent === "" ? 2 : indent).replaceAll("\n", `\n${indent}`);
}

function scanObject(text: string): Scan {
  const open = text.indexOf("{");
  const members: Member[] = [];
  let at = skipSpace(text, open + 1);
  while (text[at] === '"') {
    const keyStart = at;
    const keyEnd = stringEnd(text, at);
    const valueStart = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const valueEnd = skipValue(text, valueStart);
    members.push({
      key: JSON.parse(text.slice(keyStart, keyEnd)) as string,
      keyStart,
      valueStart,
      valueEnd,
    });
    at = skipSpace(text, valueEnd);
    if (text[at] === ",") {
      at = skipSpace(text, at + 1);
    }
  }
  return { open, close: at, members };
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (at < text.length && " \t\r\n".includes(text.charAt(at))) {
    at += 1;
  }
  return at;
}

/** Index after the string literal that begins at `from`. */
function stringEnd(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === 0x5c) {
      at += 1;
    } else if (char === 0x22) {
      return at + 1;
    }
  }
  return text.length;
}

function skipValue(text: string, from: number): number {
  let depth = 0;
  let at = from;
  while (at < text.length) {
    const char = text.charAt(at);
    if (char === '"') {
      at = stringEnd(text, at);
      if (depth === 0) {
        return at;
      }
      continue;
    }
    if (char === "{" || char === "[") {
      depth += 1;
    } else if (char === "}" || char === "]") {
      if (depth === 0) {
        return at;
      }
      depth -= 1;
      if (depth === 0) {
        return at + 1;
      }
    } else if (depth === 0 && ", \t\r\n".includes(char)) {
      return at;
    }
    at += 1;
  }
  return at;
}
