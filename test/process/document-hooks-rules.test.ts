import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { ask, type Ask } from "../support/ask.ts";
import { CONTAINER, openTestEdge, OTHER, PROJECT, type TestEdge } from "../support/edge.ts";
import { HOOKS } from "../support/document-edge.ts";
import { rawClient } from "../support/raw-client.ts";
import { startUpstream, type TestUpstream } from "../support/start-upstream.ts";

/*
 * What the document says of rules, deadlines, groups, limits and the security model, by requests to a running edge.
 * Which rule took a request is told by the script that answers.
 */

let edge: TestEdge & { close(): Promise<void> };
let upstream: TestUpstream;
let appPort = 0;
let app: TestUpstream;

beforeAll(async () => {
  upstream = await startUpstream();
  app = await startUpstream();
  appPort = app.port;
  edge = await openTestEdge({
    upstream: upstream.port,
    otherUpstream: upstream.port,
    container: {
      ports: {
        terminal: upstream.port,
        files: appPort,
        code: upstream.port,
        desktop: upstream.port,
      },
    },
  });
  for (const name of ["one", "two", "three"]) {
    edge.script(
      `${name}.js`,
      `module.exports = async (req, res, metadata) => { res.setHeader('x-took', '${name} ' + metadata.hook.origMethod); return { took: '${name}', hook: metadata.hook, url: req.url, headers: req.headers, address: req.socket.remoteAddress }; };`,
    );
  }
}, 30_000);
afterAll(async () => {
  await edge.close();
  await upstream.stop();
  await app.stop();
});
beforeEach(async () => {
  for (const service of ["terminal", "files", "code", "desktop", "exec"]) {
    const { etag } = await edge.api("GET", `${HOOKS}/${service}`);
    await edge.api("DELETE", `${HOOKS}/${service}`, undefined, etag ?? "file:v0");
  }
});

const rule = (match: object, path = "/one", more: object = {}) => ({
  match,
  script: { path },
  timeout: 15_000,
  ...more,
});
const send = (more: Partial<Ask> = {}) =>
  ask(edge.port, { host: edge.host("terminal-1"), ...more });
/** Name of the script that took the request, with the method it saw; null when the service answered. */
const took = async (more: Partial<Ask> = {}) => {
  const answer = await send(more);
  expect(answer.status).toBe(200);
  return answer.headers["x-took"] ?? null;
};
const UPGRADE = (path: string, host: string) =>
  `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`;

test("methods: a star leaves OPTIONS out, GET takes HEAD along, HEAD does not take GET", async () => {
  const id = await edge.hook("terminal", rule({}));
  const replace = async (match: object) => {
    const { etag } = await edge.api("GET", HOOKS);
    const done = await edge.api("PUT", `${HOOKS}/terminal/${id}`, rule(match), etag ?? "");
    expect(done.status).toBe(200);
    const stored = done.body.data?.["hook"] as unknown as { match: unknown };
    return stored.match;
  };
  for (const match of [{}, { method: "*" }]) {
    await replace(match);
    for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "PROPFIND"]) {
      expect(await took({ method }), method).toBe(`one ${method}`);
    }
    expect(await took({ method: "OPTIONS" })).toBeNull();
  }
  expect(await replace({ method: "options" })).toEqual({ method: "OPTIONS" });
  expect(await took({ method: "OPTIONS" })).toBe("one OPTIONS");
  expect(await took({ method: "GET" })).toBeNull();
  expect(await replace({ method: ["get", "Post"] })).toEqual({ method: ["GET", "POST"] });
  expect(await took({ method: "HEAD" })).toBe("one HEAD");
  expect(await took({ method: "POST" })).toBe("one POST");
  expect(await took({ method: "PUT" })).toBeNull();
  await replace({ method: ["HEAD"] });
  expect(await took({ method: "HEAD" })).toBe("one HEAD");
  expect(await took({ method: "GET" })).toBeNull();
});

