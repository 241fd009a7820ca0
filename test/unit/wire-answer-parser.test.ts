import { describe, expect, test } from "vitest";
import { parseAnswer } from "../support/answer-events.ts";

const OK = "HTTP/1.1 200 OK\r\n";

describe("AnswerParser", () => {
  test.for<[string, string]>([
    ["a body with a length", `${OK}Content-Length: 3\r\n\r\nabc`],
    ["chunks", `${OK}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n`],
    [
      "chunks in capitals with extensions",
      `${OK}Transfer-Encoding: CHUNKED\r\n\r\n03;x="y"\r\nabc\r\n00\r\n\r\n`,
    ],
  ])("reads %s", ([, bytes]) => {
    const result = parseAnswer("GET", [bytes]);
    expect(result).toMatchObject({ body: "abc", ended: true, reusable: true, failure: null });
  });

  test("keeps field lines in order, repeats and high bytes included, and trims blanks around values", () => {
    const result = parseAnswer("GET", [
      `${OK}Set-Cookie: a\r\nSET-COOKIE:\t b \r\nX: \xe4\r\nEmpty:\r\nContent-Length: 0\r\n\r\n`,
    ]);
    expect(result.head?.fields).toEqual([
      "Set-Cookie",
      "a",
      "SET-COOKIE",
      "b",
      "X",
      "\xe4",
      "Empty",
      "",
      "Content-Length",
      "0",
    ]);
    expect(result.ended).toBe(true);
  });

  test("hands out interim answers before the final one", () => {
    const early = "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n";
    const result = parseAnswer("GET", [
      `HTTP/1.1 100 Continue\r\n\r\n${early}${early}${OK}Content-Length: 1\r\n\r\nx`,
    ]);
    expect(result.interims.map((head) => head.status)).toEqual([100, 103, 103]);
    expect(result).toMatchObject({ body: "x", ended: true });
  });

  test("gives up on endless interim answers", () => {
    const result = parseAnswer("GET", ["HTTP/1.1 100 Continue\r\n\r\n".repeat(100)]);
    expect(result.failure).toBe("too many interim answers");
  });

  test.for<[string, string, string]>([
    ["HEAD", "HEAD", `${OK}Content-Length: 5\r\n\r\n`],
    ["HEAD with chunks announced", "HEAD", `${OK}Transfer-Encoding: chunked\r\n\r\n`],
    ["204", "GET", "HTTP/1.1 204 No Content\r\n\r\n"],
    ["304 with a length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"],
    ["length 0", "GET", `${OK}Content-Length: 0\r\n\r\n`],
  ])("ends at the head for %s", ([, method, bytes]) => {
    expect(parseAnswer(method, [bytes])).toMatchObject({
      body: "",
      ended: true,
      reusable: true,
      failure: null,
    });
  });

  test("reads to the end of the connection when nothing else says where the body ends", () => {
    expect(parseAnswer("GET", [`${OK}\r\nab`, "c"], true)).toMatchObject({
      body: "abc",
      ended: true,
      reusable: false,
    });
    expect(parseAnswer("GET", ["HTTP/1.0 200 OK\r\n\r\nabc"], true)).toMatchObject({
      body: "abc",
      reusable: false,
    });
  });

  test.for<[string, string, boolean]>([
    ["Connection: close", `${OK}Connection: close\r\nContent-Length: 0\r\n\r\n`, false],
    ["a list with close", `${OK}Connection: x, Close\r\nContent-Length: 0\r\n\r\n`, false],
    ["HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false],
    [
      "HTTP/1.0 with keep-alive",
      "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n",
      true,
    ],
    ["bytes behind the answer", `${OK}Content-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n`, false],
    ["bytes behind the last chunk", `${OK}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nx`, false],
    ["a body behind 204", "HTTP/1.1 204 No Content\r\n\r\nx", false],
    ["a body behind HEAD", `${OK}Content-Length: 1\r\n\r\nx`, false],
  ])("tells whether the connection can be used again: %s", ([name, bytes, reusable]) => {
    const method = name.endsWith("HEAD") ? "HEAD" : "GET";
    expect(parseAnswer(method, [bytes])).toMatchObject({ ended: true, reusable, failure: null });
  });

  test("reads trailers", () => {
    const result = parseAnswer("GET", [
      `${OK}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: 1\r\nY: 2\r\n\r\n`,
    ]);
    expect(result).toMatchObject({ trailers: ["X", "1", "Y", "2"], ended: true, reusable: true });
  });

  test("switches protocols only when that was asked for, to WebSocket", () => {
    const head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n";
    expect(
      parseAnswer("GET", [`${head}Upgrade: WebSocket\r\n\r\nrest`], false, true),
    ).toMatchObject({ rest: "rest", failure: null });
    expect(parseAnswer("GET", [`${head}Upgrade: WebSocket\r\n\r\n`]).failure).not.toBeNull();
    expect(parseAnswer("GET", [`${head}Upgrade: h2c\r\n\r\n`], false, true).failure).not.toBeNull();
    expect(parseAnswer("GET", [`${head}\r\n`], false, true).failure).not.toBeNull();
  });

  test.for<[string, string]>([
    ["no HTTP", "SSH-2.0-OpenSSH\r\n"],
    ["HTTP/2", "HTTP/2 200\r\n\r\n"],
    ["HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n"],
    ["lower case", "http/1.1 200 OK\r\n\r\n"],
    ["a short status", "HTTP/1.1 20 OK\r\n\r\n"],
    ["a long status", "HTTP/1.1 2000 OK\r\n\r\n"],
    ["a status below 100", "HTTP/1.1 099 OK\r\n\r\n"],
    ["a status in exponent form", "HTTP/1.1 1e2 OK\r\n\r\n"],
    ["two blanks before the status", "HTTP/1.1  200 OK\r\n\r\n"],
    ["bare LF", "HTTP/1.1 200 OK\nContent-Length: 0\n\n"],
    ["one bare LF", `${OK}A: b\nContent-Length: 0\r\n\r\n`],
    ["a bare CR", `${OK}A: b\rc\r\nContent-Length: 0\r\n\r\n`],
    ["NUL", `${OK}A: b\0c\r\nContent-Length: 0\r\n\r\n`],
    ["a continuation line", `${OK}A: b\r\n c\r\nContent-Length: 0\r\n\r\n`],
    ["a blank before the colon", `${OK}A : b\r\nContent-Length: 0\r\n\r\n`],
    ["a blank before the first name", `${OK} A: b\r\nContent-Length: 0\r\n\r\n`],
    ["no colon", `${OK}nothing\r\nContent-Length: 0\r\n\r\n`],
    ["no name", `${OK}: b\r\nContent-Length: 0\r\n\r\n`],
    ["both framings", `${OK}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
    ["both framings for HEAD", `${OK}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n`],
    ["different lengths", `${OK}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd`],
    ["a list of lengths", `${OK}Content-Length: 3, 3\r\n\r\nabc`],
    ["a signed length", `${OK}Content-Length: +3\r\n\r\nabc`],
    ["a hex length", `${OK}Content-Length: 0x3\r\n\r\nabc`],
    ["an empty length", `${OK}Content-Length:\r\n\r\nabc`],
    ["a huge length", `${OK}Content-Length: 9999999999999999\r\n\r\nabc`],
    ["another coding", `${OK}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`],
    [
      "chunked twice",
      `${OK}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    ],
    ["chunks in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["a chunk size that is no hex", `${OK}Transfer-Encoding: chunked\r\n\r\nx\r\n`],
    ["a chunk size with 0x", `${OK}Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n`],
    ["a blank chunk size", `${OK}Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n`],
    ["a chunk size behind a blank", `${OK}Transfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n`],
    ["a chunk size ended by LF", `${OK}Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n`],
    [
      "an overflowing chunk size",
      `${OK}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc`,
    ],
    ["a chunk longer than its size", `${OK}Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n`],
    [
      "an endless chunk extension",
      `${OK}Transfer-Encoding: chunked\r\n\r\n3;${"x".repeat(20_000)}\r\nabc\r\n`,
    ],
    ["LF in a chunk extension", `${OK}Transfer-Encoding: chunked\r\n\r\n3;a\nb\r\nabc\r\n`],
    ["a folded trailer", `${OK}Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n`],
    ["a head above the limit", `${OK}A: ${"x".repeat(40_000)}\r\n\r\n`],
    [
      "trailers above the limit",
      `${OK}Transfer-Encoding: chunked\r\n\r\n0\r\nA: ${"x".repeat(40_000)}\r\n\r\n`,
    ],
  ])("calls %s a failure", ([name, bytes]) => {
    const method = name.endsWith("HEAD") ? "HEAD" : "GET";
    const result = parseAnswer(method, [bytes]);
    expect(result.failure).not.toBeNull();
    expect(result.ended).toBe(false);
  });

  test("an answer cut by the end of the connection is no answer", () => {
    for (const bytes of [
      "HTTP/1.1 200",
      `${OK}Content-Length: 3\r\n\r\nab`,
      `${OK}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n`,
      `${OK}Transfer-Encoding: chunked\r\n\r\n0\r\n`,
    ]) {
      expect(parseAnswer("GET", [bytes], true)).toMatchObject({ ended: false, cut: true });
    }
  });
});
