import { connect } from "node:net";
import { describe, expect, test } from "vitest";
import { eventually, FAKE_WORKER, startPool } from "../support/exec-pool.ts";
import { startSmallEdge, type SmallEdgeOptions } from "../support/exec-edge.ts";

async function start(options: SmallEdgeOptions = {}, container = {}) {
  const { pool } = await startPool(container, { entry: FAKE_WORKER });
  await pool.warm("a");
  const edge = await startSmallEdge(pool, options);
  const outcome = async () => {
    const ended = await eventually(() => edge.outcomes.at(-1));
    return ended.outcome;
  };
  return { pool, edge, outcome };
}

describe("dispatch()", () => {
  test("relays the worker's answer and strips the outcome and hop-by-hop fields", async () => {
    const { edge, outcome } = await start();
    const answer = await fetch(`${edge.origin}/pid`);
    expect(answer.status).toBe(200);
    expect(answer.headers.has("x-hoody-hook-outcome")).toBe(false);
    expect(await outcome()).toBe("answered");
    const echo = await fetch(`${edge.origin}/echo`, { method: "POST", body: "body" });
    expect(await echo.text()).toBe("body");
    expect(echo.headers.getSetCookie()).toEqual(["a=1", "b=2"]);
    expect(echo.headers.has("proxy-connection")).toBe(false);
    expect(echo.headers.get("x-keep")).toBe("2");
  });

  test("hands over the envelope and the client's own bytes", async () => {
    const { edge } = await start({ script: { subdomain: "s", execId: "7", path: "/A-b.js" } });
    const answer = await fetch(`${edge.origin}/fields?q=%5C`, {
      headers: { "x-hoody-hook-auth": "forged", "x-own": "1" },
    });
    const seen = (await answer.json()) as {
      url: string;
      fields: string[];
      head: { envelope: object };
    };
    const field = (name: string): string[] =>
      seen.fields.flatMap((text, i) =>
        i % 2 === 0 && text.toLowerCase() === name ? [seen.fields[i + 1] ?? ""] : [],
      );
    expect(seen.url).toBe("/fields?q=%5C");
    expect(seen.fields.filter((text) => /^x-hoody-/i.test(text))).toEqual([]);
    expect(seen.head.envelope).toMatchObject({
      kind: "hook",
      subdomain: "s",
      execId: "7",
      scriptPath: "/A-b.js",
      path: "/fields",
      clientAddress: "192.0.2.7",
    });
    expect(field("x-own")).toEqual(["1"]);
  });

  test.for([
    ["answered", 200, "answered"],
    ["answered", 403, "denied"],
    ["answered", 500, "answered"],
    ["forwarded", 404, "forwarded"],
    ["script_error", 500, "script_error"],
    ["not_found", 404, "not_found"],
    ["nonsense", 200, "answered"],
    ["", 401, "denied"],
  ] as const)("names the outcome %s with status %i as %s", async ([word, status, expected]) => {
    const { edge, outcome } = await start();
    expect((await fetch(`${edge.origin}/outcome?word=${word}&status=${status}`)).status).toBe(
      status,
    );
    expect(await outcome()).toBe(expected);
    await eventually(() => edge.records.length === 1);
    expect(edge.records[0]).toMatchObject({ outcome: expected, status, hook_id: "rule-1" });
  });

  test("answers 504 `hook timeout` itself when the worker does not", async () => {
    const { edge, outcome } = await start({ timeoutMs: 300 });
    const before = performance.now();
    const answer = await fetch(`${edge.origin}/never`);
    const took = performance.now() - before;
    expect(answer.status).toBe(504);
    expect(await answer.json()).toMatchObject({ error: "hook timeout", code: "HOOK_TIMEOUT" });
    expect(answer.headers.get("cache-control")).toBe("no-store");
    expect(answer.headers.get("x-hoody-hook-audit")).toMatch(/^[0-9a-f-]{36}$/);
    expect(await outcome()).toBe("timed_out");
    expect(took).toBeGreaterThan(290);
    expect(took).toBeLessThan(3000);
  });

  test("gives a blocked worker's client its 504 and others of the container a spare", async () => {
    const { edge, pool } = await start({ timeoutMs: 500 }, { cpuMs: 3000 });
    const answer = await fetch(`${edge.origin}/spin?ms=60000`);
    expect(answer.status).toBe(504);
    const next = await fetch(`${edge.origin}/pid`);
    expect(next.status).toBe(200);
    await eventually(() => pool.status().workers.length === 1);
  });

  test("cuts an answer that is still running at the deadline", async () => {
    const { edge, outcome } = await start({ timeoutMs: 400 });
    const answer = await fetch(`${edge.origin}/drip`);
    expect(answer.status).toBe(200);
    await expect(answer.text()).rejects.toThrow();
    expect(await outcome()).toBe("truncated");
  });

  test("answers 500 HOOK_CRASHED when the worker dies before its head, once", async () => {
    const { edge, outcome, pool } = await start();
    await fetch(`${edge.origin}/pid`); // leaves a kept-alive connection behind
    const generation = (await pool.endpoint("a")).generation;
    const answer = await fetch(`${edge.origin}/exit?code=1`);
    expect(answer.status).toBe(500);
    const body = (await answer.json()) as { code: string; auditId: string };
    expect(body.code).toBe("HOOK_CRASHED");
    expect(answer.headers.get("x-hoody-hook-audit")).toBe(body.auditId);
    expect(await outcome()).toBe("crashed");
    expect((await pool.endpoint("a")).generation).toBe(generation + 1);
    expect((await fetch(`${edge.origin}/pid`)).status).toBe(200);
  });

  test("answers 500 HOOK_CRASHED when it is killed for cpuMs before the deadline", async () => {
    const { edge } = await start({ timeoutMs: 20_000 }, { cpuMs: 400 });
    const answer = await fetch(`${edge.origin}/spin?ms=60000`);
    expect(answer.status).toBe(500);
    expect(((await answer.json()) as { code: string }).code).toBe("HOOK_CRASHED");
  });

  test("cuts the client when the worker dies or breaks off after its head", async () => {
    const { edge, outcome } = await start();
    const crashed = await fetch(`${edge.origin}/head-then-exit`);
    await expect(crashed.text()).rejects.toThrow();
    expect(await outcome()).toBe("crashed");
    const broken = await fetch(`${edge.origin}/half`);
    await expect(broken.text()).rejects.toThrow();
    await eventually(() => edge.outcomes.length === 2);
    expect(edge.outcomes[1]?.outcome).toBe("script_error");
  });

  test("answers 502 when no worker can be had, and 503 when there is no exec host", async () => {
    const { pool } = await startPool({}, { entry: "/nowhere/worker.ts" });
    const broken = await startSmallEdge(pool);
    const answer = await fetch(`${broken.origin}/x`);
    expect(answer.status).toBe(502);
    expect(((await answer.json()) as { code: string }).code).toBe("EXEC_UNREACHABLE");
    const none = await startSmallEdge(pool, { place: { kind: "none" } });
    const refused = await fetch(`${none.origin}/x`);
    expect(refused.status).toBe(503);
    expect(await refused.json()).toMatchObject({ error: "hook target unavailable" });
    const remote = await startSmallEdge(pool, {
      place: { kind: "remote", host: "127.0.0.1", port: 9, secret: "s".repeat(16) },
    });
    expect((await fetch(`${remote.origin}/x`, { method: "POST", body: "b" })).status).toBe(502);
  });

  test("tells the worker that the client left", async () => {
    const { edge, outcome, pool } = await start({ timeoutMs: 20_000 });
    const client = connect(edge.port, "127.0.0.1");
    client.write("GET /drip HTTP/1.1\r\nHost: x\r\n\r\n");
    await new Promise((resolve) => client.once("data", resolve));
    client.destroy();
    expect(await outcome()).toBe("client_gone");
    await eventually(() => pool.status().workers.every((worker) => worker.active === 0));
  });

  test("goes on without an audit record when the queue is full", async () => {
    const { edge } = await start({ maxQueue: 0, timeoutMs: 200 });
    const answer = await fetch(`${edge.origin}/never`);
    expect(answer.headers.get("x-hoody-hook-audit")).toBe("none");
    expect(edge.records).toEqual([]);
  });
});

describe("callExec()", () => {
  test("relays, and answers 500 and 502 in the words of an ordinary call", async () => {
    const { edge } = await start({ ordinary: true });
    expect((await fetch(`${edge.origin}/pid`)).status).toBe(200);
    const crashed = await fetch(`${edge.origin}/exit?code=1`);
    expect(crashed.status).toBe(500);
    expect(((await crashed.json()) as { code: string }).code).toBe("SCRIPT_ERROR");
    expect(crashed.headers.has("x-hoody-hook-audit")).toBe(false);
    const none = await startSmallEdge(null, { ordinary: true });
    expect((await fetch(`${none.origin}/x`)).status).toBe(503);
  });
});
