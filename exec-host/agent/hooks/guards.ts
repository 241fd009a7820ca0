import { createChatJudge } from "../rules/judge.ts";
import { createCheckedRules } from "../rules/checked-rules.ts";
import { NonceStore } from "../nonces.ts";
import type { AgentGuards, CreateGuards, Session, SettingsReader } from "../seams.ts";
import { digestOfFiles, loadSettings } from "../settings/load.ts";
import { createSettingsWriter } from "../settings/write.ts";
import { createAckStore } from "./ack-store.ts";
import { createLifecycleHooks } from "./lifecycle.ts";
import { registerReadRoutes } from "./read-routes.ts";
import { createSessionSettings } from "./session-settings.ts";
import type { SessionSettings } from "./session-settings.ts";
import { registerTrialRoutes } from "./trial-routes.ts";
import { registerWriteRoutes } from "./write-routes.ts";

/** Builds settings, lifecycle hooks, rules, trust and their routes for one gateway. */
export const createGuards: CreateGuards = (deps, options): AgentGuards => {
  const { log } = deps;
  const acks = createAckStore(deps);
  const settings = createSessionSettings({ acks }, options);
  const nonces = new NonceStore(deps.clock);
  const judge =
    options.judge === null ? null : createChatJudge({ clock: deps.clock, log }, options.judge);
  const mcp = {
    // servers that do not come up are the tools' to report; what was written or acknowledged stands
    refresh: (session: Session) =>
      deps.mcp
        .refresh(session)
        .catch((cause: unknown) => log.warn({ err: cause }, "MCP servers not refreshed")),
  };
  const shared = { ...deps, mcp, env: options.env, fleet: options.fleet, settings, acks };
  const hooks = createLifecycleHooks(shared);

  deps.sessions.onClose((session) => nonces.drop(session.id));
  deps.changes.provide("rules", async (scope) => digestOfFiles((await loadSettings(scope)).files));

  return {
    hooks,
    rules: createCheckedRules({ settings, judge }, options),
    settings: createSettingsReader(settings),
    registerRoutes(router) {
      registerReadRoutes(router, shared, {
        home: options.home,
        fleet: options.fleet,
        hasJudge: judge !== null,
      });
      registerWriteRoutes(router, { ...shared, nonces, writer: createSettingsWriter() });
      registerTrialRoutes(router, shared);
    },
    close: () => hooks.close(),
  };
};

/** The tools' part of a session's settings, with the MCP servers that trust holds marked. */
function createSettingsReader(settings: SessionSettings): SettingsReader {
  return {
    async toolSettings(session) {
      const loaded = await settings.get(session);
      const trust = await settings.trust(loaded);
      return {
        mcpServers: loaded.mcpServers.map((server) => ({
          ...server,
          held: trust.needsAck && server.layer !== "user",
        })),
        denyList: loaded.denyList,
        denyUrls: loaded.denyUrls,
        disabledTools: loaded.disabledTools,
        warnings: loaded.warnings,
      };
    },
  };
}
