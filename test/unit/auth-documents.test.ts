import { generateKeyPairSync } from "node:crypto";
import { describe, test } from "vitest";
import {
  accessRuleSchema,
  cellsSchema,
  groupValueSchema,
  groupsSchema,
  hashPassword,
  permissionsSchema,
} from "../../policy/documents/access.ts";
import { toIssues } from "../../policy/kernel/issues.ts";

const pem = (pair: { publicKey: { export(options: { type: "spki"; format: "pem" }): unknown } }) =>
  String(pair.publicKey.export({ type: "spki", format: "pem" }));
const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
const rsaPem = pem(rsa);
const smallRsaPem = pem(generateKeyPairSync("rsa", { modulusLength: 1024 }));
const p256Pem = pem(generateKeyPairSync("ec", { namedCurve: "prime256v1" }));
const p384Pem = pem(generateKeyPairSync("ec", { namedCurve: "secp384r1" }));
const privatePem = String(rsa.privateKey.export({ type: "pkcs8", format: "pem" }));

function problems(value: unknown): string[] {
  const parsed = groupValueSchema.safeParse(value);
  return parsed.success ? [] : toIssues(parsed.error).map(({ path }) => path);
}

const token = { type: "token", header: "X-Key", value: "v" };
const jwt = { type: "jwt", algorithm: "HS256", secret: "k", sources: ["header:Authorization"] };
const password = { type: "password", username: "u", password: "p", salt: "s" };
const identity = { type: "hoody-identity", audience: "a" };

describe("groupValueSchema accepts", () => {
  // edge-proxy.md 2.2
  test.for<[string, unknown]>([
    ["an address range", { type: "ip", range: "203.0.113.0/24" }],
    ["a password", { ...password, algorithm: "sha256" }],
    ["a token in a header", token],
    ["a token in a cookie", { type: "token", cookie: "__Host-k", value: "v" }],
    ["a token in a parameter", { type: "token", param: "key", value: "v" }],
    ["an HS256 token", { ...jwt, claims: { role: "admin", n: 1, ok: true } }],
    ["an RS256 key", { ...jwt, algorithm: "RS256", secret: rsaPem }],
    ["an ES256 key", { ...jwt, algorithm: "ES256", secret: p256Pem }],
    ["a cookie source", { ...jwt, sources: ["cookie:__Host-jwt"] }],
    [
      "an identity",
      {
        ...identity,
        allow_types: ["user"],
        users: ["a".repeat(24)],
        max_age_seconds: 300,
        expose_type: true,
      },
    ],
    ["alternatives", [{ type: "ip", range: "10.0.0.0/8" }, token]],
  ])("%s", ([, value], { expect }) => {
    expect(problems(value)).toEqual([]);
  });
});

