import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startUpstream, type TestUpstream } from "../support/start-upstream.ts";
import { callWorker } from "../support/frame-call.ts";
import { startWorker, WORKER_SECRET, type TestWorker } from "../support/start-worker.ts";

let worker: TestWorker;
let upstream: TestUpstream;

beforeAll(async () => {
  worker = await startWorker();
  upstream = await startUpstream();
});
afterAll(async () => {
  await worker.stop();
  await upstream.stop();
});

const hook = (script: string, call = {}, envelope = {}) =>
  worker.hook(script, call, { upstreamPort: upstream.port, ...envelope });

describe("a hook dispatch", () => {
  test("passes a request through and logs with the audit id", async () => {
    await worker.write(
      "default/1/pass.js",
      `module.exports = async function (req, res, metadata) {
  if (!metadata.hook) { res.writeHead(404); res.end(); return; }
  console.log('seen', metadata.hook.auditId, metadata.hook.origMethod, metadata.hook.origPath);
  await metadata.hook.forward(req, res);
};`,
    );
    const answer = await hook("/pass", {
      method: "POST",
      url: "/api/login?x=1",
      headers: { "X-Real-IP": "203.0.113.7", "content-type": "application/json" },
      body: '{"a":1}',
    });
    expect(answer.status).toBe(200);
    expect(JSON.parse(answer.text)).toEqual({
      method: "POST",
      url: "/api/login?x=1",
      body: '{"a":1}',
    });
    expect(answer.outcome).toBe("forwarded");
    const seen = upstream.received.at(-1);
    expect(seen?.headers["x-real-ip"]).toBe("203.0.113.7");
    expect(seen?.headers.host).toBe("service.example");
    expect(seen?.rawHeaders.some((name) => /^x-hoody-hook-/i.test(name))).toBe(false);
    const line = await worker.untilLogged((entry) => entry.msg.startsWith("seen"));
    expect(line).toMatchObject({
      level: "info",
      script: "default/1/pass.js",
      auditId: "550e8400-e29b-41d4-a716-446655440000",
      msg: "seen 550e8400-e29b-41d4-a716-446655440000 POST /api/login",
    });
  });

  test("shows exactly five data fields in metadata.hook, and the client's address", async () => {
    await worker.write(
      "default/1/show.js",
      `module.exports = (req, res, metadata) => {
  res.end(JSON.stringify({
    keys: Object.keys(metadata.hook), hook: metadata.hook, address: req.socket.remoteAddress,
    fields: Object.keys(req.headers).concat(req.rawHeaders, Object.keys(req.headersDistinct)).filter((n) => /hoody/i.test(n)),
    helpers: ['forward', 'HookUpstreamError'].map((n) => typeof metadata.hook[n]), frozen: Object.isFrozen(metadata.hook),
  }));
};`,
    );
    const answer = await hook("/show", { url: "/a%20b?q=1" });
    expect(JSON.parse(answer.text)).toMatchObject({
      keys: ["auditId", "origMethod", "origPath", "service", "upstream"],
      hook: {
        auditId: "550e8400-e29b-41d4-a716-446655440000",
        origMethod: "GET",
        origPath: "/a%20b",
        service: "terminal",
        upstream: { host: "127.0.0.1", port: upstream.port },
      },
      address: "203.0.113.7",
      fields: [],
      helpers: ["function", "function"],
      frozen: true,
    });
    expect(answer.outcome).toBe("answered");
  });

  test("answers 404 for a missing script and forwards nothing", async () => {
    const before = upstream.connections();
    const answer = await hook("/nowhere");
    expect(answer.status).toBe(404);
    expect(JSON.parse(answer.text)).toMatchObject({ code: "HOOK_SCRIPT_NOT_FOUND" });
    expect(answer.headers["cache-control"]).toBe("no-store");
    expect(answer.outcome).toBe("not_found");
    expect(upstream.connections()).toBe(before);
  });

  test("answers 500 for a throwing script, without what it staged, and logs file and line", async () => {
    await worker.write(
      "default/1/throws.js",
      `module.exports = async (req, res) => {\n  res.setHeader('x-staged', '1');\n  throw new Error('no luck');\n};`,
    );
    const answer = await hook("/throws");
    expect(answer.status).toBe(500);
    expect(JSON.parse(answer.text)).toEqual({
      statusCode: 500,
      error: "HOOK_SCRIPT_ERROR",
      code: "HOOK_SCRIPT_ERROR",
      message: "The hook script failed.",
      auditId: "550e8400-e29b-41d4-a716-446655440000",
    });
    expect(answer.headers["x-staged"]).toBeUndefined();
    expect(answer.headers["x-hoody-hook-audit"]).toBe("550e8400-e29b-41d4-a716-446655440000");
    expect(answer.outcome).toBe("script_error");
    const line = await worker.untilLogged((entry) => entry.msg.includes("no luck"));
    expect(line.msg).toMatch(/default\/1\/throws\.js:3:9/);
  });

  test("answers 504 when the script does not answer in time, and swallows what comes later", async () => {
    await worker.write(
      "default/1/late.js",
      `module.exports = async (req, res) => {
  await new Promise((resolve) => setTimeout(resolve, 400));
  res.writeHead(200); res.write('late'); res.end(); throw new Error('later still');
};`,
    );
    const answer = await hook("/late", {}, { timeoutMs: 100 });
    expect(answer.status).toBe(504);
    expect(JSON.parse(answer.text)).toMatchObject({ error: "hook timeout", code: "HOOK_TIMEOUT" });
    expect(answer.outcome).toBe("timed_out");
    await new Promise((resolve) => setTimeout(resolve, 600));
    expect(worker.isRunning()).toBe(true);
    expect((await hook("/pass")).status).toBe(200);
  });

  test("cuts an answer that outlives the deadline", async () => {
    await worker.write(
      "default/1/drip.js",
      `module.exports = (req, res) => { res.writeHead(200); res.write('first'); return new Promise(() => {}); };`,
    );
    const answer = await hook("/drip", {}, { timeoutMs: 200, auditId: "cut-1" });
    expect(answer).toMatchObject({ status: 200, isCut: true, text: "first" });
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(worker.ended).toContainEqual({ type: "ended", auditId: "cut-1", outcome: "truncated" });
  });

  test("answers 503 for coordinates that no rule may have", async () => {
    const answer = await hook("/pass", {}, { subdomain: "a".repeat(64) });
    expect(answer.status).toBe(503);
    expect(JSON.parse(answer.text)).toMatchObject({ error: "hook target unavailable" });
    expect(answer.outcome).toBe("target_unavailable");
  });

  test("runs a changed script on the very next request", async () => {
    for (let version = 0; version < 20; version++) {
      await worker.write("default/1/hot.js", `module.exports = () => 'v${version % 10}';`);
      expect((await hook("/hot")).text).toBe(`v${version % 10}`);
    }
  });

  test("survives rejections that nobody awaits and throws in timers", async () => {
    await worker.write(
      "default/1/stray.js",
      `module.exports = (req, res) => {
  Promise.reject(new Error('nobody cares'));
  setTimeout(() => { throw new Error('in a timer'); }, 5);
};`,
    );
    const answer = await hook("/stray");
    expect(answer.status).toBe(500);
    await worker.untilLogged((entry) => entry.msg.includes("nobody cares"));
    await worker.untilLogged((entry) => entry.msg.includes("in a timer"));
    expect(worker.isRunning()).toBe(true);
  });
});

