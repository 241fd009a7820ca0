import { createHash } from "node:crypto";
import { builtinTool } from "../tools/catalogue.ts";
import { placeCallerPath } from "../tools/confinement.ts";
import type { FileScope, PlacedPath } from "../tools/confinement.ts";
import { compileParams } from "../tools/schema.ts";
import type { ParamsCheck, SchemaProblem } from "../tools/schema.ts";
import { failed, text } from "../tools/tool.ts";
import type { Tool } from "../tools/tool.ts";
import type { ConfirmTokens, TokenBinding } from "./confirm-tokens.ts";
import type { DecisionStep } from "./decisions.ts";
import { deniedCommand, deniedPath, deniedUrl } from "./deny-list.ts";
import { AgentError } from "./errors.ts";
import type { McpTool } from "./mcp.ts";
import type {
  CheckedRules,
  JsonObject,
  LifecycleHooks,
  Session,
  ToolCall,
  ToolMode,
  ToolResult,
  ToolSettings,
} from "./seams.ts";
import { canonicalJson } from "./settings/canonical-json.ts";
import { judgeShell } from "./shell/judge.ts";

/** What a caller of a run says about its rights, besides the call itself. */
export interface Posture {
  /** `X-Hoody-Tool-Mode` of a run without a session; null when absent. Ignored in a live session. */
  readonly requestedMode: ToolMode | null;
  readonly allowMutations: boolean;
  readonly confirm: boolean;
  readonly confirmToken: string | null;
}

/** One call before the gate. */
export interface GateInput {
  readonly callId: string;
  readonly tool: string;
  /** Scrubbed parameters of the request. */
  readonly params: JsonObject;
  readonly session: Session;
  readonly agent: string;
  readonly entry: ToolCall["entry"];
  readonly posture: Posture;
  readonly scope: FileScope;
  readonly offered: ReadonlyMap<string, Tool | McpTool>;
  readonly settings: ToolSettings;
}

/** The gate's word on a call, always with the steps that led to it. */
export type Verdict =
  | {
      readonly kind: "allowed";
      readonly tool: Tool | McpTool;
      readonly params: JsonObject;
      readonly readOnly: boolean;
      /** Physical paths outside the cwd that this call may write. */
      readonly approvedWrites: ReadonlySet<string>;
      readonly context: readonly string[];
      readonly call: ToolCall;
      readonly steps: readonly DecisionStep[];
    }
  | {
      readonly kind: "denied";
      readonly result: ToolResult;
      readonly readOnly: boolean;
      readonly steps: readonly DecisionStep[];
    }
  | {
      readonly kind: "needs_confirmation";
      readonly details: JsonObject;
      readonly steps: readonly DecisionStep[];
    }
  | {
      readonly kind: "refused";
      readonly error: AgentError;
      readonly steps: readonly DecisionStep[];
    };

/** One reason to ask a person. `key` is what a token covers; an uncoverable cause parks whatever token comes. */
interface Cause {
  readonly cause: "rules" | "high_risk" | "outside_cwd" | "hook" | "mutation" | "mcp_confirmation";
  readonly key: string;
  readonly reason: string;
  readonly risk: string;
  readonly coverable: boolean;
}

/** What the static steps found out about one set of parameters. */
interface Findings {
  readonly readOnly: boolean;
  readonly mutatingReason: string;
  readonly causes: readonly Cause[];
  readonly approvedWrites: ReadonlySet<string>;
  readonly denied: {
    readonly step: DecisionStep["step"];
    readonly code: string;
    readonly reason: string;
  } | null;
}

const checks = new WeakMap<JsonObject, ParamsCheck>();

/**
 * The one gate that every entry point passes (section 13). The order: membership, schema, posture, deny list, directory
 * scope, dangerous shapes and writes elsewhere, lifecycle hooks, checked rules, open causes against the token.
 */
