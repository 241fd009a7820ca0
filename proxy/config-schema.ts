import { isIP } from "node:net";
import { z } from "zod";
import { serviceByName } from "../policy/documents/services.ts";
import type { Issue } from "../policy/kernel/issues.ts";

/**
 * The configuration file (contract.md 2). Every object is strict: an unknown key is a problem, and a key whose
 * feature does not exist yet is refused with "not available yet" instead of being ignored.
 */

const HEX24 = /^[0-9a-f]{24}$/;
const DNS_NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/;

/** What was found, in one word or a short quotation, for messages. */
function found(value: unknown): string {
  if (value === undefined) {
    return "nothing";
  }
  const text = JSON.stringify(value) ?? typeof value;
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

function text(allowed: string, test: (value: string) => boolean) {
  return z.string({ error: (i) => `expected ${allowed}, found ${found(i.input)}` }).refine(test, {
    error: (i) => `expected ${allowed}, found ${found(i.input)}`,
  });
}

/** Like `text`, but the message never shows what was found. */
function secret(allowed: string, test: (value: string) => boolean) {
  const error = `expected ${allowed}, found something else`;
  return z.string({ error }).refine(test, { error });
}

function integer(min: number, max: number) {
  const error = (i: { input?: unknown }) =>
    `expected a whole number from ${min} to ${max}, found ${found(i.input)}`;
  return z.int({ error }).min(min, { error }).max(max, { error });
}

function choice<const T extends readonly [string, ...string[]]>(values: T) {
  return z.enum(values, {
    error: (i) =>
      `expected ${values.map((v) => JSON.stringify(v)).join(" or ")}, found ${found(i.input)}`,
  });
}

const flag = () => z.boolean({ error: (i) => `expected true or false, found ${found(i.input)}` });
const nonEmpty = (what: string) => text(what, (v) => v.length > 0);

/** Splits `host:port` (IPv6 in brackets); null when it is not one. */
export function parseListen(value: string): { host: string; port: number } | null {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]+)):(\d{1,5})$/.exec(value);
  const port = Number(match?.[3]);
  const host = match?.[1] ?? match?.[2];
  if (
    !match ||
    host === undefined ||
    port > 65535 ||
    (match[1] !== undefined && isIP(host) !== 6)
  ) {
    return null;
  }
  return { host, port };
}

const listen = () =>
  text('"host:port" with a port from 0 to 65535', (v) => parseListen(v) !== null);

const cidr = () =>
  text("an IP address or CIDR range such as 10.0.0.0/8", (value) => {
    const [address = "", bits, more] = value.split("/");
    const family = isIP(address);
    if (family === 0 || more !== undefined) {
      return false;
    }
    return (
      bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128))
    );
  });

const port = () => integer(1, 65535);

const ports = () =>
  z.record(
    text("a canonical service name", (v) => serviceByName(v) !== undefined),
    port(),
    { error: (i) => `expected a map from service name to port, found ${found(i.input)}` },
  );

const httpUrl = () =>
  text("an http or https URL", (v) => {
    const url = URL.parse(v);
    return url !== null && (url.protocol === "http:" || url.protocol === "https:");
  });

const execEmbedded = z.strictObject({
  kind: z.literal("embedded").default("embedded"),
  scripts: nonEmpty("a folder").optional(),
  memoryMb: integer(64, 65536).default(256),
  cpuMs: integer(50, 600_000).default(1000),
  user: text('"uid:gid" in numbers', (v) => /^\d{1,9}:\d{1,9}$/.test(v))
    .nullable()
    .default(null),
  allow: z
    .strictObject({
      childProcess: flag().default(false),
      read: z.array(nonEmpty("a path")).default([]),
      write: z.array(nonEmpty("a path")).default([]),
    })
    .prefault({}),
  manage: choice(["admitted", "open", "off"]).default("admitted"),
});

const remote = (defaultPort: number) =>
  z.strictObject({
    kind: z.literal("remote"),
    port: port().default(defaultPort),
    secret: secret("a secret of at least 16 characters", (v) => v.length >= 16),
    manage: choice(["admitted", "open", "off"]).default("admitted"),
  });

