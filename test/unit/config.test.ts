import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "vitest";
import { configJsonSchema } from "../../proxy/config-json-schema.ts";
import { decodeConfig, loadConfig } from "../../proxy/config.ts";

const PROJECT = "67e89abc123def456789abcd";
const CONTAINER = "890abcdef12345678901cdef";
const minimal = { listen: { http: "127.0.0.1:8080" } };

function decode(value: unknown, env: Record<string, string> = {}) {
  return decodeConfig(value, { base: "/srv/interpose", env });
}

function problems(value: unknown, env: Record<string, string> = {}): string[] {
  const result = decode(value, env);
  return result.ok ? [] : result.issues.map((issue) => `${issue.path} ${issue.message}`);
}

test("decodeConfig() fills every default in when only a listener is given", ({ expect }) => {
  const result = decode({
    ...minimal,
    containers: [{ project: PROJECT, container: CONTAINER }],
  });
  expect(result.ok).toBe(true);
  if (!result.ok) {
    return;
  }
  const { config } = result;
  expect(config.limits).toEqual({
    headMs: 10_000,
    requestMs: 0,
    keepAliveMs: 65_000,
    upstreamConnectMs: 3_000,
    upstreamIdleMs: 300_000,
    requestBudgetMs: 600_000,
    maxHeaderBytes: 32_768,
    maxHeaderLines: 200,
    maxTargetBytes: 16_384,
    maxBufferedBodyBytes: 33_554_432,
    maxConnections: 10_000,
    drainMs: 10_000,
  });
  expect(config.customDomains).toBe("off");
  expect(config.control.listen).toEqual({ host: "127.0.0.1", port: 8081 });
  expect(config.dataDir).toBe("/srv/interpose/data");
  const container = config.containers.get(CONTAINER);
  expect(container?.exec).toMatchObject({
    kind: "embedded",
    scripts: `/srv/interpose/data/containers/${CONTAINER}/scripts`,
    memoryMb: 256,
    cpuMs: 1000,
    manage: "admitted",
  });
  expect(container?.agent).toEqual({ kind: "none" });
});

test.for([
  ["unknown key", { ...minimal, lisen: 1 }, ["/lisen unknown key"]],
  ["unknown key inside", { ...minimal, log: { levle: "info" } }, ["/log/levle unknown key"]],
  [
    "no listener",
    { listen: {} },
    ["/listen expected at least one of http and https, found neither"],
  ],
  [
    "a port that cannot be",
    { listen: { http: "127.0.0.1:99999" } },
    ['/listen/http expected "host:port" with a port from 0 to 65535, found "127.0.0.1:99999"'],
  ],
  [
    "https without a certificate",
    { listen: { https: "127.0.0.1:0" } },
    ["/tls expected a certificate for listen.https, found none"],
  ],
  [
    "a store that comes later",
    { ...minimal, store: { kind: "nats" } },
    ['/store/kind not available yet: expected "file", found "nats"'],
  ],
  [
    "wrong limit",
    { ...minimal, limits: { headMs: "10s" } },
    ['/limits/headMs expected a whole number from 1 to 3600000, found "10s"'],
  ],
  [
    "short service name as a port key",
    { ...minimal, ports: { t: 76 } },
    ['/ports/t expected a canonical service name, found "t"'],
  ],
  [
    "exec kind",
    { ...minimal, containers: [{ project: PROJECT, container: CONTAINER, exec: { kind: "vm" } }] },
    ['/containers/0/exec/kind expected "embedded", "remote" or "none", found "vm"'],
  ],
  [
    "a key of another exec kind",
    {
      ...minimal,
      containers: [{ project: PROJECT, container: CONTAINER, exec: { kind: "none", memoryMb: 5 } }],
    },
    ["/containers/0/exec/memoryMb unknown key"],
  ],
  [
    "the same container twice",
    {
      ...minimal,
      containers: [
        { project: PROJECT, container: CONTAINER },
        { project: PROJECT, container: CONTAINER },
      ],
    },
    ["/containers/1/container expected a container of its own, found the one of /containers/0"],
  ],
  [
    "a custom domains word that is none",
    { ...minimal, customDomains: "on" },
    ['/customDomains expected "off" or {resolvers, timeoutMs, maxPerSecond}, found "on"'],
  ],
  [
    "resolvers without an address, and an unknown key beside them",
    { ...minimal, customDomains: { resolvers: ["dns.example:53", "[::1]:53", "::1"], ttl: 5 } },
    [
      '/customDomains/resolvers/0 expected "address:port" with an IP address, IPv6 in brackets, and a port from 1 to 65535, found "dns.example:53"',
      '/customDomains/resolvers/2 expected "address:port" with an IP address, IPv6 in brackets, and a port from 1 to 65535, found "::1"',
      "/customDomains/ttl unknown key",
    ],
  ],
  [
    "a range that is none",
    { ...minimal, trustedProxies: ["10.0.0.0/33"] },
    [
      '/trustedProxies/0 expected an IP address or CIDR range such as 10.0.0.0/8, found "10.0.0.0/33"',
    ],
  ],
] as const)(
  "decodeConfig() refuses %s with pointer, finding and mend",
  ([, value, expected], { expect }) => {
    expect(problems(value)).toEqual(expected);
  },
);

