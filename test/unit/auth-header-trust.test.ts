import { describe, test } from "vitest";
import { compileAccess } from "../../policy/compile/access.ts";
import { decide } from "../../policy/compile/grants.ts";
import { sweepRequest } from "../../policy/kernel/fields.ts";
import { identityFields } from "../../proxy/auth/identity.ts";
import { generateSigningKey, signPayload } from "../../proxy/claim.ts";
import { principalOf, testAuthenticator } from "../support/auth-request.ts";

/**
 * Ways in which other proxies let a client write a header that the service trusts, each named after its public
 * advisory. The request goes through authentication, decision and sweep as in the pipeline; what is judged is what
 * the service would get.
 */

const NOW = Date.parse("2026-06-01T00:00:00Z") / 1000;
const key = generateSigningKey("v1");
const claim = signPayload(key, {
  claim_type: "identity",
  iss: "hoody-api",
  sub: "a".repeat(24),
  username: "ada",
  type: "user",
  kid: "v1",
  aud: "app",
  iat: NOW,
  exp: NOW + 600,
});
const access = compileAccess(
  {
    default: "allow",
    groups: { staff: { type: "hoody-identity", audience: "app" } },
    permissions: { staff: { terminal: true } },
  },
  null,
);
const authenticator = testAuthenticator([key]);

/** What the service would get, names in lower case; our own lines last, as the pipeline puts them. */
function received(fields: readonly string[]): [string, string][] {
  const principal = principalOf(authenticator, access, { fields });
  const decision = decide(access, {
    service: "terminal",
    index: 1,
    satisfied: principal.groups,
    presented: principal,
  });
  const lines = [...sweepRequest(fields), ...identityFields(principal, decision)];
  const pairs: [string, string][] = [];
  for (let i = 0; i + 1 < lines.length; i += 2) {
    pairs.push([(lines[i] ?? "").toLowerCase(), lines[i + 1] ?? ""]);
  }
  return pairs;
}

const VERIFIED = [
  ["x-hoody-identity-user-id", "a".repeat(24)],
  ["x-hoody-identity-username", "ada"],
];

describe("a service behind the edge", () => {
  test("gets no client-sent identity when the check yields none (GHSA-7r4p-vjf4-gxv4)", ({
    expect,
  }) => {
    const forged = ["X-Hoody-Identity-User-Id", "root", "X-Hoody-Identity-Type", "admin"];
    expect(received(["Host", "x", ...forged])).toEqual([["host", "x"]]);
    // Verified, but without exposing the type: the forged type must not fill the gap.
    expect(received(["X-Hoody-Identity-Claim", claim, ...forged])).toEqual(VERIFIED);
  });

  test("gets no alias of a trusted name (CVE-2025-64484)", ({ expect }) => {
    const aliases = [
      "X_Hoody_Identity_User_Id",
      "X-Hoody_Identity-Username",
      "x_hoody-IDENTITY_type",
      "X_Real_IP",
      "X_Forwarded_For",
    ].flatMap((name) => [name, "root"]);
    expect(received([...aliases, "X-Hoody-Identity-Claim", claim])).toEqual(VERIFIED);
  });

  test.for<[string, string[]]>([
    ["CVE-2022-31813", ["Connection", "close, X-Hoody-Identity-User-Id"]],
    [
      "CVE-2025-48865",
      [
        "Connection",
        "keep-alive",
        "connection",
        "x-hoody-identity-username,x-hoody-identity-user-id, x-hoody-identity-claim",
      ],
    ],
  ])("keeps our lines although Connection names them (%s)", ([, connection], { expect }) => {
    expect(received([...connection, "X-Hoody-Identity-Claim", claim])).toEqual(VERIFIED);
  });

  test("gets no internal marker from outside (CVE-2025-29927)", ({ expect }) => {
    const markers = [
      "X-Hoody-Hook-Auth",
      "x-hoody-hook-kind",
      "X_Hoody_Hook_Manage",
      "X-Hoody-Edge-Auth",
    ].flatMap((name) => [name, "1"]);
    expect(received(markers)).toEqual([]);
    // And none of them opens a door: the same request with default deny is refused.
    const closed = compileAccess({ default: "deny" }, null);
    const principal = principalOf(authenticator, closed, { fields: markers });
    const question = { service: "terminal", index: 1, satisfied: principal.groups };
    expect(decide(closed, { ...question, presented: principal })).toMatchObject({ kind: "deny" });
  });

  test("never gets the claim itself, other X-Hoody fields always", ({ expect }) => {
    expect(
      received(["X-Hoody-Identity-Claim", "junk", "X-Hoody-Cwd", "/x", "x-hoody-claim", "c"]),
    ).toEqual([
      ["x-hoody-cwd", "/x"],
      ["x-hoody-claim", "c"],
    ]);
  });
});
