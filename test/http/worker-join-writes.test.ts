import { once } from "node:events";
import net, { type AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { joinWrites } from "../../exec-host/worker/join-writes.ts";

let server: net.Server;
let accepted: Promise<net.Socket>;
let client: net.Socket;

beforeAll(async () => {
  server = net.createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  accepted = once(server, "connection").then(([socket]) => socket as net.Socket);
  client = net.connect((server.address() as AddressInfo).port, "127.0.0.1");
});

afterAll(() => {
  client.destroy();
  server.close();
});

/** What arrives of pieces that are written in one turn. */
async function pass(pieces: readonly (readonly [string | Buffer, BufferEncoding?])[]) {
  const socket = await accepted;
  joinWrites(socket);
  const wanted = Buffer.concat(
    pieces.map(([chunk, encoding]) =>
      typeof chunk === "string" ? Buffer.from(chunk, encoding ?? "utf8") : chunk,
    ),
  );
  const received: Buffer[] = [];
  let bytes = 0;
  const whole = new Promise<void>((resolve) => {
    client.on("data", (chunk: Buffer) => {
      received.push(chunk);
      bytes += chunk.length;
      if (bytes >= wanted.length) {
        client.removeAllListeners("data");
        resolve();
      }
    });
  });
  let done = 0;
  socket.cork();
  for (const [chunk, encoding] of pieces) {
    socket.write(chunk, encoding ?? "utf8", () => done++);
  }
  socket.uncork();
  await whole;
  await new Promise((resolve) => setImmediate(resolve));
  return { same: Buffer.concat(received).equals(wanted), done };
}

const all = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));

describe("joinWrites()", () => {
  it("keeps bytes and order of texts and buffers, and calls back for each", async () => {
    const pieces = [
      ["head\xe9\r\n\r\n", "latin1"],
      [all],
      ["snow ☃ é"],
      ["00ff7f", "hex"],
      [""],
    ] as const;
    expect(await pass(pieces)).toEqual({ same: true, done: pieces.length });
  });

  it("leaves long lists to the runtime", async () => {
    const pieces = [["head\xe9", "latin1"], [Buffer.alloc(100_000, "d")], ["tail ☃"]] as const;
    expect(await pass(pieces)).toEqual({ same: true, done: pieces.length });
  });

  it("joins what the limit just allows", async () => {
    const pieces = [[Buffer.alloc(16_384 - 256, 0xff)], [all]] as const;
    expect(await pass(pieces)).toEqual({ same: true, done: pieces.length });
  });
});