test("decodeConfig() tells every problem at once", ({ expect }) => {
  expect(
    problems({
      ...minimal,
      foo: 1,
      limits: { headMs: 0 },
      store: { kind: "nats" },
      log: { level: "loud" },
    }),
  ).toHaveLength(4);
});

test("decodeConfig() takes environment variables and names the missing one once", ({ expect }) => {
  const value = { ...minimal, control: { token: "${CONTROL}" } };
  const result = decode(value, { CONTROL: "0123456789abcdef" });
  expect(result.ok && result.config.control.token).toBe("0123456789abcdef");
  expect(problems(value)).toEqual(["/control/token the environment variable CONTROL is not set"]);
});

test("decodeConfig() never shows a secret that it refuses", ({ expect }) => {
  expect(problems({ ...minimal, control: { token: "hunter2" } }).join()).not.toContain("hunter2");
});

test("rateLimit off and false are the same", ({ expect }) => {
  for (const rateLimit of ["off", false]) {
    const result = decode({
      ...minimal,
      containers: [
        { project: PROJECT, container: CONTAINER, agent: { kind: "embedded", rateLimit } },
      ],
    });
    expect(result.ok && result.config.containers.get(CONTAINER)?.agent).toMatchObject({
      rateLimit: "off",
    });
  }
});

test("loadConfig() reads YAML, keeps `off` a word, and resolves paths against the file", ({
  expect,
  onTestFinished,
}) => {
  const folder = mkdtempSync(join(tmpdir(), "interpose-config-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "edge.yaml");
  writeFileSync(file, "listen: { http: 127.0.0.1:0 }\nproxyProtocol: off\ndataDir: ./here\n");
  const result = loadConfig(file, {});
  expect(result.ok && [result.config.proxyProtocol, result.config.dataDir]).toEqual([
    "off",
    join(folder, "here"),
  ]);
  writeFileSync(file, "listen: [\n");
  expect(loadConfig(file, {}).ok).toBe(false);
  expect(loadConfig(join(folder, "absent.yaml"), {})).toEqual({
    ok: false,
    issues: [{ path: "", message: "cannot be read (ENOENT)" }],
  });
});

test("docs/config.schema.json is the schema that validates", ({ expect }) => {
  const published = readFileSync(
    join(import.meta.dirname, "../../docs/config.schema.json"),
    "utf8",
  );
  expect(JSON.parse(published)).toEqual(JSON.parse(JSON.stringify(configJsonSchema())));
});
