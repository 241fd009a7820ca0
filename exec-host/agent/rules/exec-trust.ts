import { isObject } from "../settings/canonical-json.ts";

/** Most grants of one scope. */
export const MAX_EXEC_TRUST = 64;

/** A stored grant: calls that run code on that container in that realm ask no card. Kept and listed only. */
export interface ExecTrust {
  readonly container_id: string;
  readonly realm: string;
  readonly name?: string;
  readonly granted_at?: string;
  readonly source: "card" | "rules_panel";
}

const HEX24 = /^[0-9a-f]{24}$/;
const RFC3339 = /^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:[Zz]|[+-]\d{2}:\d{2})$/;

/**
 * Validates one grant from outside.
 *
 * @returns the grant, or a sentence that names the member at fault.
 */
export function decodeExecTrust(value: unknown): ExecTrust | string {
  if (!isObject(value)) {
    return "a grant must be an object";
  }
  const { container_id: container, realm, name, granted_at: grantedAt, source } = value;
  if (typeof container !== "string" || !HEX24.test(container)) {
    return "container_id must be 24 hex digits";
  }
  if (typeof realm !== "string" || !(realm === "_global" || HEX24.test(realm))) {
    return "realm must be _global or 24 hex digits";
  }
  if (name !== undefined && (typeof name !== "string" || Array.from(name).length > 128)) {
    return "name must be at most 128 characters";
  }
  if (grantedAt !== undefined && !isTimestamp(grantedAt)) {
    return "granted_at must be an RFC 3339 time";
  }
  if (source !== undefined && source !== "card" && source !== "rules_panel") {
    return "source must be card or rules_panel";
  }
  return {
    container_id: container,
    realm,
    ...(typeof name === "string" ? { name } : {}),
    ...(typeof grantedAt === "string" ? { granted_at: grantedAt } : {}),
    source: source ?? "rules_panel",
  };
}

/** What a grant is unique by. */
export function execTrustKey(grant: ExecTrust): string {
  return `${grant.container_id} ${grant.realm}`;
}

function isTimestamp(value: unknown): boolean {
  return typeof value === "string" && RFC3339.test(value) && !Number.isNaN(Date.parse(value));
}
