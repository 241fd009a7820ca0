import { describe, test } from "vitest";
import { compileAccess } from "../../policy/compile/access.ts";
import { decide } from "../../policy/compile/grants.ts";
import { identityFields } from "../../proxy/auth/identity.ts";
import { generateSigningKey, mintClaim, parseClaim, signPayload } from "../../proxy/claim.ts";
import { fakeClock } from "../support/auth-clock.ts";
import { accessOf, principalOf, testAuthenticator } from "../support/auth-request.ts";

const NOW = Date.parse("2026-06-01T00:00:00Z") / 1000;
const USER = "0123456789abcdef01234567";
const key = generateSigningKey("v1");
const other = generateSigningKey("v1");
const payload = {
  claim_type: "identity",
  iss: "hoody-api",
  sub: USER,
  username: "ada",
  type: "user",
  kid: "v1",
  aud: "app.example",
  iat: NOW,
  exp: NOW + 3600,
};
const access = accessOf({
  any: { type: "hoody-identity", audience: "app.example" },
  users: { type: "hoody-identity", audience: "app.example", allow_types: ["user"] },
  admins: { type: "hoody-identity", audience: "app.example", allow_types: ["admin"] },
  ada: { type: "hoody-identity", audience: "app.example", users: [USER] },
  bob: { type: "hoody-identity", audience: "app.example", users: ["f".repeat(24)] },
  fresh: { type: "hoody-identity", audience: "app.example", max_age_seconds: 300 },
  elsewhere: { type: "hoody-identity", audience: "other.example" },
});
const ALL = ["ada", "any", "fresh", "users"];
const authenticator = testAuthenticator([key]);
const groupsOf = (claim: string, auth = authenticator) =>
  [...principalOf(auth, access, { fields: ["X-Hoody-Identity-Claim", claim] }).groups].sort();

describe("a hoody-identity group", () => {
  test.for<[string, object, string[]]>([
    ["a full claim", {}, ALL],
    ["a claim of an admin", { type: "admin" }, ["ada", "admins", "any", "fresh"]],
    ["another user", { sub: "f".repeat(24) }, ["any", "bob", "fresh", "users"]],
    ["an age of 300", { iat: NOW - 300 }, ALL],
    ["an age of 301", { iat: NOW - 301 }, ["ada", "any", "users"]],
    ["another audience", { aud: "other.example" }, ["elsewhere"]],
    ["an audience in another case", { aud: "App.example" }, []],
    ["no audience", { aud: undefined }, []],
    ["a list of audiences", { aud: ["app.example"] }, []],
    ["another kind of claim", { claim_type: "container" }, []],
    ["another issuer", { iss: "x" }, []],
    ["another key id inside", { kid: "v2" }, []],
    ["no key id inside", { kid: undefined }, []],
    ["no user", { sub: undefined }, []],
    ["a user that is a number", { sub: 1 }, []],
    ["a user that would end a field", { sub: "a\r\nb" }, []],
    ["a name that would end a field", { username: "a\r\nX-Real-IP: 1" }, []],
    ["a name with a NUL", { username: "a\u0000" }, []],
    ["no name", { username: undefined }, []],
    ["no type", { type: undefined }, []],
    ["expired now", { exp: NOW, iat: NOW - 10 }, []],
    ["exp as text", { exp: String(NOW + 3600) }, []],
    ["no exp", { exp: undefined }, []],
    ["no iat", { iat: undefined }, []],
    ["iat as text", { iat: String(NOW) }, []],
    ["exp before iat", { iat: NOW + 200, exp: NOW + 100 }, []],
    ["issued 300 seconds ahead", { iat: NOW + 300 }, ALL],
    ["issued 301 seconds ahead", { iat: NOW + 301 }, []],
  ])("judges %s", ([, change, groups], { expect }) => {
    expect(groupsOf(signPayload(key, { ...payload, ...change }))).toEqual(groups);
  });

  test("needs the signature of the key that the id names", ({ expect }) => {
    expect(groupsOf(signPayload(other, payload))).toEqual([]);
    expect(groupsOf(signPayload({ ...key, kid: "v2" }, { ...payload, kid: "v2" }))).toEqual([]);
    const [kid = "", body = "", signature = ""] = signPayload(key, payload).split(".");
    expect(groupsOf(`${kid}.${body}.${signature}`)).toEqual(ALL);
    const flipped = signature.startsWith("0") ? "1" : "0";
    expect(groupsOf(`${kid}.${body}.${flipped}${signature.slice(1)}`)).toEqual([]);
    expect(groupsOf(`${kid}.${body}.${signature.toUpperCase()}`)).toEqual([]);
    expect(groupsOf(`${kid}.${body}A.${signature}`)).toEqual([]);
    expect(groupsOf(`${body}.${signature}`)).toEqual([]);
  });

  test.for([
    "",
    ".",
    "..",
    "v1..",
    `v1.${"a".repeat(9000)}.${"0".repeat(128)}`,
    "\u00e9",
    "a.b.c.d",
  ])("is not satisfied by %j", (text, { expect }) => {
    expect(groupsOf(text)).toEqual([]);
  });

  test("is not satisfied by a claim that came twice or under another spelling", ({ expect }) => {
    const claim = signPayload(key, payload);
    const groups = (fields: string[]) => principalOf(authenticator, access, { fields }).groups.size;
    expect(groups(["x-hoody-identity-claim", claim])).toBe(4);
    expect(groups(["X-Hoody-Identity-Claim", claim, "X-Hoody-Identity-Claim", claim])).toBe(0);
    expect(groups(["X_Hoody_Identity_Claim", claim])).toBe(0);
    expect(groups(["X-Hoody-Claim", claim])).toBe(0);
  });

  test("forgets a remembered claim at its expiry", ({ expect }) => {
    const clock = fakeClock();
    const own = testAuthenticator([key], clock);
    const claim = signPayload(key, { ...payload, exp: NOW + 60 });
    expect(groupsOf(claim, own)).toEqual(ALL);
    clock.advance(59_999);
    expect(groupsOf(claim, own)).toEqual(ALL);
    clock.advance(1);
    expect(groupsOf(claim, own)).toEqual([]);
  });
});

