import { isUtf8 } from "node:buffer";
import { isJsonObject, parseStrictJson } from "../../policy/kernel/strict-json.ts";

const BASE64URL = /^[A-Za-z0-9_-]+$/;
const MAX_DEPTH = 16;

/** The bytes of base64url text without padding; null for anything else, non-canonical last characters included. */
export function decodeBase64Url(text: string): Buffer | null {
  if (!BASE64URL.test(text)) {
    return null;
  }
  const bytes = Buffer.from(text, "base64url");
  return bytes.toString("base64url") === text ? bytes : null;
}

/**
 * The JSON object in a base64url part of a token; null when it is none, is not UTF-8, is too deep or names a member
 * twice, where readers would disagree about what was signed.
 */
export function decodeJsonPart(text: string): Readonly<Record<string, unknown>> | null {
  const bytes = decodeBase64Url(text);
  if (bytes === null || !isUtf8(bytes)) {
    return null;
  }
  try {
    const { value, duplicates } = parseStrictJson(bytes.toString("utf8"), { maxDepth: MAX_DEPTH });
    return isJsonObject(value) && duplicates.length === 0 ? value : null;
  } catch {
    return null; // not JSON: the token is not valid, whatever else it is
  }
}
