import { createHash } from "node:crypto";
import { canonicalJson, isObject } from "../settings/canonical-json.ts";
import type { LoadedHook, LoadedSettings } from "../settings/load.ts";
import { isChecked } from "../rules/rule.ts";
import { isHighRisk } from "./high-risk.ts";

/** What a session's settings ask trust for. */
export interface TrustSnapshot {
  /** First 32 hex digits of a SHA-256 over everything that can run or hold a call. */
  readonly hash: string;
  /** Computed here; a request can never change it. */
  readonly highRisk: boolean;
  /** Folder whose files are meant; acknowledgements are per folder, because commands name files relative to it. */
  readonly folder: string | null;
  /** True when something in it must not run, or hold a call, before it is acknowledged. */
  readonly wantsAck: boolean;
}

/**
 * Takes the trust snapshot of loaded settings (section 10). Covered are lifecycle hooks that can run, checked rules, and the MCP
 * servers of project and local layers (decision 64); names and descriptions are not, nor is advice for the prompt, nor the catalogue's
 * own hooks, which start no process.
 *
 * @param fleet everything counts, not only what a repository brought along.
 */
export function takeTrustSnapshot(settings: LoadedSettings, fleet: boolean): TrustSnapshot {
  const hooks = settings.hooks.filter((hook) => hook.matches !== null);
  const rules = settings.rules.filter((rule) => isChecked(rule.kind));
  const servers = settings.mcpServers.filter((server) => server.layer !== "user");
  const entries = [
    ...hooks.map((hook) => ({
      kind: "hook",
      scope: hook.layer,
      event: hook.event,
      matcher: hook.matcher,
      command: hook.command,
      timeout: hook.timeout ?? 0,
      disabled: hook.disabled,
    })),
    ...rules.map((rule) => ({
      kind: "rule",
      scope: rule.layer,
      id: rule.id,
      rule_kind: rule.kind,
      text: rule.text,
      tools: rule.tools,
      agents: rule.agents,
    })),
    ...servers.map((server) => ({ kind: "mcp", scope: server.layer, value: server.value })),
  ];
  const lines = entries.map(canonicalJson).toSorted();
  const hash = createHash("sha256")
    .update(`[${lines.join(",")}]`)
    .digest("hex")
    .slice(0, 32);
  const enabled = settings.disableAllHooks ? [] : hooks.filter((hook) => !hook.disabled);
  const fromRepository =
    enabled.some((hook) => hook.layer !== "user") ||
    servers.some((server) => !isSwitchedOff(server.value));
  return {
    hash,
    highRisk: hooks.some((hook) => isHighRisk(hook.command)) || servers.some(isHighRiskServer),
    folder: settings.places.trustFolder,
    wantsAck: fromRepository || (fleet && entries.length > 0),
  };
}

/**
 * True for a hook that must wait for an acknowledgement. Off a fleet box the user's own hooks go on running while a repository's wait:
 * a repository must not be able to silence them by bringing hooks of its own.
 */
export function needsTrust(hook: LoadedHook, fleet: boolean): boolean {
  return fleet || hook.layer !== "user";
}

function isSwitchedOff(value: unknown): boolean {
  return isObject(value) && value["enabled"] === false;
}

function isHighRiskServer(server: { readonly value: unknown }): boolean {
  if (!isObject(server.value)) {
    return false;
  }
  const { command, args } = server.value;
  const words = [command, ...(Array.isArray(args) ? (args as unknown[]) : [])];
  return isHighRisk(words.filter((word) => typeof word === "string").join(" "));
}
