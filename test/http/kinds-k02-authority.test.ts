import { expect, test } from "vitest";
import { CONTAINER, PROJECT, startTestEdge } from "../support/edge.ts";
import { all, eachStatus, handshake, head } from "../support/faults.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

/** K02: one valid Host, one reading of it for everything that follows, and the client's spelling upstream. */

const CLOSE = "Connection: close";

test("a request without exactly one valid Host is 400 and goes nowhere", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const host = edge.host("terminal-1");
  const other = edge.host("files-1");
  const get = (...lines: string[]) => head("GET /x HTTP/1.1", ...lines, CLOSE);
  const inputs = [
    ["none", get()],
    ["an empty one", get("Host:")],
    ["one of blanks", get("Host:    ")],
    ["two equal ones", get(`Host: ${host}`, `host: ${host}`)],
    ["two of different names", get(`Host: ${host}`, "X: 1", `HOST: ${other}`)],
    ["a list", get(`Host: ${host}, ${host}`)],
    ["a list by a blank", get(`Host: ${host} ${other}`)],
    ["user information", get(`Host: user@${host}`)],
    ["user information with a port", get(`Host: ${host}:80@${other}`)],
    ["a path behind", get(`Host: ${host}/x`)],
    ["a query behind", get(`Host: ${host}?x`)],
    ["a fragment behind", get(`Host: ${host}#x`)],
    ["a scheme in front", get(`Host: http://${host}`)],
    ["a backslash", get(`Host: ${host}\\x`)],
    ["a port that is none", get(`Host: ${host}:http`)],
    ["a negative port", get(`Host: ${host}:-1`)],
    ["a port beyond 65535", get(`Host: ${host}:65536`)],
    ["a large port behind zeros", get(`Host: ${host}:0000099999`)],
    ["two ports", get(`Host: ${host}:80:80`)],
    ["a port in the middle of the name", get(`Host: ${host.slice(0, 60)}:80${host.slice(60)}`)],
    ["an open bracket", get("Host: [::1")],
    ["a name in brackets", get(`Host: [${host}]`)],
    ["an address without brackets", get("Host: ::1")],
    ["text behind the brackets", get(`Host: [::1]${host}`)],
    ["a zone", get("Host: [fe80::1%25eth0]")],
    ["a broken escape", get("Host: a%zz.example")],
    ["a letter above ASCII", get("Host: \xe4.example")],
    ["a dotless letter that lower-cases to ASCII", get(`Host: ${host.replace("i", "\xc4\xb0")}`)],
    ["a tab inside", get(`Host: ${host}\tx`)],
    ["only a port", get("Host: :80")],
    ["no Host in 1.0", head("GET /x HTTP/1.0")],
    ["two Hosts in 1.0", head("GET /x HTTP/1.0", `Host: ${host}`, `Host: ${host}`)],
    ["two Hosts in a handshake", handshake(host, "/x", `Host: ${other}`)],
    [
      "an absolute target for another name",
      head(`GET http://${other}/x HTTP/1.1`, `Host: ${host}`, CLOSE),
    ],
    ["an absolute target without Host", head(`GET http://${host}/x HTTP/1.1`, CLOSE)],
    [
      "an absolute target with an empty Host",
      head(`GET http://${host}/x HTTP/1.1`, "Host:", CLOSE),
    ],
    [
      "an absolute target with user information",
      head(`GET http://u@${host}/x HTTP/1.1`, `Host: ${host}`, CLOSE),
    ],
    [
      "an absolute target with a password",
      head(`GET http://u:p@${host}/x HTTP/1.1`, `Host: ${host}`, CLOSE),
    ],
    [
      "an absolute target on another port",
      head(`GET http://${host}:81/x HTTP/1.1`, `Host: ${host}`, CLOSE),
    ],
    [
      "an absolute target with a backslash",
      head(`GET http://${host}\\@${other}/x HTTP/1.1`, `Host: ${host}`, CLOSE),
    ],
    [
      "an absolute target with a fragment",
      head(`GET http://${host}#/x HTTP/1.1`, `Host: ${host}`, CLOSE),
    ],
    ["an absolute target without a name", head("GET http:///x HTTP/1.1", `Host: ${host}`, CLOSE)],
    [
      "an absolute target with one slash",
      head(`GET http:/${host}/x HTTP/1.1`, `Host: ${host}`, CLOSE),
    ],
    ["another scheme", head(`GET ftp://${host}/x HTTP/1.1`, `Host: ${host}`, CLOSE)],
    ["a websocket scheme", head(`GET ws://${host}/x HTTP/1.1`, `Host: ${host}`, CLOSE)],
    ["a file scheme", head("GET file:///etc/passwd HTTP/1.1", `Host: ${host}`, CLOSE)],
    ["an authority form outside CONNECT", head(`GET ${host}:80 HTTP/1.1`, `Host: ${host}`, CLOSE)],
    ["CONNECT", head(`CONNECT ${host}:80 HTTP/1.1`, `Host: ${host}:80`)],
    ["CONNECT with a path", head("CONNECT /x HTTP/1.1", `Host: ${host}`)],
    ["an asterisk for GET", head("GET * HTTP/1.1", `Host: ${host}`, CLOSE)],
    ["a relative path", head("GET x HTTP/1.1", `Host: ${host}`, CLOSE)],
    ["a query alone", head("GET ?x HTTP/1.1", `Host: ${host}`, CLOSE)],
    ["an absolute handshake for another name", handshake(host, `http://${other}/x`)],
  ] as const;
  expect(await eachStatus(edge.port, inputs)).toEqual(all(inputs, "400"));
  expect(upstream.bytes).toEqual([]);
});

