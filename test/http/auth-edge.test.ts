import { createHash } from "node:crypto";
import { describe, test } from "vitest";
import { systemClock } from "../../policy/kernel/clock.ts";
import { generateSigningKey, mintClaim } from "../../proxy/claim.ts";
import { ask } from "../support/ask.ts";
import { CONTAINER, startTestEdge } from "../support/edge.ts";
import type { TestEdge } from "../support/edge.ts";
import { rawExchange } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

/** The permissions of issue-sized containers, judged at the running edge: nothing refused may reach the service. */

async function permit(edge: TestEdge, document: object): Promise<void> {
  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions`;
  const current = await edge.api("GET", path);
  const stored = await edge.api("PUT", path, document, current.etag ?? "file:v0");
  if (stored.status !== 200) {
    throw new Error(`not stored: ${stored.status} ${String(stored.body.message)}`);
  }
}

const basic = (text: string) => `Basic ${Buffer.from(text).toString("base64")}`;
const key = generateSigningKey("v1");
const claimFor = (audience: string) =>
  mintClaim(key, {
    sub: "0123456789abcdef01234567",
    username: "Zoë",
    type: "user",
    audience,
    issuedAt: Math.floor(systemClock.now() / 1000),
    expiresIn: 600,
  });
const valuesOf = (lines: readonly string[], name: string) =>
  lines
    .filter((line) => line.toLowerCase().startsWith(`${name}:`))
    .map((line) => line.slice(name.length + 1).trim());

describe("the edge", () => {
  test("challenges, refuses and admits by password", async ({ expect }) => {
    const upstream = await recordingUpstream();
    const edge = await startTestEdge({ upstream: upstream.port });
    await permit(edge, {
      default: "allow",
      groups: { web: { type: "password", username: "ada", password: "pw", salt: "s" } },
      permissions: { web: { terminal: [1] } },
    });
    const open = await ask(edge.port, { host: edge.host("terminal-1") });
    expect(open.status).toBe(401);
    expect(open.json).toMatchObject({
      statusCode: 401,
      error: "UNAUTHORIZED",
      code: "UNAUTHORIZED",
    });
    expect(open.headers["www-authenticate"]).toBe('Basic realm="hoody", charset="UTF-8"');
    expect(open.headers["cache-control"]).toBe("no-store");
    const wrong = await ask(edge.port, {
      host: edge.host("terminal-1"),
      headers: { Authorization: basic("ada:no") },
    });
    expect(wrong.status).toBe(401);
    const other = await ask(edge.port, {
      host: edge.host("terminal-2"),
      headers: { Authorization: basic("ada:pw") },
    });
    expect([other.status, other.json["code"]]).toEqual([403, "FORBIDDEN"]);
    expect(upstream.requests).toEqual([]);
    const right = await ask(edge.port, {
      host: edge.host("terminal-1"),
      headers: { Authorization: basic("ada:pw") },
    });
    expect(right.status).toBe(200);
    // Credentials travel on unchanged.
    expect(valuesOf(upstream.requests[0]?.lines ?? [], "authorization")).toEqual([basic("ada:pw")]);
  });

  test("stores no plain password", async ({ expect }) => {
    const edge = await startTestEdge();
    await permit(edge, {
      groups: { web: { type: "password", username: "ada", password: "pw", salt: "s" } },
      permissions: {},
    });
    const { body } = await edge.api("GET", `/api/v1/containers/${CONTAINER}/proxy/permissions`);
    expect(JSON.stringify(body)).not.toContain('"pw"');
    expect(JSON.stringify(body)).toContain(createHash("sha256").update("spw").digest("hex"));
  });

  test("tells the service who was admitted, and nobody else can", async ({ expect }) => {
    const upstream = await recordingUpstream();
    const edge = await startTestEdge({
      upstream: upstream.port,
      config: { identity: { keys: [{ kid: "v1", publicKeyHex: key.publicKeyHex }] } },
    });
    await permit(edge, {
      default: "allow",
      groups: { staff: { type: "hoody-identity", audience: "app", expose_type: true } },
      permissions: { staff: { terminal: true } },
    });
    const send = (fields: readonly string[]) =>
      rawExchange(
        edge.port,
        `GET / HTTP/1.1\r\nHost: ${edge.host("terminal-1")}\r\n${fields.join("\r\n")}\r\n\r\n`,
      );
    const forged = [
      "X-Hoody-Identity-User-Id: root",
      "X_Hoody_Identity_User_Id: root",
      "X-HOODY-IDENTITY-TYPE: admin",
      "x-hoody_identity-username: root",
      "X-Hoody-Edge-Auth: 1",
      "X-Hoody-Hook-Auth: 1",
    ];
    const names = [
      "x-hoody-identity-user-id",
      "x-hoody-identity-username",
      "x-hoody-identity-type",
      "x-hoody-identity-claim",
    ];
    expect(await send([...forged, "Connection: close"])).toContain("200 OK");
    expect(
      await send([...forged, "Connection: close", `X-Hoody-Identity-Claim: ${claimFor("x")}`]),
    ).toContain("200 OK");
    for (const { lines } of upstream.requests) {
      expect(lines.filter((line) => /identity|edge.auth|hook/i.test(line))).toEqual([]);
    }
    const claim = `X-Hoody-Identity-Claim: ${claimFor("app")}`;
    await send([
      ...forged,
      `Connection: close, ${names.join(", ")}, x-real-ip, x-forwarded-for`,
      claim,
    ]);
    const lines = upstream.requests[2]?.lines ?? [];
    expect(names.map((name) => valuesOf(lines, name))).toEqual([
      ["0123456789abcdef01234567"],
      ["Zo\u00c3\u00ab"],
      ["user"],
      [],
    ]);
    expect(valuesOf(lines, "x-real-ip")).toEqual(["127.0.0.1"]);
    expect(lines.filter((line) => /_|root|admin/i.test(line.split(":")[0] ?? ""))).toEqual([]);
  });

  test("answers a repeated Authorization 400", async ({ expect }) => {
    const upstream = await recordingUpstream();
    const edge = await startTestEdge({ upstream: upstream.port });
    const answer = await rawExchange(
      edge.port,
      `GET / HTTP/1.1\r\nHost: ${edge.host("terminal-1")}\r\nAuthorization: a\r\nauthorization: a\r\nConnection: close\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
    expect(upstream.requests).toEqual([]);
  });

  test("judges handshakes like requests (K08)", async ({ expect }) => {
    const upstream = await recordingUpstream();
    const edge = await startTestEdge({ upstream: upstream.port });
    await permit(edge, { default: "deny", groups: {}, permissions: {} });
    const answer = await rawExchange(
      edge.port,
      [
        "GET / HTTP/1.1",
        `Host: ${edge.host("terminal-1")}`,
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "\r\n",
      ].join("\r\n"),
    );
    expect(answer).toMatch(/^HTTP\/1\.1 403 /);
    expect(answer).toContain('"code":"FORBIDDEN"');
    expect(upstream.bytes).toEqual([]);
  });

  test("gives the port of a service that service's permissions (decision 27)", async ({
    expect,
  }) => {
    const upstream = await recordingUpstream();
    const edge = await startTestEdge({ upstream: upstream.port });
    await permit(edge, {
      default: "deny",
      groups: { all: { type: "ip", range: "127.0.0.0/8" } },
      permissions: { all: { http: true } },
    });
    const host = edge.host(`http-${upstream.port}`);
    expect((await ask(edge.port, { host })).status).toBe(403);
    expect((await ask(edge.port, { host: edge.host(`https-${upstream.port}`) })).status).toBe(403);
    await permit(edge, {
      default: "deny",
      groups: { all: { type: "ip", range: "127.0.0.0/8" } },
      permissions: { all: { terminal: [1] } },
    });
    const answer = await ask(edge.port, { host, path: "/?terminal_id=7" });
    expect(answer.status).toBe(200);
    expect(upstream.requests.at(-1)?.target).toBe("/?terminal_id=1&display=1");
    expect(valuesOf(upstream.requests.at(-1)?.lines ?? [], "host")).toEqual([host]);
  });

  test("keeps what a group's rule does not open closed in every spelling of the host", async ({
    expect,
  }) => {
    const upstream = await recordingUpstream();
    const edge = await startTestEdge({ upstream: upstream.port });
    await permit(edge, {
      default: "allow",
      groups: { me: { type: "ip", range: "127.0.0.1/32" } },
      permissions: { me: { terminal: [2] } },
    });
    const refused = edge.host("terminal-1");
    for (const host of [
      refused,
      refused.toUpperCase(),
      `${refused}.`,
      `${refused}:80`,
      edge.host("t-1"),
      edge.host("tty"),
      edge.host("terminal"),
    ]) {
      expect([host, (await ask(edge.port, { host })).status]).toEqual([host, 403]);
    }
    expect(upstream.requests).toEqual([]);
    expect((await ask(edge.port, { host: edge.host("TTYD-2") })).status).toBe(200);
  });
});
