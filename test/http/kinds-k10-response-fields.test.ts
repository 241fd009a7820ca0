import { expect, test } from "vitest";
import { head, namesOf, readAnswers, until } from "../support/faults.ts";
import { startFaultEdge } from "../support/fault-routes.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";

/** K10: fields of an answer arrive as lines, in order, byte for byte, or the answer is one 502. */

const LINES = [
  "X-First: 1",
  "Set-Cookie: a=1; Expires=Wed, 09 Jun 2027 10:18:14 GMT",
  "Vary: Accept",
  "set-cookie: b=2, c=3; Path=/",
  "SET-COOKIE: a=1; Expires=Wed, 09 Jun 2027 10:18:14 GMT",
  'Set-Cookie: d="x, y"; Secure',
  "Set-Cookie: ",
  'WWW-Authenticate: Basic realm="a, b"',
  "WWW-Authenticate: Bearer",
  "Link: </a>; rel=x, </b>; rel=y",
  "link: </c>; rel=z",
  "X-Empty:",
  "X-High: \xe4\xff\x80 \xc3\xa9",
  "X-Tab: a\tb",
  "Cache-Control: no-cache",
  "cache-control: no-store",
  "Server: of its own",
  "X-Hoody-Hook-Audit: of-the-service",
  'X-Quote: "\\" \' ; , =',
];
const COOKIES = LINES.filter((line) => /^set-cookie:/i.test(line)).map((line) =>
  line.slice(11).trim(),
);

const cookiesOf = (lines: readonly string[] | undefined) =>
  (lines ?? []).filter((line) => /^set-cookie:/i.test(line)).map((line) => line.slice(11).trim());

async function get(port: number, host: string, path: string) {
  const text = await rawExchange(
    port,
    head(`GET ${path} HTTP/1.1`, `Host: ${host}`, "Connection: close"),
    10_000,
  );
  return readAnswers(text)[0];
}

test("plain answers arrive line by line in the service's order and spelling", async () => {
  const faults = await startFaultEdge(() =>
    head("HTTP/1.1 200 Fine \xe4!", ...LINES, "Content-Length: 0"),
  );
  const text = await rawExchange(
    faults.edge.port,
    head("GET /plain HTTP/1.1", `Host: ${faults.edge.host("terminal-1")}`, "Connection: close"),
  );
  expect(text.split("\r\n")[0]).toBe("HTTP/1.1 200 Fine \xe4!");
  const lines = readAnswers(text)[0]?.lines ?? [];
  expect(lines.slice(0, LINES.length).map((line) => line.trimEnd())).toEqual(
    LINES.map((line) => line.trimEnd()),
  );
});

test("cookies stay lines of their own in order, and high bytes unchanged, on every way of answering", async () => {
  const faults = await startFaultEdge(() => head("HTTP/1.1 200 OK", ...LINES, "Content-Length: 0"));
  for (const route of faults.routes.filter(({ shows }) => shows === "service")) {
    const answer = await get(faults.edge.port, route.host, route.path);
    expect([route.name, cookiesOf(answer?.lines)]).toEqual([route.name, COOKIES]);
    const high = answer?.lines.find((line) => /^x-high:/i.test(line));
    expect([route.name, high?.slice(8)]).toEqual([route.name, "\xe4\xff\x80 \xc3\xa9"]);
    const vary = answer?.lines.filter((line) => /^(?:vary|x-tab|x-quote):/i.test(line)).length;
    expect([route.name, vary]).toEqual([route.name, 3]);
  }
}, 40_000);