test("paths and fields are joined by and; the first rule that fits wins", async () => {
  await edge.hook(
    "terminal",
    rule({ path: "/api/*/edit", headers: { "X-Tenant": "alice" } }, "/one"),
  );
  await edge.hook("terminal", rule({ path: "/api/*" }, "/two"));
  await edge.hook("terminal", rule({ path: "*" }, "/three"));
  const tenant = { headers: { "x-TENANT": "alice" } };
  expect(await took({ path: "/api/7/edit", ...tenant })).toBe("one GET");
  expect(await took({ path: "/api/7/edit?x=/", ...tenant })).toBe("one GET");
  expect(await took({ path: "/api/7/edit", headers: { "x-tenant": "Alice" } })).toBe("two GET");
  expect(await took({ path: "/api/7/edit" })).toBe("two GET");
  expect(await took({ path: "/api/7/8/edit", ...tenant })).toBe("two GET");
  expect(await took({ path: "/api/" })).toBe("two GET");
  expect(await took({ path: "/api" })).toBe("three GET");
  expect(await took({ path: "/API/7" })).toBe("three GET");
  expect(await took()).toBe("three GET");
  // Another service has rules of its own.
  expect((await send({ host: edge.host("files-1") })).headers["x-took"]).toBeUndefined();
});

test("a handshake is refused where a rule fits, tunnelled where none does", async () => {
  const id = await edge.hook("terminal", rule({ path: "/guarded*" }));
  const host = edge.host("terminal-1");
  const refused = await rawClient(edge.port);
  refused.send(UPGRADE("/guarded/ws", host));
  expect(await refused.waitFor("HOOK_WEBSOCKET_UNSUPPORTED")).toMatch(/^HTTP\/1\.1 403 /);
  const before = upstream.received.length;
  const free = await rawClient(edge.port);
  free.send(UPGRADE("/open/ws", host));
  await free.waitFor("HTTP/1.1 ", 5000).catch(() => {}); // this service has no sockets; it was asked
  await expect.poll(() => upstream.connections(), { timeout: 5000 }).toBeGreaterThan(0);
  expect(upstream.received.length).toBeGreaterThanOrEqual(before);
  // A stored rule that is no longer valid refuses with 503 instead.
  await breakRule(id);
  const broken = await rawClient(edge.port);
  broken.send(UPGRADE("/guarded/ws", host));
  expect(await broken.waitFor("HOOK_UNAVAILABLE")).toMatch(/^HTTP\/1\.1 503 /);
});

/** Makes a stored rule one that today's limits refuse, as an older document may hold. */
async function breakRule(id: string): Promise<void> {
  const file = join(edge.folder, "data/policy/containers", `${CONTAINER}.json`);
  const text = readFileSync(file, "utf8");
  const document = JSON.parse(text) as {
    hooks: Record<string, { id: string; script: { subdomain?: string } }[]>;
  };
  for (const hook of Object.values(document.hooks).flat()) {
    if (hook.id === id) {
      hook.script.subdomain = "s".repeat(64);
    }
  }
  writeFileSync(file, JSON.stringify(document));
  const host = edge.host("terminal-1");
  await expect
    .poll(async () => (await ask(edge.port, { host, path: "/guarded" })).status, { timeout: 8000 })
    .toBe(503);
}

test("a rule that is no longer valid refuses what fits it and nothing else, until it is replaced", async () => {
  const id = await edge.hook("terminal", rule({ path: "/guarded*" }, "/one"));
  await edge.hook("terminal", rule({ path: "/guarded*" }, "/two"));
  await breakRule(id);
  const before = upstream.received.length;
  const fits = await send({ path: "/guarded/x" });
  expect([fits.status, fits.json["code"]]).toEqual([503, "HOOK_UNAVAILABLE"]);
  expect(upstream.received.length).toBe(before);
  expect(await took({ path: "/elsewhere" })).toBeNull();
  const { etag } = await edge.api("GET", HOOKS);
  await edge.api("PUT", `${HOOKS}/terminal/${id}`, rule({ path: "/guarded*" }), etag ?? "");
  expect(await took({ path: "/guarded/x" })).toBe("one GET");
});

