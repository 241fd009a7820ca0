import { stat } from "node:fs/promises";
import { expect, test } from "vitest";
import { systemClock } from "../../policy/kernel/clock.ts";
import { startHooksGateway } from "../support/agenthooks-gateway.ts";

const WRITE = {
  event: "PreToolUse",
  matcher: "Bash",
  command: "exit 0",
  name: "Nothing",
  description: "Does nothing.",
};

test("begin-write answers with a nonce bound to session, operation and scope", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const before = Date.now();
  const { status, body } = await gateway.call("POST", "/hooks/begin-write", {
    session_id: session.id,
    op: "upsert",
    scope: "project",
  });
  expect(status).toBe(200);
  expect(body).toEqual({
    nonce: expect.stringMatching(/^[0-9a-f]{32}$/) as unknown,
    op: "upsert",
    scope: "project",
    session_id: session.id,
    expires_at: expect.any(String) as unknown,
  });
  const life = Date.parse(String(body["expires_at"])) - before;
  expect(life).toBeGreaterThan(290_000);
  expect(life).toBeLessThan(310_000);
});

test("begin-write refuses unknown sessions, operations and scopes", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const begin = (fields: object) =>
    gateway.call("POST", "/hooks/begin-write", {
      session_id: session.id,
      op: "upsert",
      scope: "project",
      ...fields,
    });
  expect((await begin({ session_id: "sess_none" })).status).toBe(404);
  expect((await begin({ op: "erase" })).status).toBe(400);
  expect((await begin({ scope: "everywhere" })).status).toBe(400);
  expect((await begin({ scope: undefined })).status).toBe(400);
  const atHome = await gateway.open({ cwd: gateway.home });
  expect((await begin({ session_id: atHome.id })).status).toBe(400);
});

test("a nonce is refused for any other operation, session or scope, and no byte changes", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const other = await gateway.open();
  const put = (nonce: string | undefined, fields: object = {}) =>
    gateway.call("PUT", "/hooks", { session_id: session.id, nonce, ...WRITE, ...fields });
  const reasons: unknown[] = [];
  const push = (answer: { status: number; body: Record<string, unknown> }) => {
    expect(answer.status).toBe(400);
    reasons.push((answer.body["details"] as { reason?: string }).reason);
  };
  push(await put(undefined));
  push(await put("0".repeat(32)));
  push(await put("__proto__"));
  push(await put(await gateway.nonce(session, "toggle", "project")));
  push(await put(await gateway.nonce(other, "upsert", "project")));
  push(await put(await gateway.nonce(session, "upsert", "project"), { scope: "user" }));
  expect(reasons).toEqual(["missing", "unknown", "unknown", "op", "session", "scope"]);
  await expect(stat(gateway.projectFile)).rejects.toThrow("ENOENT");
  await expect(stat(gateway.userFile)).rejects.toThrow("ENOENT");
});

test("a nonce of another operation is not spent by the attempt, a fitting one is, whatever comes of it", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const nonce = await gateway.nonce(session, "upsert", "project");
  await gateway.call("DELETE", "/hooks", { session_id: session.id, nonce, event: "Stop" });
  const bad = await gateway.call("PUT", "/hooks", {
    session_id: session.id,
    nonce,
    ...WRITE,
    timeout: 1.5,
  });
  expect(bad.status).toBe(400);
  const spent = await gateway.call("PUT", "/hooks", {
    session_id: session.id,
    nonce,
    ...WRITE,
    name: "",
  });
  expect(spent.body).toMatchObject({ details: { field: "name" } });
  const again = await gateway.call("PUT", "/hooks", { session_id: session.id, nonce, ...WRITE });
  expect(again.body).toMatchObject({ details: { field: "nonce", reason: "used" } });
});

test("a nonce sent twice at the same instant works once", async () => {
  const gateway = await startHooksGateway();
  for (let round = 0; round < 10; round++) {
    const session = await gateway.open();
    const nonce = await gateway.nonce(session, "upsert", "project");
    const answers = await Promise.all(
      Array.from({ length: 8 }, () =>
        gateway.call("PUT", "/hooks", { session_id: session.id, nonce, ...WRITE }),
      ),
    );
    expect(answers.filter(({ status }) => status === 200).length).toBe(1);
    expect(answers.filter(({ status }) => status === 400).length).toBe(7);
  }
});

test("a nonce expires, and closing its session voids it", async () => {
  let offset = 0;
  const clock = { ...systemClock, now: () => systemClock.now() + offset };
  const gateway = await startHooksGateway({ clock });
  const session = await gateway.open();
  const old = await gateway.nonce(session, "upsert", "project");
  offset = 300_001;
  const late = await gateway.call("PUT", "/hooks", {
    session_id: session.id,
    nonce: old,
    ...WRITE,
  });
  expect(late.body).toMatchObject({ details: { reason: "expired" } });
  const voided = await gateway.nonce(session, "upsert", "project");
  session.close();
  const gone = await gateway.call("PUT", "/hooks", {
    session_id: session.id,
    nonce: voided,
    ...WRITE,
  });
  expect(gone.status).toBe(404);
});

test("a session keeps its newest 64 nonces", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const first = await gateway.nonce(session, "upsert", "project");
  for (let i = 0; i < 64; i++) {
    await gateway.nonce(session, "toggle", "project");
  }
  const answer = await gateway.call("PUT", "/hooks", {
    session_id: session.id,
    nonce: first,
    ...WRITE,
  });
  expect(answer.body).toMatchObject({ details: { reason: "unknown" } });
});
