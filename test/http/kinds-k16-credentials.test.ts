import { createHmac, generateKeyPairSync, sign as signWith } from "node:crypto";
import { expect, test } from "vitest";
import { CONTAINER, type TestEdge, startTestEdge } from "../support/edge.ts";
import { head, namesOf, readAnswers } from "../support/faults.ts";
import { rawExchange } from "../support/raw-client.ts";
import { type RecordingUpstream, recordingUpstream } from "../support/recording-upstream.ts";

/** K16: configuration decides how a credential is checked, and what was judged is what travels. */

const KID = "v1";
const pair = generateKeyPairSync("ed25519");
const hex = (pair.publicKey.export({ format: "der", type: "spki" }) as Buffer)
  .subarray(12)
  .toString("hex");

async function guarded(group: Record<string, unknown> | Record<string, unknown>[]): Promise<{
  edge: TestEdge;
  upstream: RecordingUpstream;
  ask: (path: string, ...lines: string[]) => Promise<number | undefined>;
}> {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({
    upstream: upstream.port,
    config: { identity: { keys: [{ kid: KID, publicKeyHex: hex }] } },
  });
  const stored = await edge.api(
    "PUT",
    `/api/v1/containers/${CONTAINER}/proxy/permissions`,
    { groups: { g: group }, permissions: { g: { terminal: true } }, default: "deny" },
    "file:v0",
  );
  if (stored.status !== 200) {
    throw new Error(String(stored.body.message));
  }
  return {
    edge,
    upstream,
    ask: async (path, ...lines) => {
      const text = await rawExchange(
        edge.port,
        head(
          `GET ${path} HTTP/1.1`,
          `Host: ${edge.host("terminal-1")}`,
          "Connection: close",
          ...lines,
        ),
      );
      return readAnswers(text)[0]?.status;
    },
  };
}

const b64 = (value: unknown): string =>
  Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");
const now = (): number => Math.floor(Date.now() / 1000);

function hs(header: unknown, payload: unknown, secret: string, hash = "sha256"): string {
  const text = `${b64(header)}.${b64(payload)}`;
  return `${text}.${createHmac(hash, secret).update(text).digest("base64url")}`;
}

