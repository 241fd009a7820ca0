import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "vitest";
import { ApiError, type Tool, type ToolFrame } from "../../client/client.ts";
import { startAgent } from "../support/client-agent.ts";
import { AGENT_CASES } from "../support/client-cases.ts";

/*
 * The calls that the two agent documents show for the typed client, against a whole gateway. Method names, argument
 * order and the shape of what comes back are theirs.
 */

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
  }
  return found;
}

test("the tool catalogue is listed, whole and page by page, and read one by one", async ({
  expect,
}) => {
  const { agent } = await startAgent();
  const names = (tools: Tool[]) => tools.map((tool) => tool.name);
  // oxlint-disable-next-line typescript/await-thenable -- the documented samples await the iterator
  const iterator = await agent.tools.listToolsIterator({ page: 1, limit: 50 });
  const listed = names(await all(iterator));
  expect(listed).toEqual(expect.arrayContaining(["read_file", "list_dir", "bash", "write_file"]));
  expect(names(await all(agent.tools.listToolsIterator({ page: 1, limit: 3 })))).toEqual(listed);
  expect(names(await all(agent.tools.listToolsIterator()))).toEqual(listed);
  const readOnly = await all(agent.tools.listReadOnlyToolsIterator({ page: 1, limit: 50 }));
  expect(readOnly.every((tool) => tool.read_only)).toBe(true);
  expect(await agent.tools.getTool("bash")).toMatchObject({ name: "bash", read_only: false });
  await expect(agent.tools.getTool("no_such_tool")).rejects.toMatchObject({
    status: 404,
    code: "tool_not_found",
  });
});

test("a tool runs without a session: at once, in the background, as a stream", async ({
  expect,
}) => {
  const { agent, project, put } = await startAgent();
  put("src/a.ts", "export {};\n");
  const scope = { cwd: project, toolMode: "read_only" } as const;

  const listed = await agent.tools.runTool(
    "bash",
    { params: { cmd: `ls -la ${project}`, timeout_ms: 5000 }, allow_mutations: false },
    scope,
  );
  expect(listed).toMatchObject({ tool: "bash", is_error: false });
  expect(listed.content[0]?.text).toContain("src");

  const { job_id } = await agent.tools.runToolAsync(
    "bash",
    {
      params: { cmd: `find ${project} -name '*.ts'`, timeout_ms: 30_000 },
      allow_mutations: false,
    },
    scope,
  );
  await expect
    .poll(async () => (await agent.jobs.getJobResult({ id: job_id })).status, { timeout: 15_000 })
    .toBe("succeeded");
  const result = await agent.jobs.getJobResult({ id: job_id });
  expect(JSON.stringify(result.result)).toContain("a.ts");
  expect(await agent.jobs.getJob({ id: job_id })).toMatchObject({ job_id, status: "succeeded" });
  await agent.jobs.deleteJob({ id: job_id });
  await expect(agent.jobs.getJob({ id: job_id })).rejects.toMatchObject({ status: 404 });

  const frames: ToolFrame[] = [];
  for await (const frame of agent.tools.streamTool(
    "bash",
    { params: { cmd: `wc -l ${project}/src/a.ts`, timeout_ms: 10_000 }, allow_mutations: false },
    scope,
  )) {
    frames.push(frame);
  }
  expect(frames.map((frame) => frame.event)).toEqual(["start", "result", "end"]);
  expect(frames[1]?.data).toMatchObject({ tool: "bash", is_error: false });
});

test("a parked run rejects with its token, and runs with it", async ({ expect }) => {
  const { agent, project } = await startAgent();
  const body = { params: { path: "made.txt", content: "x" } };
  const scope = { cwd: project };
  await expect(agent.tools.runTool("write_file", body, scope)).rejects.toMatchObject({
    status: 400,
    code: "tool_mutation_refused",
  });
  const error: unknown = await agent.tools
    .runTool("write_file", { ...body, confirm: true }, scope)
    .catch((cause: unknown) => cause);
  expect(error).toBeInstanceOf(ApiError);
  expect(error).toMatchObject({ status: 409, code: "tool_needs_confirmation" });
  const confirm_token = String((error as ApiError).details?.["confirm_token"]);
  const done = await agent.tools.runTool(
    "write_file",
    { ...body, confirm: true, confirm_token },
    scope,
  );
  expect(done.is_error).toBe(false);
  expect(readFileSync(join(project, "made.txt"), "utf8")).toBe("x");
});

