import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, onTestFinished, test } from "vitest";
import { silentLog } from "../../policy/kernel/log.ts";
import { createAuthenticator } from "../../proxy/auth/authenticate.ts";
import { createIdentityKeys } from "../../proxy/auth/identity-keys.ts";
import type { IdentityKeysOptions } from "../../proxy/auth/identity-keys.ts";
import { generateSigningKey, signPayload } from "../../proxy/claim.ts";
import type { SigningKey } from "../../proxy/claim.ts";
import { fakeClock } from "../support/auth-clock.ts";
import { accessOf } from "../support/auth-request.ts";

const NOW = Date.parse("2026-06-01T00:00:00Z") / 1000;
const v1 = generateSigningKey("v1");
const v2 = generateSigningKey("v2");

function keyList(...keys: SigningKey[]): string {
  return JSON.stringify({
    statusCode: 200,
    message: "ok",
    data: {
      active_kid: keys.at(-1)?.kid,
      keys: keys.map(({ kid, publicKeyHex }) => ({
        kid,
        algorithm: "ed25519",
        public_key_hex: publicKeyHex,
      })),
    },
  });
}

/** An issuer whose answer can be changed; counts what it is asked. */
async function startIssuer(body: string) {
  const issuer = {
    body,
    status: 200,
    headers: {} as Record<string, string>,
    silent: false,
    requests: 0,
    url: "",
  };
  const server = createServer((_request, response) => {
    issuer.requests++;
    if (!issuer.silent) {
      response.writeHead(issuer.status, { "content-type": "application/json", ...issuer.headers });
      response.end(issuer.body);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  issuer.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/api/v1/meta/public-key`;
  return issuer;
}

function startKeys(options: Partial<IdentityKeysOptions>) {
  const clock = fakeClock();
  const keys = createIdentityKeys(
    { clock, log: silentLog(), fetch },
    { keys: [], keysUrl: null, ...options },
  );
  onTestFinished(() => keys.close());
  return { clock, keys };
}

async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 1000 && !condition(); i++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  if (!condition()) {
    throw new Error("waited in vain");
  }
}

describe("createIdentityKeys()", () => {
  test("has the configured keys at once and asks nobody without an issuer", ({ expect }) => {
    const { keys } = startKeys({ keys: [v1] });
    expect(keys.get("v1")).toBeDefined();
    expect(keys.get("v2")).toBeUndefined();
    expect(keys.refresh()).toBeNull();
    expect(keys.ready).toBe(true);
    expect(keys.list()).toEqual([{ kid: "v1", publicKeyHex: v1.publicKeyHex }]);
  });

  test("fetches in the background at start; a configured key outranks a fetched one", async ({
    expect,
  }) => {
    const imposter = { ...v2, kid: "v1" };
    const issuer = await startIssuer(keyList(imposter, v2));
    const { keys } = startKeys({ keys: [v1], keysUrl: issuer.url });
    expect(keys.ready).toBe(false);
    const configured = keys.get("v1");
    await until(() => keys.ready);
    expect(keys.get("v1")).toBe(configured);
    expect(keys.get("v2")).toBeDefined();
    expect(keys.list().map(({ kid }) => kid)).toEqual(["v1", "v2"]);
  });

  test("asks for an unknown id at most once a minute", async ({ expect }) => {
    const issuer = await startIssuer(keyList(v1));
    const { keys, clock } = startKeys({ keysUrl: issuer.url });
    await until(() => keys.ready);
    await keys.refresh();
    expect(issuer.requests).toBe(2);
    for (let i = 0; i < 20; i++) {
      expect(keys.refresh()).toBeNull();
    }
    clock.advance(59_999);
    expect(keys.refresh()).toBeNull();
    clock.advance(1);
    issuer.body = keyList(v1, v2);
    await keys.refresh();
    expect(keys.get("v2")).toBeDefined();
    expect(issuer.requests).toBe(3);
  });

  test("joins a fetch that is under way", async ({ expect }) => {
    const issuer = await startIssuer(keyList(v1));
    const { keys } = startKeys({ keysUrl: issuer.url });
    await Promise.all([keys.refresh(), keys.refresh(), keys.refresh()]);
    expect(issuer.requests).toBe(1);
    expect(keys.get("v1")).toBeDefined();
  });

  test.for<[string, (issuer: Awaited<ReturnType<typeof startIssuer>>) => void]>([
    ["fails", (issuer) => (issuer.status = 500)],
    ["sends no JSON", (issuer) => (issuer.body = "<html>")],
    ["sends another JSON", (issuer) => (issuer.body = '{"data":{"keys":[]}}')],
    [
      "sends keys that are none",
      (issuer) => (issuer.body = keyList({ ...v2, publicKeyHex: "00" })),
    ],
    ["sends too much", (issuer) => (issuer.body = keyList(v2) + " ".repeat(300_000))],
    [
      "redirects",
      (issuer) => {
        issuer.status = 302;
        issuer.headers = { location: "/elsewhere" };
      },
    ],
  ])("keeps the last good keys when the issuer %s", async ([, spoil], { expect }) => {
    const issuer = await startIssuer(keyList(v1));
    const { keys } = startKeys({ keysUrl: issuer.url });
    await until(() => keys.ready);
    spoil(issuer);
    await keys.refresh();
    expect(issuer.requests).toBe(2);
    expect(keys.get("v1")).toBeDefined();
    expect(keys.get("v2")).toBeUndefined();
  });

  test("gives a silent issuer up after its time and tries again later", async ({ expect }) => {
    const issuer = await startIssuer(keyList(v1));
    issuer.silent = true;
    const { keys, clock } = startKeys({ keysUrl: issuer.url, timeoutMs: 5000, retryMs: 1000 });
    await until(() => issuer.requests === 1);
    const running = keys.refresh();
    clock.advance(5000);
    await running;
    expect(keys.ready).toBe(false);
    issuer.silent = false;
    clock.advance(1000);
    await until(() => keys.ready);
    expect(keys.get("v1")).toBeDefined();
  });

  test("drops a key that the issuer withdrew, and with it what it had signed", async ({
    expect,
  }) => {
    const issuer = await startIssuer(keyList(v1, v2));
    const { keys, clock } = startKeys({ keysUrl: issuer.url });
    await until(() => keys.ready);
    const groups = await groupsOf(keys, clock, v2);
    expect(await groups()).toEqual(["staff"]);
    issuer.body = keyList(v1);
    await keys.refresh();
    expect(keys.get("v2")).toBeUndefined();
    expect(await groups()).toEqual([]);
  });
});

describe("authenticate() with an issuer", () => {
  test("waits for the keys of an unknown id, so that a rotation is not felt", async ({
    expect,
  }) => {
    const issuer = await startIssuer(keyList(v1));
    const { keys, clock } = startKeys({ keysUrl: issuer.url });
    await until(() => keys.ready);
    issuer.body = keyList(v1, v2);
    const groups = await groupsOf(keys, clock, v2);
    expect(await groups()).toEqual(["staff"]);
    expect(issuer.requests).toBe(2);
  });

  test("refuses at once while it may not ask again", async ({ expect }) => {
    const issuer = await startIssuer(keyList(v1));
    const { keys, clock } = startKeys({ keysUrl: issuer.url });
    await until(() => keys.ready);
    const groups = await groupsOf(keys, clock, v2);
    for (let i = 0; i < 10; i++) {
      expect(await groups()).toEqual([]);
    }
    expect(issuer.requests).toBe(2);
  });
});

async function groupsOf(
  keys: ReturnType<typeof createIdentityKeys>,
  clock: ReturnType<typeof fakeClock>,
  key: SigningKey,
) {
  const access = accessOf({ staff: { type: "hoody-identity", audience: "app" } });
  const authenticator = createAuthenticator({ clock, keys });
  const claim = signPayload(key, {
    claim_type: "identity",
    iss: "hoody-api",
    sub: "a".repeat(24),
    username: "ada",
    type: "user",
    kid: key.kid,
    aud: "app",
    iat: NOW,
    exp: NOW + 86_400,
  });
  return async (): Promise<string[]> => {
    const result = await authenticator.authenticate(access, {
      fields: ["X-Hoody-Identity-Claim", claim],
      query: null,
      clientAddress: "192.0.2.1",
    });
    return result.kind === "principal" ? [...result.principal.groups] : ["refused"];
  };
}
