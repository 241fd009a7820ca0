import { test } from "vitest";
import { InterposeClient } from "../../client/client.ts";
import { AGENT_CASES, CONTROL_CASES, RUN } from "../support/client-cases.ts";
import { startEcho } from "../support/client-echo.ts";

test.for(CONTROL_CASES)("api: %s sends its request", async ([, call, line, body], { expect }) => {
  const { baseURL, seen } = await startEcho();
  await call(new InterposeClient({ baseURL: `${baseURL}/`, token: "secret-token" }));
  expect(seen).toHaveLength(1);
  const [request] = seen;
  expect(request?.line).toBe(line);
  expect(request?.body).toEqual(body);
  expect(request?.headers["authorization"]).toBe("Bearer secret-token");
  const versioned =
    !line.startsWith("GET") && !line.includes("/aliases") && !line.endsWith("/explain");
  expect(request?.headers["if-match"]).toBe(versioned ? "file:v3" : undefined);
});

test.for(AGENT_CASES)("agent: %s sends its request", async ([, call, line, body], { expect }) => {
  const { baseURL, seen } = await startEcho();
  await call(new InterposeClient({ baseURL }));
  expect(seen.map((request) => request.line)).toEqual([line.replace(" ", " /api/v1/agent/")]);
  expect(seen[0]?.body).toEqual(body);
});

test("agent calls carry their scope as fields, and the agent's own headers, never the token", async ({
  expect,
}) => {
  const control = await startEcho();
  const agent = await startEcho();
  const client = new InterposeClient({
    baseURL: control.baseURL,
    token: "control-token",
    agent: { baseURL: agent.baseURL, headers: { "x-api-key": "k" } },
  });
  await client.agent.tools.runTool("bash", RUN, {
    cwd: "/home/u/p",
    configDir: "/etc/x/.hoody",
    toolMode: "read_only",
    dirScope: "home",
  });
  await client.agent.sessions.create({}, { idempotencyKey: "once" });
  expect(control.seen).toEqual([]);
  expect(agent.seen[0]?.headers).toMatchObject({
    "x-api-key": "k",
    "x-hoody-cwd": "/home/u/p",
    "x-hoody-config-dir": "/etc/x/.hoody",
    "x-hoody-tool-mode": "read_only",
    "x-hoody-dir-scope": "home",
  });
  expect(agent.seen[1]?.headers["idempotency-key"]).toBe("once");
  for (const request of agent.seen) {
    expect(request.headers["authorization"]).toBeUndefined();
  }
});

test("the class has the name that existing programs import too", async ({ expect }) => {
  const { HoodyClient } = await import("../../client/client.ts");
  expect(HoodyClient).toBe(InterposeClient);
});