describe("the hand-over fields", () => {
  test("are refused without the secret, with a wrong one, and when half of them is missing", async () => {
    const envelope = {
      kind: "ordinary",
      subdomain: null,
      execId: null,
      clientAddress: "203.0.113.7",
      manage: false,
    } as const;
    for (const secret of ["guess", "", `${WORKER_SECRET} `]) {
      const asked = callWorker({ path: worker.socketPath, secret }, envelope);
      await expect(asked).rejects.toThrow("closed");
    }
    await expect(worker.hook("/pass", {}, { service: "" })).rejects.toThrow("closed");
    expect((await worker.hook("/pass", {}, {})).status).toBe(502);
  });
});

describe("an ordinary call", () => {
  test("runs the script of its path with metadata.hook undefined", async () => {
    await worker.write(
      "default/1/users/[id].js",
      `return { hook: typeof metadata.hook, parameters: metadata.parameters, query: metadata.query, ip: metadata.clientIp, method: metadata.method, path: metadata.path };`,
    );
    const answer = await worker.ordinary("/users/12%203?a=1&a=2&b=x+y&id=9");
    expect(answer.status).toBe(200);
    expect(answer.outcome).toBeUndefined();
    expect(JSON.parse(answer.text)).toEqual({
      hook: "undefined",
      parameters: { id: "12 3" },
      query: { a: "2", b: "x y", id: "12 3" },
      ip: "203.0.113.7",
      method: "GET",
      path: "/users/12%203",
    });
  });
});