test("HS256: only the configured algorithm, key and claims, each of its type", async () => {
  const { ask, upstream } = await guarded({
    type: "jwt",
    algorithm: "HS256",
    secret: "correct horse battery staple",
    sources: ["header:Authorization", "cookie:__Host-jwt"],
    claims: { role: "admin", level: 3, active: true },
  });
  const secret = "correct horse battery staple";
  const H = { alg: "HS256", typ: "JWT" };
  const good = { role: "admin", level: 3, active: true };
  const bearer = (token: string) => `Authorization: Bearer ${token}`;
  expect(await ask("/good", bearer(hs(H, good, secret)))).toBe(200);
  expect(
    await ask("/good", bearer(hs(H, { ...good, exp: now() + 60, nbf: now() - 60 }, secret))),
  ).toBe(200);
  expect(await ask("/good", `Cookie: a=b; __Host-jwt=${hs(H, good, secret)}; c=d`)).toBe(200);
  const token = hs(H, good, secret);
  const [, body = "", signature = ""] = token.split(".");
  const bad: Record<string, string> = {
    "alg none": `${b64({ alg: "none" })}.${b64(good)}.`,
    "alg None": `${b64({ alg: "None" })}.${b64(good)}.${signature}`,
    "no alg": hs({ typ: "JWT" }, good, secret),
    "alg as a list": hs({ alg: ["HS256"] }, good, secret),
    "HS512 with the right key": hs({ alg: "HS512" }, good, secret, "sha512"),
    "HS384 named, HS256 made": hs({ alg: "HS384" }, good, secret),
    "RS256 named": hs({ alg: "RS256" }, good, secret),
    "another key": hs(H, good, "wrong"),
    "empty key": hs(H, good, ""),
    "no signature": `${token.split(".").slice(0, 2).join(".")}.`,
    "two parts": token.split(".").slice(0, 2).join("."),
    "four parts": `${token}.x`,
    "five parts": `${token}.x.y`,
    "a signature cut": token.slice(0, -2),
    "a signature padded": `${token}==`,
    "a body changed": `${b64(H)}.${b64({ ...good, role: "root" })}.${signature}`,
    "a header changed": `${b64({ alg: "HS256", typ: "x" })}.${body}.${signature}`,
    "unknown critical": hs({ alg: "HS256", crit: ["x"], x: 1 }, good, secret),
    "empty critical": hs({ alg: "HS256", crit: [] }, good, secret),
    "critical that is no list": hs({ alg: "HS256", crit: "exp" }, good, secret),
    "b64 false": hs({ alg: "HS256", crit: ["b64"], b64: false }, good, secret),
    expired: hs(H, { ...good, exp: now() - 120 }, secret),
    "exp as text": hs(H, { ...good, exp: String(now() + 600) }, secret),
    "exp as null": hs(H, { ...good, exp: null }, secret),
    "exp as a list": hs(H, { ...good, exp: [now() + 600] }, secret),
    "exp beyond numbers": `${b64(H)}.${b64('{"role":"admin","level":3,"active":true,"exp":1e999}')}.`,
    "nbf ahead": hs(H, { ...good, nbf: now() + 3600 }, secret),
    "nbf as text": hs(H, { ...good, nbf: "0" }, secret),
    "claim missing": hs(H, { role: "admin", level: 3 }, secret),
    "claim of another type": hs(H, { ...good, level: "3" }, secret),
    "claim as a list": hs(H, { ...good, role: ["admin"] }, secret),
    "claim truthy": hs(H, { ...good, active: 1 }, secret),
    "claim inherited": hs(H, { __proto__: null, level: 3, active: true }, secret),
    "a body that is a list": hs(H, [good], secret),
    "a body that is a text": hs(H, "admin", secret),
    "a body that is null": hs(H, "null", secret),
    "a body that is no JSON": hs(H, "{", secret),
    "a header that is no JSON": `${b64("{")}.${b64(good)}.x`,
    nothing: "",
    dots: "..",
    "not base64url": `${token.slice(0, -3)}+/=`,
    "very long": `${"a".repeat(20_000)}.${"b".repeat(5000)}.c`,
  };
  for (const [name, value] of Object.entries(bad)) {
    expect([name, await ask("/bad", bearer(value))]).toEqual([name, 401]);
  }
  // How it is presented.
  for (const lines of [
    [`Authorization: Basic ${token}`],
    [`X-Authorization: Bearer ${token}`],
    [`Cookie: __Host-jwt=x; __Host-jwt=${token}`],
    [`Cookie: __Host-jwt=${token}`, `Cookie: __Host-jwt=${token}`],
    [`Cookie: __host-jwt=${token}`],
    [`Cookie: __Host-jwt="${token}"x`],
  ]) {
    expect([lines[0]?.slice(0, 30), await ask("/bad", ...lines)]).toEqual([
      lines[0]?.slice(0, 30),
      401,
    ]);
  }
  expect(await ask("/bad", bearer(token), bearer(token))).toBe(400);
  expect(await ask(`/bad?token=${token}&access_token=${token}`)).toBe(401);
  expect(upstream.requests.every(({ target }) => target.startsWith("/good"))).toBe(true);
}, 40_000);

