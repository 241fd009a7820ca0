/** Subdomain and exec id of a call that names none (exec-host.md 1.1, open question 1). */
export const DEFAULT_SUBDOMAIN = "default";
/** The exec id of a request that names none. */
export const DEFAULT_EXEC_ID = "1";

const SUBDOMAIN = /^[a-z0-9]{1,63}$/;
const EXEC_ID = /^[a-z0-9]{1,64}$/;
const SCRIPT_PATH = /^\/[A-Za-z0-9._\-/]{0,256}$/;

/** Names that are never addressed, listed or written, at any depth and in any case (exec-host.md 1.2). */
const RESERVED: ReadonlySet<string> = new Set([
  "node_modules",
  ".git",
  ".hoody-cache",
  "_sdk",
  "_hoody",
]);

/** Whether a path segment is a reserved name. */
export function isReservedName(segment: string): boolean {
  return RESERVED.has(segment.toLowerCase());
}

/** Whether a folder name can be the subdomain level of a deployment. */
export function isSubdomain(name: string): boolean {
  return SUBDOMAIN.test(name);
}

/** Whether a folder name can be the exec id level of a deployment. */
export function isExecId(name: string): boolean {
  return EXEC_ID.test(name);
}

/**
 * Whether the coordinates of a rule can be used: the grammar of the hook document. An envelope that fails is
 * answered 503, and no other script runs in its place.
 */
export function areHookCoordinates(
  subdomain: string | null,
  execId: string | null,
  path: string,
): boolean {
  return (
    (subdomain === null || isSubdomain(subdomain)) &&
    (execId === null || isExecId(execId)) &&
    SCRIPT_PATH.test(path) &&
    !path.includes("//") &&
    !path.split("/").some((segment) => segment === "." || segment === "..")
  );
}
