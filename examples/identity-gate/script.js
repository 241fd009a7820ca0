// @description Admits requests with a valid signed identity claim, and tells the service who asks.

const { createPublicKey, verify } = require("node:crypto");

// The issuer's key, pinned: put IDENTITY_KID and IDENTITY_KEY_HEX (64 hex digits, the raw Ed25519 key) into
// identity-gate.env beside this file. When the issuer changes keys, change them here; until then nobody gets in.
const KID = process.env.IDENTITY_KID ?? "";
const KEY_HEX = process.env.IDENTITY_KEY_HEX ?? "";
const ISSUER = process.env.IDENTITY_ISSUER ?? "hoody-api";

/** DER prefix of an Ed25519 public key (RFC 8410). */
const SPKI_HEAD = Buffer.from("302a300506032b6570032100", "hex");

const key = /^[0-9a-f]{64}$/.test(KEY_HEX)
  ? createPublicKey({
      key: Buffer.concat([SPKI_HEAD, Buffer.from(KEY_HEX, "hex")]),
      format: "der",
      type: "spki",
    })
  : null;

/** Clocks may differ by this much. */
const SKEW_SECONDS = 300;

/** The claim's payload, or null when anything about it is not as it should be. */
function readClaim(header) {
  const parts = typeof header === "string" ? header.split(".") : [];
  // `<payload>.<signature>`, or the whole claim with its key id in front.
  const [payload, signature] = parts.length === 3 && parts[0] === KID ? parts.slice(1) : parts;
  if (key === null || parts.length > 3 || !payload || !/^[0-9a-f]{128}$/.test(signature ?? "")) {
    return null;
  }
  if (!verify(null, Buffer.from(payload), key, Buffer.from(signature, "hex"))) {
    return null;
  }
  let claim;
  try {
    claim = JSON.parse(Buffer.from(payload, "base64url").toString("utf8"));
  } catch {
    return null;
  }
  const now = Math.floor(Date.now() / 1000);
  const isCurrent =
    Number.isFinite(claim?.exp) &&
    Number.isFinite(claim?.iat) &&
    claim.exp > now &&
    claim.exp > claim.iat &&
    claim.iat <= now + SKEW_SECONDS;
  const isOurs = claim?.claim_type === "identity" && claim.iss === ISSUER && claim.kid === KID;
  return isCurrent && isOurs ? claim : null;
}

/** Names may have letters that a header field cannot carry. */
const field = (value) => encodeURI(String(value ?? ""));

/** @type {import("interpose/hook").HookScript} */
module.exports = async (req, res, { hook }) => {
  if (hook === undefined) {
    res.status(404).send("This script only runs as a hook.");
    return;
  }
  const claim = readClaim(req.headers["x-hoody-claim"]);
  if (claim === null) {
    res
      .status(401)
      .json({ error: "IDENTITY_REQUIRED", message: "Send a valid claim as x-hoody-claim." });
    return;
  }
  await hook.forward(req, res, {
    headers: {
      "x-hoody-claim": null, // a credential is not the service's business
      // Set here in any case, so that nothing a client sends under these names arrives.
      "x-hoody-user": field(claim.username),
      "x-hoody-user-id": field(claim.sub),
      "x-hoody-user-type": field(claim.type),
    },
  });
};
