import fc from "fast-check";
import { expect, test } from "vitest";
import { readRequestHead } from "../../proxy/wire/http1/request-parser.ts";
import { WIRE_LIMITS } from "../support/wire-edge.ts";

const runs = { numRuns: Number(process.env["PROPERTY_RUNS"] ?? 300) };

const requestLine = fc.constantFrom(
  "GET / HTTP/1.1\r\n",
  "POST /a?b HTTP/1.1\r\n",
  "DELETE /x HTTP/1.1\r\n",
  "GET / HTTP/1.0\r\n",
  "POST / HTTP/1.0\r\n",
  "GET  / HTTP/1.1\r\n",
  "GET / HTTP/1.2\r\n",
  "GET /\x80 HTTP/1.1\r\n",
  "get / HTTP/1.1\r\n",
  "GET /#\\ HTTP/1.1\r\n",
  "GET / HTTP/1.1\n",
  "PUT / HTTP/1.1 \r\n",
  "GET\t/ HTTP/1.1\r\n",
);
const field = fc.constantFrom(
  "Host: a\r\n",
  "Content-Length: 3\r\n",
  "Content-Length: 0\r\n",
  "content-length:5\r\n",
  "Content-Length: 3, 3\r\n",
  "Content-Length: 0x3\r\n",
  "Transfer-Encoding: chunked\r\n",
  "Transfer-Encoding: gzip, chunked\r\n",
  "transfer-encoding:chunked\r\n",
  "Transfer-Encoding : chunked\r\n",
  "Connection: close\r\n",
  "Connection: keep-alive, x\r\n",
  "X: y\r\n",
  "X:\t y \t\r\n",
  "X: \xe4\xff\r\n",
  "X:\r\n",
  "X y: 1\r\n",
  ": 1\r\n",
  "nothing\r\n",
  " folded\r\n",
  "X: a\rb\r\n",
  "X: a\nb\r\n",
  "X: a\0b\r\n",
  "X: \x7f\r\n",
  "Expect: 100-continue\r\n",
  "Upgrade: h2c\r\n",
);
const body = fc.constantFrom(
  "",
  "abc",
  "abcde",
  "0\r\n\r\n",
  "3\r\nabc\r\n0\r\n\r\n",
  "3;e=1\r\nabc\r\n0\r\nT: 1\r\n\r\n",
  "03\r\nabc\r\n00\r\n\r\n",
  "x\r\n",
  "3\nabc\r\n0\r\n\r\n",
  "-1\r\n",
  "3\r\nabcd\r\n",
);
const request = fc
  .tuple(
    requestLine,
    fc.array(field, { maxLength: 5 }),
    fc.constantFrom("\r\n", "\r\n", "\r\n", "\n", ""),
    body,
  )
  .map(([line, fields, end, content]) => line + fields.join("") + end + content);
const stream = fc
  .array(
    fc.oneof(
      { weight: 4, arbitrary: request },
      fc.constantFrom("\r\n", "\n", "\0", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ),
    {
      minLength: 1,
      maxLength: 4,
    },
  )
  .map((parts) => parts.join(""));

test("readRequestHead() never changes its mind: a prefix is undecided, or says what the whole says", () => {
  fc.assert(
    fc.property(stream, (text) => {
      const bytes = Buffer.from(text, "latin1");
      const whole = readRequestHead(bytes, WIRE_LIMITS);
      for (let length = 0; length <= bytes.length; length++) {
        const part = readRequestHead(bytes.subarray(0, length), WIRE_LIMITS);
        if (part.kind === "head") {
          expect(part).toEqual(whole);
        } else if (part.kind === "refused") {
          expect(whole.kind).toBe("refused");
        }
      }
    }),
    runs,
  );
});
