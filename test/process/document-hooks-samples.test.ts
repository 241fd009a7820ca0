import { execFile } from "node:child_process";
import { generateKeyPairSync, sign, type KeyObject } from "node:crypto";
import { join } from "node:path";
import { promisify } from "node:util";
import { compileFunction } from "node:vm";
import { afterAll, beforeAll, expect, test } from "vitest";
import { HoodyClient } from "../../client/client.ts";
import { ask } from "../support/ask.ts";
import { CONTAINER, TOKEN, openTestEdge, type TestEdge } from "../support/edge.ts";
import { HOOKS, publishedHooksDocument } from "../support/document-edge.ts";
import { startUpstream, type TestUpstream } from "../support/start-upstream.ts";
import { words } from "../support/cli-run.ts";

/*
 * Every sample of the published document, unmodified: scripts as hooks and by their own address, rules through the
 * control API, command lines through the binary, calls through the typed client. The samples are not kept here; where
 * the document does not lie beside the checkout there is nothing to try, and no case is made.
 */

const text = publishedHooksDocument();
const scripts = [
  ...text.matchAll(
    /^(?:const \{ createPublicKey[\s\S]*?|\/\/ .+\n)?module\.exports = async function[\s\S]*?^\};$/gm,
  ),
].map((match) => match[0]);
const scriptWith = (part: string) => scripts.filter((source) => source.includes(part));
const [gateSource] = scriptWith("createPublicKey");
const rules = [...text.matchAll(/^\{\n(?: .*\n)+\}$/gm)]
  .map((match) => match[0])
  .filter((entry) => !entry.includes("{ ... }"));

const commandLines = [...text.matchAll(/^hoody (containers proxy (?:.*\\\n)*.*)$/gm)].map((match) =>
  (match[1] ?? "").replaceAll("\\\n", " "),
);
const calls = [...text.matchAll(/^(?:const \{ data \} = )?await client\.api\.[\s\S]*?\);$/gm)].map(
  (match) => match[0],
);

/** JSON with the remarks that the document writes behind its members. */
function readRule(source: string): Record<string, unknown> {
  return JSON.parse(source.replaceAll(/\s+\/\/ .*$/gm, "")) as Record<string, unknown>;
}

let edge: TestEdge & { close(): Promise<void> };
let upstream: TestUpstream;

beforeAll(async () => {
  upstream = await startUpstream((req, res, body) => {
    if (req.headers.authorization === "Bearer bad") {
      res.writeHead(401, { "content-type": "text/html" });
      return void res.end("<p>inner words</p>");
    }
    res.writeHead(200, { "content-type": "text/plain", "set-cookie": ["a=1", "b=2"] });
    res.end(`seen ${String(body)}`);
  });
  edge = await openTestEdge({ upstream: upstream.port });
}, 30_000);
afterAll(async () => {
  await edge.close();
  await upstream.stop();
});

async function only(rule: unknown): Promise<void> {
  const { etag } = await edge.api("GET", HOOKS);
  await edge.api("DELETE", `${HOOKS}/terminal`, undefined, etag ?? "file:v0");
  await edge.hook("terminal", rule);
}
const send = (more: Partial<Parameters<typeof ask>[1]> = {}) =>
  ask(edge.port, { host: edge.host("terminal-1"), ...more });

test("where the document is, all its samples are found", () => {
  const isThere = text !== "";
  expect(scripts).toHaveLength(isThere ? 4 : 0);
  expect(rules).toHaveLength(isThere ? 4 : 0);
  expect(commandLines).toHaveLength(isThere ? 8 : 0);
  expect(calls).toHaveLength(isThere ? 4 : 0);
});

