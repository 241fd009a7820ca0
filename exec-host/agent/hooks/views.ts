import { toListedRule } from "../rules/rule.ts";
import type { JsonObject, Session } from "../seams.ts";
import { canonicalJson } from "../settings/canonical-json.ts";
import { findDrift } from "../settings/drift.ts";
import type { LoadedSettings } from "../settings/load.ts";
import { isChecked } from "../rules/rule.ts";
import type { SessionTrust } from "./session-settings.ts";
import { SHIPPED_HOOKS } from "./shipped.ts";

/** The rules block that GET /hooks and GET /hooks/rules share: all of it from one read of each file. */
export function toRulesBlock(settings: LoadedSettings): JsonObject {
  return {
    live: settings.rules.map(toListedRule),
    timeout_ms: settings.rulesTimeoutMs,
    scopes: settings.files
      .filter((file) => file.revision !== undefined)
      .map((file) => ({ scope: file.place.layer, revision: file.revision })),
    exec_trust: settings.execTrust,
    warnings: settings.warnings,
    rule_warnings: settings.ruleWarnings,
    rules_complete: settings.ruleWarnings.length === 0,
  };
}

/**
 * The answer of GET /hooks. `live` and `trust` speak of what the session loaded, `on_disk` and `rules.live` of the files
 * now.
 */
export function toHooksView(
  session: Session,
  loaded: LoadedSettings,
  disk: LoadedSettings,
  trust: SessionTrust,
  note: string,
): JsonObject {
  return {
    live: [...loaded.hooks.map(toListedHook), ...toShippedList(loaded)],
    on_disk: disk.hooks.map(toListedHook),
    session: session.id,
    stale: findDrift(loaded.files, disk.files),
    files: Object.fromEntries(loaded.files.map(({ place }) => [place.layer, place.path])),
    trust: { hash: trust.hash, needs_ack: trust.needsAck, high_risk: trust.highRisk },
    disabled_all: loaded.disableAllHooks,
    rules: {
      ...toRulesBlock(disk),
      session: loaded.rules.map(toListedRule),
      stale:
        canonicalJson(loaded.rules) !== canonicalJson(disk.rules) ||
        loaded.rulesTimeoutMs !== disk.rulesTimeoutMs,
      active: loaded.rules.some((rule) => isChecked(rule.kind)),
      note,
    },
    warnings: loaded.warnings,
  };
}

function toListedHook(hook: LoadedSettings["hooks"][number]): JsonObject {
  return {
    event: hook.event,
    matcher: hook.matcher,
    command: hook.command,
    name: hook.name,
    description: hook.description,
    timeout: hook.timeout ?? 0,
    disabled: hook.disabled,
    scope: hook.layer,
    source: hook.source,
    ...(hook.matches === null
      ? { problem: "the matcher does not compile; this hook never runs" }
      : {}),
  };
}

/** The catalogue; its switches live in the first layer, so that is where a toggle goes. */
function toShippedList(settings: LoadedSettings): readonly JsonObject[] {
  const [first] = settings.places.places;
  return SHIPPED_HOOKS.map((hook) => ({
    event: hook.event,
    matcher: hook.matcher,
    command: "",
    name: hook.name,
    description: hook.description,
    timeout: 0,
    disabled: !settings.shippedHooks.has(hook.id),
    scope: first?.layer ?? "user",
    source: first?.path ?? "",
    shipped_id: hook.id,
  }));
}
