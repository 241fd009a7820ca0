import { expect, test } from "vitest";
import { startTestEdge } from "../support/edge.ts";
import { all, eachStatus, head, pathsOf } from "../support/faults.ts";
import { rawClient } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

/** K01: whatever two readers could end at different places is refused, and nothing of it travels. */

const HIDDEN = (host: string) => head("GET /smuggled HTTP/1.1", `Host: ${host}`);

function ambiguous(host: string): (readonly [string, string])[] {
  const H = `Host: ${host}`;
  const post = (...lines: string[]) => head("POST /bad HTTP/1.1", H, ...lines);
  const cases: [string, string][] = [
    [
      "length, lines around others",
      post("Content-Length: 3", "X: 1", "content-length: 30") + "abc",
    ],
    ["length list of equals", post("Content-Length: 3,3") + "abc"],
    ["length list with an empty part", post("Content-Length: 3,") + "abc"],
    ["negative length", post("Content-Length: -0") + "abc"],
    ["signed zero length", post("Content-Length: +0") + "abc"],
    ["hex length", post("Content-Length: 0x0") + "abc"],
    ["octal-looking text", post("Content-Length: 3o") + "abc"],
    ["exponent length", post("Content-Length: 1e1") + "abc"],
    ["decimal point length", post("Content-Length: 3.0") + "abc"],
    ["length with a blank inside", post("Content-Length: 1 0") + "abc"],
    ["length with an underscore", post("Content-Length: 1_0") + "abc"],
    ["length beyond 2^64", post("Content-Length: 18446744073709551619") + "abc"],
    ["length beyond 2^53", post("Content-Length: 9007199254740993") + "abc"],
    ["quoted length", post('Content-Length: "3"') + "abc"],
    [
      "length and chunks, other case",
      post("cOnTeNt-LeNgTh: 0", "tRaNsFeR-eNcOdInG: chunked") + "0\r\n\r\n",
    ],
    [
      "chunks and zero length",
      post("Transfer-Encoding: chunked", "Content-Length: 0") + "0\r\n\r\n",
    ],
    ["coding with a parameter", post("Transfer-Encoding: chunked;q=1") + "0\r\n\r\n"],
    ["coding with a comma behind", post("Transfer-Encoding: chunked,") + "0\r\n\r\n"],
    ["coding with a comma in front", post("Transfer-Encoding: ,chunked") + "0\r\n\r\n"],
    ["coding twice in a line", post("Transfer-Encoding: chunked, chunked") + "0\r\n\r\n"],
    [
      "codings in two lines",
      post("Transfer-Encoding: gzip", "Transfer-Encoding: chunked") + "0\r\n\r\n",
    ],
    ["a coding that only looks chunked", post("Transfer-Encoding: xchunked") + "0\r\n\r\n"],
    ["a coding with a suffix", post("Transfer-Encoding: chunkedfoo") + "0\r\n\r\n"],
    ["a coding with NUL", post("Transfer-Encoding: chunked\0") + "0\r\n\r\n"],
    ["a coding with VT", post("Transfer-Encoding: chunked\x0b") + "0\r\n\r\n"],
    ["a coding with form feed", post("Transfer-Encoding:\x0cchunked") + "0\r\n\r\n"],
    ["a coding with a no-break blank", post("Transfer-Encoding:\xa0chunked") + "0\r\n\r\n"],
    ["name with a tab before the colon", post("Content-Length\t: 3") + "abc"],
    ["name with a no-break blank", post("Content-Length\xa0: 3") + "abc"],
    ["name with a blank inside", post("Content Length: 3") + "abc"],
    ["name in brackets", post("(Content-Length): 3") + "abc"],
    ["name with a high byte", post("Content-L\xe4ngth: 3") + "abc"],
    ["name with DEL", post("X\x7f: 3") + "abc"],
    ["continued Host", head("GET /bad HTTP/1.1", "Host:", ` ${host}`)],
    ["continued by a tab", head("GET /bad HTTP/1.1", H, "X: 1", "\tContent-Length: 3") + "abc"],
    ["continuation before any field", head("GET /bad HTTP/1.1", "\tX: 1", H)],
    ["continuation that is blank", head("GET /bad HTTP/1.1", H, "X: 1", " ")],
    ["a blank first line inside", `GET /bad HTTP/1.1\r\n${H}\r\n \r\n\r\n`],
    ["bare LF before the blank line", `GET /bad HTTP/1.1\r\n${H}\n\r\n`],
    ["blank line of LF", `GET /bad HTTP/1.1\r\n${H}\r\n\n`],
    ["bare CR between fields", `POST /bad HTTP/1.1\r\n${H}\rContent-Length: 3\r\n\r\nabc`],
    ["CR CR LF", `GET /bad HTTP/1.1\r\n${H}\r\r\n\r\n`],
    ["ESC in a value", head("GET /bad HTTP/1.1", H, "X: \x1b[31m")],
    ["line without a colon", head("GET /bad HTTP/1.1", H, "Content-Length")],
    ["line of a colon", head("GET /bad HTTP/1.1", H, ":")],
    ["pseudo field", head("GET /bad HTTP/1.1", H, ":path: /x")],
    ["version in lower case", head("GET /bad http/1.1", H)],
    ["version 1.11", head("GET /bad HTTP/1.11", H)],
    ["version 01.1", head("GET /bad HTTP/01.1", H)],
    ["version 1", head("GET /bad HTTP/1", H)],
    ["version 3.0", head("GET /bad HTTP/3.0", H)],
    ["another protocol", head("GET /bad RTSP/1.0", H)],
    ["yet another protocol", head("SOURCE /bad ICE/1.0", H)],
    ["HTTP/0.9 without a version", "GET /bad\r\n\r\n"],
    ["method in lower case", head("get /bad HTTP/1.1", H)],
    ["method with a slash", head("GE/T /bad HTTP/1.1", H)],
    ["no method", head(" /bad HTTP/1.1", H)],
    ["no target", head("GET HTTP/1.1", H)],
    ["tabs as separators", head("GET\t/bad\tHTTP/1.1", H)],
    ["target with a tab", head("GET /bad\tx HTTP/1.1", H)],
    ["two targets", head("GET /bad /worse HTTP/1.1", H)],
    ["target with NUL", head("GET /bad\0 HTTP/1.1", H)],
    ["TLS on the plain port", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + "x".repeat(64)],
    ["the preface of HTTP/2 with frames", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"],
  ];
  return cases.map(([name, bytes]) => [name, bytes + HIDDEN(host)] as const);
}

test("a message that can be read in two ways is one 400, and the edge sends nothing on", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const inputs = ambiguous(edge.host("terminal-1"));
  expect(await eachStatus(edge.port, inputs)).toEqual(all(inputs, "400"));
  expect(upstream.bytes).toEqual([]);
});

