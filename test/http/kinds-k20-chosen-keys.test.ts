import { expect, test } from "vitest";
import { CONTAINER, PROJECT, startTestEdge } from "../support/edge.ts";
import { head, readAnswers } from "../support/faults.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

/** K20: strings that strangers choose are neither labels nor property names, and no map grows with them. */

const SPECIAL = [
  "__proto__",
  "constructor",
  "prototype",
  "toString",
  "hasOwnProperty",
  "valueOf",
  "__defineGetter__",
];

test("metric labels stay a small closed set after 2,000 requests of random everything", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const scrape = async (): Promise<string[]> =>
    (await (await fetch(`${edge.control}/metrics`)).text())
      .split("\n")
      .filter((line) => line.startsWith("interpose_"))
      .map((line) => line.slice(0, line.lastIndexOf(" ")));
  const client = await rawClient(edge.port);
  let sent = 0;
  const send = async (count: number) => {
    for (let i = 0; i < count; i++) {
      const n = sent++;
      const method = ["GET", "POST", "PROPFIND", "M-SEARCH", `RANDOM${n}`][n % 5]!;
      const host = [
        edge.host(`terminal-${(n % 9000) + 1}`),
        `host${n}.example`,
        edge.host(`svc${n}-1`),
        `alias${n}.local.containers.localhost`,
        `${PROJECT}-${n.toString(16).padStart(24, "0")}-terminal-1.local.containers.localhost`,
      ][(n >> 3) % 5]!;
      client.send(
        head(
          `${method} /p${n}/${"x".repeat(n % 50)}?q=${n} HTTP/1.1`,
          `Host: ${host}`,
          `User-Agent: a${n}`,
          "Content-Length: 0",
        ),
      );
      if (i % 200 === 199) {
        const wanted = sent;
        for (
          let tries = 0;
          (client.received().match(/^HTTP\/1\.1 |(?<=\}|ok)HTTP\/1\.1 /gm) ?? []).length < wanted &&
          tries < 400;
          tries++
        ) {
          await new Promise((wait) => setTimeout(wait, 20));
        }
      }
    }
  };
  await send(400);
  const before = await scrape();
  await send(1600);
  const after = await scrape();
  expect(client.socket.destroyed).toBe(false);
  expect(after.filter((line) => !before.includes(line))).toEqual([]);
  const text = after.join("\n");
  expect(text).not.toMatch(/example|RANDOM|\/p[0-9]|127\.0\.0\.1|[0-9a-f]{24}|svc[0-9]/);
  expect(after.length).toBeLessThan(600);
  const services = new Set(
    [...text.matchAll(/service="([^"]*)"/g)].map((match) => String(match[1])),
  );
  expect([...services].toSorted()).toEqual(["other", "terminal"]);
}, 60_000);

