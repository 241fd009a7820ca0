import { createHash } from "node:crypto";
import type { Clock } from "../../policy/kernel/clock.ts";
import { newToken } from "../../policy/kernel/ids.ts";
import type { JsonObject } from "./seams.ts";
import { canonicalJson } from "./settings/canonical-json.ts";

/** How long a token can be used. */
const LIFETIME_MS = 300_000;
/** Tokens kept at once; the oldest goes first. */
const MAX_TOKENS = 4096;

/** Everything a token is bound to besides the causes it covers. */
export interface TokenBinding {
  readonly tool: string;
  /** Canonical text of the scrubbed request parameters. */
  readonly params: JsonObject;
  /** Session id; null without a session. */
  readonly sessionId: string | null;
  readonly cwd: string;
  readonly configDir: string | null;
  /** The mode as asked for, `default` when it was not. */
  readonly toolMode: string;
  readonly dirScope: string;
}

/** Single-use confirm tokens (13.4). */
export interface ConfirmTokens {
  mint(
    binding: TokenBinding,
    causes: ReadonlySet<string>,
  ): { readonly token: string; readonly expiresAt: number };
  /**
   * Spends a token and returns the causes it was minted for; null when it is unknown, expired, spent or bound to
   * something else. A try with another binding does not spend it (decision 60).
   */
  take(token: string, binding: TokenBinding): ReadonlySet<string> | null;
  /** Voids the tokens of a session. */
  dropSession(sessionId: string): void;
}

/** A store in memory: a restart voids every token. Look-up and removal are one step. */
export function createConfirmTokens(clock: Clock): ConfirmTokens {
  const tokens = new Map<
    string,
    {
      readonly bound: string;
      readonly sessionId: string | null;
      readonly causes: ReadonlySet<string>;
      readonly expiresAt: number;
    }
  >();
  return {
    mint(binding, causes) {
      const now = clock.now();
      for (const [key, entry] of tokens) {
        // insertion order is expiry order
        if (entry.expiresAt > now && tokens.size < MAX_TOKENS) {
          break;
        }
        tokens.delete(key);
      }
      const token = newToken(32);
      const expiresAt = now + LIFETIME_MS;
      tokens.set(digest(token), {
        bound: bind(binding),
        sessionId: binding.sessionId,
        causes: new Set(causes),
        expiresAt,
      });
      return { token, expiresAt };
    },
    take(token, binding) {
      // keyed by digest: a look-up tells nothing about how much of a guess was right
      const key = digest(token);
      const entry = tokens.get(key);
      if (entry === undefined || entry.bound !== bind(binding)) {
        return null;
      }
      tokens.delete(key);
      return entry.expiresAt > clock.now() ? entry.causes : null;
    },
    dropSession(sessionId) {
      for (const [key, entry] of tokens) {
        if (entry.sessionId === sessionId) {
          tokens.delete(key);
        }
      }
    },
  };
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("base64");
}

function bind(binding: TokenBinding): string {
  return digest(canonicalJson({ ...binding }));
}
