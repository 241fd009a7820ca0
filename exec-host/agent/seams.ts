import type { Clock } from "../../policy/kernel/clock.ts";
import type { Log } from "../../policy/kernel/log.ts";
import type { Router } from "./router.ts";

/** What a session's tools may do. `standard` on the wire is `full` here. */
export type ToolMode = "read_only" | "full" | "orchestrator";

/** Which files a session's tools may reach. */
export type DirScope = "home" | "full";

/** A JSON object from outside, already parsed. */
export type JsonObject = Record<string, unknown>;

/** Layers of the settings, in load order. */
export type SettingsLayer = "user" | "project" | "local";

/** What selects settings files: fixed at session start, or taken from the headers of a stateless request. */
export interface SettingsScope {
  /** `global` or 24 hex. */
  readonly realm: string;
  /** The agent's home folder, absolute. */
  readonly home: string;
  /** Working directory, absolute; null: no project layers. */
  readonly cwd: string | null;
  /** Replaces the `.hoody` folder; null: the ordinary places. */
  readonly configDir: string | null;
}

/**
 * One agent session. Everything but its event stream is fixed at start. An `ephemeral` one lives for a single run
 * without a session: it raises neither SessionStart nor SessionEnd, is not in the registry, and its events go nowhere.
 * The object is the identity: keep what belongs to a session in a WeakMap keyed by it.
 */
export interface Session extends SettingsScope {
  readonly id: string;
  readonly kind: "live" | "ephemeral";
  readonly cwd: string;
  readonly container: string | null;
  readonly toolMode: ToolMode;
  readonly dirScope: DirScope;
  readonly headless: boolean;
  /** Name of the acting agent; `general` unless chosen at create. */
  readonly agent: string;
  readonly model: string | null;
  /** ms since the epoch. */
  readonly startedAt: number;
  /** Aborted when the session closes; every process of the session ends with it. */
  readonly signal: AbortSignal;
  /** Sends one event (`event.hook`, `event.error`, …) to the session's stream. Never throws, never waits. */
  emit(type: string, data: JsonObject): void;
}

/** One call of one tool on its way through the gate. */
export interface ToolCall {
  /** `tool_use_id` of the hook payloads. */
  readonly id: string;
  /** Internal name, `bash` or `mcp__server__tool`. */
  readonly tool: string;
  /** Schema-checked; replaced by a hook's `updatedInput` before rules see it. */
  readonly params: JsonObject;
  /** The catalogue's flag, which decides whether rules without `tools` cover it (decision 51). */
  readonly readOnly: boolean;
  readonly session: Session;
  /** The agent the call is made for: the session's, or a helper's. */
  readonly agent: string;
  readonly entry: "run" | "async" | "stream" | "session" | "orchestrator" | "turn";
}

/** What a tool gave back (section 14.1). */
export interface ToolResult {
  readonly isError: boolean;
  readonly text: string;
  /** `denied`, `cancelled`, `timeout`, `exit_code`, … on failures. */
  readonly errorCode?: string;
}

/** The joint word of all PreToolUse hooks: deny beats ask beats allow. `allow` means "no objection" and nothing more. */
export type HookVerdict =
  | {
      readonly kind: "allow";
      readonly updatedInput?: JsonObject;
      readonly context: readonly string[];
    }
  | {
      readonly kind: "ask";
      readonly reason: string;
      readonly updatedInput?: JsonObject;
      readonly context: readonly string[];
    }
  | { readonly kind: "deny"; readonly reason: string };

/** Settings hooks as the gate and the session life cycle raise them. Failures inside are the implementer's to report; these reject only on bugs. */
export interface LifecycleHooks {
  /** PreToolUse. Called at most once per call (decision 52). `signal` aborts at cancel and close. */
  beforeTool(call: ToolCall, signal: AbortSignal): Promise<HookVerdict>;
  /** PostToolUse, also after a failed run. The returned lines are appended to the result as context. */
  afterTool(
    call: ToolCall,
    result: ToolResult,
    signal: AbortSignal,
  ): Promise<{ readonly context: readonly string[] }>;
  /** Loads the session's snapshot (hooks, rules, trust) and raises SessionStart. Awaited before create answers. */
  sessionStart(
    session: Session,
    source: "startup" | "resume",
  ): Promise<{ readonly context: readonly string[] }>;
  /** Raises SessionEnd; the session's `signal` is not aborted yet. Bounded by the implementer (60 s). */
  sessionEnd(session: Session, reason: string): Promise<void>;
  /** Notification, for example `permission_prompt` when a gate parks. Not awaited by callers. */
  notify(session: Session, type: string, message: string): void;
}

