import { generateKeyPairSync, sign } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decodeHookInput } from "../../policy/documents/hook.ts";
import { startUpstream, type TestUpstream } from "../support/start-upstream.ts";
import { startWorker, type TestWorker, type WorkerCall } from "../support/start-worker.ts";

const FOLDER = join(import.meta.dirname, "../../examples");
const NAMES = readdirSync(FOLDER, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name)
  .sort();
const keys = generateKeyPairSync("ed25519");

let worker: TestWorker;
let service: TestUpstream;
let mirror: TestUpstream;

beforeAll(async () => {
  service = await startUpstream((req, res, body) => {
    if (req.url === "/api/private") {
      res.writeHead(401, { "www-authenticate": "Basic" });
      res.end("inner words");
      return;
    }
    res.writeHead(200, {
      "content-type": "application/json",
      server: "inner/1.0",
      "x-powered-by": "inner",
      "set-cookie": ["a=1", "b=2"],
    });
    res.end(
      JSON.stringify({
        method: req.method,
        url: req.url,
        headers: req.headers,
        body: String(body),
      }),
    );
  });
  mirror = await startUpstream();
  worker = await startWorker();
  for (const name of NAMES) {
    await worker.write(
      `default/1/${name}.js`,
      readFileSync(join(FOLDER, name, "script.js"), "utf8"),
    );
  }
  const raw = keys.publicKey.export({ format: "der", type: "spki" }).subarray(-32).toString("hex");
  await worker.write("default/1/identity-gate.env", `IDENTITY_KID=v7\nIDENTITY_KEY_HEX=${raw}\n`);
  await worker.write("default/1/mirroring.env", `MIRROR_URL=${mirror.url}/copies\n`);
});
afterAll(async () => {
  await worker.stop();
  await service.stop();
  await mirror.stop();
});

const dispatch = (name: string, call: WorkerCall = {}, envelope = {}) =>
  worker.hook(`/${name}`, call, { upstreamPort: service.port, ...envelope });

test("every example has a script and a rule that the control API takes", () => {
  expect(NAMES).toEqual([
    "auth-gate",
    "body-scan",
    "header-transform",
    "identity-gate",
    "login-audit",
    "mirroring",
    "passthrough",
    "rate-limit",
    "short-circuit",
  ]);
  for (const name of NAMES) {
    const rule = JSON.parse(readFileSync(join(FOLDER, name, "rule.json"), "utf8")) as {
      script: { path: string };
    };
    expect(decodeHookInput(rule, new Set())).toMatchObject({ ok: true });
    expect(rule.script.path).toBe(`/${name}`);
  }
});

test.each(NAMES)("%s, called by its own address, answers without a service", async (name) => {
  const answer = await worker.ordinary(`/${name}`);
  expect([200, 404]).toContain(answer.status);
});

test("login-audit passes the login on and logs it with its outcome", async () => {
  const answer = await dispatch("login-audit", {
    method: "POST",
    url: "/api/login",
    headers: { "user-agent": "probe/1" },
    body: "user=ada",
  });
  expect(JSON.parse(answer.text)).toMatchObject({ method: "POST", body: "user=ada" });
  const line = await worker.untilLogged((entry) => entry.msg.includes('"event":"login"'));
  expect(JSON.parse(line.msg)).toMatchObject({
    auditId: "550e8400-e29b-41d4-a716-446655440000",
    clientIp: "203.0.113.7",
    path: "/api/login",
    userAgent: "probe/1",
    status: 200,
  });
});

test("passthrough sends the body as it comes", async () => {
  const answer = await dispatch("passthrough", { method: "PUT", url: "/x?y=1", body: "abc" });
  expect(JSON.parse(answer.text)).toMatchObject({ method: "PUT", url: "/x?y=1", body: "abc" });
  expect(answer.outcome).toBe("forwarded");
});

test("auth-gate replaces the service's refusals, and its absence", async () => {
  const refused = await dispatch("auth-gate", { url: "/api/private" });
  expect(refused.status).toBe(401);
  expect(refused.text).not.toContain("inner words");
  expect(JSON.parse(refused.text)).toMatchObject({
    reference: "550e8400-e29b-41d4-a716-446655440000",
  });
  expect(refused.outcome).toBe("denied");
  expect((await dispatch("auth-gate", { url: "/api/open" })).status).toBe(200);
  const down = await dispatch("auth-gate", {}, { upstreamPort: 1 });
  expect(down.status).toBe(502);
  expect((await dispatch("auth-gate", { url: "/a/../b" })).status).toBe(400);
});