test("a session lists its tools and runs them", async ({ expect }) => {
  const { agent, project, put } = await startAgent();
  const path = put("src/agent.ts", "one\ntwo\nthree\n");
  const { session_id } = await agent.sessions.create({ cwd: project });
  const tools = await all(agent.tools.listSessionToolsIterator(session_id, { page: 1, limit: 50 }));
  expect(tools.map((tool) => tool.name)).toContain("read_file");
  expect(
    await all(agent.tools.listSessionMCPToolsIterator(session_id, { page: 1, limit: 50 })),
  ).toEqual([]);
  const read = await agent.tools.runSessionTool(session_id, "read_file", {
    params: { path, max_lines: 200 },
  });
  expect(read.content[0]?.text).toContain("two");
  expect((await agent.sessions.listDecisions(session_id)).items).toMatchObject([
    { tool: "read_file", verdict: "allowed" },
  ]);
  expect((await agent.sessions.get(session_id)).session.id).toBe(session_id);
  expect((await agent.sessions.list()).items.map((one) => one.id)).toContain(session_id);
  expect(await agent.sessions.cancel(session_id)).toMatchObject({ status: "ok" });
  await expect(agent.sessions.confirm(session_id, { approved: true })).rejects.toMatchObject({
    status: 409,
    code: "no_pending_gate",
  });
  expect(await agent.sessions.close(session_id)).toMatchObject({ status: "ok" });
  await expect(agent.sessions.get(session_id)).rejects.toMatchObject({ status: 404 });
});

test("lifecycle hooks are written, switched, tried and trusted with the documented calls", async ({
  expect,
}) => {
  const { agent, project } = await startAgent();
  const { session_id } = await agent.sessions.create({ cwd: project });
  const intent = async (op: Parameters<typeof agent.hooks.createWriteIntent>[0]["op"]) => {
    const { nonce } = await agent.hooks.createWriteIntent({ session_id, op, scope: "project" });
    return { session_id, nonce, scope: "project" as const };
  };
  const triple = { event: "PreToolUse", matcher: "Bash", command: "exit 0" } as const;

  const made = await agent.hooks.upsert({
    ...(await intent("upsert")),
    ...triple,
    timeout: 60,
    name: "Log Bash commands",
    description: "Append a line when a Bash command runs.",
  });
  expect(made).toMatchObject({ ok: true, created: true });
  const listed = await agent.hooks.list({ session_id });
  expect(listed.live).toContainEqual(expect.objectContaining(triple));
  expect(listed.session).toBe(session_id);

  const disabled = await agent.hooks.disable({ ...(await intent("toggle")), ...triple });
  expect(disabled).toMatchObject({ ok: true, disabled: true });
  expect(await agent.hooks.enable({ ...(await intent("toggle")), ...triple })).toMatchObject({
    disabled: false,
  });
  expect(await agent.hooks.disableAll(await intent("set_disabled"))).toMatchObject({ value: true });
  expect(await agent.hooks.enableAll(await intent("set_disabled"))).toMatchObject({ value: false });

  const run = await agent.hooks.run({
    session_id,
    event: "PreToolUse",
    match_value: "Bash",
    command: "echo fired",
    timeout: 30,
  });
  expect(run).toMatchObject({ ok: true, exit_code: 0, stdout: "fired\n", fired: true });
  const shipped = listed.live.find((hook) => hook.shipped_id !== undefined)?.shipped_id;
  expect(
    await agent.hooks.test({ session_id, shipped_id: shipped ?? "bash-usage-error" }),
  ).toMatchObject({ ok: true, fired: false });

  expect(await agent.hooks.reload({ session_id })).toMatchObject({ reloaded: true });
  expect(await agent.hooks.reload()).toMatchObject({ reloaded: true });
  const { trust } = await agent.hooks.list({ session_id });
  expect(await agent.hooks.trust({ session_id, hash: trust.hash })).toMatchObject({
    ok: true,
    hash: trust.hash,
  });
  expect(await agent.hooks.delete({ ...(await intent("delete")), ...triple })).toMatchObject({
    ok: true,
    removed: 1,
  });
});