test("cookies that a script staged stand beside the service's, on every way of answering", async () => {
  const faults = await startFaultEdge(() =>
    head(
      "HTTP/1.1 200 OK",
      "Set-Cookie: s=1; Expires=Wed, 09 Jun 2027 10:18:14 GMT",
      "Set-Cookie: s=2",
      "X-Both: service",
      "Content-Length: 0",
    ),
  );
  const { edge } = faults;
  const stage = `res.setHeader("Set-Cookie", ["mine=1", "mine=2; Expires=Thu, 10 Jun 2027 10:18:14 GMT"]); res.setHeader("X-Both", "script"); res.setHeader("X-Mine", "\\u00e4");`;
  const ways = {
    f: "hook.forward(req, res)",
    p: "hook.pipeResponse(await hook.fetchUpstream(req), res)",
    r: "hook.fetchUpstream(req)",
  };
  for (const [name, call] of Object.entries(ways)) {
    edge.script(
      `cookie-${name}.js`,
      `module.exports = async (req, res, { hook }) => { ${stage} return await ${call}; };`,
    );
    await edge.hook("terminal", {
      match: { path: `/cookie-${name}` },
      script: { path: `/cookie-${name}` },
      timeout: 15_000,
    });
    const answer = await get(edge.port, edge.host("terminal-1"), `/cookie-${name}`);
    const cookies = cookiesOf(answer?.lines);
    expect([name, cookies.toSorted()]).toEqual([
      name,
      [
        "mine=1",
        "mine=2; Expires=Thu, 10 Jun 2027 10:18:14 GMT",
        "s=1; Expires=Wed, 09 Jun 2027 10:18:14 GMT",
        "s=2",
      ],
    ]);
    expect([
      name,
      answer?.lines.filter((line) => /^x-both:/i.test(line)).map((line) => line.slice(8)),
    ]).toEqual([name, ["service"]]);
    expect([name, answer?.lines.find((line) => /^x-mine:/i.test(line))?.slice(8)]).toEqual([
      name,
      "\xe4",
    ]);
  }
}, 40_000);

/** Answers that cannot be passed on: each is one 502 for its request, and the next one is served. */
const BAD = [
  ["a blank before the colon", head("HTTP/1.1 200 OK", "X-Bad : 1", "Content-Length: 0")],
  ["a continuation line", head("HTTP/1.1 200 OK", "X-Bad: 1", " 2", "Content-Length: 0")],
  ["a name with a blank", head("HTTP/1.1 200 OK", "X Bad: 1", "Content-Length: 0")],
  ["a name with a high byte", head("HTTP/1.1 200 OK", "X-\xe4: 1", "Content-Length: 0")],
  ["no name", head("HTTP/1.1 200 OK", ": 1", "Content-Length: 0")],
  ["no colon", head("HTTP/1.1 200 OK", "nothing", "Content-Length: 0")],
  ["NUL in a value", head("HTTP/1.1 200 OK", "X: a\0b", "Content-Length: 0")],
  [
    "a bare CR in a value",
    head("HTTP/1.1 200 OK", "X: a\rSet-Cookie: evil=1", "Content-Length: 0"),
  ],
  [
    "a bare LF in a value",
    head("HTTP/1.1 200 OK", "X: a\nSet-Cookie: evil=1", "Content-Length: 0"),
  ],
  ["ESC in a value", head("HTTP/1.1 200 OK", "X: \x1b[2J", "Content-Length: 0")],
  ["a control in the reason", head("HTTP/1.1 200 O\x01K", "Content-Length: 0")],
  ["a status of two digits", head("HTTP/1.1 20 OK", "Content-Length: 0")],
  ["a status of 000", head("HTTP/1.1 000 OK", "Content-Length: 0")],
  ["a status with a sign", head("HTTP/1.1 +20 OK", "Content-Length: 0")],
  ["version 2", head("HTTP/2 200 OK", "Content-Length: 0")],
  ["version 1.2", head("HTTP/1.2 200 OK", "Content-Length: 0")],
  ["lower-case version", head("http/1.1 200 OK", "Content-Length: 0")],
  ["LF line ends", "HTTP/1.1 200 OK\nContent-Length: 0\n\n"],
  ["two lengths", head("HTTP/1.1 200 OK", "Content-Length: 1", "Content-Length: 2") + "x"],
  ["a list of lengths", head("HTTP/1.1 200 OK", "Content-Length: 1, 2") + "x"],
  ["a signed length", head("HTTP/1.1 200 OK", "Content-Length: +1") + "x"],
  [
    "length and chunks",
    head("HTTP/1.1 200 OK", "Content-Length: 1", "Transfer-Encoding: chunked") + "0\r\n\r\n",
  ],
  ["another coding", head("HTTP/1.1 200 OK", "Transfer-Encoding: gzip, chunked") + "0\r\n\r\n"],
  ["an endless head", `HTTP/1.1 200 OK\r\n${"X: y\r\n".repeat(30_000)}\r\n`],
  ["an endless value", head("HTTP/1.1 200 OK", `X: ${"y".repeat(200_000)}`, "Content-Length: 0")],
  ["no HTTP at all", "220 mail.example ESMTP\r\n"],
  ["TLS", "\x15\x03\x01\x00\x02\x02\x50"],
] as const;

