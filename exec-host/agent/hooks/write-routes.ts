import { AgentError } from "../errors.ts";
import type { NonceStore, WriteOp } from "../nonces.ts";
import { jsonAnswer } from "../router.ts";
import type { Router } from "../router.ts";
import type { GuardDeps, Session, SettingsLayer } from "../seams.ts";
import { ownMember } from "../settings/canonical-json.ts";
import { deleteHook, toggleHook, toggleShipped, upsertHook } from "../settings/hook-edits.ts";
import type { LoadedSettings } from "../settings/load.ts";
import { findPlaces } from "../settings/places.ts";
import type { SettingsPlace, SettingsPlaces } from "../settings/places.ts";
import type { SettingsEdit, SettingsWriter } from "../settings/write.ts";
import {
  beginWriteBody,
  deleteBody,
  disableAllBody,
  setRulesBody,
  toggleBody,
  upsertBody,
} from "./bodies.ts";
import type { ToggleBody } from "./bodies.ts";
import { liveSession } from "./live-session.ts";
import { normalMatcher } from "./matcher.ts";
import { decodeRulesWrite, editRules } from "./rules-write.ts";
import type { SessionSettings } from "./session-settings.ts";
import { shippedHook } from "./shipped.ts";
import { toListedRule } from "../rules/rule.ts";

/** What the guarded writes are built on. */
export interface WriteRouteDeps extends GuardDeps {
  readonly settings: SessionSettings;
  readonly nonces: NonceStore;
  readonly writer: SettingsWriter;
}

interface Target {
  readonly session: Session;
  readonly place: SettingsPlace;
  readonly places: SettingsPlaces;
  /** As named by the nonce; differs from the place's layer for grants under an overriding folder. */
  readonly scope: SettingsLayer;
}

const WRITE_ERRORS = ["bad_request", "realm_scope_unsupported", "not_found"] as const;

