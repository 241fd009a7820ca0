/**
 * Regular expressions whose matching time is bounded by pattern size times text length. The matcher of a lifecycle hook comes
 * from a repository's own settings file and runs in the gateway on every call, so a backtracking engine would let a file stop the
 * gateway. The dialect is JavaScript's without flags, except that back references and look-behind are refused, and that
 * look-ahead may only stand at the beginning of an alternative (`(?!Bash).*`), where it is tried once.
 */

/** Longest pattern. */
const MAX_PATTERN_CHARS = 256;
const MAX_STATES = 1024;
const MAX_GROUP_DEPTH = 32;

type Test = (code: number) => boolean;
type State =
  | { readonly kind: "char"; readonly test: Test; next: number }
  | { readonly kind: "split"; next: number; other: number }
  | { readonly kind: "assert"; readonly holds: (text: string, at: number) => boolean; next: number }
  | { readonly kind: "look"; readonly start: number; readonly negative: boolean; next: number }
  | { readonly kind: "accept" };

/** A compiled pattern; `test` is true when the whole text fits. */
export interface LinearRegExp {
  test(text: string): boolean;
}

/**
 * Compiles a pattern that must fit the whole text, as if written `^(?:pattern)$`.
 *
 * @returns null when it does not compile, is too large, or uses what cannot be matched in linear time.
 */
export function compileLinear(pattern: string): LinearRegExp | null {
  if (pattern.length > MAX_PATTERN_CHARS) {
    return null;
  }
  try {
    RegExp(pattern); // the dialect's own judgement first; it is never run
    const states: State[] = [];
    const parser = createParser(pattern, states);
    const start = parser.parseAll();
    return { test: (text) => run(states, start, text, 0) };
  } catch {
    return null;
  }
}

/** Depth-first search over (state, position), each visited once. */
function run(states: readonly State[], start: number, text: string, from: number): boolean {
  const width = text.length + 1;
  const seen = new Uint8Array(states.length * width);
  const stack: number[] = [start * width + from];
  for (let entry = stack.pop(); entry !== undefined; entry = stack.pop()) {
    if (seen[entry] === 1) {
      continue;
    }
    seen[entry] = 1;
    const at = entry % width;
    const state = states[(entry - at) / width];
    switch (state?.kind) {
      case "char":
        if (at < text.length && state.test(text.charCodeAt(at))) {
          stack.push(state.next * width + at + 1);
        }
        break;
      case "split":
        stack.push(state.other * width + at, state.next * width + at);
        break;
      case "assert":
        if (state.holds(text, at)) {
          stack.push(state.next * width + at);
        }
        break;
      case "look":
        if (run(states, state.start, text, at) !== state.negative) {
          stack.push(state.next * width + at);
        }
        break;
      case "accept":
        return true;
      case undefined:
        break;
    }
  }
  return false;
}

type Node =
  | { readonly kind: "empty" }
  | { readonly kind: "char"; readonly test: Test }
  | { readonly kind: "assert"; readonly holds: (text: string, at: number) => boolean }
  | { readonly kind: "look"; readonly body: Node; readonly negative: boolean }
  | { readonly kind: "sequence"; readonly items: readonly Node[] }
  | { readonly kind: "choice"; readonly items: readonly Node[] }
  | { readonly kind: "repeat"; readonly item: Node; readonly min: number; readonly max: number };

const isDigit: Test = (code) => code >= 48 && code <= 57;
const isWord: Test = (code) =>
  isDigit(code) || code === 95 || (code >= 65 && code <= 90) || (code >= 97 && code <= 122);
const isSpace: Test = (code) => /\s/.test(String.fromCharCode(code));
const isNewline: Test = (code) => code === 10 || code === 13 || code === 0x2028 || code === 0x2029;
const not =
  (test: Test): Test =>
  (code) =>
    !test(code);
