/**
 * A JSON reader (RFC 8259) for text that strangers or editors wrote. Unlike `JSON.parse` it bounds the nesting,
 * reports members that occur twice, builds objects without a prototype, so that no member name has a meaning,
 * and tells where the values near the top begin and end, so that a writer can keep a part byte for byte.
 */

export interface StrictJsonOptions {
  /** Deepest nesting of arrays and objects that is read. */
  readonly maxDepth: number;
  /** Values at most this deep get a span; 0 is the document itself. */
  readonly spanDepth?: number;
}

export interface StrictJson {
  readonly value: unknown;
  /** Paths of members that occur more than once in their object; the last one's value is in `value`. */
  readonly duplicates: readonly (readonly string[])[];
  /** Source text of a value by its path; undefined when it is absent or deeper than `spanDepth`. */
  source(path: readonly string[]): string | undefined;
}

/** Thrown for text that is not JSON; the message says what and where. */
export class StrictJsonError extends Error {
  override readonly name = "StrictJsonError";
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const SPACE = /[ \t\n\r]*/y;
// eslint-disable-next-line no-control-regex -- JSON strings must not hold raw control characters
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;

/** Reads a whole text. Throws StrictJsonError. */
export function parseStrictJson(text: string, options: StrictJsonOptions): StrictJson {
  const spanDepth = options.spanDepth ?? -1;
  const spans = new Map<string, readonly [number, number]>();
  const duplicates: string[][] = [];
  const path: string[] = [];
  let at = 0;

  const fail = (what: string): never => {
    const line = text.slice(0, at).split("\n").length;
    throw new StrictJsonError(`${what} at line ${line}, offset ${at}`);
  };
  const skip = (): void => {
    SPACE.lastIndex = at;
    SPACE.test(text);
    at = SPACE.lastIndex;
  };
  const string = (): string => {
    STRING.lastIndex = at;
    if (!STRING.test(text)) {
      return fail("broken string");
    }
    const source = text.slice(at, STRING.lastIndex);
    at = STRING.lastIndex;
    return source.includes("\\") ? (JSON.parse(source) as string) : source.slice(1, -1);
  };
  const word = (literal: string, value: unknown): unknown => {
    if (!text.startsWith(literal, at)) {
      return fail("unexpected character");
    }
    at += literal.length;
    return value;
  };
  const number = (): number => {
    NUMBER.lastIndex = at;
    if (!NUMBER.test(text)) {
      return fail("unexpected character");
    }
    const value = Number(text.slice(at, NUMBER.lastIndex));
    at = NUMBER.lastIndex;
    return Number.isFinite(value) ? value : fail("number out of range");
  };
  const array = (): unknown[] => {
    const items: unknown[] = [];
    at++;
    skip();
    if (text[at] === "]") {
      at++;
      return items;
    }
    for (;;) {
      path.push(String(items.length));
      items.push(value());
      path.pop();
      if (text[at] === "]") {
        at++;
        return items;
      }
      if (text[at] !== ",") {
        return fail("expected , or ]");
      }
      at++;
    }
  };
  const object = (): Record<string, unknown> => {
    const members = Object.create(null) as Record<string, unknown>;
    at++;
    skip();
    if (text[at] === "}") {
      at++;
      return members;
    }
    for (;;) {
      skip();
      const name = string();
      skip();
      if (text[at] !== ":") {
        return fail("expected :");
      }
      at++;
      path.push(name);
      if (Object.hasOwn(members, name)) {
        duplicates.push([...path]);
      }
      members[name] = value();
      path.pop();
      if (text[at] === "}") {
        at++;
        return members;
      }
      if (text[at] !== ",") {
        return fail("expected , or }");
      }
      at++;
    }
  };
  const value = (): unknown => {
    if (path.length > options.maxDepth) {
      return fail(`nested deeper than ${options.maxDepth} levels`);
    }
    skip();
    const start = at;
    const char = text[at];
    let read: unknown;
    if (char === "{") {
      read = object();
    } else if (char === "[") {
      read = array();
    } else if (char === '"') {
      read = string();
    } else if (char === "t") {
      read = word("true", true);
    } else if (char === "f") {
      read = word("false", false);
    } else if (char === "n") {
      read = word("null", null);
    } else {
      read = number();
    }
    if (path.length <= spanDepth) {
      spans.set(JSON.stringify(path), [start, at]);
    }
    skip();
    return read;
  };

  const whole = value();
  if (at !== text.length) {
    fail("text behind the end of the document");
  }
  return {
    value: whole,
    duplicates,
    source(wanted) {
      const span = spans.get(JSON.stringify(wanted));
      return span && text.slice(span[0], span[1]);
    },
  };
}

/** Whether a parsed value is a JSON object. */
export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Names that scripts give a meaning of their own; refused wherever a name comes from outside (decision 36). */
const SPECIAL_NAMES: ReadonlySet<string> = new Set(["__proto__", "constructor", "prototype"]);

/** Whether a name from outside is one of the special ones. */
export function isSpecialName(name: string): boolean {
  return SPECIAL_NAMES.has(name);
}