const BROKEN_CHUNKS: readonly (readonly [string, string])[] = [
  ["a size beyond 2^64", "10000000000000003\r\nabc\r\n0\r\n\r\n"],
  ["a size of nothing", "\r\nabc\r\n0\r\n\r\n"],
  ["a size of blanks", "  \r\nabc\r\n0\r\n\r\n"],
  ["a blank behind the size", "3 \r\nabc\r\n0\r\n\r\n"],
  ["a tab behind the size", "3\t\r\nabc\r\n0\r\n\r\n"],
  ["a minus size", "-3\r\nabc\r\n0\r\n\r\n"],
  ["a size with h", "3h\r\nabc\r\n0\r\n\r\n"],
  ["a size ended by CR alone", "3\rabc\r\n0\r\n\r\n"],
  ["a size ended by CR CR LF", "3\r\r\nabc\r\n0\r\n\r\n"],
  ["no CRLF behind the data", "3\r\nabc0\r\n\r\n"],
  ["CR alone behind the data", "3\r\nabc\r0\r\n\r\n"],
  ["LF CR behind the data", "3\r\nabc\n\r0\r\n\r\n"],
  ["a last chunk ended by LF", "3\r\nabc\r\n0\n\n"],
  ["a last chunk of 0x0", "3\r\nabc\r\n0x0\r\n\r\n"],
  ["an extension with a bare CR", "3;a=\rb\r\nabc\r\n0\r\n\r\n"],
  ["an extension with a bare LF", "3;a=b\nabc\r\n0\r\n\r\n"],
  ["an extension with NUL", "3;a=\0\r\nabc\r\n0\r\n\r\n"],
  ["a trailer without a colon", "3\r\nabc\r\n0\r\nnothing\r\n\r\n"],
  ["a trailer with a blank before the colon", "3\r\nabc\r\n0\r\nX : 1\r\n\r\n"],
  ["a trailer ended by LF", "3\r\nabc\r\n0\r\nX: 1\n\r\n"],
];

