/** Shapes of the agent gateway's requests and answers. Answers may carry further members. */

/** What agent calls may be narrowed or bound to; sent as `X-Hoody-*` fields, `realm` as a query member. */
export interface AgentScope {
  /** Absolute path: project layer of settings and working directory of runs. */
  readonly cwd?: string;
  /** Absolute path of a `.hoody` folder that is used instead of the realm's. */
  readonly configDir?: string;
  /** A bound remote container; most routes refuse it. */
  readonly container?: string;
  /** `global` or 24 hex; only the routes with a realm dimension take it. */
  readonly realm?: string;
  readonly signal?: AbortSignal;
}

/** A window of a list; without `limit` the whole list comes at once. */
export interface Page extends AgentScope {
  readonly page?: number;
  readonly limit?: number;
}

/** Scope of a run without a session. */
export interface RunScope extends AgentScope {
  readonly toolMode?: "read_only" | "full";
  readonly dirScope?: "home" | "full";
}

/** Body of a tool run. */
export interface RunBody {
  readonly params?: Readonly<Record<string, unknown>>;
  /** Goes with `confirm_token`: runs what was parked. */
  readonly confirm?: boolean;
  readonly confirm_token?: string;
  /** Lets a tool that changes things run, under all checks. */
  readonly allow_mutations?: boolean;
}

export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly read_only: boolean;
  readonly input_schema: Readonly<Record<string, unknown>>;
}

export interface ToolResult {
  readonly tool: string;
  readonly is_error: boolean;
  readonly content: readonly { readonly type: string; readonly text?: string }[];
  readonly output?: string;
  readonly status?: string;
  readonly error_code?: string;
}

/** An event of a streamed run: `start`, one of `result`, `needs_confirmation` and `error`, then `end`. */
export interface ToolFrame {
  readonly event: "start" | "result" | "needs_confirmation" | "error" | "end" | (string & {});
  readonly data: Readonly<Record<string, unknown>>;
}

export interface List<T> {
  readonly items: readonly T[];
  readonly meta: { readonly total: number; readonly page: number; readonly limit: number };
  readonly has_more?: boolean;
}

export type LifecycleEvent =
  | "Notification"
  | "PostToolUse"
  | "PreCompact"
  | "PreToolUse"
  | "SessionEnd"
  | "SessionStart"
  | "Stop"
  | "SubagentStart"
  | "SubagentStop"
  | "UserPromptSubmit";

export type SettingsScope = "user" | "project" | "local";

export interface LifecycleHook {
  readonly event: LifecycleEvent;
  readonly matcher?: string;
  readonly command: string;
  readonly name?: string;
  readonly description?: string;
  readonly timeout?: number;
  readonly disabled?: boolean;
  readonly scope?: SettingsScope;
  readonly source?: string;
  readonly shipped_id?: string;
}

export interface HookSummary {
  readonly live: readonly LifecycleHook[];
  readonly session: string;
  readonly stale: readonly unknown[];
  readonly files: Readonly<Record<string, string>>;
  readonly trust: {
    readonly hash: string;
    readonly needs_ack: boolean;
    readonly high_risk: boolean;
  };
  readonly rules?: Readonly<Record<string, unknown>>;
  readonly warnings?: readonly string[];
}

export interface ReloadAnswer extends Partial<HookSummary> {
  readonly reloaded: boolean;
  readonly sessions?: number;
}

export type RuleKind = "limit" | "check_in" | "guidance" | "playbook";

export interface RuleInput {
  readonly id: string;
  readonly text: string;
  readonly kind: RuleKind;
  readonly tools?: readonly string[];
  readonly agents?: readonly string[];
}

export interface Rule extends RuleInput {
  readonly applies_as: "checked" | "prompt";
  readonly tools: readonly string[];
  readonly agents: readonly string[];
  readonly source: string;
}

export interface ExecTrust {
  readonly container_id: string;
  readonly realm: string;
  readonly name?: string;
  readonly granted_at?: string;
  readonly source?: "card" | "rules_panel";
}

export interface RulesBlock {
  readonly live: readonly Rule[];
  readonly timeout_ms: number;
  readonly scopes: readonly { readonly scope: SettingsScope; readonly revision: string }[];
  readonly exec_trust: readonly ExecTrust[];
  readonly warnings: readonly string[];
  readonly rule_warnings: readonly string[];
  readonly rules_complete: boolean;
}

export type WriteOperation = "upsert" | "delete" | "toggle" | "set_disabled" | "rules_set";

export interface WriteIntent {
  readonly nonce: string;
  readonly op: WriteOperation;
  readonly scope: SettingsScope;
  readonly session_id: string;
  readonly expires_at: string;
}

