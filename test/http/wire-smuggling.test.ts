import { describe, expect, test } from "vitest";
import { rawClient, rawExchange } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";
import { startWireEdge } from "../support/wire-edge.ts";

/** Requests that two readers could split differently, or not understand at all: 400, closed, nothing upstream. */
const REFUSED: [string, string][] = [
  [
    "Content-Length and Transfer-Encoding",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  ],
  [
    "Transfer-Encoding and Content-Length",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
  ],
  [
    "two equal Content-Length lines",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
  ],
  [
    "two different Content-Length lines",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
  ],
  ["a list of lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx"],
  ["a signed length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx"],
  ["a hex length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\nx"],
  ["an endless length", `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${"9".repeat(30)}\r\n\r\nx`],
  ["an empty length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\nx"],
  ["another coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n"],
  [
    "a coding before chunked",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
  ],
  [
    "a coding behind chunked",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
  ],
  [
    "identity",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx",
  ],
  [
    "chunked twice",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  ],
  [
    "chunked with a tab inside",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
  ],
  [
    "a quoted coding",
    'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
  ],
  ["an empty coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n"],
  [
    "chunks in HTTP/1.0",
    "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  ],
  [
    "a blank before the colon",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
  ],
  ["a blank before the first name", "GET / HTTP/1.1\r\n Host: a\r\n\r\n"],
  ["a continuation line", "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n"],
  [
    "a continued coding",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
  ],
  ["bare LF lines", "GET / HTTP/1.1\nHost: a\n\n"],
  ["one bare LF", "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"],
  ["a bare CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n"],
  ["NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"],
  ["NUL in a name", "GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n"],
  ["no name", "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n"],
  ["no colon", "GET / HTTP/1.1\r\nHost: a\r\nnothing\r\n\r\n"],
  ["HTTP/2.0 in the request line", "GET / HTTP/2.0\r\nHost: a\r\n\r\n"],
  ["HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n"],
  ["HTTP/0.9", "GET / HTTP/0.9\r\nHost: a\r\n\r\n"],
  ["no version", "GET /\r\nHost: a\r\n\r\n"],
  ["a blank in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"],
  ["a control character in the target", "GET /a\x01b HTTP/1.1\r\nHost: a\r\n\r\n"],
  ["a high byte in the target", "GET /\xe4 HTTP/1.1\r\nHost: a\r\n\r\n"],
  ["a blank behind the version", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"],
  ["an unknown method token", "G@T / HTTP/1.1\r\nHost: a\r\n\r\n"],
  ["the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
  ["CONNECT", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"],
];

describe("requests that cannot be read", () => {
  test.for(REFUSED)("the edge refuses %s with 400 and sends nothing on", async ([, bytes]) => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port);
    const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    const answer = await rawExchange(edge.port, bytes + smuggled);
    expect(answer).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
    expect(answer).toContain('"statusCode":400');
    expect(answer.match(/HTTP\/1\.1 /g)).toHaveLength(1);
    expect(answer.toLowerCase()).toContain("connection: close");
    expect(upstream.bytes).toEqual([]);
  });
});

/** Chunked bodies that go wrong after their head was read. */
const BAD_CHUNKS: [string, string][] = [
  ["a size that is no hex", "3\r\nabc\r\nzz\r\n"],
  ["a size with 0x", "0x3\r\nabc\r\n0\r\n\r\n"],
  ["a signed size", "+3\r\nabc\r\n0\r\n\r\n"],
  ["a size behind a blank", " 3\r\nabc\r\n0\r\n\r\n"],
  ["a size ended by LF", "3\nabc\r\n0\r\n\r\n"],
  ["a chunk longer than its size", "3\r\nabcd\r\n0\r\n\r\n"],
  ["a chunk ended by LF", "3\r\nabc\n0\r\n\r\n"],
  ["an extension with LF", "3;a\nb\r\nabc\r\n0\r\n\r\n"],
  ["an overflowing size", "fffffffffffffffff\r\nabc\r\n0\r\n\r\n"],
  ["a folded trailer", "3\r\nabc\r\n0\r\nX: a\r\n b\r\n\r\n"],
];

describe("chunked uploads that break", () => {
  test.for(BAD_CHUNKS)("the edge ends both connections at %s", async ([, chunks]) => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.send("POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    await upstream.waitUntil(() => (upstream.bytes[0] ?? "").includes("\r\n\r\n"));
    client.send(`${chunks}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n`);
    const answer = await client.closed();
    expect(answer === "" || answer.startsWith("HTTP/1.1 400 ")).toBe(true);
    await upstream.waitUntil(() => upstream.closed.has(0));
    expect(upstream.requests).toEqual([]);
    expect(upstream.sockets).toHaveLength(1);
    expect(upstream.bytes[0]).not.toContain("smuggled");
  });
});

describe("framing of what is sent on", () => {
  const methods = [
    "DELETE",
    "OPTIONS",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "PROPFIND",
    "REPORT",
  ];
  test.for(methods)(
    "a chunked %s over kept-alive connections arrives as exactly one message",
    async (method) => {
      const upstream = await recordingUpstream((request) =>
        request.method === "HEAD"
          ? "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
          : "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
      );
      const edge = await startWireEdge(upstream.port);
      const client = await rawClient(edge.port);
      const hidden = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
      for (let round = 1; round <= 3; round++) {
        const chunk = `${hidden.length.toString(16)}\r\n${hidden}\r\n`;
        client.send(
          `${method} /n${round} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${chunk}0\r\n\r\n`,
        );
        await upstream.waitForRequests(round);
        await client.waitFor(new RegExp(`(HTTP/1\\.1 200[^]*?){${round}}`));
      }
      expect(upstream.requests.map((request) => request.target)).toEqual(["/n1", "/n2", "/n3"]);
      expect(upstream.requests.every((request) => request.body === hidden)).toBe(true);
      expect(upstream.sockets).toHaveLength(1);
    },
  );

  test("a body with a length keeps it, a missing body of POST is told as 0, others are not framed", async () => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    const send = async (bytes: string, count: number): Promise<void> => {
      client.send(bytes);
      await upstream.waitForRequests(count);
      await client.waitFor(new RegExp(`(ok[^]*?){${count}}`));
    };
    await send("DELETE /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 1);
    await send("POST /2 HTTP/1.1\r\nHost: a\r\n\r\n", 2);
    await send("PUT /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 3);
    await send("GET /4 HTTP/1.1\r\nHost: a\r\n\r\n", 4);
    const framing = upstream.requests.map((request) =>
      request.lines.filter((line) => /^(content-length|transfer-encoding|connection)/i.test(line)),
    );
    expect(framing).toEqual([
      ["Content-Length: 3"],
      ["Content-Length: 0"],
      ["Content-Length: 0"],
      [],
    ]);
    expect(upstream.requests[0]?.body).toBe("abc");
  });

  test("Connection cannot name framing, Host or the edge's own fields away", async () => {
    const upstream = await recordingUpstream();
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    client.send(
      "POST / HTTP/1.1\r\nHost: a\r\nConnection: close, Host, Content-Length, X-Real-IP, X-Forwarded-For, X-Hop\r\n" +
        "X-Hop: 1\r\nX-Keep: 2\r\nContent-Length: 3\r\n\r\nabc",
    );
    await client.closed();
    expect(upstream.requests[0]?.lines).toEqual([
      "Host: a",
      "X-Keep: 2",
      "X-Real-IP: 127.0.0.1",
      "X-Forwarded-For: 127.0.0.1",
      "X-Forwarded-Proto: http",
      "Content-Length: 3",
    ]);
  });

  test("pipelined requests are answered in order, one upstream request each", async () => {
    const upstream = await recordingUpstream((request) => {
      const body = `<${request.target}>`;
      return `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    });
    const edge = await startWireEdge(upstream.port);
    const client = await rawClient(edge.port);
    const targets = Array.from({ length: 60 }, (_, index) => `/p${index}`);
    client.send(targets.map((target) => `GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`).join(""));
    const answer = await client.waitFor("</p59>");
    expect([...answer.matchAll(/<(\/p\d+)>/g)].map((match) => match[1])).toEqual(targets);
    expect(upstream.requests.map((request) => request.target)).toEqual(targets);
  });
});
