import { realpathSync } from "node:fs";
import type { Clock } from "../../policy/kernel/clock.ts";
import { newUlid } from "../../policy/kernel/ids.ts";
import type { Log } from "../../policy/kernel/log.ts";
import { builtinTool } from "../tools/catalogue.ts";
import { isWithin } from "../tools/confinement.ts";
import type { FileScope } from "../tools/confinement.ts";
import { createFiles } from "../tools/files.ts";
import { failed, MAX_RESULT_BYTES } from "../tools/tool.ts";
import type { InnerOutcome, Tool, ToolContext } from "../tools/tool.ts";
import { createCap } from "./caps.ts";
import type { ConfirmTokens } from "./confirm-tokens.ts";
import type { Decision } from "./decisions.ts";
import { effectiveTools } from "./effective-set.ts";
import { AgentError } from "./errors.ts";
import { passGate } from "./gate.ts";
import type { Posture, Verdict } from "./gate.ts";
import type { McpHub, McpTool } from "./mcp.ts";
import { runCommand } from "./process.ts";
import { createReadRecord } from "./read-record.ts";
import type { Sandbox } from "./sandbox.ts";
import type {
  AgentMetrics,
  AgentOptions,
  CheckedRules,
  JsonObject,
  LifecycleHooks,
  Session,
  SettingsReader,
  ToolCall,
  ToolResult,
  ToolSettings,
} from "./seams.ts";
import type { LiveSession } from "./sessions.ts";

/** One call of one tool from any entry point. */
export interface RunRequest {
  readonly tool: string;
  /** As received; control keys are scrubbed here. */
  readonly params: JsonObject;
  readonly session: Session;
  /** null for an ephemeral session. */
  readonly live: LiveSession | null;
  readonly entry: ToolCall["entry"];
  readonly posture: Posture;
  readonly signal: AbortSignal;
  /** The acting agent when it is not the session's own. */
  readonly agent?: string;
}

/** How a call ended. */
export type RunOutcome =
  | {
      readonly kind: "result";
      readonly tool: string;
      readonly result: ToolResult;
      readonly context: readonly string[];
    }
  | { readonly kind: "needs_confirmation"; readonly details: JsonObject }
  | { readonly kind: "refused"; readonly error: AgentError };

/** Runs tools; sync, async, streamed, in-session and inner calls are all this one function. */
export interface ToolRuns {
  run(request: RunRequest): Promise<RunOutcome>;
  /** The tools a session offers right now. */
  offered(session: Session, live: LiveSession | null): Promise<Map<string, Tool | McpTool>>;
  /** Executions in progress. */
  inUse(): number;
}

/** Executions at once per gateway. */
const MAX_EXECUTIONS = 32;
/** How long a cancelled tool may take to come back before its call is answered anyway. */
const CANCEL_GRACE_MS = 5000;
const MAX_DEPTH = 4;

interface RunDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: AgentMetrics;
  readonly tokens: ConfirmTokens;
  readonly mcp: McpHub;
  readonly sandbox: Sandbox;
  /** Late-bound: built on the registry that runs are built beside. */
  readonly guards: () => {
    readonly hooks: LifecycleHooks;
    readonly rules: CheckedRules;
    readonly settings: SettingsReader;
  };
}

