import { serviceByName } from "../documents/services.ts";
import type { CompiledAccess } from "./compiled-policy.ts";

/** One request as the decision sees it. */
export interface AccessQuestion {
  /** Canonical service name, or `http`/`https` for a port that no service owns. */
  readonly service: string;
  /** Instance, or the port for `http` and `https`. */
  readonly index: number;
  /** Groups with at least one satisfied configuration. */
  readonly satisfied: ReadonlySet<string>;
  readonly presented: {
    /** Whether a valid credential (anything but an address) came with the request. */
    readonly credential: boolean;
  };
}

/** Why a request was admitted or refused; for logs and tests, not for clients. */
export type DecisionReason =
  | "group grants"
  | "default allows"
  | "proxy is disabled"
  | "default denies"
  | "group's rule does not grant"
  | "password is required"
  | "needs an explicit grant"
  | "group cannot be evaluated";

/** What was decided. `granting` are the groups that let this request in; they feed `applies_to`. */
export type Decision =
  | {
      readonly kind: "allow";
      readonly by: "group" | "default";
      readonly granting: ReadonlySet<string>;
      readonly reasons: readonly DecisionReason[];
    }
  | {
      readonly kind: "deny";
      readonly status: 401 | 403;
      /** With 401: whether a Basic challenge belongs to the answer. */
      readonly challengeBasic: boolean;
      readonly reasons: readonly DecisionReason[];
    };

const NO_GROUPS: ReadonlySet<string> = new Set();
const ALLOW_BY_DEFAULT: Decision = {
  kind: "allow",
  by: "default",
  granting: NO_GROUPS,
  reasons: ["default allows"],
};
const GROUP_GRANTS: readonly DecisionReason[] = ["group grants"];
const DISABLED: Decision = {
  kind: "deny",
  status: 403,
  challengeBasic: false,
  reasons: ["proxy is disabled"],
};

/** Decides whether a request may reach an instance (edge-proxy.md 2.5, decision 26). Pure; never throws. */
export function decide(access: CompiledAccess, question: AccessQuestion): Decision {
  if (!access.enableProxy) {
    return DISABLED;
  }
  const { service, index, satisfied } = question;
  let granting: Set<string> | null = null;
  let ruledOut = false;
  for (const group of satisfied) {
    const grants = access.permissions.get(group)?.get(service);
    if (grants === undefined) {
      continue;
    }
    if (grants(index)) {
      granting ??= new Set();
      granting.add(group);
    } else {
      ruledOut = true;
    }
  }
  if (granting !== null) {
    return { kind: "allow", by: "group", granting, reasons: GROUP_GRANTS };
  }
  if (ruledOut) {
    return refuse(access, question, "group's rule does not grant");
  }
  if (serviceByName(service)?.access === "strict") {
    return refuse(access, question, "needs an explicit grant");
  }
  if (!access.defaultAllow) {
    return refuse(access, question, "default denies");
  }
  if (access.closedPrograms?.has(service) === true) {
    return refuse(access, question, "group cannot be evaluated");
  }
  if (!question.presented.credential && hasPasswordRule(access, service)) {
    return refuse(access, question, "password is required");
  }
  return ALLOW_BY_DEFAULT;
}

/** A password rule asks for its password even where the default would admit (edge-proxy.md 2.5, 7). */
function hasPasswordRule(access: CompiledAccess, service: string): boolean {
  for (const [group, configs] of access.groups) {
    if (
      access.permissions.get(group)?.has(service) === true &&
      configs.some(({ type }) => type === "password")
    ) {
      return true;
    }
  }
  return false;
}

/** 401 when no valid credential came and one could have helped with this very instance; 403 otherwise. */
function refuse(
  access: CompiledAccess,
  { service, index, presented }: AccessQuestion,
  reason: DecisionReason,
): Decision {
  let helpful = false;
  let challengeBasic = false;
  if (!presented.credential) {
    for (const [group, configs] of access.groups) {
      if (access.permissions.get(group)?.get(service)?.(index) === true) {
        helpful ||= configs.some(({ type }) => type !== "ip");
        challengeBasic ||= configs.some(({ type }) => type === "password");
      }
    }
  }
  return { kind: "deny", status: helpful ? 401 : 403, challengeBasic, reasons: [reason] };
}
