import { describe } from "./hook.ts";
import { isJsonObject } from "../kernel/strict-json.ts";

/** The version counter in a stored text: 0 without a document; a text that has none that can be read is not a document. */
export function storedVersion(
  text: string | null,
):
  | { readonly ok: true; readonly version: number }
  | { readonly ok: false; readonly reason: string } {
  if (text === null) {
    return { ok: true, version: 0 };
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { ok: false, reason: "the stored document is not valid JSON" };
  }
  if (!isJsonObject(value)) {
    return { ok: false, reason: "the stored document is not a JSON object" };
  }
  const version = value["file_version"] ?? 0;
  return typeof version === "number" && Number.isSafeInteger(version) && version >= 0
    ? { ok: true, version }
    : { ok: false, reason: `/file_version must be a whole number, but is ${describe(version)}` };
}
