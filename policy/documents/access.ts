import { createHash, createPublicKey } from "node:crypto";
import { z } from "zod";
import { isSpecialName } from "../kernel/strict-json.ts";
import { PROTOCOLS, serviceBySpelling } from "./services.ts";

/**
 * The permission half of a project or container document (edge-proxy.md 2.1 to 2.3): groups, access rules and their
 * names. Everything here reads untrusted values; nothing throws, and no message repeats a secret.
 */

const MAX_GROUPS = 256;
const MAX_ALTERNATIVES = 32;
/** JWT configurations of one container: each may cost a signature check on every request that carries a token. */
export const MAX_JWT_CONFIGS = 64;
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}$/;
const CIDR = /^(\d{1,3}\.){3}\d{1,3}\/(?:[0-9]|[12][0-9]|3[0-2])$/;
const SOURCE = /^(?:header|cookie):[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}$/;
const SHA256_HEX = /^[0-9a-f]{64}$/;
const ANY_PEM = /-----BEGIN /;
const SPKI_PEM = /^\s*-----BEGIN PUBLIC KEY-----/;
/** RFC 7518 3.3. */
const MIN_RSA_BITS = 2048;

const GROUP_NAME = /^[A-Za-z0-9_-]{1,50}$/;

/** Whether `name` may be the name of a group. */
export function isGroupName(name: string): boolean {
  return GROUP_NAME.test(name) && !isSpecialName(name);
}

/**
 * The canonical program that a spelling means: a service name or short name, or a protocol. undefined when there is
 * none; the wildcard `*` is not a program (edge-proxy.md 10, question 17).
 */
export function programBySpelling(spelling: string): string | undefined {
  return PROTOCOLS.find((protocol) => protocol === spelling) ?? serviceBySpelling(spelling)?.name;
}

const text = (max: number) =>
  z
    .string({ error: "expected a string" })
    .min(1, { error: "must not be empty" })
    .max(max, { error: `must have at most ${max} characters` });

const fieldName = () =>
  z.string({ error: "expected a field name" }).regex(TOKEN, { error: "not a valid field name" });

const claimSchema = z.union([z.string(), z.number(), z.boolean()], {
  error: "expected a string, a number or a boolean",
});

/** Fields of each group type, without `type`: the bodies of the single-group endpoints. */
export const GROUP_FIELDS = {
  ip: z.strictObject({
    range: z
      .string({ error: "expected an IPv4 CIDR range" })
      .refine(isCidr, { error: "Invalid IP CIDR range" }),
  }),
  password: z.strictObject({
    // Basic credentials end the user name at the first colon (RFC 7617 2), so one with a colon can never be sent.
    username: text(256).regex(/^[^:]*$/, { error: "must not contain a colon" }),
    password: text(1024),
    salt: text(256),
    algorithm: z.literal("sha256", { error: 'only "sha256" is known' }).optional(),
  }),
  token: z
    .strictObject({
      header: fieldName().optional(),
      cookie: fieldName().optional(),
      param: text(256).optional(),
      value: text(8192),
    })
    .refine(
      ({ header, cookie, param }) =>
        [header, cookie, param].filter((place) => place !== undefined).length === 1,
      { error: "exactly one of header, cookie and param is needed" },
    ),
  jwt: z
    .strictObject({
      secret: text(8192),
      algorithm: z.enum(["HS256", "RS256", "ES256"], {
        error: 'expected "HS256", "RS256" or "ES256"',
      }),
      sources: z
        .array(
          z.string({ error: "expected a string" }).regex(SOURCE, {
            error: "expected header:<name> or cookie:<name>",
          }),
        )
        .min(1, { error: "at least one source is needed" })
        .max(16, { error: "at most 16 sources" }),
      claims: namedRecord(
        (name) => (name === "" || isSpecialName(name) ? undefined : name),
        "not a claim name",
        () => claimSchema,
      ).optional(),
    })
    .superRefine(({ algorithm, secret }, ctx) => {
      const problem = keyProblem(algorithm, secret);
      if (problem !== null) {
        ctx.addIssue({ code: "custom", path: ["secret"], message: problem });
      }
    }),
  "hoody-identity": z.strictObject({
    audience: text(256),
    allow_types: z
      .array(z.enum(["user", "admin"], { error: 'expected "user" or "admin"' }))
      .min(1, { error: "leave it out to allow every type" })
      .optional(),
    users: z
      .array(
        z
          .string({ error: "expected a user id" })
          .regex(/^[0-9a-f]{24}$/, { error: "expected 24 lower-case hex characters" }),
      )
      .min(1, { error: "leave it out to allow every user" })
      .max(256, { error: "at most 256 users" })
      .optional(),
    max_age_seconds: z
      .int({ error: "expected a whole number of seconds" })
      .min(300, { error: "must be at least 300" })
      .optional(),
    expose_type: z.boolean({ error: "expected true or false" }).optional(),
  }),
} as const;

