/** One element of a path segment's pattern. */
type Token =
  | { readonly kind: "char"; readonly char: string }
  | { readonly kind: "any" }
  | { readonly kind: "star" }
  | {
      readonly kind: "class";
      readonly negated: boolean;
      readonly ranges: readonly (readonly [from: string, to: string])[];
    };

/** A compiled glob: alternatives of segments; "**" stands for any number of segments. */
export interface Glob {
  readonly alternatives: readonly (readonly (readonly Token[] | "**")[])[];
}

const MAX_ALTERNATIVES = 64;

/**
 * Compiles a glob of `*`, `?`, `[…]`, `**` (a whole segment) and `{a,b}`. Matching takes time proportional to pattern
 * times path at worst, whatever the pattern: it never backtracks further than the last star.
 *
 * @returns null when braces expand to more than 64 alternatives or the pattern is longer than 1024 characters.
 */
export function compileGlob(pattern: string): Glob | null {
  if (pattern.length > 1024) {
    return null;
  }
  const texts = expandBraces(pattern);
  if (texts === null) {
    return null;
  }
  return {
    alternatives: texts.map((text) => {
      const segments = text.split("/").filter((segment, i) => segment !== "" || i === 0);
      return segments.map((segment) => (segment === "**" ? "**" : tokenize(segment)));
    }),
  };
}

/** True when the glob fits the whole path. A leading `/` is an empty first segment, on both sides. */
export function matchesGlob(glob: Glob, path: string): boolean {
  const names = path.split("/");
  return glob.alternatives.some((segments) => matchSegments(segments, names));
}

/** True when a pattern of one segment fits a name. */
export function matchesName(pattern: string, name: string): boolean {
  return matchTokens(tokenize(pattern), name);
}

function matchSegments(
  segments: readonly (readonly Token[] | "**")[],
  names: readonly string[],
): boolean {
  let s = 0;
  let n = 0;
  let backSegment = -1;
  let backName = 0;
  while (n < names.length) {
    const segment = segments[s];
    if (segment === "**") {
      backSegment = s;
      backName = n;
      s += 1;
    } else if (segment !== undefined && matchTokens(segment, names[n] ?? "")) {
      s += 1;
      n += 1;
    } else if (backSegment !== -1) {
      backName += 1;
      s = backSegment + 1;
      n = backName;
    } else {
      return false;
    }
  }
  while (segments[s] === "**") {
    s += 1;
  }
  return s === segments.length;
}

function matchTokens(tokens: readonly Token[], name: string): boolean {
  let t = 0;
  let c = 0;
  let backToken = -1;
  let backChar = 0;
  while (c < name.length) {
    const token = tokens[t];
    if (token?.kind === "star") {
      backToken = t;
      backChar = c;
      t += 1;
    } else if (token !== undefined && fits(token, name.charAt(c))) {
      t += 1;
      c += 1;
    } else if (backToken !== -1) {
      backChar += 1;
      t = backToken + 1;
      c = backChar;
    } else {
      return false;
    }
  }
  while (tokens[t]?.kind === "star") {
    t += 1;
  }
  return t === tokens.length;
}

function fits(token: Token, char: string): boolean {
  switch (token.kind) {
    case "char":
      return token.char === char;
    case "any":
    case "star":
      return true;
    case "class":
      return token.ranges.some(([from, to]) => from <= char && char <= to) !== token.negated;
  }
}

function tokenize(segment: string): Token[] {
  const tokens: Token[] = [];
  for (let i = 0; i < segment.length; i++) {
    const char = segment.charAt(i);
    if (char === "*") {
      if (tokens.at(-1)?.kind !== "star") {
        tokens.push({ kind: "star" });
      }
    } else if (char === "?") {
      tokens.push({ kind: "any" });
    } else if (char === "\\" && i + 1 < segment.length) {
      i += 1;
      tokens.push({ kind: "char", char: segment.charAt(i) });
    } else if (char === "[") {
      const end = segment.indexOf("]", i + 2);
      if (end === -1) {
        tokens.push({ kind: "char", char });
        continue;
      }
      tokens.push(toClass(segment.slice(i + 1, end)));
      i = end;
    } else {
      tokens.push({ kind: "char", char });
    }
  }
  return tokens;
}

function toClass(inside: string): Token {
  const negated = inside.startsWith("!") || inside.startsWith("^");
  const body = negated ? inside.slice(1) : inside;
  const ranges: [string, string][] = [];
  for (let i = 0; i < body.length; i++) {
    if (body.charAt(i + 1) === "-" && i + 2 < body.length) {
      ranges.push([body.charAt(i), body.charAt(i + 2)]);
      i += 2;
    } else {
      ranges.push([body.charAt(i), body.charAt(i)]);
    }
  }
  return { kind: "class", negated, ranges };
}

function expandBraces(pattern: string): string[] | null {
  let open = [pattern];
  const done: string[] = [];
  while (open.length > 0) {
    const next: string[] = [];
    for (const text of open) {
      const group = /\{([^{}]*,[^{}]*)\}/.exec(text);
      if (group === null) {
        done.push(text);
        continue;
      }
      const before = text.slice(0, group.index);
      const after = text.slice(group.index + group[0].length);
      next.push(...(group[1] ?? "").split(",").map((choice) => before + choice + after));
    }
    if (next.length + done.length > MAX_ALTERNATIVES) {
      return null;
    }
    open = next;
  }
  return done;
}
