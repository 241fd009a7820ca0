import { hash, verify } from "node:crypto";
import type { KeyObject } from "node:crypto";
import { LRUCache } from "lru-cache";
import type { IdentityGroup } from "../../policy/documents/access.ts";
import type { Decision } from "../../policy/compile/grants.ts";
import { CLAIM_ISSUER, CLAIM_TYPE, isUsername, isVisibleText, parseClaim } from "../claim.ts";
import type { ClaimParts } from "../claim.ts";
import { decodeJsonPart } from "./encoded-json.ts";
import type { IdentityKeys } from "./identity-keys.ts";
import { toWireText } from "./secrets.ts";

/** Where a claim is presented; read and removed at the edge (decision 6). */
export const CLAIM_FIELD = "x-hoody-identity-claim";

/** The fields that carry a verified identity inwards. Nobody but the edge may set one. */
export const IDENTITY_FIELDS = {
  userId: "X-Hoody-Identity-User-Id",
  username: "X-Hoody-Identity-Username",
  type: "X-Hoody-Identity-Type",
} as const;

/** Who a verified claim speaks of; times in seconds. */
export interface VerifiedClaim {
  readonly userId: string;
  readonly username: string;
  readonly type: string;
  /** null for a claim without audience, which satisfies no group. */
  readonly audience: string | null;
  readonly issuedAt: number;
  readonly expires: number;
}

/** How far an issuer's clock may be ahead (edge-proxy.md 3.1). */
const CLOCK_SKEW_SECONDS = 300;

/** Checks signed identity claims. */
export interface ClaimVerifier {
  /**
   * The claim, when its signature and its content are good at `now` (seconds); null otherwise. A promise only when an
   * unknown key id makes the issuer be asked; its keys are awaited then, so that a rotation is not felt.
   */
  verify(text: string, now: number): VerifiedClaim | null | Promise<VerifiedClaim | null>;
}

/** Verifies claims; remembers good ones by digest, at most `maxEntries`, never past their expiry or their key. */
export function createClaimVerifier(
  keys: Pick<IdentityKeys, "get" | "refresh">,
  { maxEntries = 4096 }: { maxEntries?: number } = {},
): ClaimVerifier {
  const cache = new LRUCache<string, { claim: VerifiedClaim; kid: string; key: KeyObject }>({
    max: maxEntries,
  });

  const judge = (text: string, parts: ClaimParts, key: KeyObject, now: number) => {
    const claim = verifyParts(parts, key);
    if (claim === null || !isTimely(claim, now)) {
      return null;
    }
    cache.set(hash("sha256", text, "base64url"), { claim, kid: parts.kid, key });
    return claim;
  };

  return {
    verify(text, now) {
      const digest = hash("sha256", text, "base64url");
      const known = cache.get(digest);
      if (known !== undefined && keys.get(known.kid) === known.key) {
        if (isTimely(known.claim, now)) {
          return known.claim;
        }
        cache.delete(digest);
        return null;
      }
      const parts = parseClaim(text);
      if (parts === null) {
        return null;
      }
      const key = keys.get(parts.kid);
      if (key !== undefined) {
        return judge(text, parts, key, now);
      }
      const refreshed = keys.refresh();
      if (refreshed === null) {
        return null;
      }
      return refreshed.then(() => {
        const late = keys.get(parts.kid);
        return late === undefined ? null : judge(text, parts, late, now);
      });
    },
  };
}

function verifyParts(
  { kid, payload, signature }: ClaimParts,
  key: KeyObject,
): VerifiedClaim | null {
  // The signature covers the encoded text, so nothing is decoded before it is known to be the issuer's.
  if (!verify(null, Buffer.from(payload, "latin1"), key, signature)) {
    return null;
  }
  const content = decodeJsonPart(payload);
  if (content === null) {
    return null;
  }
  const { claim_type, iss, sub, username, type, kid: named, iat, exp, aud } = content;
  const wellFormed =
    claim_type === CLAIM_TYPE &&
    iss === CLAIM_ISSUER &&
    named === kid &&
    typeof sub === "string" &&
    isVisibleText(sub) &&
    typeof username === "string" &&
    isUsername(username) &&
    typeof type === "string" &&
    isVisibleText(type) &&
    typeof iat === "number" &&
    typeof exp === "number" &&
    exp > iat;
  if (!wellFormed || !(aud === undefined || typeof aud === "string")) {
    return null;
  }
  return { userId: sub, username, type, audience: aud ?? null, issuedAt: iat, expires: exp };
}

function isTimely({ issuedAt, expires }: VerifiedClaim, now: number): boolean {
  return expires > now && issuedAt <= now + CLOCK_SKEW_SECONDS;
}

/** A compiled hoody-identity configuration: whether a verified claim satisfies it at `now` (seconds). */
export type IdentityCheck = (claim: VerifiedClaim, now: number) => boolean;

/** Audience, type, user and age as the group wants them (edge-proxy.md 2.2, 3.1). */
export function compileIdentity(group: IdentityGroup): IdentityCheck {
  const types = group.allow_types === undefined ? null : new Set<string>(group.allow_types);
  const users = group.users === undefined ? null : new Set(group.users);
  const maxAge = group.max_age_seconds ?? Number.POSITIVE_INFINITY;
  return (claim, now) =>
    claim.audience === group.audience &&
    (types === null || types.has(claim.type)) &&
    (users === null || users.has(claim.userId)) &&
    now - claim.issuedAt <= maxAge;
}

/** The identity half of a principal: the claim, and the groups that it satisfied with whether each shows the type. */
export interface Identity {
  readonly claim: VerifiedClaim;
  readonly groups: ReadonlyMap<string, { readonly exposeType: boolean }>;
}

/**
 * The header lines that tell the service who was admitted: only when a hoody-identity group is among those that granted
 * the request, the type only when one of them exposes it (edge-proxy.md 3.2). Empty otherwise; to be added after
 * the sweep. Non-ASCII names travel as UTF-8 bytes.
 */
export function identityFields(
  principal: { readonly identity: Identity | null },
  decision: Decision,
): string[] {
  const { identity } = principal;
  if (identity === null || decision.kind !== "allow") {
    return [];
  }
  let granted = false;
  let exposeType = false;
  for (const [group, shown] of identity.groups) {
    if (decision.granting.has(group)) {
      granted = true;
      exposeType ||= shown.exposeType;
    }
  }
  if (!granted) {
    return [];
  }
  const { userId, username, type } = identity.claim;
  const lines = [IDENTITY_FIELDS.userId, userId, IDENTITY_FIELDS.username, toWireText(username)];
  if (exposeType) {
    lines.push(IDENTITY_FIELDS.type, type);
  }
  return lines;
}