/** One configuration of a group: what a request must present (edge-proxy.md 2.2). */
export const groupConfigSchema = z.discriminatedUnion(
  "type",
  [
    GROUP_FIELDS.ip.safeExtend({ type: z.literal("ip") }),
    GROUP_FIELDS.password.safeExtend({ type: z.literal("password") }),
    GROUP_FIELDS.token.safeExtend({ type: z.literal("token") }),
    GROUP_FIELDS.jwt.safeExtend({ type: z.literal("jwt") }),
    GROUP_FIELDS["hoody-identity"].safeExtend({ type: z.literal("hoody-identity") }),
  ],
  {
    error: (issue) =>
      issue.code === "invalid_union"
        ? `expected type ${Object.keys(GROUP_FIELDS).join(", ")}`
        : "expected an object with a type",
  },
);

/** A group as stored, of any type. */
export type GroupConfig = z.infer<typeof groupConfigSchema>;
/** Groups by type. */
export type IpGroup = Extract<GroupConfig, { type: "ip" }>;
export type PasswordGroup = Extract<GroupConfig, { type: "password" }>;
export type TokenGroup = Extract<GroupConfig, { type: "token" }>;
export type JwtGroup = Extract<GroupConfig, { type: "jwt" }>;
export type IdentityGroup = Extract<GroupConfig, { type: "hoody-identity" }>;

/** A group as stored: one configuration, or several of which any satisfies it. */
export type GroupValue = GroupConfig | GroupConfig[];

const alternativesSchema = z
  .array(groupConfigSchema)
  .min(1, { error: "at least one configuration is needed" })
  .max(MAX_ALTERNATIVES, { error: `at most ${MAX_ALTERNATIVES} configurations` });

/** A group as written; what comes out is what is stored, with passwords hashed. */
export const groupValueSchema = z.unknown().transform((input, ctx): GroupValue => {
  const parsed = Array.isArray(input)
    ? alternativesSchema.safeParse(input)
    : groupConfigSchema.safeParse(input);
  if (!parsed.success) {
    reportBelow(ctx, [], parsed.error);
    return z.NEVER;
  }
  return Array.isArray(parsed.data) ? parsed.data.map(sealGroup) : sealGroup(parsed.data);
});

/** `groups` of a document. */
export const groupsSchema = namedRecord(
  (name) => (isGroupName(name) ? name : undefined),
  "not a group name: letters, digits, _ and -, at most 50",
  () => groupValueSchema,
).refine(
  (groups) =>
    Object.values(groups)
      .flat()
      .filter(({ type }) => type === "jwt").length <= MAX_JWT_CONFIGS,
  { error: `at most ${MAX_JWT_CONFIGS} jwt configurations` },
);

/** The stored forms of an access rule (edge-proxy.md 2.3). */
export type AccessRule = boolean | number | number[] | string;

const instance = () =>
  z
    .int({ error: "expected a whole number" })
    .min(0, { error: "must not be negative" })
    .max(65535, { error: "must be at most 65535" });

/** What `program` (canonical) may have as its access rule. `"*"` is stored for any, but grants nothing on `logs`. */
export function accessRuleSchema(program: string): z.ZodType<AccessRule> {
  const simple = z.union([z.boolean(), z.literal("*")], {
    error: `${program} takes true or false only`,
  });
  if (serviceBySpelling(program)?.access !== undefined) {
    return simple;
  }
  return z.union(
    [
      simple,
      instance(),
      z.array(instance()).max(1024),
      z.string().refine((rule) => parseRange(rule) !== null),
    ],
    {
      error:
        'expected true, false, "*", a number from 0 to 65535, an array of such numbers or a range such as "8000-8100"',
    },
  );
}

/** The two ends of a range `"8000-8100"`, inclusive; null when it is none or has no members. */
export function parseRange(rule: string): { from: number; to: number } | null {
  const match = /^(\d{1,5})-(\d{1,5})$/.exec(rule);
  const from = Number(match?.[1]);
  const to = Number(match?.[2]);
  return match !== null && from <= to && to <= 65535 ? { from, to } : null;
}