test("rules are replaced on the revision that was read", async ({ expect }) => {
  const { agent, project } = await startAgent();
  const { session_id } = await agent.sessions.create({ cwd: project });
  const before = await agent.hooks.getRules({ cwd: project });
  const revision = before.rules.scopes.find((one) => one.scope === "project")?.revision;
  const write = async (expected_revision: string | undefined) => {
    const { nonce } = await agent.hooks.createWriteIntent({
      session_id,
      op: "rules_set",
      scope: "project",
    });
    return agent.hooks.setRules({
      session_id,
      nonce,
      scope: "project",
      rules: [
        {
          id: "limit-no-rm-rf",
          text: "Never run rm -rf outside the workspace.",
          kind: "limit",
          tools: ["bash"],
          agents: ["general"],
        },
      ],
      timeout_ms: 1500,
      ...(expected_revision === undefined ? {} : { expected_revision }),
    });
  };
  const written = await write(revision);
  expect(written).toMatchObject({ ok: true, scope: "project" });
  await expect(write(revision)).rejects.toMatchObject({ status: 409, code: "revision_conflict" });
  const after = await agent.hooks.getRules({ cwd: project });
  expect(after.rules.live).toMatchObject([{ id: "limit-no-rm-rf", applies_as: "checked" }]);
  expect(
    await agent.sessions.listApplicableRules(session_id, { tool: "bash", agent: "general" }),
  ).toMatchObject({ tool: "bash", count: 1 });
  expect((await agent.changes.get()).tokens["rules"]).toBeTypeOf("string");
});

test("a session's events are streamed, and resumed behind a number", async ({ expect }) => {
  const { agent, project } = await startAgent();
  const { session_id } = await agent.sessions.create({ cwd: project });
  await agent.tools.runSessionTool(session_id, "list_dir", { params: { path: "." } });
  const numbers: string[] = [];
  for await (const event of agent.sessions.stream(session_id, { since: 0 })) {
    numbers.push(event.id);
    if (event.event.includes("tool_result")) {
      break;
    }
  }
  expect(numbers.length).toBeGreaterThan(1);
});

test("the client has methods for exactly the routes that the gateway describes", async ({
  expect,
}) => {
  const gateway = await startAgent();
  const { json } = await gateway.call("GET", "/api/v1/agent/openapi.json");
  const { paths } = json as { paths: Record<string, Record<string, unknown>> };
  const described = Object.entries(paths).flatMap(([path, item]) =>
    Object.keys(item).map((verb) => `${verb.toUpperCase()} ${path}`),
  );
  const forms = described.map(
    (route) => [route, new RegExp(`^${route.replaceAll(/\{[^}]+\}/g, "[^/]+")}$`)] as const,
  );
  // The shortest form that fits: a literal word of a route also fits the argument of another.
  const routeOf = (line: string) =>
    forms
      .filter(([, form]) => form.test(line))
      .toSorted(([a], [b]) => braces(a) - braces(b))[0]?.[0];
  const called = AGENT_CASES.map(([, , line]) =>
    line.replace(" ", " /api/v1/agent/").replace(/\?.*$/, ""),
  );
  expect(called.filter((line) => routeOf(line) === undefined)).toEqual([]);
  const reached = new Set(called.map(routeOf));
  // Streams are not among the cases: the tests above read them.
  reached
    .add("POST /api/v1/agent/tools/{name}/stream")
    .add("GET /api/v1/agent/sessions/{id}/stream");
  expect(described.filter((route) => !reached.has(route))).toEqual([]);
});

function braces(route: string): number {
  return route.split("{").length;
}
