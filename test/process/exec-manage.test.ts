import { readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { createManageApi, type ManageMode } from "../../exec-host/manage/api.ts";
import { createHttp1Client } from "../../policy/kernel/http1/client.ts";
import { sweepRequest } from "../../policy/kernel/fields.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { startExchangeServer, startSmallEdge } from "../support/exec-edge.ts";
import { startHost } from "../support/exec-scripts.ts";

const TOKEN = "the-control-token-of-the-test";

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // oxlint-disable-next-line typescript/no-explicit-any -- answers of many shapes, checked by matchers
  readonly body: any;
}

async function startManage(options: { mode?: ManageMode; admitted?: boolean } = {}) {
  const setup = await startHost();
  const client = createHttp1Client();
  onTestFinished(() => client.close());
  const api = createManageApi({
    client,
    log: silentLog(),
    token: TOKEN,
    mode: () => options.mode ?? "admitted",
    endpoint: (id) => (id === "a" ? setup.host.manageEndpoint(id) : null),
  });
  const statuses: number[] = [];
  const serve = (container: string) =>
    startExchangeServer((exchange) => {
      void api
        .handle({
          exchange,
          fields: sweepRequest(exchange.head.fields),
          target: exchange.head.target,
          container,
          subdomain: null,
          execId: null,
          admitted: options.admitted ?? true,
          clientAddress: "192.0.2.1",
        })
        .then((status) => statuses.push(status));
    });
  const { origin } = await serve("a");
  const call = async (
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer> => {
    const answer = await fetch(`${origin}/api/v1/exec${path}`, {
      method,
      headers: {
        ...headers,
        ...(body === undefined ? {} : { "content-type": "application/json" }),
      },
      ...(body === undefined
        ? {}
        : { body: typeof body === "string" ? body : JSON.stringify(body) }),
    });
    const text = await answer.text();
    return {
      status: answer.status,
      headers: answer.headers,
      body: text === "" ? null : JSON.parse(text),
    };
  };
  return { ...setup, api, call, origin, serve, statuses };
}

describe("who may call", () => {
  test.for([
    ["admitted", true, null, 200],
    ["admitted", false, null, 401],
    ["admitted", false, `Bearer ${TOKEN}`, 200],
    ["admitted", false, "Bearer other", 403],
    ["open", false, null, 200],
    ["off", true, `Bearer ${TOKEN}`, 404],
  ] as const)("mode %s, admitted %s, credential %s: %i", async ([mode, admitted, auth, status]) => {
    const { call, statuses } = await startManage({ mode, admitted });
    const answer = await call(
      "GET",
      "/health",
      undefined,
      auth === null ? {} : { authorization: auth },
    );
    expect(answer.status).toBe(status);
    await expect.poll(() => statuses).toEqual([status]);
  });

  test("a container without an exec host answers 503", async () => {
    const { serve } = await startManage();
    const { origin } = await serve("none");
    expect((await fetch(`${origin}/api/v1/exec/health`)).status).toBe(503);
  });

  test("unknown routes are 404, wrong methods 405 with Allow, bad bodies 400", async () => {
    const { call, api } = await startManage();
    expect((await call("GET", "/nothing")).status).toBe(404);
    const wrong = await call("GET", "/scripts/write");
    expect(wrong.status).toBe(405);
    expect(wrong.headers.get("allow")).toBe("POST");
    expect((await call("POST", "/scripts/write", "{")).status).toBe(400);
    expect((await call("POST", "/scripts/write", "[]")).status).toBe(400);
    expect((await call("POST", "/scripts/write", { path: "a.js" })).status).toBe(400);
    expect(api.owns("/api/v1/exec/x")).toBe(true);
    expect(api.owns("/api/v1/execx")).toBe(false);
  });
});

describe("scripts", () => {
  test("are written whole, read, listed, run on the next request and deleted", async () => {
    const { call, host, containers } = await startManage();
    const content =
      "// @token s3cret\n// @label gate\n// @tags a, b\nmodule.exports = (req, res) => res.end('one');";
    const written = await call("POST", "/scripts/write", { path: "gates/hook.js", content });
    expect(written).toMatchObject({
      status: 200,
      body: {
        success: true,
        path: "default/1/gates/hook.js",
        created: true,
        validation: { valid: true },
      },
    });
    const stored = join(containers.get("a")!.scripts, "default/1/gates/hook.js");
    expect(await readFile(stored, "utf8")).toBe(content);
    const read = await call("GET", "/scripts/read?path=gates/hook.js");
    expect(read.body.content).toBe(content.replace("s3cret", "[REDACTED]"));
    expect(read.body.magicComments).toMatchObject({ label: "gate", token: "[REDACTED]" });
    expect(JSON.stringify(read.body)).not.toContain("s3cret");
    const list = await call("GET", "/scripts/list?tags=a&label=gate&include_comments=true");
    expect(list.body.scripts).toMatchObject([{ name: "hook.js", path: "default/1/gates/hook.js" }]);
    expect((await call("GET", "/scripts/list?label=other")).body.count).toBe(0);
    const edge = await startSmallEdge(host, { script: { path: "/gates/hook.js" } });
    expect(await (await fetch(edge.origin)).text()).toBe("one");
    await call("POST", "/scripts/write", {
      path: "gates/hook.js",
      content: content.replace("one", "two"),
    });
    expect(await (await fetch(edge.origin)).text()).toBe("two");
    expect((await call("DELETE", "/scripts/delete?path=gates/hook.js")).status).toBe(400);
    expect((await call("DELETE", "/scripts/delete?path=gates/hook.js&confirm=true")).status).toBe(
      200,
    );
    expect((await call("DELETE", "/scripts/delete?path=gates/hook.js&confirm=true")).status).toBe(
      404,
    );
    expect((await fetch(edge.origin)).status).toBe(404);
  });

  test("with an error are refused with the place, unless validation is off", async () => {
    const { call } = await startManage();
    const bad = await call("POST", "/scripts/write", { path: "x.js", content: "const a = ;\n" });
    expect(bad).toMatchObject({
      status: 400,
      body: { code: "VALIDATION_ERROR", validation: { valid: false, errors: [{ line: 1 }] } },
    });
    expect((await call("GET", "/scripts/read?path=x.js")).status).toBe(404);
    const forced = { path: "x.js", content: "const a = ;", validate: false };
    expect((await call("POST", "/scripts/write", forced)).status).toBe(200);
    expect((await call("POST", "/scripts/write", { path: "x.json", content: "{" })).status).toBe(
      400,
    );
    expect((await call("POST", "/scripts/write", { path: "x.env", content: "A=1" })).status).toBe(
      200,
    );
    const missing = { path: "y.js", content: "const x = require('no-such-package');" };
    expect((await call("POST", "/scripts/write", missing)).body.validation.warnings).toHaveLength(
      1,
    );
    const typed = { path: "z.ts", content: "const x: number = 1; export default (): number => x;" };
    expect((await call("POST", "/scripts/write", typed)).status).toBe(200);
    const once = { ...typed, ifNotExists: true };
    expect((await call("POST", "/scripts/write", once)).status).toBe(409);
  });

  test.for([
    ["../x.js", 400],
    ["/etc/passwd", 400],
    ["a/../../x.js", 400],
    ["a\\b.js", 400],
    ["a\0.js", 400],
    ["%2e%2e/x.js", 400],
    ["%252e%252e%252fx.js", 400],
    ["a//b.js", 400],
    ["node_modules/x.js", 403],
    ["a/.git/config", 403],
    ["a/%2egit/config", 403],
    ["_SDK/x.js", 403],
    [".hidden.js", 403],
    ["a".repeat(600), 400],
  ] as const)("refuses to write %j", async ([path, status]) => {
    const { call } = await startManage();
    const answer = await call("POST", "/scripts/write", { path, content: "1", validate: false });
    expect(answer.status).toBe(status);
  });

  test("are not reached or written through links that leave the root", async () => {
    const { call, containers, dataDir } = await startManage();
    const base = join(containers.get("a")!.scripts, "default/1");
    await writeFile(join(dataDir, "outside.js"), "secret");
    await symlink(join(dataDir, "outside.js"), join(base, "link.js"));
    await symlink(dataDir, join(base, "dir"));
    expect((await call("GET", "/scripts/read?path=link.js")).status).toBe(404);
    expect((await call("GET", "/scripts/read?path=dir/outside.js")).status).toBe(404);
    expect((await call("GET", "/scripts/list")).body.count).toBe(0);
    const through = { path: "dir/new.js", content: "1" };
    expect((await call("POST", "/scripts/write", through)).status).toBe(400);
    expect((await call("POST", "/scripts/write", { path: "link.js", content: "1" })).status).toBe(
      200,
    );
    expect(await readFile(join(dataDir, "outside.js"), "utf8")).toBe("secret");
  });
});

describe("checks and routes", () => {
  test("validate answers what is wrong without storing anything", async () => {
    const { call } = await startManage();
    const good = await call("POST", "/validate/script", {
      code: "// @timeout 50\nmodule.exports = () => 1;",
    });
    expect(good.body).toMatchObject({ valid: true, magicComments: { timeoutMs: 50 } });
    const missing = await call("POST", "/validate/script", { content: "require('./nope.js')" });
    expect(missing.body).toMatchObject({ valid: false, errors: [{ kind: "dependency" }] });
    const deep = await call("POST", "/validate/script", { code: "[".repeat(200_000) });
    expect(deep.body.valid).toBe(false);
    const comments = await call("POST", "/validate/magic-comments", {
      code: "// @timeout soon\n1",
    });
    expect(comments.body).toMatchObject({ valid: false, warnings: [{ line: 1 }] });
    expect((await call("POST", "/validate/script", {})).status).toBe(400);
  });

  test("resolve says which file a path hits", async () => {
    const { call, script } = await startManage();
    await script("a", "users/[id].js", "module.exports = () => 1;");
    const hit = await call("POST", "/route/resolve", { path: "/users/7" });
    expect(hit.body).toMatchObject({
      matched: true,
      script: "default/1/users/[id].js",
      type: "dynamic",
      parameters: { id: "7" },
    });
    const miss = await call("POST", "/route/resolve", { path: "/nothing" });
    expect(miss.body).toMatchObject({ matched: false, script: null });
    expect(miss.body.triedDirectories).toEqual(["default/1", "default", "1", ""]);
  });
});

describe("logs and counters", () => {
  async function startLogged() {
    const setup = await startManage();
    await setup.script(
      "a",
      "hook.js",
      "module.exports = (req, res, metadata) => { console.log('said', req.url); console.error('(a+)+$ ' + 'a'.repeat(60) + '!'); if (req.url === '/bad') throw new Error('bad'); res.end(metadata.executionId); };",
    );
    const edge = await startSmallEdge(setup.host);
    const executionId = await (await fetch(`${edge.origin}/one`)).text();
    await fetch(`${edge.origin}/bad`);
    await expect
      .poll(async () => (await setup.call("GET", "/logs/list")).body.count, { timeout: 10_000 })
      .toBeGreaterThanOrEqual(2);
    await expect
      .poll(
        async () =>
          (await setup.call("POST", "/logs/read", { file: "access/access.log" })).body.count ?? 0,
        { timeout: 10_000 },
      )
      .toBe(2);
    return { ...setup, edge, executionId };
  }

  test("are listed, read by file and by execution, and searched", async () => {
    const { call, executionId } = await startLogged();
    const list = await call("GET", "/logs/list");
    expect(list.body.logs.map((entry: { name: string }) => entry.name).sort()).toEqual([
      "access/access.log",
      "scripts.log",
    ]);
    const own = await call("POST", "/logs/read", { executionId });
    expect(own.body.lines).toHaveLength(2);
    expect(JSON.parse(own.body.lines[0])).toMatchObject({
      executionId,
      level: "info",
      script: "default/1/hook.js",
      msg: "said /one",
      auditId: expect.any(String),
    });
    const last = await call("POST", "/logs/read", {
      file: "scripts.log",
      lines: 1,
      search: "said",
    });
    expect(last.body.lines).toHaveLength(1);
    expect(last.body.lines[0]).toContain("/bad");
    const first = await call("POST", "/logs/read", { file: "scripts.log", lines: 1, tail: false });
    expect(first.body.lines[0]).toContain("/one");
    const found = await call("POST", "/logs/search", { query: "said /bad" });
    expect(found.body).toMatchObject({ count: 1, results: [{ file: "scripts.log" }] });
    expect((await call("POST", "/logs/search", { regex: "said /(one|bad)" })).body.count).toBe(2);
    expect((await call("POST", "/logs/search", { regex: "(" })).status).toBe(400);
    expect((await call("POST", "/logs/search", { regex: "a".repeat(65) })).status).toBe(400);
    expect((await call("POST", "/logs/search", {})).status).toBe(400);
    expect((await call("POST", "/logs/read", { file: "../../control-token" })).status).toBe(400);
    expect((await call("POST", "/logs/read", { file: "other.log" })).status).toBe(404);
    expect((await call("POST", "/logs/read", { executionId: "a/b" })).status).toBe(400);
    expect((await call("POST", "/logs/read", { file: "scripts.log", lines: 0 })).status).toBe(400);
  });

  test("count requests, errors and times per script", async () => {
    const { call } = await startLogged();
    const monitor = await call("GET", "/monitor/scripts?sort=requests");
    expect(monitor.body.scripts).toMatchObject([
      { name: "default/1/hook.js", requests: 2, errors: 1, hooks: 2 },
    ]);
    expect((await call("GET", "/monitor/scripts?sort=size")).status).toBe(400);
    expect((await call("GET", "/monitor/scripts?limit=501")).status).toBe(400);
  });

  test("stream new lines as events until the client leaves", async () => {
    const { origin, edge } = await startLogged();
    const stop = new AbortController();
    const answer = await fetch(`${origin}/api/v1/exec/logs/stream?file=scripts.log`, {
      signal: stop.signal,
    });
    expect(answer.headers.get("content-type")).toBe("text/event-stream");
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    let seen = (await reader.read()).value ?? "";
    await fetch(`${edge.origin}/streamed`);
    while (!seen.includes("/streamed")) {
      seen += (await reader.read()).value ?? "";
    }
    expect(seen).toMatch(/data: \{.*said \/streamed/);
    stop.abort();
    const whole = await fetch(`${origin}/api/v1/exec/logs/stream?file=scripts.log&follow=false`);
    expect(await whole.text()).toContain("said /one");
  });

  test("a search pattern that never comes to an end costs its process only", async () => {
    const { call, edge } = await startLogged();
    const answer = await call("POST", "/logs/search", { regex: "(a+)+$" });
    expect(answer.status).toBe(500);
    expect((await fetch(`${edge.origin}/still`)).status).toBe(200);
    expect((await call("GET", "/health")).status).toBe(200);
  });
});
