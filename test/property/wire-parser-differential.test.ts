import { METHODS, type IncomingMessage, createServer } from "node:http";
import net, { type AddressInfo } from "node:net";
import fc from "fast-check";
import { onTestFinished, test } from "vitest";
import { readTarget } from "../../policy/kernel/target.ts";
import { startWireEdge } from "../support/wire-edge.ts";

const RUNS = Number(process.env["PROPERTY_RUNS"] ?? 400);

interface Seen {
  readonly method: string;
  readonly target: string;
  readonly fields: string;
  body: string;
  complete: boolean;
}

/** What Node's own strict parser (llhttp) makes of bytes: the other reader that ours must never be laxer than. */
async function startReference(): Promise<{ port: number; seen: Seen[] }> {
  const seen: Seen[] = [];
  const server = createServer({
    insecureHTTPParser: false,
    requireHostHeader: false,
    maxHeaderSize: 65_536,
  });
  const take = (request: IncomingMessage) => {
    const entry: Seen = {
      method: request.method ?? "",
      target: request.url ?? "",
      fields: JSON.stringify(request.rawHeaders),
      body: "",
      complete: false,
    };
    seen.push(entry);
    request.setEncoding("latin1");
    request.on("data", (text: string) => (entry.body += text));
    request.on("end", () => (entry.complete = request.complete));
    request.on("error", () => {});
  };
  server.on("request", (request, response) => {
    take(request);
    response.end();
  });
  server.on("checkContinue", (request, response) => {
    take(request);
    response.end();
  });
  server.on("upgrade", (request, socket) => {
    take(request);
    socket.destroy();
  });
  server.on("connect", (_request, socket) => socket.destroy());
  server.on("clientError", (_error, socket) => socket.destroy());
  await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, seen };
}

/** Sends bytes, closes the sending side, and waits until the peer has closed or nothing more can come. */
function deliver(port: number, bytes: Buffer, cuts: readonly number[]): Promise<void> {
  return new Promise((done) => {
    const socket = net.connect({ port, host: "127.0.0.1", noDelay: true, allowHalfOpen: true });
    const timer = setTimeout(() => socket.destroy(), 1500);
    socket.on("error", () => {});
    socket.on("close", () => {
      clearTimeout(timer);
      done();
    });
    socket.on("end", () => socket.destroy());
    socket.resume();
    let at = 0;
    for (const cut of [
      ...cuts.map((c) => c % (bytes.length + 1)).toSorted((a, b) => a - b),
      bytes.length,
    ]) {
      socket.write(bytes.subarray(at, cut));
      at = Math.max(at, cut);
    }
    socket.end();
  });
}

/** Mostly the first list, so that most streams get somewhere; now and then the second. */
function mostly<T>(good: readonly T[], odd: readonly T[], weight = 12): fc.Arbitrary<T> {
  return fc.oneof(
    { weight, arbitrary: fc.constantFrom(...good) },
    { weight: 1, arbitrary: fc.constantFrom(...odd) },
  );
}

