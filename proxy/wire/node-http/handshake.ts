import type { IncomingMessage } from "node:http";

/** Decision 3: one `Upgrade: websocket` alone, GET, HTTP/1.1, a valid key, no body. Anything else is an ordinary request. */
export function isHandshake(request: IncomingMessage): boolean {
  if (
    request.method !== "GET" ||
    request.httpVersionMajor !== 1 ||
    request.httpVersionMinor !== 1
  ) {
    return false;
  }
  const fields = request.rawHeaders;
  let upgrades = 0;
  let keys = 0;
  let nominated = false;
  for (let i = 0; i < fields.length; i += 2) {
    const value = fields[i + 1]!;
    switch (fields[i]!.toLowerCase()) {
      case "upgrade":
        upgrades += value.toLowerCase() === "websocket" ? 1 : 2;
        break;
      case "sec-websocket-key":
        keys += /^[A-Za-z0-9+/]{22}==$/.test(value) ? 1 : 2;
        break;
      case "connection":
        nominated ||= value
          .toLowerCase()
          .split(",")
          .some((option) => option.trim() === "upgrade");
        break;
      case "content-length":
      case "transfer-encoding":
        if (value !== "0") {
          return false;
        }
        break;
      default:
        break;
    }
  }
  return upgrades === 1 && keys === 1 && nominated;
}
