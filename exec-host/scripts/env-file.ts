/**
 * Reads a `.env` file: `NAME=value` per line, `export` in front allowed, `#` begins a comment, quotes keep blanks;
 * double quotes know `\n`, `\t`, `\"` and `\\`. Lines that are none of this are left out.
 */
export function parseEnvFile(text: string): ReadonlyMap<string, string> {
  const values = new Map<string, string>();
  for (const line of text.replace(/^\uFEFF/, "").split(/\r?\n/)) {
    const found = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$/.exec(line);
    if (found !== null) {
      values.set(found[1]!, readValue(found[2]!));
    }
  }
  return values;
}

const ESCAPES: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r" };

function readValue(raw: string): string {
  const double = /^"((?:[^"\\]|\\.)*)"\s*(?:#.*)?$/.exec(raw);
  if (double !== null) {
    return double[1]!.replace(/\\(.)/g, (_, char: string) => ESCAPES[char] ?? char);
  }
  const single = /^'([^']*)'\s*(?:#.*)?$/.exec(raw);
  if (single !== null) {
    return single[1]!;
  }
  return raw.replace(/(?:^|\s)#.*$/, "").trim();
}
