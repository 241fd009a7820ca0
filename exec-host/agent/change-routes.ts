import { createHash } from "node:crypto";
import { LRUCache } from "lru-cache";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { Log } from "../../policy/kernel/log.ts";
import { canonicalJson } from "./settings/canonical-json.ts";
import { jsonAnswer } from "./router.ts";
import type { Router } from "./router.ts";
import type { ChangeBoard, JsonObject, SettingsScope } from "./seams.ts";
import type { Sessions } from "./sessions.ts";

const SHARE_MS = 1000;
const UNAVAILABLE = {
  todos: "not kept here",
  workflow_runs: "not kept here",
  loops: "not kept here",
  tasks: "not kept here",
  agents: "not kept here",
};

/** C1: opaque tokens that move when a topic changes; one answer serves equal scopes for a second. */
export function createChangeBoard(deps: {
  readonly clock: Clock;
  readonly log: Log;
}): ChangeBoard & { register(router: Router, sessions: Sessions, home: string): void } {
  let rules: ((scope: SettingsScope) => Promise<string>) | null = null;
  const shared = new LRUCache<string, { at: number; answer: Promise<JsonObject> }>({ max: 200 });

  async function answerFor(scope: SettingsScope, sessions: Sessions): Promise<JsonObject> {
    const unavailable: Record<string, string> = { ...UNAVAILABLE };
    const gates = sessions.all().map((live) => live.gates.pending()?.["id"] ?? null);
    const tokens: Record<string, string> = {
      sessions: digest(sessions.all().map((live) => live.session.id)),
      gates: digest([sessions.generation(), gates]),
    };
    try {
      if (rules === null) {
        throw new Error("no reader of rules");
      }
      tokens["rules"] = await rules(scope);
    } catch (error) {
      deps.log.warn({ err: error }, "rules token not available");
      unavailable["rules"] = "the settings cannot be read";
    }
    return {
      scope: { realm: scope.realm, cwd: scope.cwd, config_dir: scope.configDir },
      tokens,
      unavailable,
    };
  }

  return {
    provide(_topic, token) {
      rules = token;
    },
    register(router, sessions, home) {
      router.add(
        {
          method: "get",
          path: "/changes",
          operationId: "getChanges",
          summary: "Tokens that move when something changes",
          row: "R1b",
          errors: ["bad_request", "not_found"],
        },
        async (request) => {
          const scope: SettingsScope = {
            realm: request.scope.realm ?? "global",
            home,
            cwd: request.scope.cwd,
            configDir: request.scope.configDir,
          };
          const key = canonicalJson({ ...scope });
          const known = shared.get(key);
          const now = deps.clock.monotonic();
          if (known !== undefined && now - known.at < SHARE_MS) {
            return jsonAnswer(await known.answer);
          }
          const answer = answerFor(scope, sessions);
          shared.set(key, { at: now, answer });
          return jsonAnswer(await answer);
        },
      );
    },
  };
}

function digest(value: unknown): string {
  return createHash("sha256").update(canonicalJson(value)).digest("hex").slice(0, 32);
}
