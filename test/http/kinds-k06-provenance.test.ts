import { expect, test } from "vitest";
import { CONTAINER } from "../support/edge.ts";
import { handshake, head, namesOf, readAnswers, SWITCH } from "../support/faults.ts";
import { serviceOf, startFaultEdge } from "../support/fault-routes.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

/** K06: what the inside trusts is written by the edge alone, on every route and in every spelling. */

const FORGED = [
  "X-Hoody-Hook-Auth: stolen",
  "x-hoody-hook-kind: hook",
  "X-HOODY-HOOK-PATH: /etc",
  "X_Hoody_Hook_Upstream_Host: 10.0.0.1",
  "X-Hoody_Hook-Upstream-Port: 22",
  "x_hoody-hook_timeout_ms: 30000",
  "X-Hoody-Hook-: 1",
  "X-Hoody-Hook-Unknown-Name: 1",
  "X-Hoody-Identity-User-Id: root",
  "X_HOODY_IDENTITY_TYPE: admin",
  "x-hoody-identity-Claim: a.b.c",
  "X-Hoody-Identity-Anything: 1",
  "X-Hoody-Edge-Auth: v1 1.00",
  "x_hoody_edge_auth: v1 1.00",
  "Forwarded: for=6.6.6.6",
  "FORWARDED: for=6.6.6.7;proto=https",
  "X-Forwarded-For: 6.6.6.6",
  "x_forwarded_for: 6.6.6.6",
  "X-Forwarded_For: 6.6.6.6",
  "X-Forwarded-Proto: https",
  "X-Forwarded-Host: evil.example",
  "X_Forwarded_Host: evil.example",
  "X-Forwarded-Port: 1",
  "X-Forwarded-Prefix: /x",
  "X-Forwarded-Anything: 1",
  "X-Real-IP: 6.6.6.6",
  "X_Real_IP: 6.6.6.6",
  "x-real_ip: 6.6.6.6",
];
const RESERVED =
  /^(?:x-hoody-(?:hook|identity)-.*|x-hoody-edge-auth|forwarded|x-forwarded-.*|x-real-ip)$/;
