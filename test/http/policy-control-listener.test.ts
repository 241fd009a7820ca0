import { connect, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { listenControl } from "../../policy/api/server.ts";
import { CONTAINER, policyApi, TOKEN } from "../support/policy-api.ts";

const HOOKS = `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`;

async function listening() {
  const api = policyApi();
  const listener = await listenControl(api.app, { host: "127.0.0.1", port: 0 });
  onTestFinished(() => listener.close());
  return { ...api, listener };
}

function open(port: number): {
  readonly socket: Socket;
  readonly until: (end: string | null) => Promise<string>;
} {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  let text = "";
  let wake = (): void => {};
  let ended = false;
  socket.on("data", (chunk) => {
    text += chunk.toString("latin1");
    wake();
  });
  socket.on("error", () => {}); // the listener may cut us off; `close` follows
  socket.on("close", () => {
    ended = true;
    wake();
  });
  return {
    socket,
    async until(end) {
      while (!ended && (end === null || !text.includes(end))) {
        await new Promise<void>((resolve) => (wake = resolve));
      }
      return text;
    },
  };
}

const head = (method: string, path: string, ...fields: string[]): string =>
  `${[`${method} ${path} HTTP/1.1`, "Host: x", `Authorization: Bearer ${TOKEN}`, ...fields].join("\r\n")}\r\n\r\n`;

test("bodiless calls with a JSON content type work on one connection", async () => {
  const { listener } = await listening();
  const { socket, until } = open(listener.port);
  const json = "Content-Type: application/json";
  socket.write(head("GET", HOOKS, json));
  await until('"etag":"file:v0"');
  socket.write(head("DELETE", HOOKS, json, "If-Match: file:v0", "Connection: close"));
  expect(await until(null)).toContain('"removed":0');
});

test("a chunked body over the limit is refused before its end and the listener lives on", async () => {
  const { listener } = await listening();
  const { socket, until } = open(listener.port);
  socket.write(head("POST", HOOKS, "If-Match: file:v0", "Transfer-Encoding: chunked"));
  const chunk = `10000\r\n${"x".repeat(65_536)}\r\n`;
  for (let i = 0; i < 24; i++) {
    socket.write(chunk);
  }
  expect(await until("\r\n\r\n")).toContain("HTTP/1.1 413");
  expect((await fetch(`http://127.0.0.1:${listener.port}/healthz`)).status).toBe(200);
});

test("close() ends although a stream is being followed", async () => {
  const { app } = policyApi();
  const listener = await listenControl(app, { host: "127.0.0.1", port: 0 });
  const { socket, until } = open(listener.port);
  socket.write(head("GET", `/api/v1/containers/${CONTAINER}/proxy/audit/stream`));
  expect(await until(": audit records")).toContain("text/event-stream");
  await listener.close();
  await until(null);
});

test("an address that is taken is an error", async () => {
  const { app, listener } = await listening();
  await expect(listenControl(app, { host: "127.0.0.1", port: listener.port })).rejects.toThrow(
    "EADDRINUSE",
  );
});