export async function passGate(
  deps: {
    readonly hooks: LifecycleHooks;
    readonly rules: CheckedRules;
    readonly tokens: ConfirmTokens;
  },
  input: GateInput,
  signal: AbortSignal,
): Promise<Verdict> {
  const steps: DecisionStep[] = [];
  const { session, posture } = input;
  const tool = input.offered.get(input.tool);
  if (tool === undefined) {
    return { kind: "refused", error: new AgentError("tool_not_found"), steps };
  }
  const problem = checkParams(tool, input.params);
  if (problem !== null) {
    steps.push({ step: "schema", outcome: "refused", reason: problem.message });
    return {
      kind: "refused",
      error: new AgentError("bad_request", problem.message, { field: problem.field }),
      steps,
    };
  }
  const binding = toBinding(input);
  // spent at once: of two that present the same token, one comes too late
  const covered =
    posture.confirm && posture.confirmToken !== null
      ? deps.tokens.take(posture.confirmToken, binding)
      : null;
  if (posture.confirmToken !== null && posture.confirm) {
    steps.push({
      step: "token",
      outcome: covered === null ? "refused" : "passed",
      reason: covered === null ? "the token is not valid for this call" : "the token fits",
    });
  }

  let params = input.params;
  let context: readonly string[] = [];
  let readOnly = true;
  let hookCause: Cause | null = null;
  const causes = new Map<string, Cause>();
  let findings: Findings;
  const deny = (step: DecisionStep["step"], code: string, reason: string): Verdict => {
    steps.push({ step, outcome: "denied", reason });
    return { kind: "denied", result: failed(code, reason), readOnly, steps };
  };
  let call: ToolCall;

  for (let pass = 0; ; pass++) {
    findings = await inspect(input, tool, params);
    readOnly = findings.readOnly;
    const postureVerdict = checkPosture(input, findings, params, covered, steps);
    if (postureVerdict === "ask") {
      causes.set(...entryOf(mutationCause(params, findings.mutatingReason)));
    } else if (postureVerdict !== "pass") {
      return postureVerdict;
    }
    if (findings.denied !== null) {
      return deny(findings.denied.step, findings.denied.code, findings.denied.reason);
    }
    for (const cause of findings.causes) {
      causes.set(cause.key, cause);
    }
    if (session.headless && causes.size > 0) {
      const [first] = causes.values();
      return deny(
        "headless",
        "denied",
        `${first?.reason ?? "The call needs a confirmation"}; nobody can be asked in a headless session.`,
      );
    }
    call = {
      id: input.callId,
      tool: tool.name,
      params,
      readOnly: tool.readOnly,
      session,
      agent: input.agent,
      entry: input.entry,
    };
    if (pass > 0) {
      break;
    }
    const verdict = await deps.hooks.beforeTool(call, signal);
    signal.throwIfAborted();
    if (verdict.kind === "deny") {
      return deny("hook", "hook_denied", verdict.reason);
    }
    context = verdict.context;
    const rewritten = verdict.updatedInput;
    if (verdict.kind === "ask") {
      hookCause = toCause("hook", rewritten ?? params, verdict.reason, verdict.reason, "unknown");
      causes.set(hookCause.key, hookCause);
    }
    if (rewritten === undefined) {
      break;
    }
    const wrong = checkParams(tool, rewritten);
    if (wrong !== null) {
      return deny(
        "hook",
        "hook_rewrite_invalid",
        `A hook's rewrite does not fit the tool: ${wrong.message}`,
      );
    }
    steps.push({ step: "hook", outcome: "rewritten", reason: "a hook changed the parameters" });
    params = rewritten;
    causes.clear();
    if (hookCause !== null) {
      causes.set(hookCause.key, hookCause);
    }
  }
  if (session.headless && hookCause !== null) {
    return deny(
      "headless",
      "hook_denied",
      `${hookCause.reason}; nobody can be asked in a headless session.`,
    );
  }

  const ruling = await deps.rules.check(call, signal);
  signal.throwIfAborted();
  if (ruling.kind === "deny") {
    return deny("rules", "rule_denied", ruling.reason);
  }
  if (ruling.kind === "ask") {
    if (session.headless) {
      return deny(
        "rules",
        "rule_denied",
        `${ruling.reason}; nobody can be asked in a headless session.`,
      );
    }
    const cause = toCause(
      "rules",
      params,
      [...ruling.ruleIds].toSorted().join(","),
      ruling.reason,
      "unknown",
    );
    causes.set(cause.key, { ...cause, coverable: ruling.confirmable });
  }

  const open = [...causes.values()].filter(
    (cause) => !(cause.coverable && covered?.has(cause.key) === true),
  );
  for (const cause of causes.values()) {
    steps.push({
      step: STEP_OF[cause.cause],
      outcome: open.includes(cause) ? "asked" : "covered",
      reason: cause.reason,
    });
  }
  const [first] = open.toSorted((a, b) => PRIORITY.indexOf(a.cause) - PRIORITY.indexOf(b.cause));
  if (first !== undefined) {
    // the token also covers the posture, so that re-issuing with it is enough (decision 60)
    const keys = new Set([
      ...causes.keys(),
      ...(readOnly ? [] : [mutationCause(params, "").key, mutationCause(input.params, "").key]),
    ]);
    const minted = deps.tokens.mint(binding, keys);
    return {
      kind: "needs_confirmation",
      steps,
      details: {
        tool: input.tool,
        params: input.params,
        confirm_token: minted.token,
        gate_cause: first.cause,
        reason: first.reason,
        risk: first.risk,
        expires_at: new Date(minted.expiresAt).toISOString(),
      },
    };
  }
  return {
    kind: "allowed",
    tool,
    params,
    readOnly,
    approvedWrites: findings.approvedWrites,
    context,
    call,
    steps,
  };
}

