import { expect, test } from "vitest";
import { CONTAINER, startTestEdge } from "../support/edge.ts";
import { all, eachStatus, handshake, head, pathsOf } from "../support/faults.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

/** K03: no spelling of a guarded path arrives at the service without its guard. */

/** Every one of these is served as something below `/admin` by some service: raw, decoded, resolved, or all of it. */
const GUARDED = [
  "/admin",
  "/admin/",
  "/admin/x",
  "/admin?x",
  "/%61dmin/x",
  "/%61%64%6d%69%6e",
  "/%61%64%6D%69%6E/x",
  "/%2561dmin/x",
  "/%25%36%31dmin/x",
  "/%2525%32%35%36%31dmin",
  "//admin/x",
  "///admin",
  "/./admin/x",
  "/.//admin/x",
  "/%2e/admin/x",
  "/%2E%2F/admin/x",
  "/%2fadmin/x",
  "/%2Fadmin/x",
  "/public/../admin/x",
  "/public/%2e%2e/admin/x",
  "/public/.%2e/admin/x",
  "/public/%2e./admin/x",
  "/public/..%2fadmin/x",
  "/public%2f..%2fadmin%2fx",
  "/public/%2e%2e%2fadmin/x",
  "/public/%252e%252e/admin/x",
  "/public/%252e%252e%252fadmin",
  "/public/%25252e%25252e%25252fadmin",
  "/public/..\\admin\\x",
  "/\\admin",
  "/public\\..\\admin",
  "/public/..%5cadmin",
  "/public/..%5Cadmin",
  "/public/%2e%2e%5cadmin",
  "/public/..%255cadmin",
  "/public/..%252f%5cadmin",
  "/public//../admin/x",
  "/public///../../admin",
  "/a//../b/../admin",
  "/a/b/../../admin/x",
  "/a/%2e%2e/%2e/%2e%2e/admin/x",
  "/../admin/x",
  "/../../../admin",
  "/%2e%2e/admin",
  "/..%2f..%2fadmin",
  "/..\\admin",
  "/admin/../admin/x",
  "/admin/..",
  "/admin/%2e%2e/public",
  "/admin%2fx",
  "/admin%5cx",
  "/admin\\x",
  "/admin%00",
  "/admin.",
  "/admin;a=b/x",
  "/admin%3bx",
  "/admin%20",
  "/admin%09",
  "/admin%23x",
  "/admin#x",
  "/admin%3fx",
  "/x/..//admin",
  "/x//..//..//admin",
  // A service that decodes once sees its way into `/admin`, one that decodes twice out of it again.
  "/x/%2e%2e/admin/y/%252e%252e/%252e%252e/public",
  "/x/..%2fadmin%2f%252e%252e%2fpublic",
  // A service that resolves before it decodes, and the other way round.
  "/x/../admin/%2e%2e/public",
  "/x/../admin/..%2fpublic",
  "/x/../admin%2f..%2fpublic",
  "/x//../../admin/%2e%2e",
];

test("no spelling of a guarded path reaches the service", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  await edge.hook("terminal", {
    match: { path: "/admin*" },
    script: { path: "/gate" },
    timeout: 20_000,
  });
  edge.script("gate.js", "module.exports = (req, res) => { res.statusCode = 401; res.end(); };");
  const host = edge.host("terminal-1");
  const plain = GUARDED.map(
    (path) => [path, head(`GET ${path} HTTP/1.1`, `Host: ${host}`, "Connection: close")] as const,
  );
  expect(await eachStatus(edge.port, plain)).toEqual(all(plain, "401"));
  const absolute = GUARDED.map(
    (path) =>
      [
        path,
        head(`GET http://${host}${path} HTTP/1.1`, `Host: ${host}`, "Connection: close"),
      ] as const,
  );
  expect(await eachStatus(edge.port, absolute)).toEqual(all(absolute, "401"));
  const switches = GUARDED.map((path) => [path, handshake(host, path)] as const);
  expect(await eachStatus(edge.port, switches)).toEqual(all(switches, "403"));
  expect(upstream.bytes).toEqual([]);
}, 40_000);

