import { createHmac, createPublicKey, hash, timingSafeEqual, verify } from "node:crypto";
import type { LRUCache } from "lru-cache";
import type { JwtGroup } from "../../policy/documents/access.ts";
import { headerCredential } from "./bearer.ts";
import type { Check } from "./check.ts";
import { decodeBase64Url, decodeJsonPart } from "./encoded-json.ts";
import type { Presented } from "./presented.ts";

/** What is remembered of a token whose signature was good. */
export interface VerifiedToken {
  /** Seconds; null when the token has none. */
  readonly expires: number | null;
  readonly notBefore: number | null;
  readonly claims: Readonly<Record<string, unknown>>;
}

/** Verified tokens by digest of key and token. Bounded; an entry is never believed past its expiry. */
export type TokenCache = LRUCache<string, VerifiedToken>;

const MAX_TOKEN = 8192;
const ES256_SIGNATURE_BYTES = 64;

type VerifySignature = (signed: string, signature: Buffer) => boolean;

/**
 * A JWT in one of the group's sources, signed by the group's key under the group's algorithm, whatever the token says
 * about itself (edge-proxy.md 2.2, decision 25, RFC 7515, RFC 7519, RFC 8725).
 */
export function compileJwt(group: JwtGroup, cache: TokenCache): Check {
  const verifySignature = signatureCheck(group);
  // Part of the cache key: the same token under another key or algorithm is another question.
  const keyTag = hash("sha256", JSON.stringify([group.algorithm, group.secret]), "hex");
  const sources = group.sources.map(readSource);
  const claims = Object.entries(group.claims ?? {});

  const check = (token: string, now: number): boolean => {
    if (token.length > MAX_TOKEN) {
      return false;
    }
    const key = hash("sha256", `${keyTag}.${token}`, "base64url");
    let verified = cache.get(key);
    if (verified === undefined) {
      const fresh = verifyToken(token, group.algorithm, verifySignature);
      if (fresh === null) {
        return false;
      }
      verified = fresh;
      if (isTimely(fresh, now)) {
        cache.set(key, fresh, { size: token.length });
      }
    }
    if (!isTimely(verified, now)) {
      if (verified.expires !== null && verified.expires <= now) {
        cache.delete(key);
      }
      return false;
    }
    const found = verified.claims;
    return claims.every(([name, value]) => Object.hasOwn(found, name) && found[name] === value);
  };

  return (presented) =>
    sources.some((source) => {
      const token = source(presented);
      return token !== undefined && check(token, presented.now);
    });
}

function readSource(source: string): (presented: Presented) => string | undefined {
  const colon = source.indexOf(":");
  const name = source.slice(colon + 1);
  if (source.startsWith("cookie:")) {
    return (presented) => presented.cookie(name);
  }
  const lower = name.toLowerCase();
  return (presented) => headerCredential(presented, lower);
}

function signatureCheck({ algorithm, secret }: JwtGroup): VerifySignature {
  if (algorithm === "HS256") {
    const key = Buffer.from(secret, "utf8");
    return (signed, signature) => {
      const expected = createHmac("sha256", key).update(signed, "latin1").digest();
      return signature.length === expected.length && timingSafeEqual(signature, expected);
    };
  }
  const key = createPublicKey(secret);
  if (algorithm === "RS256") {
    return (signed, signature) => verify("sha256", Buffer.from(signed, "latin1"), key, signature);
  }
  return (signed, signature) =>
    signature.length === ES256_SIGNATURE_BYTES &&
    verify("sha256", Buffer.from(signed, "latin1"), { key, dsaEncoding: "ieee-p1363" }, signature);
}

/** The token's content when its head names our algorithm and its signature is good; null otherwise. */
function verifyToken(
  token: string,
  algorithm: string,
  verifySignature: VerifySignature,
): VerifiedToken | null {
  const [head = "", payload = "", tail = "", more] = token.split(".");
  const signature = decodeBase64Url(tail);
  if (more !== undefined || signature === null) {
    return null;
  }
  const header = decodeJsonPart(head);
  // We understand no critical extension, so naming any of them refuses (RFC 7515 4.1.11).
  if (header === null || header["alg"] !== algorithm || header["crit"] !== undefined) {
    return null;
  }
  if (!verifySignature(`${head}.${payload}`, signature)) {
    return null;
  }
  const claims = decodeJsonPart(payload);
  if (claims === null) {
    return null;
  }
  const { exp: expires = null, nbf: notBefore = null } = claims;
  if (!isMoment(claims, "exp", expires) || !isMoment(claims, "nbf", notBefore)) {
    return null;
  }
  return { expires, notBefore, claims };
}

/** Absent, or a number. A member that is there as `null` is not absent. */
function isMoment(
  claims: Readonly<Record<string, unknown>>,
  name: string,
  value: unknown,
): value is number | null {
  return typeof value === "number" || (value === null && !Object.hasOwn(claims, name));
}

function isTimely({ expires, notBefore }: VerifiedToken, now: number): boolean {
  return (expires === null || now < expires) && (notBefore === null || now >= notBefore);
}
