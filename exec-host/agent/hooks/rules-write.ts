import { AgentError } from "../errors.ts";
import { decodeExecTrust, execTrustKey, MAX_EXEC_TRUST } from "../rules/exec-trust.ts";
import type { ExecTrust } from "../rules/exec-trust.ts";
import { decodeRule, isChecked, MAX_RULES_PER_GROUP, toStoredRule } from "../rules/rule.ts";
import type { Rule } from "../rules/rule.ts";
import { MAX_RULES_TIMEOUT_MS, MIN_RULES_TIMEOUT_MS } from "../settings/document.ts";
import { revisionOf } from "../settings/load.ts";
import type { SettingsPlace } from "../settings/places.ts";
import type { SettingsEdit } from "../settings/write.ts";
import type { SetRulesBody } from "./bodies.ts";

/** A checked request to replace rules, grants or both. */
export interface RulesWrite {
  readonly rules: readonly Rule[] | undefined;
  readonly execTrust: readonly ExecTrust[] | undefined;
  /** 0 removes the stored budget; undefined leaves it. */
  readonly timeoutMs: number | undefined;
  readonly expectedRevision: string | undefined;
  /** True when rules or their budget would be written. */
  readonly holdsRules: boolean;
}

/**
 * Checks a setRules body as a whole: one problem refuses all of it.
 *
 * @param now stamps grants that come without a time.
 * @throws AgentError `bad_request`, `rule_tools_not_allowed`, with `details.field`.
 */
export function decodeRulesWrite(body: SetRulesBody, now: number): RulesWrite {
  if (body.rules === undefined && body.exec_trust === undefined) {
    throw new AgentError("bad_request", "rules is required unless exec_trust is sent.", {
      field: "rules",
    });
  }
  return {
    rules: body.rules === undefined ? undefined : decodeRules(body.rules),
    execTrust: body.exec_trust === undefined ? undefined : decodeGrants(body.exec_trust, now),
    timeoutMs: decodeTimeout(body.timeout_ms),
    expectedRevision: body.expected_revision ?? undefined,
    holdsRules: body.rules !== undefined || body.timeout_ms !== undefined,
  };
}

/**
 * The edit of a settings file for a rules write; the revision is compared under the same lock that the write holds.
 *
 * @returns an edit whose result is the new revision.
 * @throws AgentError `revision_conflict` with `details.current_revision`.
 */
export function editRules(
  value: Record<string, unknown>,
  wanted: RulesWrite,
  realm: string,
  place: SettingsPlace,
): SettingsEdit<string> {
  const current = revisionOf(realm, place, value);
  if (wanted.expectedRevision !== undefined && wanted.expectedRevision !== current) {
    throw new AgentError("revision_conflict", undefined, { current_revision: current });
  }
  const members: [string, unknown][] = [];
  if (wanted.rules !== undefined) {
    members.push(["rules", noneIfEmpty(wanted.rules.map(toStoredRule))]);
  }
  if (wanted.timeoutMs !== undefined) {
    members.push(["rules_timeout_ms", wanted.timeoutMs === 0 ? undefined : wanted.timeoutMs]);
  }
  if (wanted.execTrust !== undefined) {
    members.push(["exec_trust", noneIfEmpty(wanted.execTrust)]);
  }
  const written = Object.fromEntries([...Object.entries(value), ...members]);
  return { members, result: revisionOf(realm, place, written) };
}

function noneIfEmpty<T>(list: readonly T[]): readonly T[] | undefined {
  return list.length === 0 ? undefined : list;
}

function decodeRules(values: readonly unknown[]): readonly Rule[] {
  const rules: Rule[] = [];
  const ids = new Set<string>();
  for (const [index, value] of values.entries()) {
    const decoded = decodeRule(value);
    if (!decoded.ok) {
      const { code, field, message } = decoded.problem;
      const path = field === "" ? `rules[${index}]` : `rules[${index}].${field}`;
      throw new AgentError(code, `${path} ${message}`, { field: path });
    }
    if (ids.has(decoded.rule.id)) {
      throw new AgentError("bad_request", `The rule id ${decoded.rule.id} occurs twice.`, {
        field: `rules[${index}].id`,
      });
    }
    ids.add(decoded.rule.id);
    rules.push(decoded.rule);
  }
  const checked = rules.filter((rule) => isChecked(rule.kind)).length;
  if (checked > MAX_RULES_PER_GROUP || rules.length - checked > MAX_RULES_PER_GROUP) {
    throw new AgentError(
      "bad_request",
      `A scope holds at most ${MAX_RULES_PER_GROUP} checked rules and ${MAX_RULES_PER_GROUP} guidance and playbook rules.`,
      { field: "rules" },
    );
  }
  return rules;
}

function decodeGrants(values: readonly unknown[], now: number): readonly ExecTrust[] {
  if (values.length > MAX_EXEC_TRUST) {
    throw new AgentError("bad_request", `exec_trust holds at most ${MAX_EXEC_TRUST} rows.`, {
      field: "exec_trust",
    });
  }
  const grants = new Map<string, ExecTrust>();
  for (const [index, value] of values.entries()) {
    const grant = decodeExecTrust(value);
    const field = `exec_trust[${index}]`;
    if (typeof grant === "string") {
      throw new AgentError("bad_request", `${field}: ${grant}`, { field });
    }
    if (grants.has(execTrustKey(grant))) {
      throw new AgentError("bad_request", `${field}: the same container and realm occur twice`, {
        field,
      });
    }
    grants.set(execTrustKey(grant), { granted_at: new Date(now).toISOString(), ...grant });
  }
  return [...grants.values()];
}

function decodeTimeout(value: number | undefined): number | undefined {
  const isAllowed =
    value === undefined ||
    value === 0 ||
    (Number.isInteger(value) && value >= MIN_RULES_TIMEOUT_MS && value <= MAX_RULES_TIMEOUT_MS);
  if (!isAllowed) {
    throw new AgentError(
      "bad_request",
      `timeout_ms must be 0 or between ${MIN_RULES_TIMEOUT_MS} and ${MAX_RULES_TIMEOUT_MS}.`,
      { field: "timeout_ms" },
    );
  }
  return value;
}