for (const [at, source] of scriptWith("hook.forward(req, res);").entries()) {
  test(`published script ${at} passes a login on, and logs it`, async () => {
    edge.script("published.js", source);
    await only({ match: {}, script: { path: "/published" }, timeout: 15_000 });
    const answer = await send({
      method: "POST",
      path: "/api/login?x=1",
      headers: { "user-agent": "probe/1" },
      body: "user=ada",
    });
    expect([answer.status, answer.body]).toEqual([200, "seen user=ada"]);
    expect(answer.headers["set-cookie"]).toEqual(["a=1", "b=2"]);
    expect(upstream.received.at(-1)).toMatchObject({
      method: "POST",
      url: "/api/login?x=1&terminal_id=1",
    });
    const { auditId } = await edge.accessLine((line) => line["outcome"] === "forwarded");
    expect(auditId).toMatch(/^[0-9a-f-]{36}$/);
    const logs = join(edge.folder, "data/containers", CONTAINER, "logs");
    await expect
      .poll(
        async () => (await promisify(execFile)("grep", ["-r", "-h", "/api/login", logs])).stdout,
        {
          timeout: 8000,
        },
      )
      .toContain("POST");
    // The same script by its own address: a regular request, of which it speaks in its own way.
    const regular = await send({ host: edge.host("exec-1"), path: "/published?q=1" });
    expect([200, 404]).toContain(regular.status);
    if (regular.status === 200) {
      expect(regular.json).toEqual({ mode: "regular", url: "/published?q=1" });
    }
  });
}

for (const source of scriptWith("upstream rejected token")) {
  test("the published gate rewrites a 401 and passes on the rest", async () => {
    edge.script("gate.js", source);
    await only({ match: {}, script: { path: "/gate" }, timeout: 15_000 });
    const refused = await send({ headers: { authorization: "Bearer bad" } });
    expect([refused.status, refused.headers["content-type"], refused.body]).toEqual([
      401,
      "text/plain",
      "upstream rejected token",
    ]);
    const passed = await send({ method: "POST", body: "x" });
    expect([passed.status, passed.body]).toEqual([200, "seen x"]);
    expect(passed.headers["x-hoody-hook-audit"]).toMatch(/^[0-9a-f-]{36}$/);
    expect(passed.headers["set-cookie"]).toEqual(["a=1", "b=2"]);
    const head = await send({ method: "HEAD" });
    expect([head.status, head.body, head.cut]).toEqual([200, "", false]);
  });

  test("the published gate answers for a service that is not there", async () => {
    const dead = await openTestEdge({ upstream: 1 });
    try {
      dead.script("gate.js", source);
      await dead.hook("terminal", { match: {}, script: { path: "/gate" }, timeout: 15_000 });
      const answer = await ask(dead.port, { host: dead.host("terminal-1") });
      expect([answer.status, answer.body]).toEqual([502, "upstream unavailable"]);
    } finally {
      await dead.close();
    }
  });
}

const keys = generateKeyPairSync("ed25519");
const hexOf = (key: KeyObject) =>
  key.export({ format: "der", type: "spki" }).subarray(-32).toString("hex");

/** The last two parts of a claim, as the recipe's clients send them. */
function claim(changes: Record<string, unknown> = {}, key = keys.privateKey): string {
  const now = Math.floor(Date.now() / 1000);
  const payload = {
    claim_type: "identity",
    iss: "hoody-api",
    sub: "65f0c0ffee65f0c0ffee65f0",
    username: "ada",
    type: "user",
    kid: "v1",
    iat: now,
    exp: now + 3600,
    ...changes,
  };
  const encoded = Buffer.from(JSON.stringify(payload)).toString("base64url");
  return `${encoded}.${sign(null, Buffer.from(encoded), key).toString("hex")}`;
}