test("a guard on one exact path is met by every equal reading of it", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({
    upstream: upstream.port,
    container: { exec: { kind: "none" } },
  });
  await edge.hook("terminal", { match: { path: "/a/secret" }, script: { path: "/gate" } });
  await edge.hook("terminal", { match: { path: "/users/*/keys" }, script: { path: "/gate" } });
  const host = edge.host("terminal-1");
  const guarded = [
    "/a/secret",
    "/a/./secret",
    "/a//secret",
    "/a%2fsecret",
    "/a%5csecret",
    "/a\\secret",
    "/a/x/../secret",
    "/a/secret/x/..%2f..%2fsecret",
    "/%2561/%2573ecret",
    "/b/..//a///./secret",
    "/a/secret#x",
    "/users/7/keys",
    "/users/7//keys",
    "/users/7/8/../keys",
    "/users/7%2Fkeys",
    "/users//7/./keys",
    "/users/%37/%6beys",
    "/users/x/..%2fy%5ckeys",
  ].map(
    (path) => [path, head(`GET ${path} HTTP/1.1`, `Host: ${host}`, "Connection: close")] as const,
  );
  expect(await eachStatus(edge.port, guarded)).toEqual(all(guarded, "503"));
  expect(upstream.bytes).toEqual([]);

  const free = [
    "/a/secre",
    "/a/secrets",
    "/A/secret",
    "/a/secret/x",
    "/a/secret%2fx",
    "/a/secret%zz",
    "/a/..secret",
    "/users/7/8/keys",
    "/users/keys",
    "/users/7/keysx",
    "/x?/a/secret",
    "/x?y=/../a/secret",
  ];
  const sent = free.map(
    (path) => [path, head(`GET ${path} HTTP/1.1`, `Host: ${host}`, "Connection: close")] as const,
  );
  expect(await eachStatus(edge.port, sent)).toEqual(all(sent, "200"));
  expect(pathsOf(upstream).toSorted()).toEqual(
    free.map((path) => path.split("?", 1).join()).toSorted(),
  );
});

test("a script that forwards a dot segment or a leading // gets 400 and the service nothing", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  await edge.hook("terminal", { match: {}, script: { path: "/pass" }, timeout: 10_000 });
  edge.script("pass.js", "module.exports = (req, res, { hook }) => hook.forward(req, res);");
  const host = edge.host("terminal-1");
  const refused = [
    "/..",
    "/.",
    "/a/..",
    "/a/./b",
    "/a/%2e",
    "/a/%2E%2e/b",
    "/a/.%2E",
    "//a",
    "///",
    "//",
    "/a/../",
  ].map(
    (path) => [path, head(`GET ${path} HTTP/1.1`, `Host: ${host}`, "Connection: close")] as const,
  );
  expect(await eachStatus(edge.port, refused)).toEqual(all(refused, "400"));
  expect(upstream.bytes).toEqual([]);

  const passed = [
    "/a//b",
    "/a/...",
    "/a/..b",
    "/a/%252e%252e/b",
    "/a/..;/b",
    "/a/",
    "/%",
    "/%zz",
    "/@x/y",
    "/a|b^c`{}",
  ];
  const sent = passed.map(
    (path) => [path, head(`GET ${path} HTTP/1.1`, `Host: ${host}`, "Connection: close")] as const,
  );
  expect(await eachStatus(edge.port, sent)).toEqual(all(sent, "200"));
  expect(pathsOf(upstream).toSorted()).toEqual(passed.toSorted());
});

test("an alias leads round no guard: its landing path is judged, its pin holds for every spelling", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({
    upstream: upstream.port,
    container: { exec: { kind: "none" } },
  });
  await edge.hook("terminal", { match: { path: "/admin*" }, script: { path: "/gate" } });
  const alias = async (name: string, target_path: string, allow_path_override: boolean) => {
    const made = await edge.api("POST", "/api/v1/proxy/aliases", {
      container_id: CONTAINER,
      alias: name,
      program: "terminal",
      index: 3,
      target_path,
      allow_path_override,
    });
    expect(made.status).toBe(201);
    return `${name}.local.containers.localhost`;
  };
  const open = await alias("lands-open", "/admin/x?a=1&terminal_id=9", true);
  const spelled = await alias("lands-spelled", "/x/..%2fadmin?b=%31", true);
  const pinned = await alias("lands-pinned", "/app?mode=kiosk&terminal_id=9", false);
  const ask = (host: string, path: string) =>
    [`${host}${path}`, head(`GET ${path} HTTP/1.1`, `Host: ${host}`, "Connection: close")] as const;
  const guarded = [
    ask(open, "/"),
    ask(open, "/?a=2"),
    ask(open, "/admin"),
    ask(open, "/%61dmin"),
    ask(open, "//admin"),
    ask(spelled, "/"),
    ask(spelled, "/x/../admin"),
  ];
  expect(await eachStatus(edge.port, guarded)).toEqual(all(guarded, "503"));
  const elsewhere = [
    "/admin",
    "/app/",
    "/app/x",
    "/%61pp",
    "//",
    "/.",
    "/%2e",
    "/app%2f",
    "/APP",
    "//app",
    "/./app",
    "/x/../app",
    "/app;x",
    "/app#x",
  ].map((path) => ask(pinned, path));
  expect(await eachStatus(edge.port, elsewhere)).toEqual(all(elsewhere, "404"));
  expect(upstream.bytes).toEqual([]);
  const landing = [
    ask(pinned, "/?mode=admin&m%6fde=root&x=1"),
    ask(pinned, "/app?mode=admin&terminal_id=7"),
  ];
  expect(await eachStatus(edge.port, landing)).toEqual(all(landing, "200"));
  expect(upstream.requests.map(({ target }) => target).toSorted()).toEqual([
    "/app?mode=kiosk&terminal_id=3&display=3",
    "/app?mode=kiosk&x=1&terminal_id=3&display=3",
  ]);
});