/** Members that every guarded write carries. */
export interface GuardedWrite {
  readonly session_id: string;
  readonly nonce: string;
  readonly scope?: SettingsScope;
}

export interface HookUpsert extends GuardedWrite {
  readonly event: LifecycleEvent;
  readonly matcher?: string;
  readonly command: string;
  readonly timeout?: number;
  readonly name?: string;
  readonly description?: string;
}

export interface HookDelete extends GuardedWrite {
  readonly event: LifecycleEvent;
  readonly matcher?: string;
  /** Left out: every command of that event and matcher. */
  readonly command?: string;
}

/** Names the hook to switch: a shipped one by its id, any other by event, matcher and command. */
export type HookSwitch = GuardedWrite &
  (
    | { readonly shipped_id: string }
    | { readonly event: LifecycleEvent; readonly matcher?: string; readonly command: string }
  );

export interface RulesWrite extends GuardedWrite {
  readonly rules?: readonly RuleInput[];
  readonly timeout_ms?: number;
  readonly exec_trust?: readonly ExecTrust[];
  readonly expected_revision?: string | null;
}

export interface RulesWritten {
  readonly ok: boolean;
  readonly scope: SettingsScope;
  readonly revision: string;
  readonly rules: { readonly live: readonly Rule[]; readonly timeout_ms: number };
}

/** Runs a command now: an unsaved one, or without `command` the saved hooks that fit. */
export interface HookRun {
  readonly session_id: string;
  readonly event: LifecycleEvent;
  readonly match_value?: string;
  readonly command?: string;
  readonly timeout?: number;
  readonly payload?: Readonly<Record<string, unknown>>;
}

/** Asks whether a shipped hook would fire; runs nothing. */
export interface ShippedTest {
  readonly session_id: string;
  readonly shipped_id: string;
  readonly command?: string;
  readonly exit_code?: number;
}

/** An answer of a hook write or test; which members it has depends on the call. */
export interface HookAnswer {
  readonly ok: boolean;
  readonly [member: string]: unknown;
}

export interface SessionCreate {
  readonly cwd?: string;
  readonly config_dir?: string;
  readonly realm?: string;
  readonly container?: string;
  readonly model?: string;
  readonly agent?: string;
  readonly tool_mode?: "standard" | "orchestrator" | "read_only" | "full";
  readonly dir_scope?: "home" | "full";
  readonly headless?: boolean;
  readonly attach?: string;
  readonly fork?: string;
}

export interface SessionStarted {
  readonly session_id: string;
  readonly started: Readonly<Record<string, unknown>>;
  readonly replayed?: boolean;
}

export interface SessionSummary {
  readonly id: string;
  readonly [member: string]: unknown;
}

/** Why one call was allowed or not. */
export interface GateDecision {
  readonly at: string;
  readonly call_id: string;
  readonly tool: string;
  readonly entry: string;
  readonly verdict: "allowed" | "denied" | "needs_confirmation" | "refused";
  readonly read_only: boolean;
  readonly steps: readonly {
    readonly step: string;
    readonly outcome: string;
    readonly reason: string;
  }[];
}

export interface PendingGate {
  readonly id: string;
  readonly generation: number;
  readonly type: "confirm" | "question";
  readonly [member: string]: unknown;
}

export interface SessionDetail {
  readonly session: SessionSummary;
  readonly attached: boolean;
  readonly pending_gate?: PendingGate;
  readonly [member: string]: unknown;
}

export interface StatusAnswer {
  readonly status: string;
  readonly [member: string]: unknown;
}

export interface GateConfirm {
  /** Has to be said: a confirmation without it is refused. */
  readonly approved: boolean;
  readonly gate_id?: string;
  readonly generation?: number;
}

export interface GateAnswer {
  readonly gate_id?: string;
  readonly generation?: number;
  readonly answer?: string;
  readonly text?: string;
  readonly answers?: readonly string[];
}

/** An event of a session's stream. */
export interface SessionEvent {
  /** Sequence number to resume behind; "" on control frames. */
  readonly id: string;
  readonly event: string;
  readonly data: unknown;
}

export type JobStatus = "pending" | "running" | "succeeded" | "failed" | "canceled";

export interface Job {
  readonly job_id: string;
  readonly kind: string;
  readonly status: JobStatus;
  readonly error?: string;
  readonly result?: unknown;
  readonly created_at: string;
  readonly updated_at: string;
  readonly [member: string]: unknown;
}

export interface JobResult {
  readonly status: JobStatus;
  /** null on a job that failed; absent while it runs. */
  readonly result?: unknown;
  readonly error?: string;
  readonly session_id?: string;
}

export interface Changes {
  readonly scope: unknown;
  readonly tokens: Readonly<Record<string, string>>;
  readonly unavailable?: Readonly<Record<string, string>>;
}
