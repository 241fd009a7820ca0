import { createServer, type IncomingMessage } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { LOCAL_CONTAINER, type ExecHostConfig } from "../../exec-host/config.ts";
import { createManageApi } from "../../exec-host/manage/api.ts";
import { startExecHostServer } from "../../exec-host/run.ts";
import { withDepth, type ExecEndpoint } from "../../dispatcher/envelope.ts";
import type { ExecPlace } from "../../dispatcher/exec-target.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { sweepRequest } from "../../policy/kernel/fields.ts";
import { createHttp1Client } from "../../policy/kernel/http1/client.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import {
  startExchangeServer,
  startSmallEdge,
  type SmallEdgeOptions,
} from "../support/exec-edge.ts";
import { eventually, execContainer, tempDir } from "../support/exec-pool.ts";
import { startHost } from "../support/exec-scripts.ts";

/** What the suite needs of a host, however it is reached. */
interface Subject {
  script(name: string, source: string): Promise<void>;
  edge(options?: SmallEdgeOptions): ReturnType<typeof startSmallEdge>;
  manage(): ExecEndpoint | Promise<ExecEndpoint>;
}

const SECRET = "a shared secret of the test";

async function startEmbedded(): Promise<Subject> {
  const { host, script } = await startHost();
  return {
    script: (name, source) => script("a", name, source),
    edge: (options = {}) => startSmallEdge(host, options),
    manage: () => host.manageEndpoint("a"),
  };
}

async function startRemote(): Promise<Subject> {
  const dataDir = await tempDir();
  const scripts = join(dataDir, "scripts");
  const folder = join(scripts, "default", "1");
  await mkdir(folder, { recursive: true });
  const config: ExecHostConfig = {
    ...execContainer(scripts),
    allow: { childProcess: false, read: [], write: [] },
    dataDir,
    secret: SECRET,
    listen: { host: "127.0.0.1", port: 0 },
    limits: {
      headMs: 10_000,
      keepAliveMs: 65_000,
      upstreamConnectMs: 3_000,
      upstreamIdleMs: 300_000,
      maxHeaderBytes: 32_768,
      maxTargetBytes: 16_384,
      maxBufferedBodyBytes: 33_554_432,
      maxConnections: 1_000,
      drainMs: 500,
    },
    log: { level: "info", pretty: false },
  };
  const running = await startExecHostServer(config, { clock: systemClock, log: silentLog() });
  onTestFinished(() => running.close());
  const { port } = running.address;
  const place: ExecPlace = { kind: "remote", host: "127.0.0.1", port, secret: SECRET };
  return {
    script: (name, source) => writeFile(join(folder, name), source),
    edge: (options = {}) => startSmallEdge(null, { place, ...options }),
    manage: () => ({
      origin: { kind: "tcp", host: "127.0.0.1", port },
      secret: SECRET,
      generation: 0,
    }),
  };
}

