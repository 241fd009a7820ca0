/**
 * What authentication and the decision cost per request: `node bench/auth-micro.ts`. Prints microseconds of CPU per
 * request for a container with five groups, as far as no signature is computed, and for the groups alone.
 */
import { createHmac, generateKeyPairSync, sign } from "node:crypto";
import { compileAccess } from "../policy/compile/access.ts";
import { decide } from "../policy/compile/grants.ts";
import { systemClock } from "../policy/kernel/clock.ts";
import { createAuthenticator } from "../proxy/auth/authenticate.ts";
import { generateSigningKey, mintClaim, toPublicKey } from "../proxy/claim.ts";
import { parseHost } from "../proxy/hostname.ts";

const ROUNDS = 15;
const PER_ROUND = 20_000;
const seconds = Math.floor(systemClock.now() / 1000);

const encode = (part: object) => Buffer.from(JSON.stringify(part)).toString("base64url");
function jwt(alg: string, signWith: (signed: string) => Buffer): string {
  const signed = `${encode({ alg })}.${encode({ sub: "ada", role: "admin", exp: seconds + 3600 })}`;
  return `${signed}.${signWith(signed).toString("base64url")}`;
}
const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
const hs256 = jwt("HS256", (text) => createHmac("sha256", "k").update(text).digest());
const rs256 = jwt("RS256", (text) => sign("sha256", Buffer.from(text), rsa.privateKey));
const issuer = generateSigningKey("v1");
const claim = mintClaim(issuer, {
  sub: "0".repeat(24),
  username: "ada",
  type: "user",
  audience: "app",
  issuedAt: seconds,
  expiresIn: 3600,
});
const publicKey = toPublicKey(issuer.publicKeyHex) ?? undefined;

const GROUPS = {
  office: { type: "ip", range: "203.0.113.0/24" },
  web: { type: "password", username: "web", password: "secret", salt: "salt" },
  ci: { type: "token", header: "X-Api-Key", value: "0123456789abcdef" },
  app: {
    type: "jwt",
    algorithm: "RS256",
    secret: rsa.publicKey.export({ type: "spki", format: "pem" }).toString(),
    sources: ["header:Authorization", "cookie:__Host-jwt"],
    claims: { role: "admin" },
  },
  staff: { type: "hoody-identity", audience: "app", users: ["0".repeat(24)] },
};
const HMAC_GROUPS = {
  app: { type: "jwt", algorithm: "HS256", secret: "k", sources: ["header:Authorization"] },
};

const BROWSER = [
  ["Host", `${"a".repeat(24)}-${"b".repeat(24)}-terminal-1.local.containers.localhost`],
  ["User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36"],
  ["Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],
  ["Accept-Language", "en-US,en;q=0.5"],
  ["Accept-Encoding", "gzip, deflate, br, zstd"],
  ["Connection", "keep-alive"],
  ["Cookie", "theme=dark; session=0123456789abcdef; consent=1"],
  ["Sec-Fetch-Dest", "document"],
  ["Sec-Fetch-Mode", "navigate"],
].flat();

function measure(name: string, groups: object, fields: readonly string[]): void {
  const program = Object.fromEntries(
    Object.keys(groups).map((group) => [group, { terminal: true }]),
  );
  const access = compileAccess({ groups, permissions: program, default: "deny" }, null);
  const authenticator = createAuthenticator({
    clock: systemClock,
    keys: { get: () => publicKey, refresh: () => null },
  });
  const request = { fields, query: "terminal_id=1&x=y", clientAddress: "203.0.113.9" };
  let admitted = 0;
  const once = (): void => {
    const result = authenticator.authenticate(access, request);
    if (!(result instanceof Promise) && result.kind === "principal") {
      const { principal } = result;
      const decision = decide(access, {
        service: "terminal",
        index: 1,
        satisfied: principal.groups,
        presented: principal,
      });
      admitted += decision.kind === "allow" ? 1 : 0;
    }
  };
  report(name, once, () => admitted);
}

function report(name: string, once: () => void, admitted?: () => number): void {
  for (let i = 0; i < PER_ROUND; i++) {
    once();
  }
  const rounds: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const before = process.cpuUsage();
    for (let i = 0; i < PER_ROUND; i++) {
      once();
    }
    const { user, system } = process.cpuUsage(before);
    rounds.push((user + system) / PER_ROUND);
  }
  rounds.sort((a, b) => a - b);
  const median = rounds[Math.floor(ROUNDS / 2)] ?? 0;
  const share = admitted === undefined ? "" : `  admitted ${admitted() > 0 ? "yes" : "no"}`;
  process.stdout.write(`${name.padEnd(44)} ${median.toFixed(2).padStart(8)} us${share}\n`);
}

const basic = `Basic ${Buffer.from("web:secret").toString("base64")}`;
const space = { node: "local", domain: "containers.localhost" };
report("host name read", () => void parseHost(BROWSER[1] ?? "", space));
measure("no groups", {}, BROWSER);
measure("five groups, address alone", GROUPS, BROWSER);
measure("five groups, token", GROUPS, [...BROWSER, "X-Api-Key", "0123456789abcdef"]);
measure("five groups, password", GROUPS, [...BROWSER, "Authorization", basic]);
measure("five groups, remembered RS256 token", GROUPS, [
  ...BROWSER,
  "Authorization",
  `Bearer ${rs256}`,
]);
measure("five groups, remembered identity claim", GROUPS, [
  ...BROWSER,
  "X-Hoody-Identity-Claim",
  claim,
]);
measure("one group, remembered HS256 token", HMAC_GROUPS, [
  ...BROWSER,
  "Authorization",
  `Bearer ${hs256}`,
]);
