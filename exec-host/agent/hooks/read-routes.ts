import { AgentError } from "../errors.ts";
import { jsonAnswer } from "../router.ts";
import type { Router } from "../router.ts";
import { coversAgent, covers, ownAgent } from "../rules/coverage.ts";
import { failClosedReason } from "../rules/checked-rules.ts";
import { pickPromptRules, PROMPT_BUDGET_BYTES } from "../rules/prompt-rules.ts";
import { isChecked, toListedRule } from "../rules/rule.ts";
import type { GuardDeps, JsonObject, Session } from "../seams.ts";
import { loadSettings } from "../settings/load.ts";
import { reloadBody } from "./bodies.ts";
import { liveSession } from "./live-session.ts";
import { toToolName } from "./matcher.ts";
import type { SessionSettings } from "./session-settings.ts";
import { toHooksView, toRulesBlock } from "./views.ts";

/** What the routes are built on. */
export interface ReadRouteDeps extends GuardDeps {
  readonly settings: SessionSettings;
}

/** What the reading routes need to know of the gateway. */
export interface ReadRouteOptions {
  readonly home: string;
  readonly fleet: boolean;
  readonly hasJudge: boolean;
}

/** H1 to H3 and S10: what is loaded, what is on disk, what applies. */
export function registerReadRoutes(
  router: Router,
  deps: ReadRouteDeps,
  options: ReadRouteOptions,
): void {
  const { settings } = deps;

  async function summary(session: Session): Promise<JsonObject> {
    const [loaded, disk] = await Promise.all([settings.get(session), loadSettings(session)]);
    const trust = await settings.trust(loaded);
    const reason = failClosedReason({ ...options, needsAck: trust.needsAck });
    const checked = loaded.rules.some((rule) => isChecked(rule.kind));
    return toHooksView(session, loaded, disk, trust, checked ? (reason ?? "") : "");
  }

  async function reload(session: Session): Promise<void> {
    await settings.reload(session);
    await deps.mcp.refresh(session);
  }

  router.add(
    {
      method: "get",
      path: "/hooks",
      operationId: "hooks.list",
      summary: "Lifecycle hooks of a live session, drift of its settings files, trust and rules",
      row: "R1",
      query: { session_id: "Id of a live session; required." },
      errors: ["bad_request", "invalid_realm", "realm_scope_unsupported", "not_found"],
    },
    async (request) => {
      const id = request.query.get("session_id") ?? "";
      if (id === "") {
        throw new AgentError("bad_request", "session_id is required.", { field: "session_id" });
      }
      return jsonAnswer(await summary(liveSession(deps.sessions, id, request.scope.realm)));
    },
  );

  router.add(
    {
      method: "post",
      path: "/hooks/reload",
      operationId: "hooks.reload",
      summary: "Read the settings files again, for one session or for all",
      row: "R2",
      body: reloadBody,
      errors: ["bad_request", "realm_scope_unsupported", "not_found"],
    },
    async ({ body }) => {
      if (body.session_id !== undefined) {
        const session = liveSession(deps.sessions, body.session_id);
        await reload(session);
        return jsonAnswer({ ...(await summary(session)), reloaded: true, sessions: 1 });
      }
      let sessions = 0;
      for (const session of deps.sessions.list()) {
        try {
          await reload(session);
          sessions += 1;
        } catch (cause) {
          // one session whose files became unreadable keeps its old settings; the others still reload
          deps.log.warn({ err: cause, session: session.id }, "settings not reloaded");
        }
      }
      return jsonAnswer({ reloaded: true, sessions });
    },
  );

  router.add(
    {
      method: "get",
      path: "/hooks/rules",
      operationId: "hooks.getRules",
      summary: "Rules of a realm's settings, without a session",
      row: "R1b",
      errors: [
        "bad_request",
        "invalid_realm",
        "realm_scope_unsupported",
        "not_found",
        "service_unavailable",
      ],
    },
    async ({ scope }) => {
      const loaded = await loadSettings({
        realm: scope.realm ?? "global",
        home: options.home,
        cwd: scope.cwd,
        configDir: scope.configDir,
      });
      return jsonAnswer({ rules: toRulesBlock(loaded) });
    },
  );

  router.add(
    {
      method: "get",
      path: "/sessions/{id}/rules/applies",
      operationId: "sessions.listApplicableRules",
      summary: "Rules that apply to a session's calls, by tool and agent",
      row: "own",
      query: { tool: "Tool name or alias.", agent: "Acting agent; the session's own unless said." },
      errors: ["bad_request", "invalid_realm", "not_found"],
    },
    async (request) => {
      const session = liveSession(deps.sessions, request.params["id"] ?? "", request.scope.realm);
      return jsonAnswer(await applicableRules(session, request.query));
    },
  );

  async function applicableRules(session: Session, query: URLSearchParams): Promise<JsonObject> {
    // what is checked is the session's snapshot; a prompt is put together anew for every request of the model
    const [loaded, disk] = await Promise.all([settings.get(session), loadSettings(session)]);
    const agent = query.get("agent") ?? ownAgent(session);
    const named = query.get("tool");
    const tool = named === null ? null : toToolName(named);
    const readOnly = tool === null ? null : (deps.tools.isReadOnly(tool, session) ?? false);
    const checked = loaded.rules.filter((rule) =>
      tool === null
        ? isChecked(rule.kind) && coversAgent(rule, agent)
        : covers(rule, { tool, readOnly: readOnly === true, agent }),
    );
    const prompt = pickPromptRules(disk.teamRules ? disk.rules : [], agent);
    const rules = [...checked, ...prompt.rules].map(toListedRule);
    const trust = await settings.trust(loaded);
    const reason = failClosedReason({ ...options, needsAck: trust.needsAck });
    return {
      agent,
      tool,
      read_only: readOnly,
      active: checked.length > 0,
      count: rules.length,
      rules,
      prompt_off: !disk.teamRules,
      prompt_bytes: prompt.bytes,
      prompt_budget_bytes: PROMPT_BUDGET_BYTES,
      prompt_over_budget: prompt.overBudget,
      ...(checked.length > 0 && reason !== null ? { fail_closed_reason: reason } : {}),
    };
  }
}
