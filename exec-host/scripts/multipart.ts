/** A part that came with a file name. */
export interface UploadedFile {
  readonly fieldName: string;
  readonly filename: string;
  /** As the part declares it; empty when it does not. */
  readonly type: string;
  readonly size: number;
  readonly data: Buffer;
}

/** A decoded multipart body. */
export interface MultipartForm {
  /** Text parts in order; a name may come more than once. */
  readonly fields: readonly (readonly [name: string, value: string])[];
  readonly files: readonly UploadedFile[];
}

const MAX_PARTS = 2000;
const MAX_PART_HEAD_BYTES = 16_384;
const CRLF = Buffer.from("\r\n");
const HEAD_END = Buffer.from("\r\n\r\n");

/** The boundary parameter of a `multipart/form-data` content type, or null. */
export function boundaryOf(contentType: string): string | null {
  const found = /;\s*boundary=(?:"([^"]{1,200})"|([^\s;"]{1,200}))/i.exec(contentType);
  return found?.[1] ?? found?.[2] ?? null;
}

/** Reads a form (RFC 7578). Null when the body is not one; nothing is merged or left out. */
export function parseMultipart(body: Buffer, boundary: string): MultipartForm | null {
  const delimiter = Buffer.from(`--${boundary}`, "latin1");
  const separator = Buffer.concat([CRLF, delimiter]);
  const fields: [string, string][] = [];
  const files: UploadedFile[] = [];
  let at = findFirst(body, delimiter);
  for (let count = 0; at !== -1 && count <= MAX_PARTS; count++) {
    if (body.toString("latin1", at, at + 2) === "--") {
      return { fields, files };
    }
    const lineEnd = body.indexOf(CRLF, at);
    if (lineEnd === -1 || !/^[ \t]*$/.test(body.toString("latin1", at, lineEnd))) {
      return null;
    }
    const part = readPart(body, lineEnd, separator);
    if (part === null) {
      return null;
    }
    if (part.filename === null) {
      fields.push([part.name, part.data.toString("utf8")]);
    } else {
      const { name: fieldName, filename, type, data } = part;
      files.push({ fieldName, filename, type, size: data.length, data });
    }
    at = part.next;
  }
  return null;
}

function findFirst(body: Buffer, delimiter: Buffer): number {
  const at = body.indexOf(delimiter);
  const isAtLineStart = at === 0 || (at >= 2 && body.toString("latin1", at - 2, at) === "\r\n");
  return isAtLineStart ? at + delimiter.length : -1;
}

interface Part {
  readonly name: string;
  readonly filename: string | null;
  readonly type: string;
  readonly data: Buffer;
  /** Behind the delimiter that ends it. */
  readonly next: number;
}

/** @param from where the CRLF behind the delimiter begins; a part without fields has its blank line right there. */
function readPart(body: Buffer, from: number, separator: Buffer): Part | null {
  const headEnd = body.indexOf(HEAD_END, from);
  if (headEnd === -1 || headEnd - from > MAX_PART_HEAD_BYTES) {
    return null;
  }
  const start = headEnd + HEAD_END.length;
  // The delimiter may follow the blank line at once: its CRLF is then the head's own.
  const end = body.indexOf(separator, start - 2);
  if (end === -1) {
    return null;
  }
  const head = body.toString("utf8", from, headEnd);
  const disposition = /^content-disposition:[ \t]*form-data(;[^\r\n]*)$/im.exec(head)?.[1];
  const name = disposition === undefined ? null : parameter(disposition, "name");
  if (disposition === undefined || name === null) {
    return null;
  }
  return {
    name,
    filename: parameter(disposition, "filename"),
    type: /^content-type:[ \t]*([^\r\n]*)/im.exec(head)?.[1]?.trim() ?? "",
    data: end < start ? Buffer.alloc(0) : body.subarray(start, end),
    next: end + separator.length,
  };
}

function parameter(disposition: string, name: string): string | null {
  const found = new RegExp(`;\\s*${name}=(?:"((?:[^"\\\\]|\\\\.)*)"|([^\\s;"]+))`, "i").exec(
    disposition,
  );
  const value = found?.[1] ?? found?.[2];
  return value === undefined
    ? null
    : value
        .replace(/\\(["\\])/g, "$1")
        .replace(/%(22|0D|0A)/gi, (_, hex: string) =>
          String.fromCharCode(Number.parseInt(hex, 16)),
        );
}