async function startUpstream(): Promise<{ port: number; seen: IncomingMessage[] }> {
  const seen: IncomingMessage[] = [];
  const server = createServer((req, res) => {
    seen.push(req);
    res.writeHead(200, ["Set-Cookie", "a=1", "Set-Cookie", "b=2", "X-Up", "yes"]);
    req.pipe(res);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, seen };
}

const FORWARD = "module.exports = (req, res, metadata) => metadata.hook.forward(req, res);";

describe.for([
  ["embedded", startEmbedded],
  ["remote", startRemote],
] as const)("exec host, %s", ([, start]) => {
  test("forwards a request and its answer byte for byte", async () => {
    const subject = await start();
    await subject.script("hook.js", FORWARD);
    const upstream = await startUpstream();
    const edge = await subject.edge({ upstreamPort: upstream.port });
    const body = Buffer.from(Array.from({ length: 300_000 }, (_, i) => i % 251));
    const answer = await fetch(`${edge.origin}/@a/b%2Fc?q=%5C`, { method: "POST", body });
    expect(answer.status).toBe(200);
    expect(Buffer.from(await answer.arrayBuffer()).equals(body)).toBe(true);
    expect(answer.headers.getSetCookie()).toEqual(["a=1", "b=2"]);
    expect(answer.headers.has("x-hoody-hook-outcome")).toBe(false);
    expect(upstream.seen[0]?.url).toBe("/@a/b%2Fc?q=%5C");
    expect(Object.keys(upstream.seen[0]?.headers ?? {}).join()).not.toContain("hook");
    await eventually(() => edge.outcomes[0]?.outcome === "forwarded");
  });

  test("writes a call's depth into what its script sends elsewhere, not into what it forwards", async () => {
    const subject = await start();
    const upstream = await startUpstream();
    await subject.script(
      "hook.js",
      `module.exports = async (req, res, metadata) => {
        const url = 'http://127.0.0.1:${upstream.port}/';
        await fetch(url);
        await new Promise((done) => require('http').get(url, (up) => up.resume().on('end', done)));
        await metadata.hook.fetchUpstream(req, { port: ${upstream.port} });
        await metadata.hook.forward(req, res);
      };`,
    );
    const edge = await subject.edge({
      upstreamPort: upstream.port,
      request: (request) => ({ ...request, fields: withDepth(request.fields, 3) }),
    });
    expect((await fetch(edge.origin)).status).toBe(200);
    const depths = upstream.seen.map(({ headers }) => headers["x-hoody-hook-depth"]);
    expect(depths).toEqual(["3", "3", "3", undefined]);
  });

  test("shows a script what the edge handed over, and nothing of the envelope", async () => {
    const subject = await start();
    await subject.script(
      "hook.js",
      "module.exports = (req, res, metadata) => res.json({ hook: metadata.hook, ip: req.socket.remoteAddress, raw: req.rawHeaders });",
    );
    const edge = await subject.edge({ upstreamPort: 1234 });
    const answer = await fetch(`${edge.origin}/path?x=1`, { headers: { "x-own": "1" } });
    const seen = (await answer.json()) as { hook: object; ip: string; raw: string[] };
    expect(seen.hook).toMatchObject({
      auditId: edge.records[0]?.audit_id ?? expect.any(String),
      origMethod: "GET",
      origPath: "/path",
      service: "files",
      upstream: { host: "127.0.0.1", port: 1234 },
    });
    expect(seen.ip).toBe("192.0.2.7");
    expect(seen.raw.join().toLowerCase()).not.toContain("x-hoody");
    expect(seen.raw).toContain("x-own");
  });

  test.for([
    ["a throw", 500, "script_error", "module.exports = () => { throw new Error('no'); };"],
    ["a syntax error", 500, "script_error", "module.exports = (;"],
    ["a denial", 403, "denied", "module.exports = (req, res) => res.status(403).end();"],
    ["process.exit", 500, "crashed", "module.exports = () => process.exit(1);"],
    ["silence", 504, "timed_out", "module.exports = () => new Promise(() => {});"],
    ["a blocked loop", 504, "timed_out", "module.exports = () => { for (;;) {} };"],
    ["a dead upstream", 502, "upstream_failed", FORWARD],
  ] as const)("%s ends as %i, %s", async ([, status, outcome, source]) => {
    const subject = await start();
    await subject.script("hook.js", source);
    const edge = await subject.edge({ timeoutMs: 700, upstreamPort: 1 });
    const answer = await fetch(`${edge.origin}/x`);
    expect(answer.status).toBe(status);
    expect(answer.headers.has("x-hoody-hook-outcome")).toBe(false);
    await eventually(() => edge.outcomes.length === 1);
    expect(edge.outcomes[0]?.outcome).toBe(outcome);
    await eventually(() => edge.records.length === 1);
    expect(edge.records[0]).toMatchObject({ outcome, status });
  });

  test("a missing script is 404, unusable coordinates 503, a refused path 400", async () => {
    const subject = await start();
    await subject.script("hook.js", FORWARD);
    const missing = await subject.edge({ script: { path: "/nothing.js" } });
    expect((await fetch(missing.origin)).status).toBe(404);
    const unusable = await subject.edge({ script: { subdomain: "s".repeat(64) } });
    const refused = await fetch(unusable.origin);
    expect(refused.status).toBe(503);
    expect(await refused.json()).toMatchObject({ error: "hook target unavailable" });
    const edge = await subject.edge();
    const raw = connect(edge.port, "127.0.0.1");
    raw.write("GET /a/%2e%2e/b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let text = "";
    for await (const chunk of raw) {
      text += String(chunk);
    }
    expect(text).toMatch(/^HTTP\/1\.1 400 /);
    expect(text).toContain("bad request path");
    expect(text.toLowerCase()).toContain("cache-control: no-store");
  });

  test("cuts an answer at the deadline, and tells a script that its client left", async () => {
    const subject = await start();
    await subject.script(
      "hook.js",
      "module.exports = (req, res) => { res.write('x'); const t = setInterval(() => res.write('x'), 20); res.on('close', () => clearInterval(t)); };",
    );
    const edge = await subject.edge({ timeoutMs: 400 });
    const answer = await fetch(edge.origin);
    expect(answer.status).toBe(200);
    await expect(answer.text()).rejects.toThrow();
    await eventually(() => edge.outcomes[0]?.outcome === "truncated");
    const patient = await subject.edge({ timeoutMs: 20_000 });
    const client = connect(patient.port, "127.0.0.1");
    client.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    await new Promise((resolve) => client.once("data", resolve));
    client.destroy();
    await eventually(() => patient.outcomes[0]?.outcome === "client_gone");
  });

  test("serves ordinary calls by their path", async () => {
    const subject = await start();
    await subject.script(
      "echo.js",
      "module.exports = (req, res, m) => ({ hook: m.hook === undefined, q: m.query });",
    );
    const edge = await subject.edge({ ordinary: true });
    const answer = await fetch(`${edge.origin}/echo?a=1`);
    expect(await answer.json()).toEqual({ hook: true, q: { a: "1" } });
    expect((await fetch(`${edge.origin}/nothing`)).status).toBe(404);
  });

  test("answers the management routes", async () => {
    const subject = await start();
    const client = createHttp1Client();
    onTestFinished(() => client.close());
    const api = createManageApi({
      client,
      log: silentLog(),
      token: "t",
      mode: () => "open",
      endpoint: () => subject.manage(),
    });
    const { origin } = await startExchangeServer((exchange) => {
      void api.handle({
        exchange,
        fields: sweepRequest(exchange.head.fields),
        target: exchange.head.target,
        container: LOCAL_CONTAINER,
        subdomain: null,
        execId: null,
        admitted: true,
        clientAddress: "192.0.2.7",
      });
    });
    const written = await fetch(`${origin}/api/v1/exec/scripts/write`, {
      method: "POST",
      body: JSON.stringify({ path: "made.js", content: "module.exports = () => 'made';" }),
    });
    expect(written.status).toBe(200);
    const edge = await subject.edge({ ordinary: true });
    expect(await (await fetch(`${edge.origin}/made`)).text()).toBe("made");
    // Without the edge's word there is no management: the path is one like any other.
    expect((await fetch(`${edge.origin}/api/v1/exec/health`)).status).toBe(404);
  });
});

describe("the door of a remote host", () => {
  test.for([
    ["no secret", {}, 403],
    ["a wrong secret", { "x-hoody-hook-auth": "wrong", "x-hoody-hook-kind": "ordinary" }, 403],
    ["half an envelope", { "x-hoody-hook-auth": SECRET, "x-hoody-hook-kind": "hook" }, 400],
    ["no envelope", { "x-hoody-hook-auth": SECRET }, 400],
  ] as const)("refuses %s", async ([, headers, status]) => {
    const subject = await startRemote();
    const endpoint = await subject.manage();
    const port = endpoint.origin.kind === "tcp" ? endpoint.origin.port : 0;
    const answer = await fetch(`http://127.0.0.1:${port}/hook`, { headers });
    expect(answer.status).toBe(status);
  });
});