describe("mintClaim()", () => {
  test("makes claims that are accepted", ({ expect }) => {
    const claim = mintClaim(key, {
      sub: USER,
      username: "ada",
      type: "user",
      audience: "app.example",
      issuedAt: NOW,
      expiresIn: 60,
    });
    expect(groupsOf(claim)).toEqual(ALL);
    expect(parseClaim(claim)?.kid).toBe("v1");
  });
});

describe("identityFields()", () => {
  // edge-proxy.md 3.2
  const linesFor = (
    claim: object,
    permissions: Record<string, unknown>,
    groups: Record<string, unknown>,
    address = "192.0.2.1",
  ) => {
    const compiled = compileAccess({ groups, permissions }, null);
    const principal = principalOf(authenticator, compiled, {
      fields: ["X-Hoody-Identity-Claim", signPayload(key, { ...payload, ...claim })],
      address,
    });
    const decision = decide(compiled, {
      service: "terminal",
      index: 1,
      satisfied: principal.groups,
      presented: principal,
    });
    return identityFields(principal, decision);
  };
  const staff = { type: "hoody-identity", audience: "app.example" };
  const who = ["X-Hoody-Identity-User-Id", USER, "X-Hoody-Identity-Username", "ada"];

  test("tells who was admitted", ({ expect }) => {
    expect(linesFor({}, { staff: { terminal: true } }, { staff })).toEqual(who);
  });

  test("tells the type only when a granting group exposes it", ({ expect }) => {
    const open = { ...staff, expose_type: true };
    const type = ["X-Hoody-Identity-Type", "user"];
    expect(linesFor({}, { open: { terminal: true } }, { open })).toEqual([...who, ...type]);
    expect(linesFor({}, { staff: { terminal: true } }, { staff, open })).toEqual(who);
    expect(linesFor({}, { either: { terminal: true } }, { either: [staff, open] })).toEqual([
      ...who,
      ...type,
    ]);
  });

  test("tells nothing when no identity group granted the request", ({ expect }) => {
    const office = { type: "ip", range: "10.0.0.0/8" };
    const grant = { office: { terminal: true } };
    expect(linesFor({}, grant, { office, staff }, "10.0.0.1")).toEqual([]);
    expect(linesFor({}, {}, { staff })).toEqual([]);
    expect(linesFor({}, { staff: { terminal: false } }, { staff })).toEqual([]);
    expect(linesFor({ aud: "x" }, { staff: { terminal: true } }, { staff })).toEqual([]);
    // The group granted by its address alternative; the claim did not satisfy the other.
    const mixed = [office, { ...staff, audience: "other.example" }];
    expect(linesFor({}, { mixed: { terminal: true } }, { mixed }, "10.0.0.1")).toEqual([]);
  });

  test("sends names outside ASCII as UTF-8 bytes", ({ expect }) => {
    const lines = linesFor({ username: "Zoë" }, { staff: { terminal: true } }, { staff });
    expect(lines[3]).toBe("Zo\u00c3\u00ab");
  });
});