test("valid names that nothing answers to are 404, each in its own way", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const host = edge.host("terminal-1");
  const suffix = ".local.containers.localhost";
  const base = `${PROJECT}-${CONTAINER}`;
  const names = [
    `${host}..`,
    `.${host}`,
    `x.${host}`,
    `x.y.${base}-exec-1${suffix}`,
    `${base}-terminal-01${suffix}`,
    `${base}-terminal-+1${suffix}`,
    `${base}-terminal-1.0${suffix}`,
    `${base}-terminal-65536${suffix}`,
    `${base}-terminal-1-1${suffix}`,
    `${base}-terminal-${suffix}`,
    `${base}--terminal-1${suffix}`,
    `${base}-${suffix}`,
    `${base}-desktop-0${suffix}`,
    `${base}-http-0${suffix}`,
    `${base}-http-65536${suffix}`,
    `${base}-http-080${suffix}`,
    `${base}-constructor-1${suffix}`,
    `${base}-__proto__-1${suffix}`,
    `${base}-tostring${suffix}`,
    `${PROJECT}-${CONTAINER.toUpperCase().slice(0, -1)}-terminal-1${suffix}`,
    `${base}-terminal-1.other.containers.localhost`,
    `${base}-terminal-1.localxcontainers.localhost`,
    `${base}-terminal-1${suffix}.evil.example`,
    `local.containers.localhost`,
    "__proto__.local.containers.localhost",
    "constructor.local.containers.localhost",
    "127.0.0.1",
    "[::1]",
    "[v1.x]",
    host.replace("-terminal", "%2dterminal"),
    `${"a".repeat(64)}${suffix}`,
    "a".repeat(5000),
  ];
  const inputs = names.map(
    (name) => [name, head("GET /x HTTP/1.1", `Host: ${name}`, CLOSE)] as const,
  );
  expect(await eachStatus(edge.port, inputs)).toEqual(all(inputs, "404"));
  expect(upstream.bytes).toEqual([]);
});

test("every equal spelling of a name meets the same rule, and keeps its spelling upstream", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  await edge.hook("terminal", {
    match: { path: "/admin*" },
    script: { path: "/gone" },
    timeout: 20_000,
  });
  const host = edge.host("terminal-1");
  const port = upstream.port;
  const spellings = [
    host,
    host.toUpperCase(),
    `${host}.`,
    `${host.toUpperCase()}.:0443`,
    `${host}:`,
    `${host}:1`,
    `${host}:65535`,
    edge.host("terminal"),
    edge.host("t-1"),
    edge.host("TTYD-1"),
    edge.host(`http-${port}`),
  ];
  const guarded = spellings.flatMap((name) => [
    [name, head("GET /admin/x HTTP/1.1", `Host: ${name}`, CLOSE)] as const,
    [
      `absolute ${name}`,
      head(`GET http://${name}/admin/x HTTP/1.1`, `Host: ${name}`, CLOSE),
    ] as const,
    [`handshake ${name}`, handshake(name, "/admin/x")] as const,
  ]);
  const answers = await eachStatus(edge.port, guarded);
  for (const [name, status] of Object.entries(answers)) {
    expect([name, status]).toEqual([name, name.startsWith("handshake") ? "403" : "404"]);
  }
  expect(upstream.bytes).toEqual([]);

  const free = spellings.map(
    (name) => [name, head("GET /x HTTP/1.1", `Host: ${name}`, CLOSE)] as const,
  );
  expect(await eachStatus(edge.port, free)).toEqual(all(free, "200"));
  const hosts = upstream.requests.map((r) => r.lines.filter((line) => /^host:/i.test(line)).join());
  expect(hosts.toSorted()).toEqual(spellings.map((name) => `Host: ${name}`).toSorted());
});

test("an absolute target arrives as a path, whatever its spelling", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const host = edge.host("terminal-1");
  for (const [target, path, hostLine] of [
    [`http://${host}/a?b`, "/a", host],
    [`HTTP://${host.toUpperCase()}/a//b`, "/a//b", host],
    [`https://${host}./`, "/", host],
    [`http://${host}`, "/", `${host}:80`],
    [`http://${host}?q=/x`, "/", host],
    [`http://${host}:8080//other/x`, "//other/x", `${host}:8080`],
    [`http://${host}/http://evil/`, "/http://evil/", host],
  ] as const) {
    const before = upstream.requests.length;
    await eachStatus(edge.port, [["", head(`GET ${target} HTTP/1.1`, `Host: ${hostLine}`, CLOSE)]]);
    const request = upstream.requests[before];
    expect([target, request?.target.split("?")[0], request?.lines[0]]).toEqual([
      target,
      path,
      `Host: ${hostLine}`,
    ]);
  }
});
