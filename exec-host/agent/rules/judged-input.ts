import { toToolName } from "../hooks/matcher.ts";
import type { JsonObject } from "../seams.ts";
import { canonicalJson } from "../settings/canonical-json.ts";

/** Longest canonical JSON of a call's parameters that is shown to the judge. */
const MAX_JUDGED_BYTES = 65_536;
/** Kept at each end of a long text field of a writing tool. */
const END_BYTES = 8192;

const WRITING_TOOLS = new Set(["write_file", "edit_file"]);

/**
 * What the judge sees of a call's parameters: their canonical JSON; for a tool that writes files, long texts are replaced by size and
 * both ends.
 *
 * @returns null for an input that is too large to be judged: the call then counts as unchecked.
 */
export function toJudgedInput(tool: string, params: JsonObject): string | null {
  try {
    const shown = WRITING_TOOLS.has(toToolName(tool)) ? digestOf(params) : params;
    const json = canonicalJson(shown);
    return Buffer.byteLength(json) <= MAX_JUDGED_BYTES ? json : null;
  } catch {
    return null; // nested deeper than can be written down
  }
}

function digestOf(params: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(params).map(([key, value]) => [
      key,
      typeof value === "string" && key !== "path" ? toEnds(value) : value,
    ]),
  );
}

function toEnds(text: string): unknown {
  const bytes = Buffer.from(text, "utf8");
  if (bytes.length <= 2 * END_BYTES) {
    return text;
  }
  return {
    size_bytes: bytes.length,
    head: wholeCharacters(bytes.subarray(0, END_BYTES)),
    tail: wholeCharacters(bytes.subarray(bytes.length - END_BYTES)),
  };
}

/** Drops a character that the cut went through. */
function wholeCharacters(bytes: Buffer): string {
  let start = 0;
  while (start < bytes.length && ((bytes[start] ?? 0) & 0xc0) === 0x80) {
    start += 1;
  }
  return bytes
    .subarray(start)
    .toString("utf8")
    .replace(/\uFFFD$/, "");
}
