import { AgentError } from "../errors.ts";
import { jsonAnswer } from "../router.ts";
import type { Router, RouteRequest } from "../router.ts";
import type { GuardDeps, JsonObject, Session } from "../seams.ts";
import { isCommand } from "../settings/document.ts";
import { loadSettings } from "../settings/load.ts";
import type { AckStore } from "./ack-store.ts";
import { ackBody, testBody } from "./bodies.ts";
import type { TestBody } from "./bodies.ts";
import { isHookEvent, SHORT_HOOK_SECONDS } from "./events.ts";
import type { HookEvent } from "./events.ts";
import { fireHooks, fireOne } from "./fire.ts";
import type { FireDeps, Firing, HookRun } from "./fire.ts";
import { liveSession } from "./live-session.ts";
import { toolNames } from "./matcher.ts";
import type { SessionSettings } from "./session-settings.ts";
import { shippedHook } from "./shipped.ts";
import { takeTrustSnapshot } from "./trust.ts";

/** What test-firing and trust are built on. */
export interface TrialRouteDeps extends GuardDeps, FireDeps {
  readonly settings: SessionSettings;
  readonly acks: AckStore;
}

/** H10 and H11: fire a hook now, and say that the loaded set may run. */
export function registerTrialRoutes(router: Router, deps: TrialRouteDeps): void {
  router.add(
    {
      method: "post",
      path: "/hooks/test",
      operationId: "hooks.test",
      summary: "Fire a lifecycle hook now, or dry-run a shipped one",
      row: "R2",
      body: testBody,
      errors: ["bad_request", "realm_scope_unsupported", "not_found"],
    },
    async (request) => {
      const { body } = request;
      const session = liveSession(deps.sessions, body.session_id);
      if (body.shipped_id !== undefined) {
        return jsonAnswer(dryRun(body, body.shipped_id));
      }
      if (!isHookEvent(body.event)) {
        throw new AgentError("bad_request", "event must be a lifecycle event.", { field: "event" });
      }
      return jsonAnswer(await testFire(session, body.event, request));
    },
  );

  async function testFire(
    session: Session,
    event: HookEvent,
    { body, signal }: RouteRequest<TestBody>,
  ): Promise<JsonObject> {
    const firing: Firing = {
      session,
      settings: await deps.settings.get(session),
      event,
      names: body.match_value === undefined ? [] : toolNames(body.match_value),
      payload: body.payload ?? {},
      signal: AbortSignal.any([session.signal, signal]),
      held: false, // a test is a deliberate act of somebody who may write hooks
      capSeconds: SHORT_HOOK_SECONDS,
      test: true,
    };
    const head = { ok: true, event, match_value: body.match_value ?? "" };
    if (body.command === undefined) {
      const runs = await fireHooks(deps, firing);
      return { ...head, ...toTestResult(runs[0]), results: runs.map(toTestResult) };
    }
    if (!isCommand(body.command)) {
      throw new AgentError("bad_request", "command must not be empty.", { field: "command" });
    }
    const run = await fireOne(deps, firing, {
      event,
      matcher: "*",
      matches: () => true,
      command: body.command,
      name: "",
      description: "",
      timeout: toWholeSeconds(body.timeout) ?? SHORT_HOOK_SECONDS,
      disabled: false,
      layer: "local",
      source: "",
    });
    const result = toTestResult(run);
    return { ...head, ok: result["fired"], ...result };
  }

  router.add(
    {
      method: "post",
      path: "/hooks/trust/ack",
      operationId: "hooks.trust",
      summary: "Acknowledge the trust hash of a session's hooks and checked rules",
      row: "R2",
      body: ackBody,
      errors: ["bad_request", "realm_scope_unsupported", "not_found", "trust_hash_mismatch"],
    },
    async ({ body }) => {
      const session = liveSession(deps.sessions, body.session_id);
      const loaded = await deps.settings.get(session);
      const snapshot = takeTrustSnapshot(loaded, deps.fleet);
      // what was shown must be what is loaded and what a new session would load
      const disk = takeTrustSnapshot(await loadSettings(session), deps.fleet);
      if (body.hash !== snapshot.hash || body.hash !== disk.hash) {
        throw new AgentError("trust_hash_mismatch", undefined, { current_hash: snapshot.hash });
      }
      if (snapshot.highRisk && body.high_risk !== true) {
        throw new AgentError(
          "bad_request",
          "This set holds high-risk commands: send high_risk true to accept them.",
          {
            field: "high_risk",
          },
        );
      }
      const ackAt = await deps.acks.add(loaded.places.profile, snapshot);
      deps.log.info({ session: session.id, highRisk: snapshot.highRisk }, "trust acknowledged");
      for (const other of deps.sessions.list()) {
        if (other.realm === session.realm) {
          await deps.mcp.refresh(other);
        }
      }
      return jsonAnswer({
        ok: true,
        hash: snapshot.hash,
        high_risk: snapshot.highRisk,
        ack_at: ackAt,
      });
    },
  );
}

/** Evaluates the trigger of a catalogue hook; starts nothing. */
function dryRun(body: TestBody, id: string): JsonObject {
  const hook = shippedHook(id);
  if (hook === undefined) {
    throw new AgentError("not_found", "no hook found");
  }
  const text = body.command ?? hook.example;
  const exitCode = body.exit_code ?? 2;
  return {
    ok: true,
    shipped_id: id,
    would_dispatch: hook.triggers({ text, exitCode }),
    fired: false,
    command: text,
    exit_code: exitCode,
  };
}

/** A positive whole number of seconds; anything else counts as not given. */
function toWholeSeconds(value: unknown): number | undefined {
  return typeof value === "number" && Number.isInteger(value) && value > 0 ? value : undefined;
}

function toTestResult(run: HookRun | undefined): JsonObject {
  const result = run?.result;
  return {
    command: run?.hook.command ?? "",
    exit_code: result?.exitCode ?? null,
    stdout: result?.stdout ?? "",
    stderr: result?.stderr ?? "",
    duration_ms: result?.durationMs ?? 0,
    fired: result !== undefined && result.end !== "not_launched",
    ...(run === undefined ? {} : { outcome: run.outcome }),
    ...(result?.end === "timed_out" ? { timed_out: true } : {}),
  };
}