describe("groupValueSchema refuses", () => {
  test.for<[string, unknown, string[]]>([
    ["no object", "x", [""]],
    ["an object as JSON text (edge-proxy.md 8)", JSON.stringify(token), [""]],
    ["nothing at all", null, [""]],
    ["an unknown type", { type: "none" }, ["/type"]],
    ["no alternatives", [], [""]],
    ["a bad alternative", [token, { type: "ip", range: "x" }], ["/1/range"]],
    ["an octet above 255", { type: "ip", range: "10.0.0.256/8" }, ["/range"]],
    ["an IPv6 range", { type: "ip", range: "::1/128" }, ["/range"]],
    ["a bare address", { type: "ip", range: "10.0.0.1" }, ["/range"]],
    ["a mask above 32", { type: "ip", range: "10.0.0.0/33" }, ["/range"]],
    ["an unknown key", { type: "ip", range: "10.0.0.0/8", x: 1 }, ["/x"]],
    ["an empty user name", { ...password, username: "" }, ["/username"]],
    ["a user name that Basic cannot carry", { ...password, username: "a:b" }, ["/username"]],
    ["another hash", { ...password, algorithm: "md5" }, ["/algorithm"]],
    ["a token with no place", { type: "token", value: "v" }, [""]],
    ["a token with two places", { ...token, cookie: "c" }, [""]],
    ["a token without value", { type: "token", header: "X" }, ["/value"]],
    ["a header that is no field name", { ...token, header: "X Key" }, ["/header"]],
    ["no source", { ...jwt, sources: [] }, ["/sources"]],
    ["a parameter source", { ...jwt, sources: ["param:jwt"] }, ["/sources/0"]],
    ["alg none", { ...jwt, algorithm: "none" }, ["/algorithm"]],
    ["HS256 with a public key (K16)", { ...jwt, secret: rsaPem }, ["/secret"]],
    ["RS256 with a shared secret", { ...jwt, algorithm: "RS256" }, ["/secret"]],
    ["RS256 with a private key", { ...jwt, algorithm: "RS256", secret: privatePem }, ["/secret"]],
    ["RS256 with a short key", { ...jwt, algorithm: "RS256", secret: smallRsaPem }, ["/secret"]],
    ["RS256 with an EC key", { ...jwt, algorithm: "RS256", secret: p256Pem }, ["/secret"]],
    ["ES256 with an RSA key", { ...jwt, algorithm: "ES256", secret: rsaPem }, ["/secret"]],
    ["ES256 on another curve", { ...jwt, algorithm: "ES256", secret: p384Pem }, ["/secret"]],
    ["a claim of another type", { ...jwt, claims: { role: ["x"] } }, ["/claims/role"]],
    [
      "a claim named __proto__",
      { ...jwt, claims: JSON.parse('{"__proto__":"x"}') as unknown },
      ["/claims/__proto__"],
    ],
    ["an identity without audience", { type: "hoody-identity" }, ["/audience"]],
    ["an age below 300", { ...identity, max_age_seconds: 299 }, ["/max_age_seconds"]],
    ["a user id of another form", { ...identity, users: ["x"] }, ["/users/0"]],
    ["nobody", { ...identity, users: [] }, ["/users"]],
  ])("%s", ([, value, paths], { expect }) => {
    expect(problems(value)).toEqual(paths);
  });
});

describe("groupValueSchema", () => {
  test("hashes a plain password and takes a hash as it is", ({ expect }) => {
    const hash = hashPassword("s", "p");
    expect(hash).toMatch(/^[0-9a-f]{64}$/);
    expect(groupValueSchema.parse(password)).toEqual({ ...password, password: hash });
    expect(groupValueSchema.parse([{ ...password, password: hash }])).toEqual([
      { ...password, password: hash },
    ]);
  });
});

describe("names in documents", () => {
  test.for(["__proto__", "constructor", "prototype", "", "a b", "x".repeat(51)])(
    "groupsSchema refuses the name %j",
    (name, { expect }) => {
      const parsed = groupsSchema.safeParse(
        JSON.parse(`{${JSON.stringify(name)}:{"type":"ip","range":"10.0.0.0/8"}}`),
      );
      expect(parsed.success).toBe(false);
    },
  );

  test("cellsSchema writes canonical names", ({ expect }) => {
    expect(cellsSchema.parse({ tty: true, http: "8000-8100", n: false })).toEqual({
      terminal: true,
      http: "8000-8100",
      notifications: false,
    });
  });

  test("permissionsSchema reports all problems with their paths", ({ expect }) => {
    const parsed = permissionsSchema.safeParse({
      g: { t: true, terminal: true, web: true, "*": true, files: 1 },
      constructor: {},
    });
    expect(parsed.success ? [] : toIssues(parsed.error).map(({ path }) => path)).toEqual([
      "/g/terminal",
      "/g/web",
      "/g/*",
      "/g/files",
      "/constructor",
    ]);
  });
});

describe("accessRuleSchema()", () => {
  const good: [string, unknown][] = [
    ["terminal", true],
    ["terminal", "*"],
    ["terminal", 0],
    ["http", 8080],
    ["http", [80, 443]],
    ["http", "8000-8100"],
    ["files", false],
    ["logs", true],
  ];
  const bad: [string, unknown][] = [
    ["terminal", -1],
    ["terminal", 1.5],
    ["terminal", "1"],
    ["terminal", null],
    ["terminal", {}],
    ["http", 65536],
    ["http", "9-1"],
    ["http", "1-99999"],
    ["http", [80, "81"]],
    ["files", 1],
    ["notifications", [1]],
    ["exec", "1-2"],
    ["logs", 1],
  ];
  test.for(good)("takes %s: %j", ([program, rule], { expect }) => {
    expect(accessRuleSchema(program).safeParse(rule).success).toBe(true);
  });
  test.for(bad)("refuses %s: %j", ([program, rule], { expect }) => {
    expect(accessRuleSchema(program).safeParse(rule).success).toBe(false);
  });
});
