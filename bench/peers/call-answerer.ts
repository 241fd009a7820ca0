import { createServer } from "node:net";
import { decodeCall } from "../../dispatcher/call-frame.ts";
import { FRAME, FrameReader, FrameWriter } from "../../dispatcher/frames.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { encodeOrder } from "../../dispatcher/order.ts";

/*
 * Stands for a worker whose scripts cost nothing: a call of /hooked is ordered to be forwarded, any other is answered
 * at once. Argument: the path of its socket.
 */

const ANSWER =
  "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1024\r\n" +
  "X-Hoody-Hook-Outcome: answered\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\n" +
  `Connection: keep-alive\r\n\r\n${"x".repeat(1024)}`;

createServer((socket) => {
  const writer = new FrameWriter(socket, systemClock);
  const reader = new FrameReader((type, call, payload) => {
    if (type !== FRAME.call) {
      return;
    }
    const target = decodeCall(payload.toString("latin1"))?.target ?? "";
    if (target.startsWith("/hooked")) {
      writer.text(
        FRAME.order,
        call,
        encodeOrder({ target, fields: null, staged: [], waitedMs: null }),
      );
    } else {
      writer.text(FRAME.answer, call, ANSWER);
    }
  });
  socket.on("data", (chunk: Buffer) => reader.push(chunk, chunk.length));
  socket.on("error", () => {});
}).listen(process.argv[2], () => process.stdout.write('{"ready":true}\n'));