const methods = mostly(
  ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "PROPFIND"],
  ["get", "GET ", " GET", "G\tET", ""],
);
const targets = mostly(
  ["/", "/a?b", "*", "http://h/x", "//x", "/a#b"],
  ["/%00", "/a b", "/\x01", "/\x80", ""],
);
const versions = mostly(
  ["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"],
  ["HTTP/1.2", "http/1.1", "HTTP/2.0", "HTTP/1.1 ", "HTTP/01.1", "HTTP/0.9", ""],
);
const ends = mostly(["\r\n"], ["\n", "\r", "\r\r\n", ""], 40);
const fieldLine = fc.tuple(
  mostly(
    [
      "Host: h",
      "X: a",
      "X: \x80\xff",
      "X:",
      "Accept:\t*/*",
      "Connection: keep-alive",
      "Expect: 100-continue",
      "Upgrade: h2c",
      "Cookie: a=b; c",
    ],
    [
      "Content-Length : 5",
      "Transfer-Encoding : chunked",
      "\tTransfer-Encoding: chunked",
      " folded",
      "X: a\x00b",
      "X: a\rb",
      ": x",
      "X",
      "X y: 1",
      "Connection: close",
      "Transfer_Encoding: chunked",
      "X\x80: y",
    ],
  ),
  ends,
);
/** A framing field with the body that it announces, or something else. */
const framed = mostly(
  [
    ["", ""],
    ["Content-Length: 0", ""],
    ["Content-Length: 5", "hello"],
    ["Content-Length:5", "hello"],
    ["content-length: 05", "hello"],
    ["Content-Length: 5 ", "hello"],
    ["Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"],
    ["Transfer-Encoding: Chunked", "05\r\nhello\r\n0\r\n\r\n"],
    ["Transfer-Encoding:\tchunked", "5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n"],
    ["transfer-encoding: chunked ", "1\r\nh\r\n4\r\nello\r\n000\r\n\r\n"],
  ],
  [
    ["Content-Length: +5", "hello"],
    ["Content-Length: 5, 5", "hello"],
    ["Content-Length: 0x5", "hello"],
    ["Content-Length: ", "hello"],
    ["Content-Length: 5\r\nContent-Length: 5", "hello"],
    ["Content-Length: 5\r\nTransfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"],
    ["Transfer-Encoding: chunked\r\nContent-Length: 5", "5\r\nhello\r\n0\r\n\r\n"],
    ["Transfer-Encoding: chunked, chunked", "5\r\nhello\r\n0\r\n\r\n"],
    ["Transfer-Encoding: gzip, chunked", "5\r\nhello\r\n0\r\n\r\n"],
    ["Transfer-Encoding: identity", "hello"],
    ["Transfer-Encoding: chunked\x0b", "5\r\nhello\r\n0\r\n\r\n"],
    ["Transfer-Encoding: chunked", "5\nhello\n0\n\n"],
    ["Transfer-Encoding: chunked", "5 \r\nhello\r\n0\r\n\r\n"],
    ["Transfer-Encoding: chunked", "0x5\r\nhello\r\n0\r\n\r\n"],
    ["Transfer-Encoding: chunked", "5\r\nhelloX\r\n0\r\n\r\n"],
    ["Transfer-Encoding: chunked", "-5\r\nhello\r\n0\r\n\r\n"],
    ["Transfer-Encoding: chunked", "0\r\nX : y\r\n\r\n"],
    ["Transfer-Encoding: chunked", "FFFFFFFFFFFFFFFFF\r\nhello"],
    ["Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n"],
    ["Transfer-Encoding: chunked", '5;a="\r\n"\r\nhello\r\n0\r\n\r\n'],
    ["Content-Length: 3", "hello"],
  ],
  4,
);
const message = fc
  .tuple(
    methods,
    targets,
    versions,
    fc.array(fieldLine, { maxLength: 3 }),
    framed,
    ends,
    mostly([""], ["\r\n", "\n", "\r\n\r\n"]),
  )
  .map(([method, target, version, head, [framing, body], end, before]) => {
    const lines = [`${method} ${target} ${version}\r\n`, ...head.map((line) => line.join(""))];
    return `${before}${lines.join("")}${framing === "" ? "" : `${framing}\r\n`}${end}${body}`;
  });
const mutation = fc.tuple(
  fc.nat(),
  fc.constantFrom("insert", "delete", "replace"),
  fc.constantFrom("\r", "\n", "\0", " ", "\t", ":", "\x80", "0", "a", ";", ","),
);
const stream = fc
  .tuple(
    fc.array(message, { minLength: 1, maxLength: 3 }),
    mostly([0, 0, 0, 1], [2, 3]).chain((count) =>
      fc.array(mutation, { minLength: count, maxLength: count }),
    ),
  )
  .map(([messages, mutations]) => {
    let text = messages.join("");
    for (const [at, kind, char] of mutations) {
      const place = text.length === 0 ? 0 : at % text.length;
      const drop = kind === "insert" ? 0 : 1;
      text = text.slice(0, place) + (kind === "delete" ? "" : char) + text.slice(place + drop);
    }
    return text;
  });

test(
  "no bytes are read as requests that llhttp's strict mode reads otherwise or refuses",
  { timeout: 600_000 },
  async ({ expect }) => {
    const reference = await startReference();
    const ours: Seen[] = [];
    let compared = 0;
    const edge = await startWireEdge(1, {
      onExchange(exchange) {
        const { method, target, fields } = exchange.head;
        const entry: Seen = {
          method,
          target,
          fields: JSON.stringify(fields),
          body: "",
          complete: exchange.body === null,
        };
        ours.push(entry);
        const finish = () =>
          exchange.answer({ status: 200, reason: "OK", fields: [] }, Buffer.alloc(0));
        if (exchange.body === null) {
          finish();
          return;
        }
        exchange.sendContinue();
        exchange.body.start({
          data: (chunk) => ((entry.body += chunk.toString("latin1")), true),
          end() {
            entry.complete = true;
            finish();
          },
          fail() {},
        });
      },
    });
    await fc.assert(
      fc.asyncProperty(stream, fc.array(fc.nat(), { maxLength: 3 }), async (text, cuts) => {
        const bytes = Buffer.from(text, "latin1");
        reference.seen.length = 0;
        ours.length = 0;
        await Promise.all([deliver(reference.port, bytes, []), deliver(edge.port, bytes, cuts)]);
        // Every complete request of ours is llhttp's request at the same place, with the same meaning.
        const complete = ours.filter((entry) => entry.complete);
        for (const [index, entry] of complete.entries()) {
          const reading = readTarget(entry.method, entry.target);
          if (!METHODS.includes(entry.method) || reading.kind === "refused") {
            return; // llhttp ends its reading at methods off its list and at such targets; the pipeline refuses the latter
          }
          compared++;
          const other = reference.seen[index];
          expect({ ...other, complete: true }, JSON.stringify(text)).toEqual(entry);
        }
      }),
      { numRuns: RUNS },
    );
    expect(compared).toBeGreaterThan(RUNS / 4); // enough of the streams say something
  },
);
