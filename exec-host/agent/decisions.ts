/** One step of the gate that had something to say. */
export interface DecisionStep {
  readonly step:
    | "posture"
    | "deny_list"
    | "dir_scope"
    | "high_risk"
    | "outside_cwd"
    | "mcp_confirmation"
    | "hook"
    | "rules"
    | "schema"
    | "mode"
    | "headless"
    | "token";
  readonly outcome: "passed" | "covered" | "asked" | "denied" | "refused" | "rewritten";
  readonly reason: string;
}

/** Why one call was allowed or not: kept per session and written to the log. */
export interface Decision {
  readonly at: string;
  readonly call_id: string;
  readonly tool: string;
  readonly entry: string;
  readonly verdict: "allowed" | "denied" | "needs_confirmation" | "refused";
  /** True when the call was judged to do nothing but read. */
  readonly read_only: boolean;
  readonly steps: readonly DecisionStep[];
}

/** Decisions kept per session. */
const MAX_DECISIONS = 256;

/** A session's last decisions, oldest first. */
export interface DecisionLog {
  add(decision: Decision): void;
  list(): readonly Decision[];
}

/** An empty log. */
export function createDecisionLog(): DecisionLog {
  const decisions: Decision[] = [];
  return {
    add(decision) {
      decisions.push(decision);
      if (decisions.length > MAX_DECISIONS) {
        decisions.shift();
      }
    },
    list: () => decisions,
  };
}
