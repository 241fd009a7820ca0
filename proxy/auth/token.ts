import type { TokenGroup } from "../../policy/documents/access.ts";
import { headerCredential } from "./bearer.ts";
import type { Check } from "./check.ts";
import { equalsSecret, toSecret, toWireText } from "./secrets.ts";

/** The exact value in the group's header, cookie or query parameter (edge-proxy.md 2.2). */
export function compileToken({ header, cookie, param, value }: TokenGroup): Check {
  const secret = toSecret(value);
  const fits = (sent: string | undefined) => sent !== undefined && equalsSecret(sent, secret);
  if (header !== undefined) {
    const lower = header.toLowerCase();
    // A value that starts with the word itself is compared as it came, too.
    return (presented) => fits(headerCredential(presented, lower)) || fits(presented.header(lower));
  }
  if (cookie !== undefined) {
    return (presented) => fits(presented.cookie(cookie));
  }
  const name = toWireText(param ?? "");
  return (presented) => fits(presented.param(name));
}
