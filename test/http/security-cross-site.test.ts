import { expect, test } from "vitest";
import { ask } from "../support/ask.ts";
import { startTestEdge } from "../support/edge.ts";

/** A page of another origin makes a visitor's browser send what their cookie, address or password admits. */

const SAMPLES: readonly [Record<string, string>, boolean][] = [
  [{}, true],
  [{ "sec-fetch-site": "same-origin", origin: "http://elsewhere.example" }, true],
  [{ "sec-fetch-site": "none" }, true],
  [{ "sec-fetch-site": "cross-site" }, false],
  [{ "sec-fetch-site": "same-site" }, false],
  [{ origin: "http://elsewhere.example" }, false],
  [{ origin: "null" }, false],
  [{ origin: "http://HOST" }, true],
  [{ origin: "https://HOST" }, true],
  [{ origin: "http://HOST.elsewhere.example" }, false],
];

test("the agent and script management take changes from their own origin and from programs only", async () => {
  const edge = await startTestEdge({
    container: { agent: { kind: "embedded" }, exec: { kind: "embedded", manage: "open" } },
  });
  for (const [given, passes] of SAMPLES) {
    for (const [tail, path] of [
      ["agent-1", "/api/v1/agent/tools/read_file/run"],
      ["exec-1", "/api/v1/exec/validate/script"],
    ] as const) {
      const host = edge.host(tail);
      const headers = Object.fromEntries(
        Object.entries(given).map(([name, value]) => [name, value.replace("HOST", host)]),
      );
      const call = {
        method: "POST",
        host,
        path,
        headers: { ...headers, "content-type": "text/plain" },
        body: "{}",
      };
      const { status } = await ask(edge.port, call);
      expect(status === 403, `${tail} ${JSON.stringify(headers)} ${status}`).toBe(!passes);
    }
  }
  const reading = { host: edge.host("exec-1"), headers: { "sec-fetch-site": "cross-site" } };
  const link = await ask(edge.port, { ...reading, path: "/api/v1/exec/health" });
  expect(link.status).toBe(200);
});

test("nothing of it concerns services and scripts, which have rules of their own", async () => {
  const edge = await startTestEdge();
  edge.script("form.js", "module.exports = () => ({ ok: true });");
  const answer = await ask(edge.port, {
    method: "POST",
    host: edge.host("exec-1"),
    path: "/form",
    headers: { origin: "http://elsewhere.example", "sec-fetch-site": "cross-site" },
    body: "a=1",
  });
  expect(answer.status).toBe(200);
});

test("a page of another origin opens no stream of an agent session", async () => {
  const edge = await startTestEdge({ container: { agent: { kind: "embedded" } } });
  const answer = await ask(edge.port, {
    host: edge.host("agent-1"),
    path: "/api/v1/agent/sessions/x/stream",
    headers: {
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
      origin: "http://elsewhere.example",
    },
  });
  expect(answer.status).toBe(403);
});