const none = z.strictObject({ kind: z.literal("none") });

const judge = z.strictObject({
  url: httpUrl(),
  apiKey: secret("a key", (v) => v.length > 0),
  model: nonEmpty("a model name"),
});

const rateLimit = z.strictObject({
  perSecond: integer(1, 1_000_000).default(50),
  burst: integer(1, 1_000_000).default(100),
});

const agentEmbedded = z.strictObject({
  kind: z.literal("embedded").default("embedded"),
  home: nonEmpty("a folder").optional(),
  fleet: flag().default(false),
  realms: z
    .array(text("a realm of 24 lower-case hex characters", (v) => HEX24.test(v)))
    .default([]),
  rateLimit: z
    .union([z.literal("off"), z.literal(false), rateLimit], {
      error: (i) => `expected "off" or {perSecond, burst}, found ${found(i.input)}`,
    })
    .transform((v) => (v === false ? ("off" as const) : v))
    .default({ perSecond: 50, burst: 100 }),
  judge: judge.nullable().default(null),
});

/** A union told apart by `kind`, where a missing `kind` means embedded. */
function byKind<E extends z.ZodType, R extends z.ZodType>(embedded: E, remoteForm: R) {
  return z.union([embedded, remoteForm, none]);
}

/** A container's `exec` entry. */
export const execSchema = byKind(execEmbedded, remote(7700));
/** A container's `agent` entry. */
export const agentSchema = byKind(agentEmbedded, remote(7800).omit({ manage: true }));

/** What custom domains look like when they are on; `off` is a word of its own beside it. */
export const customDomainsSchema = z.strictObject({
  /** null: the system's. */
  resolvers: z
    .array(
      text(
        '"address:port" with an IP address, IPv6 in brackets, and a port from 1 to 65535',
        (v) => {
          const at = parseListen(v);
          return at !== null && isIP(at.host) !== 0 && at.port > 0;
        },
      ),
    )
    .min(1)
    .max(8)
    .nullable()
    .default(null),
  timeoutMs: integer(50, 10_000).default(500),
  maxPerSecond: integer(1, 10_000).default(20),
});

const customDomains = z
  .union([z.literal("off"), z.literal(false), customDomainsSchema], {
    error: (i) => `expected "off" or {resolvers, timeoutMs, maxPerSecond}, found ${found(i.input)}`,
  })
  .transform((v) => (v === false ? ("off" as const) : v))
  .default("off");

const container = z.strictObject({
  project: text("24 lower-case hex characters", (v) => HEX24.test(v)),
  container: text("24 lower-case hex characters", (v) => HEX24.test(v)),
  host: text("an IP address or a host name", (v) => isIP(v) !== 0 || DNS_NAME.test(v)).default(
    "127.0.0.1",
  ),
  state: choice(["running", "stopped"]).default("running"),
  ports: ports().default({}),
  exec: execSchema.prefault({}),
  agent: agentSchema.default({ kind: "none" }),
});

const limits = z.strictObject({
  headMs: integer(1, 3_600_000).default(10_000),
  requestMs: integer(0, 86_400_000).default(0),
  keepAliveMs: integer(1, 86_400_000).default(65_000),
  upstreamConnectMs: integer(1, 600_000).default(3_000),
  upstreamIdleMs: integer(1, 86_400_000).default(300_000),
  requestBudgetMs: integer(1, 86_400_000).default(600_000),
  maxHeaderBytes: integer(1024, 1_048_576).default(32_768),
  maxHeaderLines: integer(8, 2_000).default(200),
  maxTargetBytes: integer(256, 1_048_576).default(16_384),
  maxBufferedBodyBytes: integer(1024, 4_294_967_296).default(33_554_432),
  maxConnections: integer(1, 1_000_000).default(10_000),
  drainMs: integer(0, 3_600_000).default(10_000),
});

const key = z.strictObject({
  kid: text("a key id of letters, digits, - and _", (v) => /^[A-Za-z0-9_-]{1,64}$/.test(v)),
  publicKeyHex: text("64 hex characters", (v) => /^[0-9a-fA-F]{64}$/.test(v)),
});

