import fc from "fast-check";
import { describe, test } from "vitest";
import { compileAccess } from "../../policy/compile/access.ts";
import { decide } from "../../policy/compile/grants.ts";
import {
  groupValueSchema,
  groupsSchema,
  permissionsSchema,
} from "../../policy/documents/access.ts";
import { routeAlias } from "../../proxy/alias-route.ts";
import { generateSigningKey, parseClaim } from "../../proxy/claim.ts";
import { accessOf, testAuthenticator } from "../support/auth-request.ts";

const latin1 = fc.string({
  unit: fc.integer({ min: 0x20, max: 0xff }).map((c) => String.fromCharCode(c)),
  maxLength: 60,
});
const access = accessOf({
  office: { type: "ip", range: "203.0.113.0/24" },
  web: { type: "password", username: "web", password: "secret", salt: "s" },
  header: { type: "token", header: "X-Key", value: "0123456789" },
  cookie: { type: "token", cookie: "k", value: "0123456789" },
  param: { type: "token", param: "k", value: "0123456789" },
  app: { type: "jwt", algorithm: "HS256", secret: "k", sources: ["header:X-Jwt", "cookie:jwt"] },
  staff: { type: "hoody-identity", audience: "app" },
});
const authenticator = testAuthenticator([generateSigningKey("v1")]);

/** Values that look like credentials from afar. */
const credential = fc.oneof(
  latin1,
  latin1.map((text) => `Basic ${Buffer.from(text, "latin1").toString("base64")}`),
  latin1.map((text) => `Basic ${text}`),
  latin1.map((text) => `Bearer ${text}`),
  fc
    .array(
      latin1.map((text) => Buffer.from(text).toString("base64url")),
      { maxLength: 4 },
    )
    .map((parts) => parts.join(".")),
  fc
    .json({ maxDepth: 2 })
    .map(
      (text) =>
        `${Buffer.from('{"alg":"HS256"}').toString("base64url")}.${Buffer.from(text).toString("base64url")}.AAAA`,
    ),
  fc.tuple(latin1, latin1).map(([left, right]) => `v1.${left}.${right}`),
);
const name = fc.constantFrom(
  "Cookie",
  "cookie",
  "X-Key",
  "X-Jwt",
  "X-Hoody-Identity-Claim",
  "X-Other",
);

describe("authenticate()", () => {
  test("never throws and never takes noise for a credential", ({ expect }) => {
    const lines = fc.array(fc.tuple(name, credential), { maxLength: 6 });
    const query = fc.option(
      fc.oneof(
        latin1,
        latin1.map((text) => `k=${text}`),
      ),
      { nil: null },
    );
    const address = fc.oneof(fc.ipV6(), latin1, fc.constant("10.0.0.1"));
    fc.assert(
      fc.property(
        lines,
        fc.option(credential),
        query,
        address,
        (fields, authorization, q, from) => {
          const result = authenticator.authenticate(access, {
            fields: [
              ...fields.flat(),
              ...(authorization === null ? [] : ["Authorization", authorization]),
            ],
            query: q,
            clientAddress: from,
          });
          expect(result).toEqual({
            kind: "principal",
            principal: { groups: new Set(), credential: false, identity: null },
          });
        },
      ),
    );
  });
});

const json = fc.jsonValue({ maxDepth: 4 });
const odd = fc.oneof(
  json,
  fc.record(
    {
      type: fc.constantFrom("ip", "password", "token", "jwt", "hoody-identity", "x"),
      range: fc.oneof(fc.constant("10.0.0.0/8"), json),
      username: json,
      password: json,
      salt: json,
      header: json,
      value: json,
      secret: json,
      algorithm: fc.constantFrom("HS256", "RS256", "none"),
      sources: fc.oneof(fc.constant(["header:X"]), json),
      audience: json,
    },
    { requiredKeys: [] },
  ),
);
const groupNames = fc.constantFrom("a", "b", "__proto__", "constructor", "a b");
const programs = fc.constantFrom("terminal", "t", "files", "logs", "http", "__proto__", "x");
const document = fc.record(
  {
    enable_proxy: fc.oneof(fc.boolean(), json),
    default: fc.oneof(fc.constantFrom("allow", "deny"), json),
    groups: fc.oneof(fc.dictionary(groupNames, odd), json),
    permissions: fc.oneof(
      fc.dictionary(
        groupNames,
        fc.oneof(
          fc.dictionary(programs, fc.oneof(json, fc.constantFrom("*", true, 1, "1-9"))),
          json,
        ),
      ),
      json,
    ),
  },
  { requiredKeys: [] },
);

describe("compileAccess() and decide()", () => {
  test("take any stored JSON and admit to logs by an explicit grant only", ({ expect }) => {
    const satisfied = fc.uniqueArray(groupNames, { maxLength: 3 });
    fc.assert(
      fc.property(
        fc.option(document),
        fc.option(document),
        satisfied,
        fc.boolean(),
        fc.constantFrom("terminal", "files", "logs", "http"),
        (container, project, groups, sent, service) => {
          const compiled = compileAccess(container, project);
          const decision = decide(compiled, {
            service,
            index: 1,
            satisfied: new Set(groups),
            presented: { credential: sent },
          });
          if (decision.kind === "allow") {
            expect(compiled.enableProxy).toBe(true);
            expect(decision.by === "group").toBe(decision.granting.size > 0);
            expect(groups).toEqual(expect.arrayContaining([...decision.granting]));
            expect(decision.by === "default" && service === "logs").toBe(false);
            expect(decision.by === "group" || compiled.defaultAllow).toBe(true);
          }
        },
      ),
    );
  });

  test("the schemas take any JSON without throwing", () => {
    fc.assert(
      fc.property(odd, (value) => {
        groupValueSchema.safeParse(value);
        groupsSchema.safeParse(value);
        permissionsSchema.safeParse(value);
      }),
    );
  });
});

describe("routeAlias()", () => {
  test("of a pinned alias serves its own path and nothing else", ({ expect }) => {
    const segment = fc.string({
      unit: fc.constantFrom("a", "b", "/", "%", "2", "f", ".", ";"),
      maxLength: 8,
    });
    fc.assert(
      fc.property(segment, segment, fc.option(latin1), (own, sent, query) => {
        const routing = routeAlias(
          {
            project: "a".repeat(24),
            container: "b".repeat(24),
            program: "files",
            port: null,
            index: 1,
            target_path: `/${own}`,
            allow_path_override: false,
            expires_at: null,
            enabled: true,
          },
          { path: `/${sent}`, query },
          0,
        );
        const served = routing.kind === "routed" ? routing.target.path : null;
        expect(served).toBe(sent === "" || sent === own ? `/${own}` : null);
      }),
    );
  });
});

describe("parseClaim()", () => {
  test("never throws", () => {
    fc.assert(fc.property(fc.oneof(latin1, credential), (text) => void parseClaim(text)));
  });
});