/** H4 to H9: the nonce, and every write it guards. */
export function registerWriteRoutes(router: Router, deps: WriteRouteDeps): void {
  /** Spends the nonce and finds the file it was minted for. */
  async function claim(
    body: { session_id: string; nonce?: string | undefined; scope?: SettingsLayer | undefined },
    op: WriteOp,
  ): Promise<Target> {
    const session = liveSession(deps.sessions, body.session_id);
    const intent = deps.nonces.take(body.nonce, session.id, op, body.scope);
    const places = await findPlaces(session);
    const place = placeOf(places, intent.scope, op);
    if (place.realPath !== intent.path) {
      throw new AgentError("bad_request", "The settings file is no longer where it was.", {
        field: "nonce",
        reason: "scope",
      });
    }
    return { session, place, places, scope: intent.scope };
  }

  /** Writes, then has the session enforce what was written. */
  async function write<T>(
    target: Target,
    edit: (value: Record<string, unknown>) => SettingsEdit<T>,
  ): Promise<{ result: T; loaded: LoadedSettings }> {
    const result = await deps.writer.update(target.place, edit);
    const loaded = await deps.settings.reload(target.session);
    await deps.mcp.refresh(target.session);
    deps.log.info({ session: target.session.id, scope: target.scope }, "settings written");
    return { result, loaded };
  }

  router.add(
    {
      method: "post",
      path: "/hooks/begin-write",
      operationId: "hooks.createWriteIntent",
      summary: "Mint the one-shot nonce of a guarded settings write",
      row: "R2",
      body: beginWriteBody,
      errors: WRITE_ERRORS,
    },
    async ({ body }) => {
      const session = liveSession(deps.sessions, body.session_id);
      const place = placeOf(await findPlaces(session), body.scope, body.op);
      // the session may have closed while its files were looked for; its nonces are gone then
      liveSession(deps.sessions, body.session_id);
      const { nonce, expiresAt } = deps.nonces.issue({
        sessionId: session.id,
        op: body.op,
        scope: body.scope,
        path: place.realPath,
      });
      return jsonAnswer({
        nonce,
        op: body.op,
        scope: body.scope,
        session_id: session.id,
        expires_at: new Date(expiresAt).toISOString(),
      });
    },
  );

  router.add(
    {
      method: "put",
      path: "/hooks",
      operationId: "hooks.upsert",
      summary: "Create or update one lifecycle hook",
      row: "R2",
      body: upsertBody,
      errors: WRITE_ERRORS,
    },
    async ({ body }) => {
      const target = await claim(body, "upsert");
      const { event, matcher, command } = body;
      const { result } = await write(target, (value) => {
        const edited = upsertHook(ownMember(value, "hooks"), { event, matcher, command }, body);
        return { members: [["hooks", edited.hooks]], result: edited.created };
      });
      return jsonAnswer({
        ok: true,
        event,
        matcher,
        command,
        scope: target.scope,
        created: result,
      });
    },
  );

  router.add(
    {
      method: "delete",
      path: "/hooks",
      operationId: "hooks.delete",
      summary: "Delete a lifecycle hook, or every command of an event and matcher",
      row: "R2",
      body: deleteBody,
      errors: WRITE_ERRORS,
    },
    async ({ body }) => {
      const target = await claim(body, "delete");
      const { event, matcher, command } = body;
      const { result } = await write(target, (value) => {
        const edited = deleteHook(ownMember(value, "hooks"), event, matcher, command);
        return { members: [["hooks", edited.hooks]], result: edited.removed };
      });
      return jsonAnswer({
        ok: true,
        event,
        matcher,
        ...(command === undefined ? {} : { command }),
        scope: target.scope,
        removed: result,
      });
    },
  );

  router.add(
    {
      method: "post",
      path: "/hooks/toggle",
      operationId: "hooks.toggle",
      summary: "Switch one lifecycle hook on or off",
      row: "R2",
      body: toggleBody,
      errors: WRITE_ERRORS,
    },
    async ({ body }) =>
      body.shipped_id === undefined ? toggleStored(body) : toggleCatalogue(body, body.shipped_id),
  );

  async function toggleStored(body: ToggleBody): Promise<Response> {
    const { event, command } = body;
    if (event === undefined || command === undefined) {
      throw new AgentError("bad_request", "A toggle needs event and command, or shipped_id.", {
        field: event === undefined ? "event" : "command",
      });
    }
    const target = await claim(body, "toggle");
    const matcher = normalMatcher(body.matcher);
    const disabled = body.disabled ?? false;
    await write(target, (value) => ({
      members: [
        ["hooks", toggleHook(ownMember(value, "hooks"), { event, matcher, command }, disabled)],
      ],
      result: undefined,
    }));
    return jsonAnswer({ ok: true, event, matcher, command, scope: target.scope, disabled });
  }

  async function toggleCatalogue(body: ToggleBody, id: string): Promise<Response> {
    const { enabled } = body;
    if (enabled === undefined) {
      throw new AgentError("bad_request", "enabled must be true or false.", { field: "enabled" });
    }
    for (const field of ["event", "matcher", "command"] as const) {
      if (body[field] !== undefined) {
        throw new AgentError(
          "bad_request",
          `A shipped hook is named by its id alone, without ${field}.`,
          {
            field,
          },
        );
      }
    }
    if (shippedHook(id) === undefined) {
      throw new AgentError("not_found", "no hook found");
    }
    const target = await claim(body, "toggle");
    const first = target.places.places[0]?.layer;
    if (target.scope !== first) {
      throw new AgentError("bad_request", `Shipped hooks are recorded in the scope ${first}.`, {
        field: "scope",
      });
    }
    await write(target, (value) => ({
      members: [["shipped_hooks", toggleShipped(ownMember(value, "shipped_hooks"), id, enabled)]],
      result: undefined,
    }));
    return jsonAnswer({ ok: true, shipped_id: id, enabled, scope: target.scope });
  }

  router.add(
    {
      method: "post",
      path: "/hooks/disable-all",
      operationId: "hooks.disableAll",
      summary: "Set or clear the switch that stops every lifecycle hook",
      row: "R2",
      body: disableAllBody,
      errors: WRITE_ERRORS,
    },
    async ({ body }) => {
      const target = await claim(body, "set_disabled");
      await write(target, () => ({
        members: [
          ["disable_all_hooks", undefined],
          ["disableAllHooks", body.value ? true : undefined],
        ],
        result: undefined,
      }));
      return jsonAnswer({
        ok: true,
        scope: target.scope,
        value: body.value,
        disableAllHooks: body.value,
      });
    },
  );

  router.add(
    {
      method: "post",
      path: "/hooks/rules",
      operationId: "hooks.setRules",
      summary: "Replace the rules or the exec grants of one settings scope",
      row: "R2",
      body: setRulesBody,
      errors: [...WRITE_ERRORS, "rule_tools_not_allowed", "revision_conflict"],
    },
    async ({ body }) => {
      const wanted = decodeRulesWrite(body, deps.clock.now());
      const target = await claim(body, "rules_set");
      if (wanted.execTrust !== undefined && target.scope !== "user") {
        throw new AgentError("bad_request", "exec_trust belongs to the scope user.", {
          field: "exec_trust",
        });
      }
      if (target.places.overridden && target.scope === "user" && wanted.holdsRules) {
        throw new AgentError(
          "bad_request",
          "Under a config dir the scope user holds exec_trust only.",
          {
            field: "scope",
          },
        );
      }
      const { result, loaded } = await write(target, (value) =>
        editRules(value, wanted, target.session.realm, target.place),
      );
      return jsonAnswer({
        ok: true,
        scope: target.scope,
        revision: result,
        rules: { live: loaded.rules.map(toListedRule), timeout_ms: loaded.rulesTimeoutMs },
      });
    },
  );
}

/**
 * The file that a scope means for a write.
 *
 * @throws AgentError `bad_request` for a layer the session does not have, `not_found` for one in another realm's profile.
 */
function placeOf(places: SettingsPlaces, scope: SettingsLayer, op: WriteOp): SettingsPlace {
  const grants = scope === "user" && op === "rules_set" ? places.execTrust : undefined;
  const place = grants ?? places.places.find((candidate) => candidate.layer === scope);
  if (place === undefined) {
    throw new AgentError("bad_request", `This session has no settings scope ${scope}.`, {
      field: "scope",
    });
  }
  if (place.foreign) {
    throw new AgentError("not_found");
  }
  return place;
}