test("RS256 and ES256: the public key verifies, and is never a shared secret", async () => {
  for (const [algorithm, keys] of [
    ["RS256", generateKeyPairSync("rsa", { modulusLength: 2048 })],
    ["ES256", generateKeyPairSync("ec", { namedCurve: "P-256" })],
  ] as const) {
    const pem = String(keys.publicKey.export({ format: "pem", type: "spki" }));
    const { ask, upstream } = await guarded({
      type: "jwt",
      algorithm,
      secret: pem,
      sources: ["header:X-Token"],
    });
    const make = (alg: string, key = keys.privateKey) => {
      const text = `${b64({ alg })}.${b64({ sub: "a" })}`;
      return `${text}.${signWith("sha256", Buffer.from(text), { key, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
    };
    expect([algorithm, await ask("/good", `X-Token: ${make(algorithm)}`)]).toEqual([
      algorithm,
      200,
    ]);
    const bad = [
      hs({ alg: "HS256" }, { sub: "a" }, pem),
      hs({ alg: "HS256" }, { sub: "a" }, pem.trim()),
      hs({ alg: algorithm }, { sub: "a" }, pem),
      make("none"),
      make("HS256"),
      make(algorithm === "RS256" ? "PS256" : "ES384"),
      `${make(algorithm).split(".").slice(0, 2).join(".")}.`,
      `${make(algorithm).split(".").slice(0, 2).join(".")}.${Buffer.alloc(64).toString("base64url")}`,
      `Bearer ${make(algorithm)}`,
    ];
    for (const token of bad) {
      expect([algorithm, token.slice(0, 24), await ask("/bad", `X-Token: ${token}`)]).toEqual([
        algorithm,
        token.slice(0, 24),
        401,
      ]);
    }
    const good = make(algorithm);
    expect(await ask("/bad", `X-Token: ${good}`, `X-Token: ${good}`)).toBe(401);
    expect(upstream.requests.every(({ target }) => target.startsWith("/good"))).toBe(true);
  }
}, 30_000);

test("passwords: one well-formed Basic header, compared whole, with a challenge otherwise", async () => {
  const { ask, edge } = await guarded({
    type: "password",
    username: "ädä",
    password: "p:w",
    salt: "s",
  });
  const basic = (text: string | Buffer) =>
    `Authorization: Basic ${Buffer.from(text).toString("base64")}`;
  expect(await ask("/", basic("ädä:p:w"))).toBe(200);
  expect(await ask("/", basic("ädä:p:w").replace("Basic", "bAsIc"))).toBe(200);
  const bad = [
    [],
    [basic("ädä:p")],
    [basic("ädä:p:w ")],
    [basic("ädä:")],
    [basic("ädä")],
    [basic(":p:w")],
    [basic("")],
    [basic("ädä\0:p:w")],
    [basic(Buffer.from("ädä:p:w", "latin1"))],
    ["Authorization: Basic"],
    ["Authorization: Basic "],
    ["Authorization: Basic !!!!"],
    ["Authorization: Basic =="],
    [`Authorization: ${Buffer.from("ädä:p:w").toString("base64")}`],
    [basic("ädä:p:w").replace("Basic", "Bearer")],
    [basic("ädä:p:w").replace("Basic ", "Basic,")],
    [`${basic("ädä:p:w")}, ${basic("x:y").slice(15)}`],
    [`Proxy-${basic("ädä:p:w")}`],
    [basic("x".repeat(8000))],
    // The stored hash is no password.
    [basic("ädä:" + (await storedHash(edge)))],
  ];
  for (const lines of bad) {
    const text = await rawExchange(
      edge.port,
      head("GET / HTTP/1.1", `Host: ${edge.host("terminal-1")}`, "Connection: close", ...lines),
    );
    const answer = readAnswers(text)[0];
    expect([lines[0]?.slice(0, 40), answer?.status]).toEqual([lines[0]?.slice(0, 40), 401]);
    expect(namesOf(answer?.lines)).toContain("www-authenticate");
    expect(answer?.lines.find((line) => /^www-authenticate/i.test(line))).toMatch(/Basic realm=/);
  }
  expect(await ask("/", basic("ädä:p:w"), basic("ädä:p:w"))).toBe(400);
});

async function storedHash(edge: TestEdge): Promise<string> {
  const answer = await edge.api("GET", `/api/v1/containers/${CONTAINER}/proxy/permissions`);
  const groups = answer.body.data?.["groups"] as unknown as { g: { password: string } };
  expect(groups.g.password).toMatch(/^[0-9a-f]{64}$/);
  return groups.g.password;
}

test("tokens: the one header, cookie or parameter, once, exactly", async () => {
  const { ask, upstream } = await guarded([
    { type: "token", header: "X-Key", value: "k+1 %41" },
    { type: "token", cookie: "__Host-k", value: "v=1" },
    { type: "token", param: "to[ken]", value: "a b+c" },
  ]);
  expect(await ask("/good", "x-KEY: k+1 %41")).toBe(200);
  expect(await ask("/good", "Cookie: x=1; __Host-k=v=1")).toBe(200);
  expect(await ask("/good", "Cookie: x=1", "Cookie: __Host-k=v=1")).toBe(200);
  expect(await ask("/good?to[ken]=a+b%2Bc")).toBe(200);
  expect(await ask("/good?x&%74o%5Bken%5D=a%20b%2bc&y=%")).toBe(200);
  const bad: readonly (readonly [string, ...string[]])[] = [
    ["/bad", "X-Key: k+1 A"],
    ["/bad", "X-Key: K+1 %41"],
    ["/bad", "X-Key: k+1 %41x"],
    ["/bad", "X-Key: Bearer k+1 %41"],
    ["/bad", "X-Key: k+1 %41", "X-Key: k+1 %41"],
    ["/bad", "X_Key: k+1 %41"],
    ["/bad", "X-Key:"],
    ["/bad", "Cookie: __Host-k=v=1; __Host-k=v=1"],
    ["/bad", "Cookie: __Host-k=v"],
    ["/bad", "Cookie: __Host-k=v%3D1"],
    ["/bad", "Cookie: __host-k=v=1"],
    ["/bad", "Cookie: __Host-k", "Cookie: =v=1"],
    ["/bad", "Set-Cookie: __Host-k=v=1"],
    ["/bad?to[ken]=a+b%2Bc&to[ken]=a+b%2Bc"],
    ["/bad?to[ken]=a%2520b%252Bc"],
    ["/bad?TO[KEN]=a+b%2Bc"],
    ["/bad?to[ken]"],
    ["/bad?to[ken]=%"],
    ["/bad#?to[ken]=a+b%2Bc"],
    ["/bad?to%255Bken%255D=a+b%2Bc"],
  ];
  for (const [path, ...lines] of bad) {
    expect([path, lines, await ask(path, ...lines)]).toEqual([
      path,
      lines,
      path.startsWith("/bad#?") ? 200 : 401,
    ]);
  }
  expect(upstream.requests.filter(({ target }) => target.startsWith("/good"))).toHaveLength(5);
});

test("identity claims: key, times, audience and account come from the configuration", async () => {
  const { edge, upstream } = await guarded({
    type: "hoody-identity",
    audience: "app.example.com",
    allow_types: ["user"],
    users: ["a".repeat(24)],
    max_age_seconds: 3600,
    expose_type: true,
  });
  const base = {
    claim_type: "identity",
    iss: "hoody-api",
    sub: "a".repeat(24),
    username: "ada",
    type: "user",
    kid: KID,
    iat: now() - 10,
    exp: now() + 600,
    aud: "app.example.com",
  };
  const claim = (
    payload: unknown,
    options: { kid?: string; key?: typeof pair.privateKey } = {},
  ) => {
    const text = b64(payload);
    return `${options.kid ?? KID}.${text}.${signWith(null, Buffer.from(text), options.key ?? pair.privateKey).toString("hex")}`;
  };
  const ask = async (...lines: string[]) => {
    const text = await rawExchange(
      edge.port,
      head("GET /x HTTP/1.1", `Host: ${edge.host("terminal-1")}`, "Connection: close", ...lines),
    );
    return readAnswers(text)[0]?.status;
  };
  const send = (value: string) =>
    ask(
      `X-Hoody-Identity-Claim: ${value}`,
      "X-Hoody-Identity-User-Id: forged",
      "X-Hoody-Identity-Extra: forged",
    );
  expect(await send(claim(base))).toBe(200);
  const identity = upstream.requests[0]?.lines.filter((line) => /^x-hoody-identity/i.test(line));
  expect(identity?.toSorted()).toEqual([
    `X-Hoody-Identity-Type: user`,
    `X-Hoody-Identity-User-Id: ${"a".repeat(24)}`,
    "X-Hoody-Identity-Username: ada",
  ]);
  const good = claim(base);
  const other = generateKeyPairSync("ed25519").privateKey;
  const bad: Record<string, string> = {
    "another key": claim(base, { key: other }),
    "an unknown kid": claim({ ...base, kid: "v2" }, { kid: "v2" }),
    "a kid of the prototype": claim({ ...base, kid: "__proto__" }, { kid: "__proto__" }),
    "constructor as kid": claim({ ...base, kid: "constructor" }, { kid: "constructor" }),
    "kids that differ": claim({ ...base, kid: "v2" }),
    "signature in capitals": good.replace(/[0-9a-f]{128}$/, (text) => text.toUpperCase()),
    "signature of zeros": good.replace(/[0-9a-f]{128}$/, "0".repeat(128)),
    "signature over the decoded payload": (() => {
      const text = b64(base);
      return `${KID}.${text}.${signWith(null, Buffer.from(JSON.stringify(base)), pair.privateKey).toString("hex")}`;
    })(),
    expired: claim({ ...base, exp: now() - 1 }),
    "exp missing": claim({ ...base, exp: undefined }),
    "exp as text": claim({ ...base, exp: String(now() + 600) }),
    "exp before iat": claim({ ...base, iat: now() + 200, exp: now() + 100 }),
    "iat far ahead": claim({ ...base, iat: now() + 400, exp: now() + 800 }),
    "too old": claim({ ...base, iat: now() - 4000 }),
    "iat missing": claim({ ...base, iat: undefined }),
    "another audience": claim({ ...base, aud: "other" }),
    "no audience": claim({ ...base, aud: undefined }),
    "a list of audiences": claim({ ...base, aud: ["app.example.com"] }),
    "another user": claim({ ...base, sub: "b".repeat(24) }),
    "a user list": claim({ ...base, sub: ["a".repeat(24)] }),
    "another type": claim({ ...base, type: "admin" }),
    "another claim type": claim({ ...base, claim_type: "container" }),
    "another issuer": claim({ ...base, iss: "me" }),
    "a username with a line": claim({ ...base, username: "a\r\nX-Admin: 1" }),
    "a payload that is null": claim(null),
    "a list": claim([base]),
    "two parts": good.split(".").slice(1).join("."),
    "four parts": `${good}.x`,
    blanks: ` . . `,
  };
  for (const [name, value] of Object.entries(bad)) {
    const status = await send(value);
    expect([name, status === 401 || status === 403]).toEqual([name, true]);
  }
  expect([401, 403]).toContain(
    await ask(`X-Hoody-Identity-Claim: ${good}`, `X-Hoody-Identity-Claim: ${good}`),
  );
  expect([401, 403]).toContain(await ask(`X_Hoody_Identity_Claim: ${good}`));
  expect(upstream.requests).toHaveLength(1);
}, 30_000);
