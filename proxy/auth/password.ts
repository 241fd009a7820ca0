import { hash } from "node:crypto";
import type { PasswordGroup } from "../../policy/documents/access.ts";
import type { Check } from "./check.ts";
import { equalsSecret, toSecret } from "./secrets.ts";

/** Basic credentials with the user name and a password of the stored hash (edge-proxy.md 2.2). */
export function compilePassword({ username, password, salt }: PasswordGroup): Check {
  const name = toSecret(username);
  const digest = toSecret(password);
  const saltBytes = Buffer.from(salt, "utf8");
  return (presented) => {
    const credentials = readBasic(presented.header("authorization"));
    if (credentials === null) {
      return false;
    }
    // Both are always compared, so that the time does not tell a known name.
    const sent = hash("sha256", Buffer.concat([saltBytes, credentials.password]), "hex");
    const nameFits = equalsSecret(credentials.username, name);
    return equalsSecret(sent, digest) && nameFits;
  };
}

const BASIC = /^basic +([A-Za-z0-9+/]+={0,2}) *$/i;

/** User name (latin1 text) and password bytes of a Basic field (RFC 7617); null for anything else. */
function readBasic(field: string | undefined): { username: string; password: Buffer } | null {
  const match = field === undefined ? null : BASIC.exec(field);
  if (match === null) {
    return null;
  }
  const bytes = Buffer.from(match[1] ?? "", "base64");
  const colon = bytes.indexOf(0x3a);
  return colon === -1
    ? null
    : { username: bytes.toString("latin1", 0, colon), password: bytes.subarray(colon + 1) };
}
