import { createHmac, createPrivateKey, generateKeyPairSync, sign } from "node:crypto";
import type { KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import { describe, test } from "vitest";
import { fakeClock } from "../support/auth-clock.ts";
import { accessOf, principalOf, testAuthenticator } from "../support/auth-request.ts";

const NOW = Date.parse("2026-06-01T00:00:00Z") / 1000;
const SECRET = "a shared secret";
const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
const ec = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
const pem = (key: KeyObject) => key.export({ type: "spki", format: "pem" }).toString();
const access = accessOf({
  hs: { type: "jwt", algorithm: "HS256", secret: SECRET, sources: ["header:Authorization"] },
  role: {
    type: "jwt",
    algorithm: "HS256",
    secret: SECRET,
    sources: ["header:X-Jwt", "cookie:__Host-jwt"],
    claims: { role: "admin", level: 3, ok: true },
  },
  rs: {
    type: "jwt",
    algorithm: "RS256",
    secret: pem(rsa.publicKey),
    sources: ["header:Authorization"],
  },
  es: {
    type: "jwt",
    algorithm: "ES256",
    secret: pem(ec.publicKey),
    sources: ["header:Authorization"],
  },
});

const encode = (part: unknown) =>
  Buffer.from(typeof part === "string" ? part : JSON.stringify(part)).toString("base64url");
function hs256(header: unknown, payload: unknown, secret: string = SECRET): string {
  const signed = `${encode(header)}.${encode(payload)}`;
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}
const HS = { alg: "HS256", typ: "JWT" };

const clock = fakeClock();
const authenticator = testAuthenticator([], clock);
const groupsOf = (fields: readonly string[]) =>
  [...principalOf(authenticator, access, { fields }).groups].sort();
const bearer = (token: string) => groupsOf(["Authorization", `Bearer ${token}`]);

describe("a JWT group", () => {
  test("accepts tokens of a known library in each algorithm", async ({ expect }) => {
    const key = new TextEncoder().encode(SECRET);
    const hs = await new SignJWT({ a: 1 }).setProtectedHeader({ alg: "HS256" }).sign(key);
    const rs = await new SignJWT({}).setProtectedHeader({ alg: "RS256" }).sign(rsa.privateKey);
    const es = await new SignJWT({}).setProtectedHeader({ alg: "ES256" }).sign(ec.privateKey);
    expect(bearer(hs)).toEqual(["hs"]);
    expect(bearer(rs)).toEqual(["rs"]);
    expect(bearer(es)).toEqual(["es"]);
    expect(groupsOf(["Authorization", hs])).toEqual(["hs"]);
  });

  test("has no answer but its own algorithm (RFC 8725 3.1)", ({ expect }) => {
    const payload = { sub: "x" };
    expect(bearer(hs256({ alg: "none" }, payload))).toEqual([]);
    expect(bearer(`${encode({ alg: "none" })}.${encode(payload)}.`)).toEqual([]);
    expect(bearer(hs256({ alg: "hs256" }, payload))).toEqual([]);
    expect(bearer(hs256({ alg: ["HS256"] }, payload))).toEqual([]);
    expect(bearer(hs256({}, payload))).toEqual([]);
    // An HMAC under the published key, whatever the head calls it.
    for (const alg of ["HS256", "RS256", "ES256"]) {
      expect(bearer(hs256({ alg }, payload, pem(rsa.publicKey)))).toEqual([]);
    }
    // A good RSA signature under a head of another algorithm.
    const signed = `${encode({ alg: "RS512" })}.${encode(payload)}`;
    const signature = sign("sha256", Buffer.from(signed), rsa.privateKey).toString("base64url");
    expect(bearer(`${signed}.${signature}`)).toEqual([]);
  });

  test("takes an ES256 signature in its one form only", ({ expect }) => {
    const signed = `${encode({ alg: "ES256" })}.${encode({})}`;
    const der = sign("sha256", Buffer.from(signed), ec.privateKey);
    expect(bearer(`${signed}.${der.toString("base64url")}`)).toEqual([]);
    expect(bearer(`${signed}.${Buffer.alloc(64).toString("base64url")}`)).toEqual([]);
    const raw = sign("sha256", Buffer.from(signed), {
      key: createPrivateKey(ec.privateKey.export({ type: "pkcs8", format: "pem" })),
      dsaEncoding: "ieee-p1363",
    });
    expect(bearer(`${signed}.${raw.toString("base64url")}`)).toEqual(["es"]);
  });

  test.for<[string, unknown, boolean]>([
    ["no times", {}, true],
    ["exp ahead", { exp: NOW + 1 }, true],
    ["exp now", { exp: NOW }, false],
    ["exp past", { exp: NOW - 1 }, false],
    ["exp with a fraction", { exp: NOW + 0.5 }, true],
    ["exp as text", { exp: String(NOW + 100) }, false],
    ["exp as null", { exp: null }, false],
    ["exp as a list", { exp: [NOW + 100] }, false],
    ["exp out of range", '{"exp":1e999}', false],
    ["nbf now", { nbf: NOW }, true],
    ["nbf ahead", { nbf: NOW + 1 }, false],
    ["nbf as text", { nbf: "0" }, false],
    ["nbf as true", { nbf: true }, false],
    ["a list", [], false],
    ["text", '"x"', false],
    ["no JSON", "{", false],
    ["two values of one claim", '{"exp":1,"exp":99999999999}', false],
    ["bytes that are no UTF-8", Buffer.from([0x7b, 0xff, 0x7d]).toString("latin1"), false],
  ])("checks times and form: %s", ([, payload, good], { expect }) => {
    expect(bearer(hs256(HS, payload))).toEqual(good ? ["hs"] : []);
  });

  test.for<[string, unknown, boolean]>([
    ["an unknown head member", { ...HS, kid: "x" }, true],
    ["a critical extension", { ...HS, crit: ["b64"], b64: false }, false],
    ["an unknown critical extension", { ...HS, crit: ["x"], x: 1 }, false],
    ["an empty list of them", { ...HS, crit: [] }, false],
    ["crit as null", { ...HS, crit: null }, false],
    ["a head that is a list", ["HS256"], false],
    ["two algorithms", '{"alg":"none","alg":"HS256"}', false],
  ])("reads the head strictly: %s", ([, header, good], { expect }) => {
    expect(bearer(hs256(header, {}))).toEqual(good ? ["hs"] : []);
  });

  test("needs every configured claim with its type and value", ({ expect }) => {
    const full = { role: "admin", level: 3, ok: true };
    const send = (claims: unknown) => groupsOf(["X-Jwt", hs256(HS, claims)]);
    expect(send(full)).toEqual(["role"]);
    expect(send({ ...full, more: 1 })).toEqual(["role"]);
    expect(send({ ...full, level: "3" })).toEqual([]);
    expect(send({ ...full, role: ["admin"] })).toEqual([]);
    expect(send({ ...full, ok: 1 })).toEqual([]);
    expect(send({ role: "admin", level: 3 })).toEqual([]);
    expect(send('{"__proto__":{"role":"admin","level":3,"ok":true}}')).toEqual([]);
  });

  test("reads its sources and no other place", ({ expect }) => {
    const token = hs256(HS, { role: "admin", level: 3, ok: true });
    expect(groupsOf(["Cookie", `a=b; __Host-jwt=${token}`])).toEqual(["role"]);
    expect(groupsOf(["Cookie", `jwt=${token}`])).toEqual([]);
    expect(groupsOf(["X-Jwt", `Bearer ${token}`])).toEqual([]);
    expect(groupsOf(["X-Jwt", "junk", "Cookie", `__Host-jwt=${token}`])).toEqual(["role"]);
    expect(groupsOf(["X-Jwt", token, "X-Jwt", token])).toEqual([]);
  });

  test.for([
    "",
    ".",
    "..",
    "...",
    "a.b.c",
    "%.%.%",
    `${encode(HS)}.${encode({})}`,
    `${hs256(HS, {})}=`,
    `${hs256(HS, {})}.`,
    `${hs256(HS, {})} `.repeat(2),
    "x".repeat(20_000),
    "\u00e9.\u00e9.\u00e9",
  ])("is not satisfied by %j", (token, { expect }) => {
    expect(bearer(token)).toEqual([]);
  });

  test("forgets a remembered token at its expiry", ({ expect }) => {
    const ownClock = fakeClock();
    const own = testAuthenticator([], ownClock);
    const fields = ["Authorization", `Bearer ${hs256(HS, { exp: NOW + 60, nbf: NOW - 1 })}`];
    const groups = () => [...principalOf(own, access, { fields }).groups];
    expect(groups()).toEqual(["hs"]);
    ownClock.advance(59_000);
    expect(groups()).toEqual(["hs"]);
    ownClock.advance(1_000);
    expect(groups()).toEqual([]);
    ownClock.advance(1_000);
    expect(groups()).toEqual([]);
  });

  test("does not take what another key verified", ({ expect }) => {
    const other = accessOf({
      hs: { type: "jwt", algorithm: "HS256", secret: "other", sources: ["header:Authorization"] },
    });
    const fields = ["Authorization", `Bearer ${hs256(HS, { n: 1 })}`];
    expect([...principalOf(authenticator, access, { fields }).groups]).toEqual(["hs"]);
    expect([...principalOf(authenticator, other, { fields }).groups]).toEqual([]);
  });
});
