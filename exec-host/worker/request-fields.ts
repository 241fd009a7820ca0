import type { FieldLines } from "../../policy/kernel/exchange.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import { areHeadersSeen, type HostRequest } from "./host-request.ts";
import { isSendableValue } from "./overrides.ts";

type Headers = Record<string, string | readonly string[] | undefined>;

/**
 * The client's fields as the script wants them sent: the received lines, byte for byte, unless the script changed
 * `req.headers`. What it deleted there must not reach the service, and what it set there must.
 *
 * @throws HookUpstreamError `invalid-override` for a changed value that cannot be sent.
 */
export function requestFields(req: HostRequest): FieldLines {
  const { rawHeaders } = req;
  if (!areHeadersSeen(req)) {
    return rawHeaders;
  }
  const { headers } = req;
  return isUnchanged(rawHeaders, headers) ? rawHeaders : merge(rawHeaders, headers, original(req));
}

/** The usual case, told without building anything: no repeated names, every value still the received one. */
function isUnchanged(lines: FieldLines, headers: Headers): boolean {
  let names = 0;
  for (const name in headers) {
    if (Object.hasOwn(headers, name)) {
      names++;
    }
  }
  if (names * 2 !== lines.length) {
    return false;
  }
  for (let i = 0; i + 1 < lines.length; i += 2) {
    if (headers[lines[i]!.toLowerCase()] !== lines[i + 1]) {
      return false;
    }
  }
  return true;
}

/** The headers object as Node first made it: repeated lines joined or dropped by its rules. */
function original(req: HostRequest): Headers {
  const { rawHeaders } = req;
  const fresh: Headers = {};
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    (req as unknown as HeaderLine)._addHeaderLine(rawHeaders[i]!, rawHeaders[i + 1]!, fresh);
  }
  return fresh;
}

interface HeaderLine {
  _addHeaderLine(name: string, value: string, target: Headers): void;
}

function merge(lines: FieldLines, headers: Headers, before: Headers): FieldLines {
  const changed = new Set<string>();
  for (const name of Object.keys({ ...before, ...headers })) {
    if (String(headers[name]) !== String(before[name])) {
      changed.add(name);
    }
  }
  if (changed.size === 0) {
    return lines;
  }
  const merged: string[] = [];
  for (let i = 0; i + 1 < lines.length; i += 2) {
    if (!changed.has(lines[i]!.toLowerCase())) {
      merged.push(lines[i]!, lines[i + 1]!);
    }
  }
  for (const name of changed) {
    for (const value of [headers[name] ?? []].flat() as unknown[]) {
      const text = String(value);
      if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name) || !isSendableValue(text)) {
        throw new HookUpstreamError(
          "invalid-override",
          `req.headers has a field that cannot be sent`,
        );
      }
      merged.push(name, text);
    }
  }
  return merged;
}
