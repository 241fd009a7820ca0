import fc from "fast-check";
import { expect, test } from "vitest";
import { parseAnswer, type ParsedAnswer } from "../support/answer-events.ts";

const runs = { numRuns: Number(process.env["PROPERTY_RUNS"] ?? 300) };

/** Pieces of answers, well formed and not, to be strung together. */
const fragment = fc.constantFrom(
  "HTTP/1.1 200 OK\r\n",
  "HTTP/1.0 200 OK\r\n",
  "HTTP/1.1 204 No Content\r\n",
  "HTTP/1.1 100 Continue\r\n\r\n",
  "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n",
  "HTTP/1.1 101 Switching Protocols\r\n",
  "Upgrade: websocket\r\n",
  "Content-Length: 3\r\n",
  "Content-Length: 0\r\n",
  "content-length: 12\r\n",
  "Transfer-Encoding: chunked\r\n",
  "Connection: close\r\n",
  "X: y\r\n",
  "\r\n",
  "\r\n",
  "abc",
  "3\r\nabc\r\n",
  "0\r\n\r\n",
  "0\r\nT: 1\r\n\r\n",
  "5;e=1\r\nhello\r\n",
  "\n",
  "\r",
  " ",
  "\0",
  ":",
  "\xff",
  "zz\r\n",
);
const answer = fc.array(fragment, { minLength: 1, maxLength: 14 }).map((parts) => parts.join(""));
const noise = fc
  .uint8Array({ maxLength: 200 })
  .map((bytes) => Buffer.from(bytes).toString("latin1"));
const method = fc.constantFrom("GET", "HEAD", "POST");

/** What must not depend on how the bytes are cut; the words of a failure may. */
function outcome(result: ParsedAnswer): unknown {
  return { ...result, failure: result.failure !== null };
}

function cutAt(text: string, cuts: readonly number[]): string[] {
  const points = [...new Set(cuts.map((cut) => cut % (text.length + 1)))].sort((a, b) => a - b);
  const pieces: string[] = [];
  let from = 0;
  for (const point of [...points, text.length]) {
    pieces.push(text.slice(from, point));
    from = point;
  }
  return pieces;
}

test("AnswerParser gives the same result however the bytes are cut into reads", () => {
  fc.assert(
    fc.property(
      fc.oneof(
        answer,
        noise,
        answer.map((text) => `HTTP/1.1 200 OK\r\n${text}`),
      ),
      method,
      fc.boolean(),
      fc.boolean(),
      fc.array(fc.nat(400), { maxLength: 8 }),
      (text, verb, upgrade, eof, cuts) => {
        const whole = outcome(parseAnswer(verb, [text], eof, upgrade));
        expect(outcome(parseAnswer(verb, cutAt(text, cuts), eof, upgrade))).toEqual(whole);
        expect(outcome(parseAnswer(verb, text.split(""), eof, upgrade))).toEqual(whole);
      },
    ),
    runs,
  );
});

test("AnswerParser returns every body that was framed by length or by chunks", () => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ minLength: 1, maxLength: 50 }), { maxLength: 6 }),
      fc.array(fc.nat(600)),
      (chunks, cuts) => {
        const parts = chunks.map((chunk) => Buffer.from(chunk).toString("latin1"));
        const body = parts.join("");
        const framed = parts.map((part) => `${part.length.toString(16)}\r\n${part}\r\n`).join("");
        for (const text of [
          `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
          `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${framed}0\r\n\r\n`,
        ]) {
          expect(parseAnswer("GET", cutAt(text, cuts))).toMatchObject({
            body,
            ended: true,
            reusable: true,
            failure: null,
          });
        }
      },
    ),
    runs,
  );
});