/** @param options `env.PATH` is where programs are looked for. */
export function createToolRuns(
  deps: RunDeps,
  options: Pick<AgentOptions, "env" | "dataDir">,
): ToolRuns {
  const executions = createCap(MAX_EXECUTIONS);
  const searchPath = options.env["PATH"] ?? "";

  async function offered(
    session: Session,
    live: LiveSession | null,
    settings: ToolSettings,
  ): Promise<Map<string, Tool | McpTool>> {
    return effectiveTools(session, settings, await deps.mcp.tools(session), {
      reportsOutcome: live?.reportsOutcome ?? true,
      searchPath,
    });
  }

  async function run(request: RunRequest, depth = 0): Promise<RunOutcome> {
    const callId = `call_${newUlid(deps.clock.now())}`;
    const signal = AbortSignal.any([request.signal, request.session.signal]);
    let verdict: Verdict;
    try {
      const settings = await deps.guards().settings.toolSettings(request.session);
      verdict = await passGate(
        { ...deps.guards(), tokens: deps.tokens },
        {
          callId,
          tool: request.tool,
          params: scrub(request.params),
          session: request.session,
          agent: request.agent ?? request.session.agent,
          entry: request.entry,
          posture: request.posture,
          scope: scopeOf(request.session, options.dataDir),
          offered: await offered(request.session, request.live, settings),
          settings,
        },
        signal,
      );
    } catch (error) {
      if (signal.aborted) {
        count(request.tool, "cancelled");
        return { kind: "result", tool: request.tool, result: CANCELLED, context: [] };
      }
      throw error;
    }
    record(request, callId, verdict);
    switch (verdict.kind) {
      case "refused":
        count(request.tool, "refused");
        return { kind: "refused", error: verdict.error };
      case "denied":
        count(request.tool, "denied");
        request.session.emit("event.tool_result", {
          call_id: callId,
          tool: request.tool,
          is_error: true,
        });
        return { kind: "result", tool: request.tool, result: verdict.result, context: [] };
      case "needs_confirmation":
        count(request.tool, "needs_confirmation");
        deps
          .guards()
          .hooks.notify(
            request.session,
            "permission_prompt",
            `${request.tool} waits for a confirmation`,
          );
        return { kind: "needs_confirmation", details: verdict.details };
      case "allowed":
        return execute(request, verdict, signal, depth);
    }
  }

  async function execute(
    request: RunRequest,
    verdict: Verdict & { kind: "allowed" },
    signal: AbortSignal,
    depth: number,
  ): Promise<RunOutcome> {
    // an inner call runs in the place of its orchestrator
    const giveBack = depth > 0 ? () => {} : executions.take();
    if (giveBack === null) {
      count(request.tool, "refused");
      return {
        kind: "refused",
        error: new AgentError("service_unavailable", "Too many tools are running."),
      };
    }
    const { session } = request;
    const { call } = verdict;
    session.emit("event.tool_use", {
      call_id: call.id,
      tool: call.tool,
      params: shortened(call.params),
    });
    try {
      const result = await untilCancelled(
        verdict.tool.run(verdict.params, toContext(request, verdict, signal, depth)),
        signal,
      );
      const after = await deps.guards().hooks.afterTool(call, result, session.signal);
      session.emit("event.tool_result", {
        call_id: call.id,
        tool: call.tool,
        is_error: result.isError,
      });
      count(
        request.tool,
        result.isError
          ? result.errorCode === "cancelled" || result.errorCode === "timeout"
            ? result.errorCode
            : "error"
          : "ok",
      );
      return {
        kind: "result",
        tool: request.tool,
        result,
        context: [...verdict.context, ...after.context],
      };
    } finally {
      giveBack();
    }
  }

  /** A tool's failure on abort is a cancelled call; a tool that does not come back is left behind after a while. */
  async function untilCancelled(
    running: Promise<ToolResult>,
    signal: AbortSignal,
  ): Promise<ToolResult> {
    let onAbort = (): void => {};
    const cancelled = new Promise<ToolResult>((resolve) => {
      onAbort = () => void deps.clock.after(CANCEL_GRACE_MS, () => resolve(CANCELLED));
      if (signal.aborted) {
        onAbort();
      }
      signal.addEventListener("abort", onAbort, { once: true });
    });
    try {
      return await Promise.race([
        running.catch((error: unknown) => {
          if (signal.aborted) {
            return CANCELLED;
          }
          deps.log.error({ err: error }, "tool failed");
          return failed("internal_error", "The tool failed.");
        }),
        cancelled,
      ]);
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  function toContext(
    request: RunRequest,
    verdict: Verdict & { kind: "allowed" },
    signal: AbortSignal,
    depth: number,
  ): ToolContext {
    const { session, live } = request;
    const scope = scopeOf(session, options.dataDir);
    return {
      session,
      clock: deps.clock,
      signal,
      files: createFiles(scope, verdict.approvedWrites),
      searchPath,
      judgedReadOnly: verdict.readOnly,
      reads: live?.reads ?? createReadRecord(),
      runCommand: (command, cwd, timeoutMs, maxOutputBytes) =>
        runCommand(
          {
            command,
            cwd,
            env: { ...options.env, HOME: session.home, PWD: cwd },
            stdin: null,
            timeoutMs,
            killGraceMs: 0,
            maxOutputBytes,
            keep: "tail",
            mergeOutput: true,
            globstar: true,
            launcher: verdict.readOnly ? deps.sandbox.launcher(scope, cwd) : [],
          },
          deps.clock,
          signal,
        ),
      async ask(question) {
        if (live === null) {
          return null;
        }
        const answer = await live.gates.park(
          { type: "question", toolName: request.tool, params: question },
          signal,
        );
        return answer.kind === "answer" ? answer.text : null;
      },
      async runInner(tool, params): Promise<InnerOutcome> {
        if (depth + 1 >= MAX_DEPTH) {
          return { tool, result: failed("too_deep", "Calls are nested too deeply.") };
        }
        // a confirmation of the outer call is none of the inner one
        const posture: Posture = {
          ...request.posture,
          confirm: false,
          confirmToken: null,
          allowMutations: true,
        };
        const outcome = await run(
          { ...request, tool, params, entry: "orchestrator", posture, signal },
          depth + 1,
        );
        switch (outcome.kind) {
          case "result":
            return { tool, result: outcome.result };
          case "refused":
            return { tool, result: failed(outcome.error.code, outcome.error.message) };
          case "needs_confirmation":
            return {
              tool,
              result: failed("tool_needs_confirmation", "This call must be confirmed first."),
              needsConfirmation: outcome.details,
            };
        }
      },
    };
  }

  function record(request: RunRequest, callId: string, verdict: Verdict): void {
    const decision: Decision = {
      at: new Date(deps.clock.now()).toISOString(),
      call_id: callId,
      tool: request.tool.slice(0, 200),
      entry: request.entry,
      verdict: verdict.kind,
      read_only: verdict.kind === "allowed" || verdict.kind === "denied" ? verdict.readOnly : false,
      steps: verdict.steps,
    };
    request.live?.decisions.add(decision);
    const { at: _logged, ...rest } = decision; // the line has a time of its own
    deps.log.info({ session: request.session.id, ...rest }, "tool decision");
  }

  /** Label values come from the catalogue: names from outside never become one. */
  function count(tool: string, outcome: string): void {
    deps.metrics.toolRun(
      builtinTool(tool) !== undefined ? tool : tool.startsWith("mcp__") ? "mcp" : "other",
      outcome,
    );
  }

  return {
    run: (request) => run(request),
    offered: async (session, live) =>
      offered(session, live, await deps.guards().settings.toolSettings(session)),
    inUse: () => executions.inUse(),
  };
}

/** Longest text of a parameter in an event: the ring keeps many of them. */
const EVENT_TEXT = 2000;

function shortened(params: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(params).map(([key, value]) => {
      const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
      return [key, text.length > EVENT_TEXT ? `${text.slice(0, EVENT_TEXT)}…` : value];
    }),
  );
}

const CANCELLED = failed("cancelled", "[cancelled]");

/** Files of a settings folder that is the working directory as well. */
const SETTINGS_FILES = ["settings.json", "settings.local.json", "hook-trust.json", "realms"];

/** The file scope of a session. The gateway's own data and a config-dir override are closed to tools. */
export function scopeOf(session: Session, dataDir: string): FileScope {
  const { cwd, home, dirScope, configDir } = session;
  const settings = configDir === null ? null : physicalOr(configDir);
  return {
    cwd,
    home,
    dirScope,
    protectedDirs: [
      physicalOr(dataDir),
      // an override may be any folder, also one that holds the project: then its settings are closed and the rest is not
      ...(settings === null
        ? []
        : isWithin(settings, cwd)
          ? SETTINGS_FILES.map((name) => `${settings}/${name}`)
          : [settings]),
    ],
  };
}

function physicalOr(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

/** Drops what a caller may not say: `confirmed` and every key that begins with `_`. */
export function scrub(params: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(params).filter(([key]) => key !== "confirmed" && !key.startsWith("_")),
  );
}

/** The result envelope (section 14.1): the documented keys, and `status` and `output` for later readers. */
export function toEnvelope(outcome: RunOutcome & { kind: "result" }): JsonObject {
  const { result } = outcome;
  const extra = outcome.context.map((line) => ({
    type: "text",
    text: line.slice(0, MAX_RESULT_BYTES),
  }));
  return {
    tool: outcome.tool,
    is_error: result.isError,
    content: [{ type: "text", text: result.text }, ...extra],
    status: "ok",
    output: [result.text, ...extra.map((part) => part.text)].join("\n"),
    ...(result.errorCode === undefined ? {} : { error_code: result.errorCode }),
  };
}
