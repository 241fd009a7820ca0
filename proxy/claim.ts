import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  sign,
} from "node:crypto";
import type { KeyObject } from "node:crypto";

/**
 * Identity claims on the wire (edge-proxy.md 3.1): `<kid>.<payload_b64>.<signature_hex>`, Ed25519 over the bytes of
 * `payload_b64`. Verification is in `auth/identity.ts`; minting is for development and tests.
 */

export const CLAIM_TYPE = "identity";
/** The one issuer whose claims count. */
export const CLAIM_ISSUER = "hoody-api";

/** Key ids: no dot, because dots divide the claim. */
const KID = /^[A-Za-z0-9_-]{1,64}$/;
const SIGNATURE = /^[0-9a-f]{128}$/;
const KEY_HEX = /^[0-9a-f]{64}$/;
/** DER in front of a raw Ed25519 public key (RFC 8410). */
const SPKI_PREFIX = Buffer.from("302a300506032b6570032100", "hex");
const MAX_CLAIM = 8192;

/** The three parts of a claim, not yet believed. */
export interface ClaimParts {
  readonly kid: string;
  readonly payload: string;
  readonly signature: Buffer;
}

/** Splits a claim; null when it has not the form of one. */
export function parseClaim(text: string): ClaimParts | null {
  if (text.length > MAX_CLAIM) {
    return null;
  }
  const [kid = "", payload = "", signature = "", more] = text.split(".");
  return more === undefined && KID.test(kid) && payload !== "" && SIGNATURE.test(signature)
    ? { kid, payload, signature: Buffer.from(signature, "hex") }
    : null;
}

/** The key of 64 hex characters; null when it is none. */
export function toPublicKey(hex: string): KeyObject | null {
  if (!KEY_HEX.test(hex.toLowerCase())) {
    return null;
  }
  try {
    const der = Buffer.concat([SPKI_PREFIX, Buffer.from(hex, "hex")]);
    return createPublicKey({ key: der, format: "der", type: "spki" });
  } catch {
    return null; // not a key of the curve
  }
}

/** Whether `kid` may be the id of a key. */
export function isKeyId(kid: string): boolean {
  return KID.test(kid);
}

const VISIBLE = /^[\x21-\x7e]{1,256}$/;
// eslint-disable-next-line no-control-regex -- controls are what is refused
const USERNAME = /^(?! )[^\x00-\x1f\x7f]{1,256}(?<! )$/;

/** Whether text may be a user id, type or audience: it ends up in a header field, unquoted. */
export function isVisibleText(text: string): boolean {
  return VISIBLE.test(text);
}

/** Whether text may be a user name: nothing that ends a header field, and no blanks at its ends to be lost on the way. */
export function isUsername(text: string): boolean {
  return USERNAME.test(text);
}

/** A signing key file: what `claim keygen` prints and `--key` reads (decision 42). */
export interface SigningKey {
  readonly kid: string;
  readonly publicKeyHex: string;
  readonly privateKeyPem: string;
}

/** A new signing key; without `kid` it is named after its public half. */
export function generateSigningKey(kid?: string): SigningKey {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const publicKeyHex = publicKey
    .export({ format: "der", type: "spki" })
    .subarray(SPKI_PREFIX.length)
    .toString("hex");
  return {
    kid: kid ?? `k${publicKeyHex.slice(0, 8)}`,
    publicKeyHex,
    privateKeyPem: privateKey.export({ format: "pem", type: "pkcs8" }).toString(),
  };
}

/** What a claim is to say; times in seconds. */
export interface ClaimRequest {
  readonly sub: string;
  readonly username: string;
  readonly type: string;
  /** Absent: a claim without audience, which no native group accepts. */
  readonly audience?: string;
  readonly issuedAt: number;
  readonly expiresIn: number;
}

/** A signed claim. Throws when the key is not an Ed25519 private key in PEM. */
export function mintClaim(key: SigningKey, request: ClaimRequest): string {
  const payload = {
    claim_type: CLAIM_TYPE,
    iss: CLAIM_ISSUER,
    sub: request.sub,
    username: request.username,
    type: request.type,
    kid: key.kid,
    ...(request.audience === undefined ? {} : { aud: request.audience }),
    iat: request.issuedAt,
    exp: request.issuedAt + request.expiresIn,
  };
  return signPayload(key, payload);
}

/** Signs any payload object as a claim; what it says is the caller's business. */
export function signPayload(key: SigningKey, payload: object): string {
  const privateKey = readPrivateKey(key.privateKeyPem);
  const encoded = Buffer.from(JSON.stringify(payload), "utf8").toString("base64url");
  const signature = sign(null, Buffer.from(encoded, "utf8"), privateKey).toString("hex");
  return `${key.kid}.${encoded}.${signature}`;
}

function readPrivateKey(pem: string): KeyObject {
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === "ed25519") {
      return key;
    }
  } catch {
    // told below: the library's words say nothing to whoever holds the file
  }
  throw new Error("The key file has no Ed25519 private key.");
}

/** The user id that stands for a name when none is given: 24 hex characters derived from it. */
export function subjectOf(username: string): string {
  return createHash("sha256").update(username).digest("hex").slice(0, 24);
}
