/**
 * The client's path as text: UTF-8 where its bytes are that, `%XX` for bytes that are not (exec-host.md 5.1).
 *
 * @param path latin1 text, one character per byte.
 */
export function toPathText(path: string): string {
  if (!/[^\0-\x7f]/.test(path)) {
    return path;
  }
  const bytes = Buffer.from(path, "latin1");
  let text = "";
  for (let at = 0; at < bytes.length;) {
    const size = sequenceLength(bytes, at);
    if (size === 0) {
      text += `%${bytes[at]!.toString(16).toUpperCase().padStart(2, "0")}`;
      at += 1;
    } else {
      text += bytes.toString("utf8", at, at + size);
      at += size;
    }
  }
  return text;
}

/** Length of the valid UTF-8 sequence at `at`, 0 when there is none (RFC 3629, no overlong forms, no surrogates). */
function sequenceLength(bytes: Buffer, at: number): number {
  const first = bytes[at]!;
  if (first < 0x80) {
    return 1;
  }
  const size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || at + size > bytes.length) {
    return 0;
  }
  for (let i = 1; i < size; i++) {
    if ((bytes[at + i]! & 0xc0) !== 0x80) {
      return 0;
    }
  }
  const second = bytes[at + 1]!;
  const isForbidden =
    (first === 0xe0 && second < 0xa0) ||
    (first === 0xed && second > 0x9f) ||
    (first === 0xf0 && second < 0x90) ||
    (first === 0xf4 && second > 0x8f);
  return isForbidden ? 0 : size;
}
