import { z } from "zod";
import { WRITE_OPS } from "../nonces.ts";
import { isCommand, isSeconds, MAX_COMMAND_CHARS } from "../settings/document.ts";
import { HOOK_EVENTS, MAX_HOOK_SECONDS } from "./events.ts";
import { compileMatcher, normalMatcher } from "./matcher.ts";

/** Decoders of the hook routes' bodies (section 8). Keys they do not name are ignored, `_`-prefixed ones included. */

const sessionId = z.string().min(1, "session_id is required");
const layer = z.enum(["user", "project", "local"]);
const event = z.enum(HOOK_EVENTS);
const matcher = z.string().max(1024).optional().transform(normalMatcher);
const command = z
  .string()
  .refine(
    isCommand,
    `command must be a text that is not empty, of at most ${MAX_COMMAND_CHARS} characters`,
  );

/** What every guarded write carries. The nonce is looked at by the store, which says what is wrong with it. */
const guarded = {
  session_id: sessionId,
  nonce: z.string().optional().describe("Required: the nonce of begin-write for this write."),
  scope: layer.optional(),
};

/** POST /hooks/reload */
export const reloadBody = z.object({ session_id: sessionId.optional() });

/** POST /hooks/begin-write */
export const beginWriteBody = z.object({
  session_id: sessionId,
  op: z.enum(WRITE_OPS),
  scope: layer,
});

/** PUT /hooks */
export const upsertBody = z.object({
  ...guarded,
  event,
  matcher: matcher.refine((text) => compileMatcher(text) !== null, "the matcher does not compile"),
  command,
  timeout: z
    .number()
    .refine(isSeconds, "timeout must be a whole number of seconds")
    .transform((seconds) => Math.min(seconds, MAX_HOOK_SECONDS))
    .optional(),
  name: z.string().max(500).optional(),
  description: z.string().max(5000).optional(),
});

/** DELETE /hooks */
export const deleteBody = z.object({ ...guarded, event, matcher, command: command.optional() });

/** POST /hooks/toggle; which members belong together is checked by the route. */
export const toggleBody = z.object({
  ...guarded,
  shipped_id: z.string().min(1).optional(),
  enabled: z.boolean().optional(),
  event: event.optional(),
  matcher: z.string().max(1024).optional(),
  command: command.optional(),
  disabled: z.boolean().optional(),
});

/** POST /hooks/disable-all. An absent value is refused: read as false it would switch every hook on (decision 18). */
export const disableAllBody = z.object({
  ...guarded,
  value: z.boolean("value must be true or false"),
});

/** POST /hooks/rules; rules and grants are decoded one by one by the route. */
export const setRulesBody = z.object({
  ...guarded,
  rules: z.array(z.unknown()).max(1000).optional(),
  timeout_ms: z.number().optional(),
  exec_trust: z.array(z.unknown()).max(1000).optional(),
  expected_revision: z.string().nullish(),
});

/** POST /hooks/test */
export const testBody = z.object({
  session_id: sessionId,
  shipped_id: z.string().min(1).optional(),
  // a dry run does not look at it, so it is checked by the route
  event: z.string().optional(),
  match_value: z.string().max(1024).optional(),
  command: z.string().max(MAX_COMMAND_CHARS).optional(),
  timeout: z.unknown().optional(),
  exit_code: z.int().optional(),
  payload: z.record(z.string(), z.unknown()).optional(),
});

/** POST /hooks/trust/ack */
export const ackBody = z.object({
  session_id: sessionId,
  hash: z.string().min(1, "hash is required"),
  high_risk: z.boolean().optional(),
});

/** Decoded bodies, by the schema above of the same name. */
export type ToggleBody = z.infer<typeof toggleBody>;
export type SetRulesBody = z.infer<typeof setRulesBody>;
export type TestBody = z.infer<typeof testBody>;