test("an answer that cannot be sent on is one 502 for its request, on every way of answering", async () => {
  const bad = new Map<string, string>(BAD.map(([, bytes], at) => [String(at), bytes]));
  const faults = await startFaultEdge((request) => {
    const at = request.lines.find((line) => line.startsWith("X-Case: "))?.slice(8) ?? "";
    return bad.get(at) ?? `${head("HTTP/1.1 200 OK", "Content-Length: 2")}ok`;
  });
  const { edge } = faults;
  for (const route of faults.routes.filter(({ name }) =>
    ["plain", "agent", "forward"].includes(name),
  )) {
    const client = await rawClient(edge.port);
    let seen = 0;
    for (const [at, [name]] of BAD.entries()) {
      client.send(head(`GET ${route.path} HTTP/1.1`, `Host: ${route.host}`, `X-Case: ${at}`));
      client.send(head(`GET ${route.path} HTTP/1.1`, `Host: ${route.host}`));
      const statuses = (): string[] =>
        [...client.received().matchAll(/HTTP\/1\.1 ([0-9]{3}) /g)].map((match) => String(match[1]));
      await until(`answers to ${name}`, () => statuses().length >= seen + 2, 8000);
      seen += 2;
      expect([route.name, name, statuses().slice(-2)]).toEqual([route.name, name, ["502", "200"]]);
    }
    expect(client.received()).not.toMatch(/evil=1|\x1b|127\.0\.0\.1/);
    client.socket.destroy();
  }
}, 60_000);

test("what a script cannot send is an error of its own request", async () => {
  const faults = await startFaultEdge();
  const { edge } = faults;
  edge.script(
    "odd.js",
    `const cases = {
      value: (res) => res.setHeader("X-Bad", "a\\r\\nSet-Cookie: evil=1"),
      wide: (res) => res.setHeader("X-Bad", "\\u4e2d"),
      name: (res) => res.setHeader("X Bad", "1"),
      status: (res) => res.writeHead(1),
      big: (res) => res.writeHead(1000),
      interim: (res) => res.writeHead(101),
      reason: (res) => res.writeHead(200, "a\\r\\nb"),
      list: (res) => res.writeHead(200, ["a"]),
      huge: (res) => { res.setHeader("X-Big", "y".repeat(300000)); res.end("x"); },
    };
    module.exports = (req, res) => { cases[req.headers["x-case"]](res); res.end("done"); };`,
  );
  for (const name of [
    "value",
    "wide",
    "name",
    "status",
    "big",
    "interim",
    "reason",
    "list",
    "huge",
  ]) {
    const text = await rawExchange(
      edge.port,
      head(
        "GET /odd HTTP/1.1",
        `Host: ${edge.host("exec-1")}`,
        `X-Case: ${name}`,
        "Connection: close",
      ),
      10_000,
    );
    const [answer, ...more] = readAnswers(text);
    expect([name, answer?.status, more.length]).toEqual([name, 500, 0]);
    expect(text).not.toContain("evil");
    expect([name, namesOf(answer?.lines).filter((line) => line === "x-bad")]).toEqual([name, []]);
  }
  const good = await get(edge.port, edge.host("exec-1"), "/echo");
  expect(good?.status).toBe(200);
});