test("special names are refused like unknown ones wherever a name is looked up", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const base = `/api/v1/containers/${CONTAINER}/proxy`;
  for (const name of SPECIAL) {
    const hosts = [
      edge.host(`${name}-1`),
      edge.host(name),
      `${name}.local.containers.localhost`,
      `${PROJECT}-${name}-terminal-1.local.containers.localhost`,
    ];
    for (const host of hosts) {
      const text = await rawExchange(
        edge.port,
        head("GET / HTTP/1.1", `Host: ${host}`, "Connection: close"),
      );
      expect([host, readAnswers(text)[0]?.status]).toEqual([host, 404]);
    }
    const rule = { match: {}, script: { path: "/x" } };
    const refused = async (method: string, path: string, body?: unknown, version = "file:v0") => {
      const { status } = await edge.api(method, path, body, version);
      expect([method, path, JSON.stringify(body), status >= 400 && status < 500]).toEqual([
        method,
        path,
        JSON.stringify(body),
        true,
      ]);
    };
    await refused("POST", `${base}/hooks/${name}`, rule);
    await refused("GET", `${base}/hooks/${name}`);
    await refused("GET", `${base}/services/${name}`);
    await refused("GET", `/api/v1/containers/${name}`);
    await refused("GET", `/api/v1/containers/${name}/proxy/hooks`);
    await refused("DELETE", `${base}/permissions/groups/${name}`);
    await refused("POST", `${base}/hooks/terminal`, { ...rule, applies_to: { groups: [name] } });
    await refused(
      "POST",
      `${base}/hooks/terminal`,
      JSON.parse(`{"match":{},"script":{"path":"/x"},"${name}":1}`),
    );
    await refused("PUT", `${base}/permissions/permissions/g`, { program: name, access: true });
    await refused("POST", "/api/v1/proxy/aliases", {
      container_id: CONTAINER,
      alias: "fine-name",
      program: name,
    });
    if (["__proto__", "constructor", "prototype"].includes(name)) {
      await refused("PUT", `${base}/permissions/groups/${name}/token`, {
        header: "X-Key",
        value: "k",
      });
      await refused(
        "PUT",
        `${base}/permissions`,
        JSON.parse(
          `{"groups":{"${name}":{"type":"token","header":"X-Key","value":"k"}},"permissions":{},"default":"deny"}`,
        ),
      );
      await refused(
        "PUT",
        `${base}/permissions`,
        JSON.parse(`{"groups":{},"permissions":{"${name}":{"terminal":true}},"default":"deny"}`),
      );
    }
  }
  const explained = await edge.api(
    "POST",
    `${base}/explain`,
    JSON.parse('{"service":"__proto__","method":"GET","path":"/"}'),
  );
  expect(explained.status).toBeGreaterThanOrEqual(400);
  expect(explained.status).toBeLessThan(500);
  expect(({} as Record<string, unknown>)["terminal"]).toBeUndefined();
  const unchanged = await edge.api("GET", `${base}/permissions`);
  expect(unchanged.body.data?.["file_version"]).toBe(0);
});

test("a group with a special name in a stored document admits nobody", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const { mkdirSync, writeFileSync } = await import("node:fs");
  const folder = `${edge.folder}/data/policy/containers`;
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    `${folder}/${CONTAINER}.json`,
    `{"file_version":1,"groups":{"__proto__":{"type":"ip","range":"0.0.0.0/0"},"constructor":{"type":"ip","range":"0.0.0.0/0"}},` +
      `"permissions":{"__proto__":{"terminal":true},"constructor":{"terminal":true},"toString":{"terminal":true},"nobody":{"terminal":true}},"default":"deny"}`,
  );
  let status = 200;
  for (let tries = 0; status === 200 && tries < 100; tries++) {
    await new Promise((wait) => setTimeout(wait, 20));
    const text = await rawExchange(
      edge.port,
      head("GET /x HTTP/1.1", `Host: ${edge.host("terminal-1")}`, "Connection: close"),
    );
    status = readAnswers(text)[0]?.status ?? 0;
  }
  expect([401, 403, 503]).toContain(status);
});

test("scripts see special names as plain data", async () => {
  const edge = await startTestEdge();
  edge.script(
    "keys.js",
    `module.exports = (req, res, metadata) => res.json({
      query: Object.keys(metadata.query), own: Object.hasOwn(metadata.query, "__proto__"), proto: Object.getPrototypeOf(metadata.query) === Object.prototype || Object.getPrototypeOf(metadata.query) === null,
      polluted: ({}).x ?? null, header: req.headers["constructor"] ?? null,
      body: Object.getPrototypeOf(req.body ?? {}) === Object.prototype, tail: ({}).y ?? null });`,
  );
  const text = await rawExchange(
    edge.port,
    head(
      "POST /keys?__proto__=a&__proto__[x]=1&constructor=b&toString=c HTTP/1.1",
      `Host: ${edge.host("exec-1")}`,
      "constructor: c",
      "Content-Type: application/json",
      "Content-Length: 21",
      "Connection: close",
    ) + '{"__proto__":{"y":1}}',
    15_000,
  );
  expect(JSON.parse(readAnswers(text)[0]?.body ?? "{}")).toMatchObject({
    own: true,
    proto: true,
    polluted: null,
    tail: null,
    header: "c",
  });
});