const PRIORITY: readonly Cause["cause"][] = [
  "high_risk",
  "outside_cwd",
  "rules",
  "hook",
  "mcp_confirmation",
  "mutation",
];
const STEP_OF = {
  rules: "rules",
  high_risk: "high_risk",
  outside_cwd: "outside_cwd",
  hook: "hook",
  mutation: "posture",
  mcp_confirmation: "mcp_confirmation",
} as const satisfies Record<Cause["cause"], DecisionStep["step"]>;

/** What is wrong with a call's parameters; null when they fit the tool's schema. */
export function checkParams(tool: Tool, params: JsonObject): SchemaProblem | null {
  let check = checks.get(tool.inputSchema);
  if (check === undefined) {
    check = compileParams(tool.inputSchema);
    checks.set(tool.inputSchema, check);
  }
  return check(params);
}

function toBinding(input: GateInput): TokenBinding {
  const live = input.session.kind === "live";
  return {
    tool: input.tool,
    params: input.params,
    sessionId: live ? input.session.id : null,
    cwd: input.session.cwd,
    configDir: input.session.configDir,
    toolMode: live ? input.session.toolMode : (input.posture.requestedMode ?? "default"),
    dirScope: input.session.dirScope,
  };
}

/** Posture of a run without a session (13.1), mode of a live one (decision 61). */
function checkPosture(
  input: GateInput,
  findings: Findings,
  params: JsonObject,
  covered: ReadonlySet<string> | null,
  steps: DecisionStep[],
): "pass" | "ask" | Verdict {
  if (findings.readOnly) {
    return "pass";
  }
  const { session, posture } = input;
  if (session.kind === "live") {
    if (session.toolMode !== "read_only") {
      return "pass";
    }
    const reason = `The session only reads: ${findings.mutatingReason}.`;
    steps.push({ step: "mode", outcome: "denied", reason });
    return { kind: "denied", result: failed("read_only_session", reason), readOnly: false, steps };
  }
  const optedIn = posture.allowMutations || posture.confirm;
  if (posture.requestedMode === "read_only" || !optedIn) {
    const reason = `${findings.mutatingReason}; a run without a session only reads unless it opts in`;
    steps.push({ step: "posture", outcome: "refused", reason });
    return {
      kind: "refused",
      error: new AgentError("tool_mutation_refused", undefined, { tool: input.tool, reason }),
      steps,
    };
  }
  if (posture.allowMutations || covered?.has(mutationCause(params, "").key) === true) {
    steps.push({
      step: "posture",
      outcome: "passed",
      reason: posture.allowMutations ? "mutations are allowed" : "the token covers it",
    });
    return "pass";
  }
  return "ask";
}