const OURS = ["X-Real-IP: 127.0.0.1", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http"];
const FREE = [
  "X-Hoody-Cwd: /srv",
  "X-Hoody-Container-Claim: c",
  "X-Hoody-Hooks: 1",
  "X-Forward-For: 1",
];

function check(lines: readonly string[], where: string): void {
  const reserved = lines.filter((line) =>
    RESERVED.test(namesOf([line]).join().replaceAll("_", "-")),
  );
  const own = where.startsWith("agent")
    ? reserved.filter((line) => !/^X-Hoody-Edge-Auth: v1 [0-9]+\.[0-9a-f]{64}$/.test(line))
    : reserved;
  expect([where, own]).toEqual([where, OURS]);
  expect([where, FREE.filter((line) => !lines.includes(line))]).toEqual([where, []]);
  expect([where, lines.join("\n").includes("6.6.6")]).toEqual([where, false]);
}

test("reserved fields of a client never arrive, in the head or in trailers, on any route", async () => {
  const faults = await startFaultEdge();
  for (const route of faults.routes) {
    const answer = await rawExchange(
      faults.edge.port,
      head(
        `POST ${route.path} HTTP/1.1`,
        `Host: ${route.host}`,
        ...FORGED,
        ...FREE,
        `Connection: close, ${OURS.map((line) => line.split(":")[0]).join(", ")}`,
        "Transfer-Encoding: chunked",
      ) + `4\r\nbody\r\n0\r\n${FORGED.join("\r\n")}\r\nX-Sum: 1\r\n\r\n`,
      10_000,
    );
    expect([route.name, answer.slice(0, 12)]).toEqual([route.name, "HTTP/1.1 200"]);
    if (route.shows === "script") {
      const { raw } = JSON.parse(readAnswers(answer)[0]?.body ?? "{}") as { raw: string[] };
      const lines = Array.from(
        { length: raw.length / 2 },
        (_, i) => `${raw[2 * i]}: ${raw[2 * i + 1]}`,
      );
      check(lines, route.name);
      continue;
    }
    const request = serviceOf(faults, route).requests.at(-1);
    check(request?.lines ?? [], route.name);
    expect([
      route.name,
      (request?.trailers ?? []).filter((line) => !line.startsWith("X-Sum")),
    ]).toEqual([route.name, []]);
  }
}, 40_000);

test("reserved fields of a handshake never arrive", async () => {
  const faults = await startFaultEdge(() => SWITCH);
  for (const route of faults.routes.filter(({ name }) =>
    ["plain", "port", "alias", "agent"].includes(name),
  )) {
    const client = await rawClient(faults.edge.port);
    client.send(
      handshake(route.host, route.path, ...FORGED, ...FREE, "Connection: X-Forwarded-For"),
    );
    await client.waitFor("101");
    check(serviceOf(faults, route).requests.at(-1)?.lines ?? [], route.name);
    client.socket.destroy();
  }
});

test("the hand-over to an exec host carries the envelope of the edge alone", async () => {
  const exec = await recordingUpstream();
  const faults = await startFaultEdge(undefined, {
    container: { exec: { kind: "remote", port: exec.port, secret: "the-secret-of-the-exec-host" } },
  });
  const ways = faults.routes.filter(({ name }) => ["forward", "script", "exec"].includes(name));
  for (const route of ways) {
    await rawExchange(
      faults.edge.port,
      head(
        `POST ${route.path} HTTP/1.1`,
        `Host: ${route.host}`,
        ...FORGED,
        "Connection: close, X-Hoody-Hook-Auth, X-Hoody-Hook-Kind",
        "Content-Length: 0",
      ),
    );
    const lines = exec.requests.at(-1)?.lines ?? [];
    const envelope = lines.filter((line) => /^x.hoody.hook/i.test(line));
    const kind = route.name === "exec" ? "ordinary" : "hook";
    expect(envelope).toContain("X-Hoody-Hook-Auth: the-secret-of-the-exec-host");
    expect(envelope).toContain(`X-Hoody-Hook-Kind: ${kind}`);
    expect(envelope).toContain("X-Hoody-Hook-Client-Address: 127.0.0.1");
    expect(new Set(namesOf(envelope)).size).toBe(envelope.length);
    expect(lines.join("\n")).not.toMatch(/stolen|30000|10\.0\.0\.1|Unknown-Name|6\.6\.6/);
  }
  expect(exec.requests).toHaveLength(ways.length);
  expect(faults.upstream.bytes).toEqual([]);
});

test("an allow-list looks at the peer, never at what the client wrote", async () => {
  const faults = await startFaultEdge();
  const { edge, upstream } = faults;
  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions`;
  const put = (range: string, version: string) =>
    edge.api(
      "PUT",
      path,
      {
        groups: { near: { type: "ip", range } },
        permissions: { near: { terminal: true, exec: true } },
        default: "deny",
      },
      version,
    );
  const current = (await edge.api("GET", path)).etag ?? "";
  const stored = await put("6.6.6.0/24", current);
  expect(stored.status).toBe(200);
  const forged = [
    "X-Forwarded-For: 6.6.6.6",
    "X-Real-IP: 6.6.6.6",
    "Forwarded: for=6.6.6.6",
    "X-Client-IP: 6.6.6.6",
    "True-Client-IP: 6.6.6.6",
    "CF-Connecting-IP: 6.6.6.6",
    "X-Hoody-Hook-Client-Address: 6.6.6.6",
  ];
  for (const host of [edge.host("terminal-1"), edge.host("exec-1")]) {
    const refused = await rawExchange(
      edge.port,
      head("GET /echo HTTP/1.1", `Host: ${host}`, ...forged, "Connection: close"),
    );
    expect(refused.slice(0, 12)).toBe("HTTP/1.1 403");
  }
  const refusedSwitch = await rawExchange(
    edge.port,
    handshake(edge.host("terminal-1"), "/", ...forged),
  );
  expect(refusedSwitch.slice(0, 12)).toBe("HTTP/1.1 403");
  expect(upstream.bytes).toEqual([]);
  expect((await put("127.0.0.0/8", stored.etag ?? "")).status).toBe(200);
  const passed = await rawExchange(
    edge.port,
    head("GET /x HTTP/1.1", `Host: ${edge.host("terminal-1")}`, ...forged, "Connection: close"),
  );
  expect(passed.slice(0, 12)).toBe("HTTP/1.1 200");
});

test.for([
  "999.1.1.1/8",
  "1.2.3/8",
  "10.0.0.0/33",
  "10.0.0.0/-1",
  "0x0a.0.0.0/8",
  "1.2.3.4",
  "::1/128",
  "10.0.0.0/8 ",
  "10.0.0.0/08x",
])("an allow-list entry of %s is refused when it is written", async (range) => {
  const faults = await startFaultEdge();
  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions`;
  const etag = (await faults.edge.api("GET", path)).etag ?? "";
  const bulk = await faults.edge.api(
    "PUT",
    path,
    { groups: { near: { type: "ip", range } }, permissions: {}, default: "deny" },
    etag,
  );
  const single = await faults.edge.api("PUT", `${path}/groups/near/ip`, { range }, etag);
  expect([bulk.status, single.status]).toEqual([400, 400]);
});

test("behind a trusted proxy the client is the first untrusted hop from the right", async () => {
  const faults = await startFaultEdge(undefined, {
    config: { trustedProxies: ["127.0.0.0/8", "10.0.0.0/8", "::ffff:192.0.2.0/120"] },
  });
  const { edge, upstream } = faults;
  const cases = [
    [["X-Forwarded-For: 6.6.6.6, 7.7.7.7"], "7.7.7.7"],
    [["X-Forwarded-For: 6.6.6.6, 7.7.7.7, 10.1.2.3"], "7.7.7.7"],
    [
      [
        "X-Forwarded-For: 6.6.6.6",
        "X-Forwarded-For: 7.7.7.7,10.0.0.1",
        "x-forwarded-for: 192.0.2.9",
      ],
      "7.7.7.7",
    ],
    [["X-Forwarded-For: ::ffff:7.7.7.7, ::ffff:10.0.0.1"], "7.7.7.7"],
    [["X-Forwarded-For: 6.6.6.6, nonsense, 10.0.0.1"], "10.0.0.1"],
    [["X-Forwarded-For: 6.6.6.6,"], "127.0.0.1"],
    [["X-Forwarded-For: "], "127.0.0.1"],
    [["X-Forwarded-For: 6.6.6.6; DROP"], "127.0.0.1"],
    [["X-Forwarded-For: 010.0.0.1"], "127.0.0.1"],
    [["X-Forwarded-For: 2001:db8::1"], "2001:db8::1"],
    [["X_Forwarded_For: 6.6.6.6", "X-Real-IP: 6.6.6.6", "Forwarded: for=6.6.6.6"], "127.0.0.1"],
    [[`X-Forwarded-For: ${"6.6.6.6,".repeat(200)}10.0.0.1`], "6.6.6.6"],
  ] as const;
  for (const [lines, client] of cases) {
    await rawExchange(
      edge.port,
      head("GET /x HTTP/1.1", `Host: ${edge.host("terminal-1")}`, ...lines, "Connection: close"),
    );
    const seen = upstream.requests
      .at(-1)
      ?.lines.filter((line) => /^x-(?:real-ip|forwarded-for):/i.test(line));
    expect([lines[0], seen]).toEqual([
      lines[0],
      [`X-Real-IP: ${client}`, `X-Forwarded-For: ${client}`],
    ]);
  }
});