/** The whole configuration file; its JSON Schema is docs/config.schema.json. */
export const configSchema = z.strictObject({
  node: text("one DNS label", (v) => DNS_NAME.test(v) && !v.includes(".")).default("local"),
  domain: text("a DNS name in lower case", (v) => DNS_NAME.test(v)).default("containers.localhost"),
  listen: z.strictObject({ http: listen().optional(), https: listen().optional() }),
  tls: z
    .array(
      z.strictObject({
        cert: nonEmpty("a file"),
        key: nonEmpty("a file"),
        hosts: z.array(nonEmpty("a host name or *.name")).min(1),
      }),
    )
    .default([]),
  control: z
    .strictObject({
      listen: listen().default("127.0.0.1:8081"),
      token: secret("a token of at least 16 characters", (v) => v.length >= 16).optional(),
      tokenFile: nonEmpty("a file").optional(),
    })
    .prefault({}),
  dataDir: nonEmpty("a folder").default("./data"),
  store: z
    .strictObject({
      kind: choice(["file", "nats"]).default("file"),
      servers: z.array(z.string()).optional(),
      bucket: z.string().optional(),
    })
    .prefault({}),
  identity: z
    .strictObject({
      keys: z.array(key).max(64).default([]),
      keysUrl: httpUrl().nullable().default(null),
    })
    .prefault({}),
  trustedProxies: z.array(cidr()).default([]),
  proxyProtocol: choice(["off", "accept"]).default("off"),
  customDomains,
  limits: limits.prefault({}),
  log: z
    .strictObject({
      level: choice(["trace", "debug", "info", "warn", "error", "fatal", "silent"]).default("info"),
      pretty: z
        .union([z.literal("auto"), z.boolean()], {
          error: (i) => `expected "auto", true or false, found ${found(i.input)}`,
        })
        .default("auto"),
    })
    .prefault({}),
  workers: z
    .union([integer(1, 256), z.literal("auto")], {
      error: (i) => `expected a whole number from 1 to 256 or "auto", found ${found(i.input)}`,
    })
    .default(1),
  ports: ports().default({}),
  containers: z.array(container).max(100_000).default([]),
});

/** What one member says about another. Works on the raw value, so that these problems are told together with the rest. */
export function crossIssues(raw: unknown): Issue[] {
  const issues: Issue[] = [];
  const root = record(raw);
  const listenAt = record(root["listen"]);
  const control = record(root["control"]);
  const store = record(root["store"]);
  if ("listen" in root && listenAt["http"] === undefined && listenAt["https"] === undefined) {
    issues.push({
      path: "/listen",
      message: "expected at least one of http and https, found neither",
    });
  }
  if (listenAt["https"] !== undefined && !(Array.isArray(root["tls"]) && root["tls"].length > 0)) {
    issues.push({ path: "/tls", message: "expected a certificate for listen.https, found none" });
  }
  if (control["token"] !== undefined && control["tokenFile"] !== undefined) {
    issues.push({
      path: "/control/tokenFile",
      message: "expected only one of token and tokenFile, found both",
    });
  }
  if (store["kind"] === "nats") {
    issues.push({
      path: "/store/kind",
      message: 'not available yet: expected "file", found "nats"',
    });
  } else {
    for (const name of ["servers", "bucket"]) {
      if (store[name] !== undefined) {
        issues.push({
          path: `/store/${name}`,
          message: "belongs to the store kind nats, which is not available yet",
        });
      }
    }
  }
  const seen = new Map<unknown, number>();
  const list: unknown[] = Array.isArray(root["containers"]) ? root["containers"] : [];
  for (const [index, entry] of list.entries()) {
    const id = record(entry)["container"];
    const earlier = seen.get(id);
    if (typeof id === "string" && earlier !== undefined) {
      issues.push({
        path: `/containers/${index}/container`,
        message: `expected a container of its own, found the one of /containers/${earlier}`,
      });
    }
    seen.set(id, index);
  }
  return issues;
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

/** The file as decoded, defaults filled in; paths and addresses still as written. */
export type ConfigFile = z.output<typeof configSchema>;
