import { formatCell } from "./output.ts";

/** A script target on one line: `subdomain/execId:path`, without what it does not name. */
export function scriptText(
  script:
    | { readonly subdomain?: unknown; readonly execId?: unknown; readonly path?: unknown }
    | undefined,
): string {
  const place = [script?.subdomain, script?.execId].filter((part) => part !== undefined);
  const path = formatCell(script?.path);
  return place.length === 0 ? path : `${place.map(formatCell).join("/")}:${path}`;
}
