import { Socket } from "node:net";
import { systemClock } from "../../policy/kernel/clock.ts";
import { createCallServer, type ReceivedCall } from "../../exec-host/worker/call-server.ts";
import { watchResponse } from "../../exec-host/worker/host-response.ts";
import {
  CHANNEL_FD,
  PROTOCOL_VERSION,
  createLineReader,
  decodeParentMessage,
  encodeMessage,
  type StartMessage,
} from "../../exec-host/protocol.ts";

/**
 * A worker without a script engine for tests of the pool and the dispatcher: the request's path says what it
 * does. It checks the secret as the real one does.
 */
const channel = new Socket({ fd: CHANNEL_FD });
const held: Buffer[] = [];
let active = 0;

const spin = (ms: number): void => {
  const end = performance.now() + ms;
  while (performance.now() < end) {
    // busy on purpose
  }
};

const start = (message: StartMessage): void => {
  const isSecret = (presented: Buffer) => presented.toString("latin1") === message.secret;
  const call = ({ head, req, res }: ReceivedCall): void => {
    active++;
    const closed = (): void => {};
    const within = (task: () => boolean): boolean => task();
    res.on("close", () => active--);
    const url = new URL(req.url ?? "/", "http://worker");
    const number = (name: string): number => Number(url.searchParams.get(name));
    switch (url.pathname) {
      case "/pid":
        watchResponse(res, { head: () => "answered", closed, within });
        res.end(String(process.pid));
        return;
      case "/spin":
        spin(number("ms"));
        res.end("spun");
        return;
      case "/exit":
        process.exit(number("code"));
        break;
      case "/never":
        return;
      case "/half":
        res.write("half");
        setTimeout(() => res.destroy(), 50);
        return;
      case "/head-then-exit":
        res.write("half");
        setTimeout(() => process.exit(3), 50);
        return;
      case "/drip": {
        const timer = setInterval(() => res.write("x"), 20);
        res.on("close", () => clearInterval(timer));
        return;
      }
      case "/outcome":
        watchResponse(res, { head: () => url.searchParams.get("word") ?? "", closed, within });
        res.statusCode = number("status");
        res.end("said");
        return;
      case "/buffers":
        for (let i = 0; i < number("mb"); i++) {
          held.push(Buffer.alloc(1_048_576, 1));
        }
        res.end("held");
        return;
      case "/echo":
        res.setHeader("Set-Cookie", ["a=1", "b=2"]);
        res.setHeader("Proxy-Connection", "keep-alive");
        res.setHeader("X-Keep", "2");
        req.pipe(res);
        return;
      case "/fields":
        res.end(JSON.stringify({ url: req.url, fields: req.rawHeaders, head }));
        return;
      case "/log":
        channel.write(
          encodeMessage({
            type: "logs",
            lines: [
              {
                ts: Date.now(),
                level: "info",
                executionId: "e1",
                script: "default/1/a.js",
                auditId: null,
                msg: "hello",
              },
            ],
            dropped: 0,
          }),
        );
        res.end("logged");
        return;
      case "/garbage":
        channel.write("x".repeat(number("bytes")));
        res.end("sent");
        return;
      default:
        res.writeHead(404).end();
    }
  };
  const server = createCallServer({ isSecret, call }, systemClock);
  server.listen(message.socketPath, () => {
    channel.write(encodeMessage({ type: "ready", version: PROTOCOL_VERSION }));
  });
};

const reader = createLineReader((line) => {
  const message = decodeParentMessage(line);
  if (message?.type === "start") {
    start(message);
  } else if (message?.type === "ping") {
    channel.write(encodeMessage({ type: "pong", seq: message.seq, active, heapUsedBytes: 0 }));
  }
});
channel.on("data", (chunk: Buffer) => void reader.push(chunk));
channel.on("close", () => process.exit(0));
