/**
 * True for control characters, a lone CR or LF, and continuation lines (RFC 9112 2.2, 5.2). A loop, because it is run
 * over every head and takes a fifth of what a regular expression with these alternatives takes.
 */
export function isForbidden(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if ((code >= 32 && code !== 127) || code === 9) {
      continue;
    }
    if (code === 13) {
      if (text.charCodeAt(i + 1) !== 10) {
        return true;
      }
    } else if (code === 10) {
      if ((i > 0 && text.charCodeAt(i - 1) !== 13) || isBlank(text.charCodeAt(i + 1))) {
        return true;
      }
    } else {
      return true;
    }
  }
  return false;
}

/** RFC 9110 5.6.2. */
export const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/**
 * Reads `name: value CRLF` lines of `text` from `at` to its end; false when a line is not one. The text was tested
 * with `isForbidden`.
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