async function inspect(
  input: GateInput,
  tool: Tool | McpTool,
  params: JsonObject,
): Promise<Findings> {
  const { scope, session, settings } = input;
  const causes: Cause[] = [];
  const approvedWrites = new Set<string>();
  const placed: PlacedPath[] = [];
  let denied: Findings["denied"] = null;
  const refuse = (step: DecisionStep["step"], code: string, reason: string): void => {
    denied ??= { step, code, reason };
  };

  for (const use of tool.paths?.(params) ?? []) {
    const place = await placeCallerPath(scope, use.path, use.use);
    placed.push(place);
    if (place.placement === "credential") {
      refuse("dir_scope", "credential", "Credential files are not open to tools.");
    } else if (place.placement === "outside") {
      refuse("dir_scope", "outside_scope", "The path is outside the directory scope.");
    } else if (place.placement === "needs_confirmation") {
      approvedWrites.add(place.physical);
      causes.push(
        toCause(
          "outside_cwd",
          params,
          place.physical,
          "The file is outside the working directory.",
          "write",
        ),
      );
    }
  }
  const listed =
    deniedPath(
      settings,
      placed.flatMap((place) => [place.physical, place.lexical]),
      session.home,
      session.cwd,
    ) ?? deniedUrl(settings, stringsIn(params));
  if (listed !== null) {
    denied = {
      step: "deny_list",
      code: "deny_list",
      reason: `The deny list forbids this (${listed}).`,
    };
  }
  if ("requireConfirmation" in tool && tool.requireConfirmation) {
    causes.push(
      toCause(
        "mcp_confirmation",
        params,
        "",
        "Every call of this MCP server is confirmed.",
        "unknown",
      ),
    );
  }
  if (tool !== builtinTool("bash")) {
    return {
      readOnly: tool.readOnly,
      mutatingReason: `${tool.name} is not read-only`,
      causes,
      approvedWrites,
      denied,
    };
  }

  const command = text(params, "cmd");
  const cwd = placed[0]?.physical ?? session.cwd;
  const entry = await deniedCommand(settings, command, session.home, cwd);
  if (entry !== null) {
    denied = {
      step: "deny_list",
      code: "deny_list",
      reason: `The deny list forbids this (${entry}).`,
    };
  }
  const judged = await judgeShell(command, scope, cwd);
  // a line that may change things is not held to the scope (13.2): where it may, reading elsewhere is no less
  const elsewhere = judged.denied?.code === "outside_scope" && mayMutate(input);
  if (judged.denied !== null && !elsewhere) {
    refuse("dir_scope", judged.denied.code, `${judged.denied.reason}.`);
  }
  if (judged.risk !== null) {
    causes.push(
      toCause("high_risk", params, judged.risk.reason, judged.risk.reason, judged.risk.risk),
    );
  }
  return {
    readOnly: judged.mutating === null && !elsewhere,
    mutatingReason: judged.mutating ?? judged.denied?.reason ?? "",
    causes,
    approvedWrites,
    denied,
  };
}

/** True where the call's mode and posture let it change things. */
function mayMutate({ session, posture }: GateInput): boolean {
  if (session.kind === "live") {
    return session.toolMode !== "read_only";
  }
  return posture.requestedMode !== "read_only" && (posture.allowMutations || posture.confirm);
}

/** A cause bound to the parameters it was found for: a token for other effects does not cover it. */
function toCause(
  cause: Cause["cause"],
  params: JsonObject,
  detail: string,
  reason: string,
  risk: string,
): Cause {
  const effect = createHash("sha256").update(canonicalJson(params)).digest("base64");
  return { cause, key: canonicalJson([cause, detail, effect]), reason, risk, coverable: true };
}

function mutationCause(params: JsonObject, reason: string): Cause {
  return toCause("mutation", params, "", reason, "write");
}

function entryOf(cause: Cause): [string, Cause] {
  return [cause.key, cause];
}

function stringsIn(params: JsonObject): string[] {
  return Object.values(params).filter((value): value is string => typeof value === "string");
}