/**
 * The joint word of all checked rules.
 *
 * `ask.checked` is false where the judge gave no usable answer. `ask.confirmable` is false where a confirm token
 * must not pass it (an unchecked limit, decision 51): the gate then parks again, whatever token came.
 * `ruleIds` are bound into the token, so that a token for one check-in does not pass another.
 */
export type RulesVerdict =
  | { readonly kind: "pass" }
  | { readonly kind: "deny"; readonly reason: string; readonly ruleIds: readonly string[] }
  | {
      readonly kind: "ask";
      readonly reason: string;
      readonly ruleIds: readonly string[];
      readonly checked: boolean;
      readonly confirmable: boolean;
    };

/** Checked rules through the judge. Called once per call, after the hooks; headless denial is the gate's business. */
export interface CheckedRules {
  check(call: ToolCall, signal: AbortSignal): Promise<RulesVerdict>;
}

/** One entry of `mcp_servers` as it stands in a file; decoding is the tools' side (mcp-config.ts). */
export interface McpServerSetting {
  readonly layer: SettingsLayer;
  /** The settings file. */
  readonly source: string;
  readonly value: unknown;
  /** True while trust holds it (decision 64): it must not be started. */
  readonly held: boolean;
}

/** The part of the merged settings that tools need. */
export interface ToolSettings {
  readonly mcpServers: readonly McpServerSetting[];
  /** Path globs and command patterns, all layers (`deny_list`). */
  readonly denyList: readonly string[];
  /** `deny_urls`. */
  readonly denyUrls: readonly string[];
  /** `disabled_tools`: names left out of every effective set. */
  readonly disabledTools: readonly string[];
  readonly warnings: readonly string[];
}

/** Reads settings for the tools; for a live session the snapshot it loaded, for an ephemeral one the files now. */
export interface SettingsReader {
  toolSettings(session: Session): Promise<ToolSettings>;
}

/** The live sessions. Callbacks must not throw. */
export interface SessionRegistry {
  get(id: string): Session | undefined;
  list(): readonly Session[];
  /** After the session can be found. */
  onStart(listener: (session: Session) => void): void;
  /** After it can no longer be found: void its nonces and the like. */
  onClose(listener: (session: Session) => void): void;
}

/** Built-in catalogue and a session's tools, for rules and matchers. */
export interface ToolLookup {
  /** The catalogue's read-only flag; undefined for an unknown name. MCP tools need the session. */
  isReadOnly(tool: string, session?: Session): boolean | undefined;
  names(): readonly string[];
}

/** MCP connections follow the settings: call after a reload, an own write and an ack. */
export interface McpControl {
  refresh(session: Session): Promise<void>;
}

/** Topics of `GET /changes` that are filled from outside. Tokens are opaque. */
export interface ChangeBoard {
  provide(topic: "rules", token: (scope: SettingsScope) => Promise<string>): void;
}

/** Counters; a gateway process forwards them to its parent. */
export interface AgentMetrics {
  toolRun(tool: string, outcome: string): void;
  hookRun(event: string, outcome: string): void;
}

/** An OpenAI-compatible chat endpoint (`agent.judge`). */
export interface JudgeOptions {
  readonly url: string;
  readonly apiKey: string | null;
  readonly model: string;
}

/** Configuration of one gateway, decoded (contract.md 2). */
export interface AgentOptions {
  /** Container id, for logs only. */
  readonly containerId: string;
  readonly home: string;
  /** Private folder for what outlives a session; not reachable by tools. */
  readonly dataDir: string;
  readonly fleet: boolean;
  /** Realms served besides `global`. */
  readonly realms: readonly string[];
  readonly judge: JudgeOptions | null;
  /** Environment of the processes that tools and lifecycle hooks start. */
  readonly env: Readonly<Record<string, string>>;
}

/** What hooks, settings, rules and trust are built from. */
export interface GuardDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: AgentMetrics;
  readonly sessions: SessionRegistry;
  readonly tools: ToolLookup;
  readonly mcp: McpControl;
  readonly changes: ChangeBoard;
}

/** Adds routes to the gateway: the guard, rate limit, body cap, scope headers and error answers are already around it. */
export type RouteRegistrar = (router: Router) => void;

/** Lifecycle hooks, rules, settings and their routes, as `server.ts` takes them. Null objects exist in tests only. */
export interface AgentGuards {
  readonly hooks: LifecycleHooks;
  readonly rules: CheckedRules;
  readonly settings: SettingsReader;
  /** H1 to H11 and S10. */
  readonly registerRoutes: RouteRegistrar;
  close(): Promise<void>;
}

/** `exec-host/agent/hooks/guards.ts` exports `createGuards` of this type. */
export type CreateGuards = (deps: GuardDeps, options: AgentOptions) => AgentGuards;