test("an upload whose chunks break never becomes a complete message at the service", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const host = edge.host("terminal-1");
  const inputs = BROKEN_CHUNKS.flatMap(([name, chunks]) => [
    [
      name,
      head("PUT /bad HTTP/1.1", `Host: ${host}`, "Transfer-Encoding: chunked") +
        chunks +
        HIDDEN(host),
    ] as const,
  ]);
  const statuses = await eachStatus(edge.port, inputs);
  for (const [name] of inputs) {
    // Refused, or cut where the answer could not be made any more; never served.
    expect([name, statuses[name]]).toEqual([name, expect.stringMatching(/^(?:400)?$/)]);
  }
  expect(upstream.requests).toEqual([]);
  expect(upstream.bytes.join("")).not.toContain("smuggled");
});

test("bytes that are no request behind a good one are told after its answer, and end the connection", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const H = `Host: ${edge.host("terminal-1")}`;
  const good = head("GET /good HTTP/1.1", H);
  const inputs = [
    ["garbage", `${good}%%%\r\n\r\n${good}`],
    [
      "surplus of a length",
      `${head("POST /good HTTP/1.1", H, "Content-Length: 3")}abcd\r\n\r\n${good}`,
    ],
    [
      "two lengths",
      `${good}${head("POST /bad HTTP/1.1", H, "Content-Length: 1", "Content-Length: 1")}x${good}`,
    ],
    [
      "chunks in 1.0",
      `${good}${head("POST /bad HTTP/1.0", H, "Transfer-Encoding: chunked")}0\r\n\r\n${good}`,
    ],
    ["a second Host", `${good}${head("GET /bad HTTP/1.1", H, H)}`],
  ] as const;
  expect(await eachStatus(edge.port, inputs)).toEqual(all(inputs, "200 400"));
  expect(pathsOf(upstream)).toEqual(inputs.map(() => "/good"));
});

const ACCEPTED = [
  ["Transfer-Encoding: Chunked", "3\r\nabc\r\n0\r\n\r\n"],
  ["TRANSFER-ENCODING:\tchunked  ", "3\r\nabc\r\n0\r\n\r\n"],
  ["Transfer-Encoding: chunked", '3;name="va;lue"\r\nabc\r\n000;last\r\n\r\n'],
  ["Transfer-Encoding: chunked", "0000000000000000003\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"],
  ["Content-Length:  0003", "abc"],
  ["Content-Length:3", "abc"],
] as const;

test("valid framing in any spelling arrives as one message with framing of our own", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const host = edge.host("terminal-1");
  const client = await rawClient(edge.port);
  for (const [line, body] of ACCEPTED) {
    client.send(head("POST /ok HTTP/1.1", `Host: ${host}`, line) + body);
  }
  await upstream.waitForRequests(ACCEPTED.length);
  expect(upstream.requests.map((request) => request.body)).toEqual(ACCEPTED.map(() => "abc"));
  for (const request of upstream.requests) {
    const framing = request.lines.filter((line) =>
      /^(?:content-length|transfer-encoding):/i.test(line),
    );
    expect(["Content-Length: 3", "Transfer-Encoding: chunked"]).toContain(framing.join());
  }
  expect(upstream.bytes.join("")).not.toMatch(/va;lue|0003/);
});

test("an upload that ends before its length is no message at the service", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  const client = await rawClient(edge.port);
  client.send(
    head("POST /short HTTP/1.1", `Host: ${edge.host("terminal-1")}`, "Content-Length: 10") + "abc",
  );
  await upstream.waitUntil(() => (upstream.bytes[0] ?? "").endsWith("abc"));
  client.end();
  await upstream.waitUntil(() => upstream.closed.has(0));
  expect(upstream.requests).toEqual([]);
});