if (gateSource !== undefined) {
  const catchAll = rules
    .map(readRule)
    .find((rule) => JSON.stringify(rule).includes("identity-gate"));

  test("the published identity gate, unmodified, refuses everyone whose claim its key did not sign", async () => {
    edge.script("identity-gate.js", gateSource);
    await only({ ...catchAll, timeout: 15_000 });
    const before = upstream.received.length;
    const stranger = claim();
    for (const value of [undefined, "", "x", "x.y", stranger, `v1.${stranger}`, `${stranger}.x`]) {
      const answer = await send(value === undefined ? {} : { headers: { "x-hoody-claim": value } });
      expect(answer.status, value).toBe(401);
      expect(answer.json["error"]).toBe("HOODY_IDENTITY_REQUIRED");
    }
    expect(upstream.received.length).toBe(before);
    const regular = await send({ host: edge.host("exec-1"), path: "/identity-gate" });
    expect(regular.status).toBe(404);
  });

  test("the published identity gate lets a valid claim of its key in, and says to the service who came", async () => {
    edge.script(
      "identity-gate.js",
      gateSource.replace(/(HOODY_PUBLIC_KEY_HEX = ')[0-9a-f]{64}/, `$1${hexOf(keys.publicKey)}`),
    );
    await only(catchAll); // with the document's own deadline
    await send(); // the worker may have to start
    const answer = await send({
      method: "POST",
      path: "/page?x=1",
      headers: {
        "x-hoody-claim": claim(),
        "x-hoody-user": "root",
        "X-HOODY-USER-ID": "0",
        "x-hoody-identity-username": "root",
      },
      body: "b",
    });
    expect([answer.status, answer.body]).toEqual([200, "seen b"]);
    const seen = upstream.received.at(-1);
    expect(seen?.headers).toMatchObject({
      "x-hoody-user": "ada",
      "x-hoody-user-id": "65f0c0ffee65f0c0ffee65f0",
      "x-hoody-user-type": "user",
    });
    expect(Object.keys(seen?.headers ?? {}).filter((name) => /claim|identity/.test(name))).toEqual(
      [],
    );
    const now = Math.floor(Date.now() / 1000);
    const before = upstream.received.length;
    for (const changes of [
      { claim_type: "container" },
      { iss: "someone" },
      { exp: now - 1 },
      { exp: now + 100, iat: now + 200 },
      { iat: now + 1000, exp: now + 2000 },
      { kid: "v2" },
      { exp: "soon" },
    ]) {
      const refused = await send({ headers: { "x-hoody-claim": claim(changes) } });
      expect(refused.status, JSON.stringify(changes)).toBe(401);
    }
    const [payload = "", signature = ""] = claim().split(".");
    for (const value of [
      `${payload}.${signature.toUpperCase().replace(/[0-9]+$/, "AA")}`,
      `${payload}x.${signature}`,
      `${payload}.${signature.slice(2)}`,
      claim({}, generateKeyPairSync("ed25519").privateKey),
    ]) {
      expect((await send({ headers: { "x-hoody-claim": value } })).status).toBe(401);
    }
    // Sent in the reserved namespace it never arrives.
    expect((await send({ headers: { "x-hoody-identity-claim": `v1.${claim()}` } })).status).toBe(
      401,
    );
    expect(upstream.received.length).toBe(before);
    // Preflights are let through ungated by a star.
    const preflight = await send({ method: "OPTIONS", headers: { "x-hoody-user": "anyone" } });
    expect(preflight.status).toBe(200);
    expect(upstream.received.at(-1)?.headers["x-hoody-user"]).toBe("anyone");
  });
}

for (const [at, source] of rules.entries()) {
  test(`published rule ${at} is stored as it stands`, async () => {
    const given = readRule(source);
    // Some samples show one member only; the others are then the shortest there are.
    const rule = { match: {}, script: { path: "/a" }, ...given };
    const { etag } = await edge.api("GET", HOOKS);
    await edge.api("DELETE", `${HOOKS}/terminal`, undefined, etag ?? "file:v0");
    const version = (await edge.api("GET", HOOKS)).etag ?? "file:v0";
    const made = await edge.api("POST", `${HOOKS}/terminal`, rule, version);
    expect([made.status, made.body.message]).toEqual([201, expect.any(String)]);
    const stored = made.body.data?.["hook"] as unknown as { id: string; match: object };
    expect(stored.id).toMatch(/^[0-9a-hjkmnp-tv-z]{26}$/);
    expect(stored).toMatchObject({
      ...rule,
      match: JSON.parse(JSON.stringify(rule.match).replace("X-Tenant", "x-tenant")) as object,
    });
  });
}

const groupRule = /^\{ "applies_to": .* \}$/m.exec(text)?.[0];
if (groupRule !== undefined) {
  test("the published group filter and deadline are stored once their groups exist", async () => {
    const timeout = /^\{ "timeout": \d+ \}$/m.exec(text)?.[0] ?? "{}";
    const rule = {
      match: {},
      script: { path: "/a" },
      ...(JSON.parse(groupRule) as object),
      ...(JSON.parse(timeout) as object),
    };
    const { etag } = await edge.api("GET", HOOKS);
    const refused = await edge.api("POST", `${HOOKS}/files`, rule, etag ?? "");
    expect(refused.status).toBe(422);
    const path = `/api/v1/containers/${CONTAINER}/proxy/permissions/groups`;
    let version = etag ?? "";
    for (const name of ["staff", "admins"]) {
      const made = await edge.api("PUT", `${path}/${name}/ip`, { range: "10.0.0.0/8" }, version);
      version = made.etag ?? "";
    }
    const made = await edge.api("POST", `${HOOKS}/files`, rule, version);
    expect(made.status).toBe(201);
    expect(made.body.data?.["hook"]).toMatchObject(JSON.parse(groupRule) as object);
  });
}

if (commandLines.length > 0) {
  test("the published command lines carry a rule from its making to its end", async () => {
    const own = await openTestEdge({});
    try {
      await own.hook("terminal", { match: { path: "/first" }, script: { path: "/first" } }); // version 1
      let id = "";
      for (const line of commandLines) {
        const args = words(
          line.replaceAll("<container-id>", CONTAINER).replaceAll("<hook-id>", id),
        );
        const done = await promisify(execFile)(
          process.execPath,
          [join(import.meta.dirname, "../../proxy/main.ts"), ...args],
          { env: { INTERPOSE_BASE_URL: own.control, INTERPOSE_TOKEN: TOKEN } },
        );
        expect(done.stderr, line).toBe("");
        if (line.includes("hooks create")) {
          id = /hook ([0-9a-z]{26})/.exec(done.stdout)?.[1] ?? "";
        }
        const list = await own.api("GET", `${HOOKS}/terminal`);
        const hooks = list.body.data?.["hooks"] as unknown as { id: string; timeout?: number }[];
        if (line.includes("hooks set")) {
          expect(hooks[1]).toMatchObject({ id, timeout: 1000, match: { method: ["POST", "PUT"] } });
        }
        if (line.includes("hooks move")) {
          expect(hooks[0]?.id).toBe(id);
        }
        if (line.includes("hooks clear")) {
          expect([hooks, list.etag]).toEqual([[], "file:v6"]);
        }
      }
    } finally {
      await own.close();
    }
  }, 60_000);
}

if (calls.length > 0) {
  test("the published calls work on the typed client", async () => {
    const own = await openTestEdge({});
    try {
      await own.hook("terminal", { match: { path: "/first" }, script: { path: "/first" } }); // version 1
      const client = new HoodyClient({ baseURL: own.control, token: TOKEN });
      let hookId = "";
      for (const call of calls) {
        const body = call.replace(/^(?:const \{ data \} = )?await /, "return await ");
        // Types do not matter here: the sample is a text of the document.
        const sample = compileFunction(`return (async () => { ${body} })()`, [
          "client",
          "containerId",
          "hookId",
        ]) as (
          ...scope: unknown[]
        ) => Promise<{ data: { hook?: { id: string }; hooks?: { id: string }[] } }>;
        const { data } = await sample(client, CONTAINER, hookId);
        hookId = data.hook?.id ?? hookId;
        if (call.includes("listByService")) {
          expect(data.hooks?.[1]?.id).toBe(hookId);
        }
      }
      const list = await own.api("GET", `${HOOKS}/terminal`);
      expect([Number(list.body.data?.["hooks"]?.["length"]), list.etag]).toEqual([1, "file:v4"]);
    } finally {
      await own.close();
    }
  });
}