test("paths up to 4096 bytes are taken, longer ones refused where a rule fits", async () => {
  await edge.hook("terminal", rule({ path: "/long*" }));
  const path = (bytes: number, start = "/long/") => start + "a".repeat(bytes - start.length);
  expect(await took({ path: `${path(4096)}?${"q".repeat(500)}` })).toBe("one GET");
  const before = upstream.received.length;
  const refused = await send({ path: path(4097) });
  expect([refused.status, refused.json["code"]]).toEqual([414, "HOOK_PATH_TOO_LONG"]);
  expect(upstream.received.length).toBe(before);
  expect(await took({ path: path(4097, "/free/") })).toBeNull();
});

test("a group filter asks for the groups that granted the request", async () => {
  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions`;
  const token = (value: string) => ({ type: "token", header: "X-Key", value });
  const document = {
    default: "allow",
    groups: {
      staff: token("staff"),
      admins: token("admins"),
      guests: token("guests"),
      idle: [token("staff"), token("idle")],
    },
    permissions: {
      staff: { terminal: true },
      admins: { terminal: true },
      guests: { terminal: true },
    },
  };
  const { etag } = await edge.api("GET", path);
  expect((await edge.api("PUT", path, document, etag ?? "file:v0")).status).toBe(200);
  try {
    const groups = (...names: string[]) => ({ applies_to: { groups: names } });
    await edge.hook("terminal", rule({}, "/one", groups("staff", "admins")));
    await edge.hook("terminal", rule({ path: "/two*" }, "/two", groups("idle")));
    await edge.hook("terminal", rule({ path: "/three*" }, "/three"));
    const as = (key: string) => ({ headers: { "x-key": key } });
    expect(await took(as("staff"))).toBe("one GET");
    expect(await took(as("admins"))).toBe("one GET");
    // Admitted through another group, or by the default: on to the next rule, and to the service.
    expect(await took(as("guests"))).toBeNull();
    expect(await took({ path: "/three/x", ...as("guests") })).toBe("three GET");
    expect(await took({ path: "/three/x" })).toBe("three GET");
    expect(await took()).toBeNull();
    // Of the group, but that group granted nothing.
    expect(await took({ path: "/two/x", ...as("idle") })).toBeNull();
    for (const wrong of [groups(), groups("nobody"), groups("staff", "nobody")]) {
      const now = (await edge.api("GET", HOOKS)).etag ?? "";
      expect((await edge.api("POST", `${HOOKS}/files`, rule({}, "/one", wrong), now)).status).toBe(
        422,
      );
    }
  } finally {
    for (const service of ["terminal"]) {
      const now = (await edge.api("GET", HOOKS)).etag ?? "";
      await edge.api("DELETE", `${HOOKS}/${service}`, undefined, now);
    }
    const now = (await edge.api("GET", path)).etag ?? "";
    await edge.api("DELETE", path, undefined, now);
  }
});

test("coordinates reach the same file as the script's own address", async () => {
  for (const [folder, say] of [
    ["default/1", "plain"],
    ["default/obs", "exec"],
    ["myapp/1", "sub"],
    ["myapp/obs", "both"],
  ] as const) {
    edge.script(
      `../../${folder}/Where.am_i-1.js`,
      `module.exports = (req, res, metadata) => ({ say: '${say}', hook: metadata.hook !== undefined });`,
    );
  }
  const id = await edge.hook("terminal", rule({}));
  const P_C = `${PROJECT}-${CONTAINER}`;
  const end = "local.containers.localhost";
  for (const [script, host, say] of [
    [{}, `${P_C}.${end}`, "plain"],
    [{}, `${P_C}-exec-1.${end}`, "plain"],
    [{ execId: "obs" }, `${P_C}-exec-obs.${end}`, "exec"],
    [{ subdomain: "myapp" }, `myapp.${P_C}.${end}`, "sub"],
    [{ subdomain: "myapp", execId: "obs" }, `MyApp.${P_C}-EXEC-obs.${end}`, "both"],
  ] as const) {
    const now = (await edge.api("GET", HOOKS)).etag ?? "";
    const changed = rule({}, "/Where.am_i-1", { script: { ...script, path: "/Where.am_i-1" } });
    expect((await edge.api("PUT", `${HOOKS}/terminal/${id}`, changed, now)).status).toBe(200);
    expect((await send()).json).toEqual({ say, hook: true });
    expect((await send({ host, path: "/Where.am_i-1" })).json).toEqual({ say, hook: false });
  }
  // A script that is not there answers 404 and nothing is forwarded.
  const before = upstream.received.length;
  const now = (await edge.api("GET", HOOKS)).etag ?? "";
  await edge.api("PUT", `${HOOKS}/terminal/${id}`, rule({}, "/where.am_i-1"), now);
  expect((await send()).status).toBe(404);
  expect(upstream.received.length).toBe(before);
});

test("service keys are canonical names of services that can be hooked", async () => {
  const now = (await edge.api("GET", HOOKS)).etag ?? "file:v0";
  for (const name of ["t", "tty", "f", "note", "http", "https", "ssh", "nothing"]) {
    const answer = await edge.api("POST", `${HOOKS}/${name}`, rule({}), now);
    expect(answer.status, name).toBe(422);
    const canonical = { t: "terminal", tty: "terminal", f: "files", note: "notes" }[name];
    expect(answer.body.message, name).toContain(canonical ?? name);
  }
  for (const name of ["logs", "egress", "workspaces", "cdp"]) {
    expect([404, 422], name).toContain(
      (await edge.api("POST", `${HOOKS}/${name}`, rule({}), now)).status,
    );
  }
  let etag = now;
  const names =
    "terminal files notes run curl watch cron pipe sqlite browser notifications tunnel daemon code display exec agent desktop d-tcp bot";
  for (const name of names.split(" ")) {
    const made = await edge.api("POST", `${HOOKS}/${name}`, rule({}), etag);
    expect(made.status, name).toBe(201);
    etag = made.etag ?? "";
  }
  for (const name of names.split(" ")) {
    etag = (await edge.api("DELETE", `${HOOKS}/${name}`, undefined, etag)).etag ?? "";
  }
});

test("a port of a service, and the exec host itself, have that service's hooks", async () => {
  await edge.hook("files", rule({}, "/two"));
  await edge.hook("exec", rule({ path: "/hooked*" }, "/three"));
  const byPort = await send({ host: edge.host(`http-${appPort}`) });
  expect(byPort.json).toMatchObject({
    took: "two",
    hook: { service: "files", upstream: { port: appPort } },
  });
  expect((await send({ host: edge.host("http-1") })).headers["x-took"]).toBeUndefined();
  const exec = await send({ host: edge.host("exec-1"), path: "/hooked" });
  expect(exec.json).toMatchObject({
    took: "three",
    hook: { service: "exec", origPath: "/hooked" },
  });
});

test("a script sees the client's request with the authorised instance in its query", async () => {
  await edge.hook("terminal", rule({}));
  await edge.hook("code", rule({}));
  await edge.hook("desktop", rule({}));
  const answer = await send({
    host: edge.host("terminal-2"),
    path: "/p/%C3%A9?a=1&terminal_id=9&terminal%5Fid=8",
    headers: {
      "x-hoody-hook-audit-id": "forged",
      "X-Hoody-Hook-Service": "files",
      X_HOODY_HOOK_AUTH: "x",
      "x-real-ip": "203.0.113.9",
      "x-forwarded-for": "203.0.113.9",
      "x-forwarded-proto": "https",
      "x-hoody-cwd": "/kept",
      "x-custom": "kept",
    },
  });
  expect(answer.json).toMatchObject({
    url: "/p/%C3%A9?a=1&terminal_id=2",
    address: "127.0.0.1",
    hook: {
      service: "terminal",
      origPath: "/p/%C3%A9",
      upstream: { host: "127.0.0.1", port: upstream.port },
    },
    headers: {
      host: edge.host("terminal-2"),
      "x-real-ip": "127.0.0.1",
      "x-forwarded-for": "127.0.0.1",
      "x-forwarded-proto": "http",
      "x-hoody-cwd": "/kept",
      "x-custom": "kept",
    },
  });
  expect(Object.keys(answer.json["headers"] as object).filter((name) => /hook/.test(name))).toEqual(
    [],
  );
  const code = await send({ host: edge.host("code-3"), path: "/?id=1" });
  expect(code.json["url"]).toBe("/?id=3");
  // Nothing but the selector: what plain traffic would be given besides is not for hooks.
  const desktop = await send({ host: edge.host("desktop-1"), path: "/" });
  expect(desktop.json["url"]).toBe("/?terminal_id=1601");
  // Direct calls of the exec service lose the same fields.
  edge.script("direct.js", "module.exports = (req) => Object.keys(req.headers);");
  const direct = await send({
    host: edge.host("exec-1"),
    path: "/direct",
    headers: { "x-hoody-hook-service": "files", "X-Hoody-Hook-Audit": "x", "x-kept": "1" },
  });
  expect((direct.json as unknown as string[]).filter((name) => /hook|kept/.test(name))).toEqual([
    "x-kept",
  ]);
});

test("an alias that lands adds what its target says, and its own value wins when pinned", async () => {
  await edge.hook("terminal", rule({}));
  const alias = async (name: string, more: object) => {
    const made = await edge.api("POST", "/api/v1/proxy/aliases", {
      container_id: CONTAINER,
      alias: name,
      program: "terminal",
      index: 2,
      ...more,
    });
    expect(made.status).toBe(201);
    return `${name}.local.containers.localhost`;
  };
  const open = await alias("open-door", { target_path: "/app?mode=x&k=1" });
  const pinned = await alias("pinned-door", {
    target_path: "/app?mode=x&k=1",
    allow_path_override: false,
  });
  const keysOf = (answer: { json: Record<string, unknown> }) =>
    [...new URL(String(answer.json["url"]), "http://x").searchParams]
      .map((pair) => pair.join("="))
      .toSorted();
  const landed = await send({ host: open, path: "/?mine=1" });
  expect(keysOf(landed)).toEqual(["k=1", "mine=1", "mode=x", "terminal_id=2"]);
  expect(landed.json["hook"]).toMatchObject({ origPath: "/", service: "terminal" });
  const beside = await send({ host: open, path: "/other?mine=1" });
  expect(keysOf(beside)).toEqual(["mine=1", "terminal_id=2"]);
  const forced = await send({ host: pinned, path: "/?mode=y&mine=1&terminal_id=7" });
  expect(keysOf(forced)).toEqual(["k=1", "mine=1", "mode=x", "terminal_id=2"]);
});

test("a deadline: 504 in JSON before the head, a cut after it, and the script runs on", async () => {
  edge.script(
    "slow.js",
    `module.exports = async (req, res, metadata, shared) => {
      shared.log ??= [];
      if (req.url.startsWith('/log')) { return shared.log; }
      if (req.url.startsWith('/stream')) { res.writeHead(200, { 'content-type': 'text/event-stream' }); res.write('data: 1\\n\\n'); }
      await new Promise((wait) => setTimeout(wait, 900));
      const up = await metadata.hook.fetchUpstream(req).catch((error) => ({ status: error.kind }));
      const plain = await fetch('http://127.0.0.1:' + metadata.hook.upstream.port + '/late').catch((error) => ({ status: String(error) }));
      shared.log.push(plain.status);
      try { res.write('late'); res.end('late'); } catch {}
      try { res.writeHead(200); } catch {}
      throw new Error('late');
    };`,
  );
  edge.script("log.js", "module.exports = (req, res, metadata, shared) => shared.log ?? [];");
  const { body } = await edge.api(
    "POST",
    `${HOOKS}/terminal`,
    { match: {}, script: { path: "/slow" } },
    (await edge.api("GET", HOOKS)).etag ?? "",
  );
  expect(JSON.stringify(body.data)).not.toContain('"timeout"'); // the default is not written down
  await send({ path: "/log" }); // loads the script
  const timed = await send({ path: "/wait" });
  expect([timed.status, timed.json["error"]]).toEqual([504, "hook timeout"]);
  expect(timed.headers["content-type"]).toContain("application/json");
  expect(timed.ms).toBeGreaterThanOrEqual(480);
  expect(timed.ms).toBeLessThan(4000);
  const cut = await send({ path: "/stream" });
  expect([cut.status, cut.body, cut.cut]).toEqual([200, "data: 1\n\n", true]);
  await expect
    .poll(async () => (await send({ host: edge.host("exec-1"), path: "/log" })).json, {
      timeout: 8000,
    })
    .toEqual([200, 200]);
  expect(upstream.received.filter((request) => request.url === "/late")).toHaveLength(2);
  for (const timeout of [0, 30_001, 1.5, "500", -1]) {
    const now = (await edge.api("GET", HOOKS)).etag ?? "";
    const answer = await edge.api("POST", `${HOOKS}/terminal`, rule({}, "/one", { timeout }), now);
    expect(answer.status).toBe(422);
  }
  for (const timeout of [1, 30_000]) {
    await edge.hook("terminal", rule({}, "/one", { timeout }));
  }
});

test("a script that throws, hangs or is missing never lets a request through", async () => {
  edge.script("throws.js", "module.exports = () => { throw new Error('inner words'); };");
  await edge.hook("terminal", rule({ path: "/throws" }, "/throws"));
  await edge.hook("terminal", rule({ path: "/missing" }, "/no-such-script"));
  edge.script(
    "caught.js",
    "module.exports = async (req, res) => { try { throw new Error('x') } catch { res.writeHead(200); res.end('open'); } };",
  );
  await edge.hook("terminal", rule({ path: "/caught" }, "/caught"));
  const before = upstream.received.length;
  const thrown = await send({ path: "/throws" });
  expect(thrown.status).toBe(500);
  expect(thrown.body).not.toContain("inner words");
  expect((await send({ path: "/missing" })).status).toBe(404);
  expect((await send({ path: "/caught" })).body).toBe("open");
  expect(upstream.received.length).toBe(before);
});

test("a container's hooks take no other container's requests", async () => {
  await edge.hook("terminal", rule({}));
  const other = await ask(edge.port, { host: edge.host("terminal-1", OTHER) });
  expect([other.status, other.headers["x-took"]]).toEqual([200, undefined]);
});

test("hook data that cannot be read refuses every request to its service, and no other", async () => {
  await edge.hook("terminal", rule({ path: "/never-asked" }));
  await edge.hook("files", rule({ path: "/two" }, "/two"));
  const file = join(edge.folder, "data/policy/containers", `${CONTAINER}.json`);
  const document = JSON.parse(readFileSync(file, "utf8")) as { hooks: Record<string, unknown> };
  writeFileSync(file, JSON.stringify({ ...document, hooks: { ...document.hooks, terminal: 5 } }));
  await expect.poll(async () => (await send({ path: "/any" })).status, { timeout: 8000 }).toBe(503);
  expect((await send({ path: "/any" })).json["code"]).toBe("HOOK_UNAVAILABLE");
  const files = await send({ host: edge.host("files-1"), path: "/two" });
  expect(files.headers["x-took"]).toBe("two GET");
});
