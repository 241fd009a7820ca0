import { boundaryOf, parseMultipart, type MultipartForm } from "../scripts/multipart.ts";
import { readLater, type HostRequest } from "./host-request.ts";

/**
 * Gives a script its buffered body: `req.rawBody` at once, `req.body` and `req.files` when they are looked at, so
 * that a script that only passes the bytes on never pays for reading them (exec-host.md 4.1). Each can be assigned.
 */
export function presentBody(req: HostRequest, bytes: Buffer): void {
  req.rawBody = bytes;
  const contentType = req.headers["content-type"] ?? "";
  const type = (contentType.split(";", 1)[0] ?? "").trim().toLowerCase();
  if (type === "multipart/form-data") {
    let form: MultipartForm | null | undefined;
    const read = (): MultipartForm | null => {
      const boundary = boundaryOf(contentType);
      form ??= boundary === null ? null : parseMultipart(bytes, boundary);
      return form;
    };
    readLater(req, "body", () => toRecord(read()?.fields) ?? bytes);
    readLater(req, "files", () => read()?.files);
    return;
  }
  if (type === "application/json") {
    readLater(req, "body", () => {
      const parsed = tryJson(bytes);
      return parsed.ok ? parsed.value : bytes;
    });
  } else if (type === "application/x-www-form-urlencoded") {
    readLater(req, "body", () => toRecord(new URLSearchParams(bytes.toString("utf8"))));
  } else {
    req.body = bytes;
  }
}

/** Whether a body that calls itself JSON is none; asked for ordinary calls, which are then refused. */
export function isMalformedJson(req: HostRequest, bytes: Buffer): boolean {
  const type = (req.headers["content-type"] ?? "").split(";", 1)[0]?.trim().toLowerCase();
  if (type !== "application/json") {
    return false;
  }
  const parsed = tryJson(bytes);
  if (parsed.ok) {
    req.body = parsed.value;
  }
  return !parsed.ok;
}

function tryJson(bytes: Buffer): { ok: true; value: unknown } | { ok: false } {
  try {
    return {
      ok: true,
      value: JSON.parse(bytes.toString("utf8").replace(/^\uFEFF/, "")) as unknown,
    };
  } catch {
    return { ok: false };
  }
}

/** The last value of a repeated name; own properties whatever the names are, since they come from clients. */
function toRecord(
  pairs: Iterable<readonly [string, string]> | undefined,
): Record<string, string> | undefined {
  if (pairs === undefined) {
    return undefined;
  }
  const record: Record<string, string> = {};
  for (const [name, value] of pairs) {
    Object.defineProperty(record, name, {
      value,
      writable: true,
      enumerable: true,
      configurable: true,
    });
  }
  return record;
}