const CLASSES: ReadonlyMap<string, Test> = new Map([
  ["d", isDigit],
  ["D", not(isDigit)],
  ["w", isWord],
  ["W", not(isWord)],
  ["s", isSpace],
  ["S", not(isSpace)],
]);
const CONTROLS: ReadonlyMap<string, number> = new Map([
  ["n", 10],
  ["r", 13],
  ["t", 9],
  ["v", 11],
  ["f", 12],
  ["0", 0],
]);

function atBoundary(text: string, at: number): boolean {
  const before = at > 0 && isWord(text.charCodeAt(at - 1));
  const after = at < text.length && isWord(text.charCodeAt(at));
  return before !== after;
}

class Unsupported extends Error {}

function createParser(pattern: string, states: State[]) {
  let at = 0;
  let depth = 0;
  let atStart = true;

  const peek = (): string => pattern.charAt(at);
  const take = (): string => pattern.charAt(at++);

  function parseChoice(): Node {
    depth += 1;
    if (depth > MAX_GROUP_DEPTH) {
      throw new Unsupported();
    }
    const items = [parseSequence()];
    while (peek() === "|") {
      at += 1;
      atStart = depth === 1;
      items.push(parseSequence());
    }
    depth -= 1;
    return items.length === 1 ? (items[0] ?? { kind: "empty" }) : { kind: "choice", items };
  }

  function parseSequence(): Node {
    const items: Node[] = [];
    while (at < pattern.length && peek() !== "|" && peek() !== ")") {
      items.push(parseRepeat(parseAtom()));
    }
    return { kind: "sequence", items };
  }

  function parseRepeat(item: Node): Node {
    const bounds = /^(?:([*+?])|\{(\d+)(,)?(\d+)?\})\??/.exec(pattern.slice(at));
    if (bounds === null) {
      return item;
    }
    at += bounds[0].length;
    if (bounds[1] !== undefined) {
      const max = bounds[1] === "?" ? 1 : Infinity;
      return { kind: "repeat", item, min: bounds[1] === "+" ? 1 : 0, max };
    }
    const min = Number(bounds[2]);
    const max =
      bounds[3] === undefined ? min : bounds[4] === undefined ? Infinity : Number(bounds[4]);
    return { kind: "repeat", item, min, max };
  }

  function parseAtom(): Node {
    const char = take();
    if (char === "(") {
      return parseGroup();
    }
    atStart &&= char === "^";
    switch (char) {
      case "[":
        return { kind: "char", test: parseSet() };
      case ".":
        return { kind: "char", test: not(isNewline) };
      case "^":
        return { kind: "assert", holds: (_text, place) => place === 0 };
      case "$":
        return { kind: "assert", holds: (text, place) => place === text.length };
      case "\\":
        if (peek() === "b" || peek() === "B") {
          const wanted = take() === "b";
          return { kind: "assert", holds: (text, place) => atBoundary(text, place) === wanted };
        }
        return { kind: "char", test: parseEscape() };
      default: {
        const code = char.charCodeAt(0);
        return { kind: "char", test: (other) => other === code };
      }
    }
  }

  function parseGroup(): Node {
    let look: "no" | "positive" | "negative" = "no";
    if (pattern.startsWith("?:", at)) {
      at += 2;
    } else if (pattern.startsWith("?=", at) || pattern.startsWith("?!", at)) {
      look = pattern.charAt(at + 1) === "=" ? "positive" : "negative";
      at += 2;
      if (!atStart) {
        throw new Unsupported();
      }
    } else if (/^\?<[A-Za-z_]/.test(pattern.slice(at))) {
      at = pattern.indexOf(">", at) + 1;
    } else if (peek() === "?") {
      throw new Unsupported(); // look-behind and inline flags
    }
    atStart = false;
    const body = parseChoice();
    atStart = look !== "no";
    at += 1; // the closing bracket; RegExp has seen that it is there
    return look === "no" ? body : { kind: "look", body, negative: look === "negative" };
  }

  /** After the backslash: a class, or one character. */
  function parseEscape(): Test {
    const char = take();
    const known = CLASSES.get(char);
    if (known !== undefined) {
      return known;
    }
    const code = escapedCode(char);
    return (other) => other === code;
  }

  function escapedCode(char: string): number {
    const control = CONTROLS.get(char);
    if (control !== undefined && !(char === "0" && /\d/.test(peek()))) {
      return control;
    }
    const hex = char === "x" ? 2 : char === "u" ? 4 : 0;
    if (hex > 0) {
      const digits = pattern.slice(at, at + hex);
      if (!/^[0-9a-fA-F]+$/.test(digits) || digits.length !== hex) {
        throw new Unsupported();
      }
      at += hex;
      return Number.parseInt(digits, 16);
    }
    if (/[0-9A-Za-z]/.test(char) || char === "") {
      throw new Unsupported(); // back references, \k, \p, \c and identity escapes of letters
    }
    return char.charCodeAt(0);
  }

  function parseSet(): Test {
    const negated = peek() === "^";
    if (negated) {
      at += 1;
    }
    const tests: Test[] = [];
    while (peek() !== "]") {
      const low = parseSetItem();
      if (peek() === "-" && pattern.charAt(at + 1) !== "]" && typeof low === "number") {
        at += 1;
        const high = parseSetItem();
        if (typeof high !== "number") {
          throw new Unsupported();
        }
        tests.push((code) => code >= low && code <= high);
      } else {
        tests.push(typeof low === "number" ? (code) => code === low : low);
      }
    }
    at += 1;
    return (code) => tests.some((test) => test(code)) !== negated;
  }

  function parseSetItem(): number | Test {
    const char = take();
    if (char !== "\\") {
      return char.charCodeAt(0);
    }
    if (peek() === "b") {
      at += 1;
      return 8;
    }
    const known = CLASSES.get(peek());
    if (known !== undefined) {
      at += 1;
      return known;
    }
    return escapedCode(take());
  }

  function add(state: State): number {
    if (states.length >= MAX_STATES) {
      throw new Unsupported();
    }
    return states.push(state) - 1;
  }

  /** Adds the states of a node that continues at `next`; returns where it begins. */
  function emit(node: Node, next: number): number {
    switch (node.kind) {
      case "empty":
        return next;
      case "char":
        return add({ kind: "char", test: node.test, next });
      case "assert":
        return add({ kind: "assert", holds: node.holds, next });
      case "look": {
        const start = emit(node.body, add({ kind: "accept" }));
        return add({ kind: "look", start, negative: node.negative, next });
      }
      case "sequence":
        return node.items.reduceRight((following, item) => emit(item, following), next);
      case "choice":
        return node.items
          .map((item) => emit(item, next))
          .reduce((other, start) => add({ kind: "split", next: start, other }));
      case "repeat":
        return emitRepeat(node.item, node.min, node.max, next);
    }
  }

  function emitRepeat(item: Node, min: number, max: number, next: number): number {
    if (min > MAX_STATES || (max !== Infinity && max > MAX_STATES)) {
      throw new Unsupported();
    }
    let start = next;
    if (max === Infinity) {
      const split = add({ kind: "split", next, other: next });
      const state = states[split];
      if (state?.kind === "split") {
        state.next = emit(item, split);
      }
      start = split;
    } else {
      for (let i = min; i < max; i++) {
        start = add({ kind: "split", next: emit(item, start), other: next });
      }
    }
    for (let i = 0; i < min; i++) {
      start = emit(item, start);
    }
    return start;
  }

  return {
    parseAll(): number {
      const tree = parseChoice();
      if (at !== pattern.length) {
        throw new Unsupported();
      }
      const accept = add({ kind: "accept" });
      const end = add({
        kind: "assert",
        holds: (text, place) => place === text.length,
        next: accept,
      });
      return emit(tree, end);
    },
  };
}
