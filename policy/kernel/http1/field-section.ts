/** Control characters, a lone CR or LF, and continuation lines (RFC 9112 2.2, 5.2). */
export const FORBIDDEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|[^\r]\n|\n[ \t]/;
/** RFC 9110 5.6.2. */
export const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/**
 * Reads `name: value CRLF` lines of `text` from `at` to its end; false when a line is not one. The text was tested
 * against FORBIDDEN.
 */
export function readFields(text: string, at: number, into: string[]): boolean {
  while (at < text.length) {
    const lineEnd = text.indexOf("\r\n", at);
    const colon = text.indexOf(":", at);
    if (colon <= at || lineEnd < colon) {
      return false;
    }
    const name = text.slice(at, colon);
    if (!TOKEN.test(name)) {
      return false; // a blank before the colon included (RFC 9112 5.1)
    }
    let from = colon + 1;
    let to = lineEnd;
    while (from < to && isBlank(text.charCodeAt(from))) {
      from++;
    }
    while (to > from && isBlank(text.charCodeAt(to - 1))) {
      to--;
    }
    into.push(name, text.slice(from, to));
    at = lineEnd + 2;
  }
  return true;
}

function isBlank(code: number): boolean {
  return code === 32 || code === 9;
}