/** The access rules of one group; short names become canonical. */
export const cellsSchema = namedRecord(programBySpelling, "Unknown program name", accessRuleSchema);

/** `permissions` of a document: group, then program. */
export const permissionsSchema = namedRecord(
  (name) => (isGroupName(name) ? name : undefined),
  "not a group name: letters, digits, _ and -, at most 50",
  () => cellsSchema,
);

/** `default` of a document. */
export const defaultSchema = z.enum(["allow", "deny"], { error: 'expected "allow" or "deny"' });

/** Lower-case hex of SHA-256 over salt and password, the stored form of a password. */
export function hashPassword(salt: string, password: string): string {
  return createHash("sha256").update(salt).update(password).digest("hex");
}

/** The group with its password in stored form; one that is 64 lower-case hex characters already is taken as the hash. */
export function sealGroup(config: GroupConfig): GroupConfig {
  return config.type !== "password" || SHA256_HEX.test(config.password)
    ? config
    : { ...config, password: hashPassword(config.salt, config.password) };
}

/**
 * An object with names from outside. Unlike a zod record it sees `__proto__`, canonicalises its names, refuses two
 * spellings of one name, and has a bound.
 */
function namedRecord<T>(
  canonical: (name: string) => string | undefined,
  message: string,
  valueSchema: (name: string) => z.ZodType<T>,
) {
  return z.unknown().transform((input, ctx): Record<string, T> => {
    if (typeof input !== "object" || input === null || Array.isArray(input)) {
      ctx.addIssue({ code: "custom", message: "expected an object" });
      return z.NEVER;
    }
    const entries = new Map<string, T>();
    const pairs = Object.entries(input);
    if (pairs.length > MAX_GROUPS) {
      ctx.addIssue({ code: "custom", message: `at most ${MAX_GROUPS} entries` });
      return z.NEVER;
    }
    for (const [spelling, value] of pairs) {
      const name = canonical(spelling);
      if (name === undefined || entries.has(name)) {
        const text = name === undefined ? message : `${name} occurs twice`;
        ctx.addIssue({ code: "custom", path: [spelling], message: text });
        continue;
      }
      const parsed = valueSchema(name).safeParse(value);
      if (parsed.success) {
        entries.set(name, parsed.data);
      } else {
        reportBelow(ctx, [spelling], parsed.error);
      }
    }
    return Object.fromEntries(entries);
  });
}

/** Adds the problems of a part to those of the whole; unknown keys one by one, each with its own path. */
function reportBelow(
  ctx: { addIssue(issue: { code: "custom"; path: PropertyKey[]; message: string }): void },
  path: readonly PropertyKey[],
  error: z.ZodError,
): void {
  for (const issue of error.issues) {
    const below = [...path, ...issue.path];
    if (issue.code === "unrecognized_keys") {
      for (const key of issue.keys) {
        ctx.addIssue({ code: "custom", path: [...below, key], message: "unknown key" });
      }
    } else {
      ctx.addIssue({ code: "custom", path: below, message: issue.message });
    }
  }
}

function isCidr(range: string): boolean {
  return (
    CIDR.test(range) &&
    range
      .slice(0, range.indexOf("/"))
      .split(".")
      .every((octet) => Number(octet) <= 255)
  );
}

/** Why `secret` is not a key for `algorithm`; null when it is one. */
function keyProblem(algorithm: "HS256" | "RS256" | "ES256", secret: string): string | null {
  if (algorithm === "HS256") {
    // A published key as shared secret would let anyone sign (K16).
    return ANY_PEM.test(secret) ? "a PEM key cannot be the secret of HS256" : null;
  }
  if (!SPKI_PEM.test(secret)) {
    return `${algorithm} needs a public key in PEM (SPKI)`;
  }
  try {
    const { asymmetricKeyType, asymmetricKeyDetails } = createPublicKey(secret);
    if (algorithm === "RS256") {
      const bits = asymmetricKeyDetails?.modulusLength ?? 0;
      return asymmetricKeyType === "rsa" && bits >= MIN_RSA_BITS
        ? null
        : `RS256 needs an RSA key of at least ${MIN_RSA_BITS} bits`;
    }
    return asymmetricKeyType === "ec" && asymmetricKeyDetails?.namedCurve === "prime256v1"
      ? null
      : "ES256 needs a key on the curve P-256";
  } catch {
    // The parser's own words may quote the key; ours do not.
    return `${algorithm} needs a public key in PEM (SPKI)`;
  }
}
