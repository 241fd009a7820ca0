import { setTimeout as wait } from "node:timers/promises";
import { onTestFinished, test } from "vitest";
import type { JsonObject, McpServerSetting } from "../../exec-host/agent/seams.ts";
import { decodeMcpServers } from "../../exec-host/agent/mcp-config.ts";
import { codeOf, detailsOf, startGateway, textOf } from "../support/agent-gateway.ts";
import type { TestGateway } from "../support/agent-gateway.ts";
import { startHttpMcp, stdioServer } from "../support/agent-mcp-server.ts";

const P = "/api/v1/agent";

function settings(values: readonly unknown[], held = false): { mcpServers: McpServerSetting[] } {
  return {
    mcpServers: values.map((value) => ({ layer: "user" as const, source: "/s.json", value, held })),
  };
}

async function names(gateway: TestGateway, id: string): Promise<string[]> {
  const { json } = await gateway.call("GET", `${P}/sessions/${id}/tools/mcp`);
  return (json["items"] as { name: string }[]).map((tool) => tool.name);
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

async function ends(pid: number): Promise<boolean> {
  for (let i = 0; i < 300 && alive(pid); i++) {
    await wait(20);
  }
  return !alive(pid);
}

test("a server over standard streams is listed, called, shared, and ended with its last holder", async ({
  expect,
}) => {
  const gateway = await startGateway({
    settings: settings([stdioServer("s", { env: { WHO: "${LANG}" } })]),
  });
  const [one, two] = [await gateway.createSession(), await gateway.createSession()];
  expect(await names(gateway, one)).toEqual([
    "mcp__s___b",
    "mcp__s__b",
    "mcp__s__change",
    "mcp__s__die",
    "mcp__s__echo",
    "mcp__s__env",
    "mcp__s__slow",
  ]);
  const all = await gateway.call("GET", `${P}/sessions/${one}/tools`);
  expect(all.json["items"]).toContainEqual(
    expect.objectContaining({ name: "mcp__s__change", read_only: false }),
  );
  const said = await gateway.runIn(one, "mcp__s__echo", { params: { text: "hi", _hidden: 1 } });
  expect(textOf(said)).toMatch(/^echo \{"text":"hi"\} \d+$/);
  expect(codeOf(await gateway.runIn(one, "mcp__s__echo", { params: {} }))).toBe("bad_request");
  expect(textOf(await gateway.runIn(one, "mcp__s__env", { params: { name: "WHO" } }))).toBe(
    "C.UTF-8",
  );
  const pid = Number(textOf(said).split(" ").at(-1));
  expect(textOf(await gateway.runIn(two, "mcp__s__echo", { params: { text: "hi" } }))).toContain(
    ` ${pid}`,
  );
  await gateway.call("POST", `${P}/sessions/${one}/close`);
  expect(alive(pid)).toBe(true);
  await gateway.call("POST", `${P}/sessions/${two}/close`);
  expect(await ends(pid)).toBe(true);
});

test("MCP tools are in no catalogue and not for runs without a session", async ({ expect }) => {
  const gateway = await startGateway({ settings: settings([stdioServer("s")]) });
  expect(codeOf(await gateway.run("mcp__s__echo", { params: { text: "x" } }))).toBe(
    "tool_not_found",
  );
  expect(codeOf(await gateway.call("GET", `${P}/tools/mcp__s__echo`))).toBe("tool_not_found");
});

test("allowed_tools limits listing and dispatch, require_confirmation parks every call", async ({
  expect,
}) => {
  const gateway = await startGateway({
    settings: settings([stdioServer("s", { allowed_tools: ["echo"], require_confirmation: true })]),
  });
  const id = await gateway.createSession();
  expect(await names(gateway, id)).toEqual(["mcp__s__echo"]);
  expect(codeOf(await gateway.runIn(id, "mcp__s__change", { params: {} }))).toBe("tool_not_found");
  const body = { params: { text: "x" } };
  const parked = await gateway.runIn(id, "mcp__s__echo", body);
  expect(detailsOf(parked)["gate_cause"]).toBe("mcp_confirmation");
  const token = detailsOf(parked)["confirm_token"];
  expect(
    (await gateway.runIn(id, "mcp__s__echo", { ...body, confirm: true, confirm_token: token }))
      .status,
  ).toBe(200);
  const headless = await gateway.createSession({ headless: true });
  expect((await gateway.runIn(headless, "mcp__s__echo", body)).json).toMatchObject({
    is_error: true,
  });
});

test("held and disabled servers are neither started nor listed", async ({ expect }) => {
  const gateway = await startGateway({
    settings: {
      mcpServers: [
        ...settings([stdioServer("a")], true).mcpServers,
        ...settings([stdioServer("b", { enabled: false })]).mcpServers,
      ],
    },
  });
  expect(await names(gateway, await gateway.createSession())).toEqual([]);
});

test("two tools of one full name are both left out, with a warning", async ({ expect }) => {
  const gateway = await startGateway({
    settings: settings([
      stdioServer("a_", { allowed_tools: ["b", "echo"] }),
      stdioServer("a", { allowed_tools: ["_b"] }),
    ]),
  });
  const id = await gateway.createSession();
  expect(await names(gateway, id)).toEqual(["mcp__a___echo"]);
  const { json } = await gateway.call("GET", `${P}/sessions/${id}`);
  expect(json["warnings"]).toEqual([expect.stringContaining("mcp__a___b")]);
});

test("a server that dies drops its tools with a warning, one that never starts never has any", async ({
  expect,
}) => {
  const gateway = await startGateway({
    settings: settings([stdioServer("s"), { name: "none", command: "/nowhere/at/all" }]),
  });
  const id = await gateway.createSession();
  expect((await names(gateway, id)).length).toBe(7);
  expect((await gateway.runIn(id, "mcp__s__die", { params: {} })).json["is_error"]).toBe(true);
  let left = ["?"];
  for (let i = 0; i < 100 && left.length > 0; i++) {
    left = await names(gateway, id);
    await wait(10);
  }
  expect(left).toEqual([]);
  expect(codeOf(await gateway.runIn(id, "mcp__s__echo", { params: { text: "x" } }))).toBe(
    "tool_not_found",
  );
  const { json } = await gateway.call("GET", `${P}/sessions/${id}`);
  expect((json["warnings"] as string[]).toSorted((a, b) => (a < b ? -1 : 1))).toEqual([
    'MCP server "none": the server did not start',
    'MCP server "s": the server ended',
  ]);
});

test("a call that does not come back is cancelled like any run", async ({ expect }) => {
  const gateway = await startGateway({ settings: settings([stdioServer("s")]) });
  const id = await gateway.createSession();
  await names(gateway, id);
  const slow = gateway.runIn(id, "mcp__s__slow", { params: {} });
  for (let i = 0; i < 100 && gateway.server.status()["executions"] !== 1; i++) {
    await wait(10);
  }
  await gateway.call("POST", `${P}/sessions/${id}/cancel`);
  expect((await slow).json["error_code"]).toBe("cancelled");
});

test("a server over streamable HTTP gets its headers", async ({ expect }) => {
  const url = await startHttpMcp(onTestFinished);
  const gateway = await startGateway({
    settings: settings([
      { name: "web", type: "Streamable-HTTP", url, headers: { "x-key": "right" } },
      { name: "bad", type: "http", url },
    ]),
  });
  const id = await gateway.createSession();
  expect(await names(gateway, id)).toContain("mcp__web__echo");
  expect((await names(gateway, id)).some((name) => name.startsWith("mcp__bad"))).toBe(false);
  expect(textOf(await gateway.runIn(id, "mcp__web__echo", { params: { text: "x" } }))).toContain(
    'echo {"text":"x"}',
  );
});

test("decodeMcpServers() leaves out what cannot be used and says why", ({ expect }) => {
  const values = [
    { name: "ok", command: "x" },
    { name: "OK", command: "y" },
    { name: "a__b", command: "x" },
    { name: "MCP", command: "x" },
    { name: "hoody", command: "x" },
    { name: "x", type: "pipe", command: "x" },
    { name: "y" },
    { name: "z", type: "http", url: "ftp://x" },
    { name: "v", command: "x", env: { A: "${MISSING}" } },
    { name: "u", type: "URL", url: "http://x/", headers: { a: "${HERE}!" } },
    "text",
  ] satisfies (JsonObject | string)[];
  const decoded = decodeMcpServers(settings(values).mcpServers, { HERE: "1" });
  expect(decoded.servers.map((server) => server.name)).toEqual(["ok", "u"]);
  expect(decoded.servers[1]?.transport).toEqual({
    kind: "http",
    url: "http://x/",
    headers: { a: "1!" },
  });
  expect(decoded.warnings).toHaveLength(9);
});
