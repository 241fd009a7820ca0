import { isObject, ownMember } from "../settings/canonical-json.ts";

/** What a hook said in JSON. */
export interface HookOutput {
  /** `deny` where anything in the output denies, blocks or stops; `ask` also for a word that is not known. */
  readonly decision: "deny" | "ask" | "allow" | "none";
  readonly reason: string;
  /** As given; it must turn out to be an object. Absent: no rewrite. */
  readonly updatedInput?: unknown;
  readonly context: readonly string[];
}

const KNOWN_KEYS = [
  "continue",
  "stopReason",
  "systemMessage",
  "suppressOutput",
  "decision",
  "reason",
  "hookSpecificOutput",
];
const MAX_CANDIDATES = 200;
const MAX_TEXT_CHARS = 16_384;

/**
 * Finds and reads the JSON in a hook's standard output. Other text may stand around it; where several objects
 * are found, the strictest decision counts, and rewrite and context are the last one's.
 *
 * @returns null when there is none.
 */
export function readHookOutput(stdout: string): HookOutput | null {
  const objects = findObjects(stdout).filter((object) =>
    KNOWN_KEYS.some((key) => Object.hasOwn(object, key)),
  );
  const outputs = objects.map(readObject);
  const last = outputs.at(-1);
  if (last === undefined) {
    return null;
  }
  const strictest =
    outputs.find((output) => output.decision === "deny") ??
    outputs.find((output) => output.decision === "ask") ??
    last;
  return { ...last, decision: strictest.decision, reason: strictest.reason };
}

function readObject(object: Record<string, unknown>): HookOutput {
  const specific = ownMember(object, "hookSpecificOutput");
  const inner = isObject(specific) ? specific : {};
  const decision = readDecision(object, inner);
  const reasons = [
    ownMember(inner, "permissionDecisionReason"),
    ownMember(object, "reason"),
    ownMember(object, "stopReason"),
  ];
  const context = [ownMember(object, "systemMessage"), ownMember(inner, "additionalContext")]
    .map(toText)
    .filter((text) => text !== "");
  return {
    decision,
    reason: reasons.map(toText).find((reason) => reason !== "") ?? "",
    ...(Object.hasOwn(inner, "updatedInput") ? { updatedInput: inner["updatedInput"] } : {}),
    context,
  };
}

function readDecision(
  object: Record<string, unknown>,
  inner: Record<string, unknown>,
): HookOutput["decision"] {
  const words = [ownMember(inner, "permissionDecision"), ownMember(object, "decision")]
    .filter((word) => word !== undefined && word !== null)
    .map(toDecision);
  if (ownMember(object, "continue") === false || words.includes("deny")) {
    return "deny";
  }
  if (words.includes("ask")) {
    return "ask";
  }
  return words.includes("allow") ? "allow" : "none";
}

/** A word that is not known was meant as some answer; a person decides which. */
function toDecision(word: unknown): "deny" | "ask" | "allow" {
  switch (word) {
    case "deny":
    case "block":
      return "deny";
    case "allow":
    case "approve":
      return "allow";
    default:
      return "ask";
  }
}

function toText(value: unknown): string {
  return typeof value === "string" ? value.slice(0, MAX_TEXT_CHARS) : "";
}

/** JSON objects in a text, in order, none inside another. */
function findObjects(text: string): Record<string, unknown>[] {
  const whole = parseObject(text.trim());
  if (whole !== null) {
    return [whole];
  }
  const objects: Record<string, unknown>[] = [];
  let end = 0;
  for (const start of candidates(text)) {
    if (start < end) {
      continue;
    }
    const close = objectEnd(text, start);
    const object = close === -1 ? null : parseObject(text.slice(start, close));
    if (object !== null) {
      objects.push(object);
      end = close;
    }
  }
  return objects;
}

/** Where an object may begin: brackets followed by a key. Only so many are tried, the first and the last ones. */
function candidates(text: string): number[] {
  const starts = [...text.matchAll(/\{(?=\s{0,200}["}])/g)].map((match) => match.index);
  if (starts.length <= 2 * MAX_CANDIDATES) {
    return starts;
  }
  return [...starts.slice(0, MAX_CANDIDATES), ...starts.slice(-MAX_CANDIDATES)];
}

/** Index after the bracket that closes the one at `start`; -1 when there is none. */
function objectEnd(text: string, start: number): number {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const char = text.charAt(at);
    if (char === '"') {
      at += 1;
      while (at < text.length && text.charAt(at) !== '"') {
        at += text.charAt(at) === "\\" ? 2 : 1;
      }
    } else if (char === "{") {
      depth += 1;
    } else if (char === "}") {
      depth -= 1;
      if (depth === 0) {
        return at + 1;
      }
    }
  }
  return -1;
}

function parseObject(text: string): Record<string, unknown> | null {
  if (!text.startsWith("{")) {
    return null;
  }
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}