describe("identity-gate", () => {
  const claim = (changes: Record<string, unknown> = {}, signer = keys.privateKey) => {
    const now = Math.floor(Date.now() / 1000);
    const payload = Buffer.from(
      JSON.stringify({
        claim_type: "identity",
        iss: "hoody-api",
        kid: "v7",
        sub: "u-1",
        username: "ada",
        type: "user",
        iat: now - 10,
        exp: now + 600,
        ...changes,
      }),
    ).toString("base64url");
    return `${payload}.${sign(null, Buffer.from(payload), signer).toString("hex")}`;
  };
  const call = (value: string, headers = {}) =>
    dispatch("identity-gate", { headers: { "x-hoody-claim": value, ...headers } });

  test("lets a valid claim through and tells the service who asks", async () => {
    const answer = await call(claim(), { "x-hoody-user": "mallory", "x-hoody-user-id": "0" });
    expect(answer.status).toBe(200);
    const { headers } = JSON.parse(answer.text) as { headers: Record<string, string> };
    expect(headers).toMatchObject({
      "x-hoody-user": "ada",
      "x-hoody-user-id": "u-1",
      "x-hoody-user-type": "user",
    });
    expect(headers["x-hoody-claim"]).toBeUndefined();
    expect((await call(`v7.${claim()}`)).status).toBe(200);
  });

  test("refuses everything else", async () => {
    const other = generateKeyPairSync("ed25519").privateKey;
    const now = Math.floor(Date.now() / 1000);
    const before = service.received.length;
    for (const value of [
      "",
      "x.y",
      claim({}, other),
      claim({ exp: now - 1 }),
      claim({ exp: String(now + 600) }),
      claim({ iat: now + 1000, exp: now + 2000 }),
      claim({ iss: "else" }),
      claim({ kid: "v8" }),
      claim({ claim_type: "access" }),
      `${claim()}00`,
      `v8.${claim()}`,
      `v7.v7.${claim()}`,
    ]) {
      expect((await call(value)).status).toBe(401);
    }
    expect((await dispatch("identity-gate")).status).toBe(401);
    expect(service.received.length).toBe(before);
  });
});

test("rate-limit lets ten requests of a client through and asks the eleventh to wait", async () => {
  const statuses: number[] = [];
  for (let i = 0; i < 11; i++) {
    statuses.push((await dispatch("rate-limit", { method: "POST", url: "/api/search" })).status);
  }
  expect(statuses).toEqual([...Array<number>(10).fill(200), 429]);
  const refused = await dispatch("rate-limit", { method: "POST" });
  expect(Number(refused.headers["retry-after"])).toBeGreaterThan(0);
  const other = await dispatch("rate-limit", { method: "POST" }, { clientAddress: "203.0.113.8" });
  expect(other.status).toBe(200);
});

test("header-transform takes telling fields out and puts security fields in", async () => {
  const answer = await dispatch("header-transform");
  expect(answer.headers).toMatchObject({
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "set-cookie": ["a=1", "b=2"],
  });
  expect(answer.headers["server"]).toBeUndefined();
  expect(answer.headers["x-powered-by"]).toBeUndefined();
  const head = await dispatch("header-transform", { method: "HEAD" });
  expect([head.status, head.body.length]).toEqual([200, 0]);
});

test("short-circuit answers without asking the service", async () => {
  const before = service.received.length;
  const answer = await dispatch("short-circuit", { url: "/healthz" });
  expect(JSON.parse(answer.text)).toMatchObject({ answeredBy: "hook", path: "/healthz" });
  expect(JSON.parse((await worker.ordinary("/short-circuit")).text)).toMatchObject({
    answeredBy: "script",
  });
  expect(service.received.length).toBe(before);
});

test("body-scan refuses known bad uploads, in forms and bare, and lets others through", async () => {
  const before = service.received.length;
  const bare = await dispatch("body-scan", { method: "PUT", body: "MZ\u0090 program" });
  expect(bare.status).toBe(422);
  const form = new FormData();
  form.append("good", new File(["fine"], "a.txt"));
  form.append("bad", new File([`x ${"EICAR-STANDARD-"}ANTIVIRUS-TEST-FILE y`], "b.txt"));
  const request = new Request("http://x/", { method: "POST", body: form });
  const uploaded = {
    method: "POST",
    headers: { "content-type": request.headers.get("content-type") ?? "" },
    body: Buffer.from(await request.arrayBuffer()),
  };
  expect(JSON.parse((await dispatch("body-scan", uploaded)).text)).toMatchObject({
    reason: "eicar-test",
  });
  expect(service.received.length).toBe(before);
  const fine = await dispatch("body-scan", { method: "POST", body: "an ordinary file" });
  expect(JSON.parse(fine.text)).toMatchObject({ body: "an ordinary file" });
});

test("mirroring answers from the service and sends a copy", async () => {
  const answer = await dispatch("mirroring", {
    method: "POST",
    url: "/events/1?kind=a",
    headers: { "content-type": "text/plain" },
    body: "event",
  });
  expect(JSON.parse(answer.text)).toMatchObject({ url: "/events/1?kind=a", body: "event" });
  await expect.poll(() => mirror.received.length, { timeout: 5000 }).toBe(1);
  expect(mirror.received[0]).toMatchObject({ method: "POST", url: "/copies" });
  expect(mirror.received[0]?.body.toString()).toBe("event");
  expect(mirror.received[0]?.headers).toMatchObject({
    "x-original-path": "/events/1",
    "x-original-query": "kind=a",
  });
});
