import { programBySpelling } from "../policy/documents/access.ts";
import type { AliasRecord } from "../policy/documents/alias.ts";
import { serviceByName } from "../policy/documents/services.ts";
import { decodeForm, removeQueryKey, splitTarget } from "../policy/kernel/target.ts";
import type { TargetParts } from "../policy/kernel/target.ts";
import type { Destination } from "./destination.ts";
import { formatHost } from "./hostname.ts";
import type { HostSpace, NamedHost } from "./hostname.ts";

/**
 * Requests through an alias (edge-proxy.md 4.3). An alias only renames: permissions, hooks and logs are those of the
 * container's own host that it stands for.
 *
 * Custom domains (4.4) lead to an alias by CNAME (`custom-domains.ts`) and are served as that alias is.
 */

/** What routing needs of a stored alias (edge-proxy.md 4.2). */
export type AliasTarget = Pick<
  AliasRecord,
  | "project"
  | "container"
  | "program"
  | "port"
  | "index"
  | "target_path"
  | "allow_path_override"
  | "expires_at"
  | "enabled"
>;

/** Where a request through an alias goes, or why it goes nowhere. */
export type AliasRouting =
  | { readonly kind: "refused"; readonly code: "UNKNOWN_HOST" | "ALIAS_PATH_PINNED" }
  | {
      readonly kind: "routed";
      /** The host that the alias stands for. */
      readonly route: Extract<NamedHost, { kind: "service" | "exec" | "port" }>;
      /** Whether the request lands on `target_path`. */
      readonly landing: boolean;
      /** What the service gets, before forced pairs. */
      readonly target: TargetParts;
      /** What a script gets: the client's own path with the landing query (edge-proxy.md 4.3, last rule). */
      readonly hookTarget: TargetParts;
      /** Paths that rules are tested against: the client's, and the one the service would get (question 19). */
      readonly testPaths: readonly string[];
    };

const GONE: AliasRouting = { kind: "refused", code: "UNKNOWN_HOST" };
const PINNED: AliasRouting = { kind: "refused", code: "ALIAS_PATH_PINNED" };

/**
 * Where a request through an alias goes. A disabled or expired alias, one whose expiry cannot be read and one whose
 * program has no such instance serve nothing.
 *
 * @param request path and query as received
 * @param now ms since the epoch
 */
export function routeAlias(alias: AliasTarget, request: TargetParts, now: number): AliasRouting {
  const route = routeOf(alias);
  if (!alias.enabled || isExpired(alias.expires_at, now) || route === null) {
    return GONE;
  }
  const landing = alias.target_path === null ? null : toLanding(alias.target_path);
  const pinned = !alias.allow_path_override;
  const lands =
    request.path === "/" || request.path === "" || (pinned && request.path === landing?.path);
  if (pinned && !lands) {
    return PINNED;
  }
  if (landing === null || !lands) {
    return {
      kind: "routed",
      route,
      landing: false,
      target: request,
      hookTarget: request,
      testPaths: [request.path],
    };
  }
  const query = mergeQueries(landing.query, request.query, pinned);
  return {
    kind: "routed",
    route,
    landing: true,
    target: { path: landing.path, query },
    hookTarget: { path: request.path, query },
    testPaths: landing.path === request.path ? [request.path] : [request.path, landing.path],
  };
}

function isExpired(expiresAt: string | null, now: number): boolean {
  // A date that cannot be read compares false and so counts as past.
  return expiresAt !== null && !(Date.parse(expiresAt) > now);
}

function routeOf({ project, container, program, port, index }: AliasTarget) {
  const to = { project, container };
  const web = /^(https?)(?:-([1-9][0-9]{0,4}))?$/.exec(program);
  if (web !== null) {
    // Order of authority: the port, the one inside the program, the index (edge-proxy.md 4.2).
    const number = port ?? (web[2] === undefined ? index : Number(web[2]));
    return number !== null && Number.isInteger(number) && number >= 1 && number <= 65535
      ? { kind: "port" as const, ...to, scheme: web[1] as "http" | "https", port: number }
      : null;
  }
  const service = serviceByName(programBySpelling(program) ?? "");
  if (service === undefined) {
    return null; // not a program, or SSH, which does not speak HTTP
  }
  if (service.name === "exec") {
    const execId = index === null ? null : String(index);
    return { kind: "exec" as const, ...to, subdomain: null, execId };
  }
  const instance = index ?? 1;
  return instance >= service.minIndex && instance <= service.maxIndex
    ? { kind: "service" as const, ...to, service: service.name, index: instance }
    : null;
}

/** `target_path` as target bytes: `/` in front when missing, what a target cannot carry as `%XX`. */
function toLanding(targetPath: string): TargetParts {
  const rooted = targetPath.startsWith("/") ? targetPath : `/${targetPath}`;
  const bytes = Buffer.from(rooted, "utf8").toString("latin1");
  return splitTarget(
    bytes.replace(
      /[^\x21-\x7e]|#/g,
      (char) => `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`,
    ),
  );
}

/** The alias's pairs, then the client's; of a pinned alias without those that the alias has its own value for. */
function mergeQueries(own: string | null, sent: string | null, pinned: boolean): string | null {
  if (own === null || own === "") {
    return sent;
  }
  let rest = sent;
  if (pinned) {
    for (const pair of own.split("&")) {
      rest = removeQueryKey(rest, decodeForm(pair.split("=", 1)[0] ?? ""));
    }
  }
  return rest === null || rest === "" ? own : `${own}&${rest}`;
}

/**
 * The Host that an alias's request has upstream: the canonical one for a built-in service, which reads its instance
 * from it, with the client's port; the client's own for any other port (decision 23).
 */
export function upstreamHost(
  destination: Pick<Destination, "container" | "service" | "instance" | "endpoint">,
  received: string,
  space: HostSpace,
): string {
  const { service, instance, endpoint } = destination;
  if (service === null) {
    return received;
  }
  const to = {
    project: destination.container.project,
    container: destination.container.container,
  };
  const canonical = formatHost(
    endpoint.kind === "exec"
      ? { kind: "exec", ...to, subdomain: endpoint.subdomain, execId: endpoint.execId }
      : { kind: "service", ...to, service: service.name, index: instance },
    space,
  );
  return canonical + (/:[0-9]+$/.exec(received)?.[0] ?? "");
}
